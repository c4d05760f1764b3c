"""The pictures of a report: panels, effects, calibration and residuals, against the model's own figures."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr._support.wording import number
from fedhlcr.analysis.axes import feature_axes
from fedhlcr.analysis.axis_lines import axis_line
from fedhlcr.figures import svg
from fedhlcr.figures.figure import Mark, Panel, Scale
from fedhlcr.figures.palette import color_class
from fedhlcr.report import HeldOut, render_report
from fedhlcr.report.checks import AT_EACH_END, LEVELS, calibrate, in_words, residual_chart
from fedhlcr.report.events import drawn_events, fitted_events
from fedhlcr.report.findings import Findings
from fedhlcr.report.panels import MOST_DOTS, draw_picture
from fedhlcr.report.sections import effect_section
from tests.reports import held_out, recipe_of
from tests.responses import classifier, counter, events


@pytest.fixture(scope="module")
def drawn(model, split):
    return drawn_events(model, held_out(split[1]))


@pytest.fixture(scope="module")
def picture(model, drawn):
    findings = Findings(model)
    return draw_picture(model, findings, drawn)


def places(svg, css):
    """The points of a path, in per cent from the left and from below."""
    path = re.search(rf'class="{css}[^"]*" d="M([^"]*)"', svg)[1]
    points = np.array([point.split() for point in re.split(r"h0M?|L", path) if point], dtype=float)
    return points[:, 0], 100.0 - points[:, 1]


def test_lines_are_those_of_the_model_in_its_units(model, picture, drawn):
    axes = {axis.name: axis for axis in feature_axes(model, drawn.X)}
    for group in picture["groups"]:
        panel = next(panel for panel in group["panels"] if panel.clusters == (0,))
        x, y = places(str(svg.picture(panel.panel)), "line")
        # two ticks give the scale back
        a, b = svg.ticks_of(panel.panel.y)[:2]
        low, high = (float(tick.text.replace("−", "-")) for tick in (a, b))
        shown = low + (y - a.place) / (b.place - a.place) * (high - low)
        left, right = svg.ticks_across(panel.panel.x)[:2]
        first, last = (float(tick.text.replace("−", "-")) for tick in (left, right))
        at = first + (x - left.place) / (right.place - left.place) * (last - first)
        expected = axis_line(model, axes[group["name"]], 0, at).mean
        np.testing.assert_allclose(shown, expected, atol=0.02 * np.ptp(expected) + 0.02)


def test_dots_are_few_and_around_the_line(picture):
    for group in picture["groups"]:
        for panel in group["panels"]:
            x, _ = places(str(svg.picture(panel.panel)), "event")
            assert 0 < len(x) <= MOST_DOTS


def test_panels_side_by_side_share_their_scale(picture):
    for group in picture["groups"]:
        alone = {(panel.panel.y.low, panel.panel.y.high) for panel in group["panels"] if not panel.is_merged}
        assert group["own_scales"] or len(alone) == 1


def test_every_panel_tells_its_finding(picture):
    for group in picture["groups"]:
        for panel in group["panels"]:
            told = re.search(r'role="img" aria-label="([^"]+)"', str(svg.picture(panel.panel)))[1]
            assert group["name"] in told
            assert "cluster" in told.lower()


def test_clusters_at_far_levels_have_scales_of_their_own(rng):
    n = 900
    entity = np.arange(n) % 30
    x = rng.normal(size=n)
    y = np.where(entity % 2, 100.0, 0.0) + np.where(entity % 2, 1.0, -1.0) * x + rng.normal(0.0, 0.2, n)
    model = HLCRRegressor(2, n_sweeps=40).fit(x[:, None], y, entity=entity)
    findings = Findings(model)
    found = drawn_events(model, HeldOut(x[:, None], y, entity=entity))
    (group,) = draw_picture(model, findings, found)["groups"]
    assert group["own_scales"]
    assert group["panels"][0].panel.y.ticks != group["panels"][1].panel.y.ticks


def test_months_and_levels_are_on_the_axes(rng):
    n = 400
    day, city = rng.random(n), rng.choice(["Oslo", "Rome", "Paris"], n)
    frame = pd.DataFrame({"sin_y": np.sin(2 * np.pi * day), "cos_y": np.cos(2 * np.pi * day)})
    frame = frame.assign(**{f"city={level}": (city == level).astype(float) for level in ("Oslo", "Paris", "Rome")})
    y = 3.0 * frame["cos_y"] + (city == "Oslo") + rng.normal(0.0, 0.2, n)
    entity = np.arange(n) % 8
    model = HLCRRegressor(1, n_sweeps=40).fit(frame, y, entity=entity)
    model.recipe_ = recipe_of(["sin_y", "cos_y", "city"], categorical={"city": ["Oslo", "Paris", "Rome"]})
    findings = Findings(model)
    groups = draw_picture(model, findings, None)["groups"]
    assert [group["name"] for group in groups] == ["month", "city"]
    months, cities = (svg.ticks_across(group["panels"][0].panel.x) for group in groups)
    assert "".join(tick.text for tick in months) == "JFMAMJJASOND"
    assert [tick.text for tick in cities] == ["Oslo", "Paris", "Rome"]


@pytest.mark.parametrize("fitted", [classifier, counter])
def test_fitted_events_are_kept_and_drawn(fitted):
    model, (frame, classes, visits) = fitted(), events()
    kept = fitted_events(model)
    given = drawn_events(model, HeldOut(frame, classes if hasattr(model, "classes_") else visits, "clinic", "patient"))
    assert sorted(kept.observed) == pytest.approx(sorted(given.observed))
    assert kept.predicted.sum() == pytest.approx(given.predicted.sum())
    np.testing.assert_allclose(kept.X.mean(axis=0), given.X.mean(axis=0), atol=1e-12)


def test_models_of_real_numbers_keep_no_events(model):
    assert fitted_events(model) is None


def test_effects_have_a_scale_for_each_feature(model):
    section = effect_section(Findings(model))
    assert len({(chart.x.low, chart.x.high) for chart in section["charts"]}) > 1
    for chart in section["charts"]:
        rows = [mark.cluster for mark in chart.marks if mark.shape == "levels"]
        assert rows == list(range(model.n_clusters_))
        assert "0" in {tick.text for tick in svg.ticks_across(chart.x)}


def test_calibration_counts_events_in_their_intervals(model, split):
    test = split[1]
    found = calibrate(model, held_out(test))
    for level in (0.1, 0.5, 0.9):
        lower, upper = model.predict_interval(test.X, agent=test.agent, entity=test.entity, level=level)
        inside = ((lower <= test.y) & (test.y <= upper)).mean()
        assert found["coverage"][LEVELS.index(level)] == pytest.approx(inside, abs=0.005)
    assert (np.diff(found["coverage"]) >= 0.0).all()


def test_calibration_of_counts_is_that_of_their_intervals():
    frame, _, visits = events()
    model = counter()
    found = calibrate(model, HeldOut(frame, visits, "clinic", "patient"))
    lower, upper = model.predict_interval(frame, agent="clinic", entity="patient", level=0.9)
    assert found["coverage"][LEVELS.index(0.9)] == pytest.approx(((lower <= visits) & (visits <= upper)).mean())


@pytest.mark.parametrize(
    ("inner", "outer", "n_events", "said"),
    [
        (0.49, 0.90, 117, "The intervals hold what they promise: 90 % of 117 events lie in their 90 % intervals"),
        (0.45, 0.92, 2000, "The 90 % intervals hold what they promise, and those of 50 % are too narrow: 92 %"),
        (0.60, 0.97, 500, "The intervals are wider than needed: 97 %"),
        (0.40, 0.80, 500, "The intervals are too narrow: 80 %"),
    ],
)
def test_what_is_said_of_intervals_agrees_with_the_figures_beside_it(inner, outer, n_events, said):
    coverage = np.array(LEVELS)
    # an outlier at a level that is not told
    coverage[LEVELS.index(0.2)] = 0.3
    coverage[LEVELS.index(0.5)], coverage[LEVELS.index(0.9)] = inner, outer
    assert in_words(coverage, n_events).startswith(said)


def test_short_names_of_levels_are_written_across_where_panels_are_wide():
    rng = np.random.default_rng(8)
    food, nest = rng.choice(["Deprived", "Satiated"], 400), np.arange(400) % 20
    y = np.where(nest % 2, 3.0, -3.0) * (food == "Satiated") + rng.normal(0.0, 0.3, 400)
    model = HLCRRegressor(2, n_sweeps=30, effects="none", noise="common", categories=["food"])
    model.fit(pd.DataFrame({"food": food}), y, agent=nest % 4, entity=nest)
    picture = draw_picture(model, Findings(model), None)
    assert not picture["groups"][0]["is_upright"]
    assert picture["layout"] == "side-by-side"
    assert "other features" not in picture["note"]


@pytest.mark.parametrize(
    ("texts", "places", "touch"),
    [
        (("1980", "1982", "1984", "1986"), (0.0, 29.0, 57.0, 86.0), True),
        (("1980", "1984"), (0.0, 57.0), False),
        (("0", "5", "10"), (0.0, 50.0, 100.0), False),
        (("10,000", "30,000"), (60.0, 95.0), True),
    ],
)
def test_ticks_touch_where_their_texts_do_in_a_narrow_panel(texts, places, touch):
    assert svg.ticks_touch([svg.Tick(place, text) for place, text in zip(places, texts, strict=True)]) == touch


def test_residuals_are_means_by_agent_and_sorted(model, drawn):
    findings = Findings(model)
    chart = residual_chart(drawn, findings.agents, findings.names)
    means = [drawn.residuals[drawn.agent == a].mean() for a in np.unique(drawn.agent)]
    rows = [mark for mark in chart["panel"].marks if mark.shape == "levels"]
    np.testing.assert_allclose([mark.x[0] for mark in rows], np.sort(means), rtol=1e-9)
    values = re.findall(r'class="value"[^>]*>([^<]+)<', str(svg.rows(chart["panel"])))
    assert values == [number(mean, 2) for mean in np.sort(means)]


def test_many_agents_are_shown_at_both_ends(rng):
    n = 600
    agent, entity, x = np.arange(n) % 60, np.zeros(n, int), rng.normal(size=n)
    y = x + rng.normal(0.0, 0.3, n)
    model = HLCRRegressor(1, n_sweeps=20).fit(x[:, None], y, agent=agent, entity=entity)
    findings, data = Findings(model), HeldOut(x[:, None], y, agent, entity)
    chart = residual_chart(drawn_events(model, data), findings.agents, findings.names)
    names = [mark.name for mark in chart["panel"].marks]
    assert len(names) == 2 * AT_EACH_END + 2
    assert names[AT_EACH_END + 1] == f"{60 - 2 * AT_EACH_END} between"
    assert "30 between" in render_report(model, data)


def test_every_cluster_has_its_number_and_colours_repeat_with_stripes():
    assert color_class(3) == "c3"
    assert color_class(11) == "c3 again"
    assert "grey" not in "".join(color_class(k) for k in range(64))
    assert svg.tag(11) == '<i class="tag c3 again">11</i>'
    assert len({str(svg.tag(k)) for k in range(64)}) == 64


def test_dots_outside_the_frame_are_left_out():
    dots = Mark("dots", "event", np.array([5.0, 5.0]), np.array([5.0, 50.0]))
    drawn = str(svg.picture(Panel(Scale(0.0, 10.0), Scale(0.0, 10.0), (dots,))))
    assert drawn.count("h0") == 1


@pytest.mark.parametrize(("scale", "roomy"), [(1.0, False), (300_000.0, True)])
def test_long_values_of_the_target_have_room_beside_the_frames(scale, roomy):
    rng = np.random.default_rng(9)
    x, entity = rng.uniform(-1.0, 1.0, 200), np.arange(200) % 10
    model = HLCRRegressor(1, n_sweeps=20, effects="none", noise="common")
    model.fit(x[:, None], scale * (x + rng.normal(0.0, 0.1, 200)), agent=entity % 2, entity=entity)
    (group,) = draw_picture(model, Findings(model), None)["groups"]
    assert svg.is_roomy(group["panels"][0].panel) == roomy
    assert (" roomy" in re.findall(r'<div class="(framed[^"]*)"', render_report(model))[0]) == roomy


@pytest.mark.parametrize("n", [3, 6, 7, 12])
def test_labels_of_lines_do_not_hide_each_other(n):
    """Many labels stand in two columns by turns, so that those of one column are far enough apart."""
    ends = tuple((k, 50.0 + k / 100.0) for k in range(n))
    labels = svg.line_labels(Panel(Scale(0.0, 1.0), Scale(0.0, 100.0), (), ends=ends))
    assert sorted(k for _, k in labels) == list(range(n))
    columns = (labels[::2], labels[1::2]) if n > svg.CROWDED else (labels,)
    for column in columns:
        places = [place for place, _ in column]
        assert np.diff(places).min() >= 100.0 * svg.LABEL_HEIGHT / svg.HEIGHT - 0.2
        assert min(places) >= 0.0
        assert max(places) <= 100.0


def test_a_panel_of_all_clusters_has_all_entities(model):
    findings = Findings(model)
    findings.certainty = replace(findings.certainty, clear=(), blurred=tuple(range(model.n_clusters_)), n_sure=0)
    (panel,) = draw_picture(model, findings, None)["groups"][0]["panels"]
    assert panel.title.endswith("100 %")
