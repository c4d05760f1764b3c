"""A description is drawn at the same places by matplotlib and in SVG, and its sides hold what is on them."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

from fedhlcr.figures import svg
from fedhlcr.figures.figure import Mark, Panel, Scale, level_scale
from fedhlcr.plot._drawing import draw

X = np.array([1.0, 3.0, 10.0, 40.0])
Y = np.array([0.0, 4.0, 9.0, 25.0])


@pytest.fixture
def ax():
    figure, own = plt.subplots()
    yield own
    plt.close(figure)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (Scale(0.0, 50.0), Scale(0.0, 30.0)),
        (Scale(1.0, 40.0, kind="log"), Scale(0.0, 25.0, kind="root")),
        (Scale(0.0, 40.0, kind="log", offset=5.0), Scale(-1.0, 26.0, is_reversed=True)),
    ],
    ids=["linear", "log and root", "log of a sum and reversed"],
)
def test_both_renderers_put_a_line_at_the_same_places(ax, x, y):
    panel = Panel(x, y, (Mark("line", "curve", X, Y),))
    draw(panel, ax)
    drawn = ax.transAxes.inverted().transform(ax.transData.transform(ax.lines[0].get_xydata()))
    path = re.search(r'<path class="curve" d="M([^"]+)"', svg.picture(panel))[1]
    places = np.array([point.split() for point in path.split("L")], dtype=float)
    np.testing.assert_allclose(places[:, 0], 100.0 * drawn[:, 0], atol=0.02)
    np.testing.assert_allclose(places[:, 1], 100.0 - 100.0 * drawn[:, 1], atol=0.02)


def test_both_renderers_write_the_same_ticks_of_levels(ax):
    panel = Panel(level_scale(["Oslo", "Rome"]), Scale(0.0, 5.0), (Mark("levels", "own", np.arange(2.0), np.ones(2)),))
    draw(panel, ax)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["Oslo", "Rome"]
    assert [tick.text for tick in svg.ticks_across(panel.x)] == ["Oslo", "Rome"]


def test_sides_without_ends_hold_all_marks_and_their_intervals():
    marks = (Mark("line", "own", X, Y, Y - 3.0, Y + 8.0), Mark("dots", "event", np.array([-7.0]), np.array([1.0])))
    fitted = Panel(Scale(), Scale(0.0), marks).fitted()
    assert fitted.x.low < -7.0 < 40.0 < fitted.x.high
    assert fitted.y.low == 0.0
    assert fitted.y.high > 33.0


def test_a_picture_tells_what_it_shows_and_escapes_names():
    panel = Panel(Scale(label="<b>"), Scale(label="target"), (Mark("line", "own", X, Y),), told='a "line" & more')
    html = svg.frame(panel)
    assert 'role="img" aria-label="a &#34;line&#34; &amp; more"' in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_unknown_ends_of_intervals_are_left_out():
    unknown = np.full(len(X), np.nan)
    drawn = svg.picture(Panel(Scale(), Scale(), (Mark("line", "own", X, Y, unknown, unknown),)))
    assert "band" not in drawn
    assert "nan" not in drawn
