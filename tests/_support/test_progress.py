"""What a progress bar says where the error stream is not a terminal."""

import pytest

from fedhlcr._support.progress import Bar
from fedhlcr._support.wording import ROUND


@pytest.mark.parametrize(
    ("total", "steps", "expected"),
    [(None, 1, "federation: 1 round, "), (None, 2, "federation: 2 rounds, "), (1, 1, "federation: 1 of 1 round, ")],
)
def test_units_agree_with_their_number(total, steps, expected, capsys, monkeypatch):
    monkeypatch.setattr("fedhlcr._support.progress.BETWEEN_LINES", -1.0)
    with Bar(total, "federation", ROUND, enabled=True) as bar:
        for _ in range(steps):
            bar.advance({})
    assert capsys.readouterr().err.splitlines()[-1].startswith(expected)


def test_reports_without_a_step_say_nothing_of_the_time_left():
    bar = Bar(10, "reading", ROUND, enabled=True)
    for done in (3, 3, 3):
        bar.reach(done)
    assert bar.seconds_left is None
