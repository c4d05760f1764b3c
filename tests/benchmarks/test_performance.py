"""The page about performance is what its measurements give, and a new run changes its measured parts alone."""

from __future__ import annotations

import re

import pytest

from benchmarks import picture
from benchmarks.extrapolation import duration, extrapolate, matrix_bytes, shape_of_size
from benchmarks.limits import DISK_READ, STREAMED_EVENTS
from benchmarks.performance import PAGE, PART, PICTURE, RESULTS, SECTIONS, models_of, update
from benchmarks.report import Contender, Findings, Limit, Row, Timing, at_most, close_to_one
from benchmarks.results import Entry, Results


@pytest.fixture(scope="module")
def measured() -> Results:
    return Results.read(RESULTS)


def test_page_is_what_its_measurements_give(measured):
    assert update(PAGE.read_text(), measured) == PAGE.read_text()


def test_page_has_every_measured_part():
    assert sorted(found["name"] for found in PART.finditer(PAGE.read_text())) == sorted(SECTIONS)


def test_text_outside_of_the_marks_stays(measured):
    page = "before\n<!-- measured: limits -->\nold\n<!-- end -->\nafter\n"
    new = update(page, measured)
    assert new.startswith("before\n<!-- measured: limits -->\n")
    assert new.endswith("<!-- end -->\nafter\n")
    assert "old" not in new
    assert measured.limits[0].what in new
    assert update(new, measured) == new


def test_an_unknown_part_is_an_error(measured):
    with pytest.raises(KeyError, match="nonsense"):
        update("<!-- measured: nonsense -->\n<!-- end -->", measured)


@pytest.mark.slow
def test_picture_shows_the_measurements_and_is_deterministic(measured, tmp_path):
    for name in ("one.svg", "two.svg"):
        picture.draw(measured.timings, models_of(measured), tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert not re.search(r"<dc:date>", PICTURE.read_text())


def test_results_survive_the_file(tmp_path):
    findings = Findings(
        [at_most("one", 0.5, 1)],
        [Limit("disk", 100.0, "MB/s")],
        [Timing("sweep", "centre", {"events": 10.0}, 1.0, 0.9, 1.1)],
        [Contender("S", "lme4", None, None, "skipped: no R")],
    )
    results = Results({"cores": 2}, {"a": Entry(findings, True, 0.1, 2.0), "b": Entry(Findings(), False, 0.9, 1.0)})
    results.write(tmp_path / "results.json")
    read = Results.read(tmp_path / "results.json")
    assert read.rows == [("a", Row("one", "0.50 x", "at most 1 x", "ok"))]
    assert (read.limits, read.timings, read.contenders) == (results.limits, results.timings, results.contenders)
    assert (read.quick, read.busy) == (["a"], ["b"])


def test_tolerances_are_two_sided():
    assert [close_to_one("x", ratio, 0.15).verdict for ratio in (0.84, 0.86, 1.14, 1.16)] == [
        "MISSED",
        "ok",
        "ok",
        "MISSED",
    ]


def test_a_billion_events_follow_from_the_measurements():
    shape = shape_of_size(1e9)
    assert matrix_bytes(shape) == pytest.approx(44e9)
    limits = [Limit(STREAMED_EVENTS, 4.0, "million events/s"), Limit(DISK_READ, 1000.0, "MB/s")]
    timings = [
        Timing("fit", f"size: {name}", {"events": events}, seconds, seconds, seconds)
        for name, events, seconds in (("smaller", 1e6, 3.0), ("larger", 1e7, 21.0))
    ]
    timings += [Timing("round", "workers", {"workers": n}, 0.02 + 0.4 / n, 0, 1) for n in (1, 2, 4)]
    lines = {line.what: line.value for line in extrapolate({}, limits, timings)}
    assert lines["reading the files"] == duration(250) == "4.2 minutes"
    assert lines["fit"] == duration(2001)
    assert lines["reading the matrices, if they do not fit in memory"].startswith("44 seconds per sweep")
