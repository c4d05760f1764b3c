"""Plots hold the model's numbers, draw on the Axes they are given, and refuse what they cannot draw."""

from __future__ import annotations

import subprocess
import sys
import time

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import fedhlcr
from fedhlcr import FedHLCRRegressor, HLCRRegressor, hold_out_events, plot
from fedhlcr._support.extras import install_command
from fedhlcr.analysis.comparison import Comparison, CountResult
from fedhlcr.datasets import make_hlcr
from fedhlcr.estimators import loading, saving
from fedhlcr.posterior import alignment

OF_MODEL = [plot.traces, plot.coefficients, plot.cluster_weights, plot.agent_map, plot.label_certainty]
OF_EVENTS = [plot.predicted_against_observed, plot.calibration]
NAMES = ["age", "dose", "a name that is far too long to be told"]


@pytest.fixture(scope="module")
def split():
    """Few noisy events for each entity: labels are not certain, intervals have some width."""
    table, _ = make_hlcr(60, 5, 5, 3, 3, 1.0, random_state=5)
    train, test = hold_out_events(table.agent, table.entity, random_state=2)
    return table[train], table[test]


def frame(table):
    return pd.DataFrame(table.X, columns=NAMES)


@pytest.fixture(scope="module", params=["chains", "federation"])
def model(request, split):
    train, test = split
    given = {"y": train.y, "agent": train.agent, "entity": train.entity}
    if request.param == "chains":
        return HLCRRegressor(3, n_chains=2, n_sweeps=80, n_threads=1).fit(frame(train), **given)
    validation = (frame(test), test.y, test.agent, test.entity)
    return FedHLCRRegressor(3, rounds=40, n_threads=1).fit(frame(train), **given, validation=validation)


@pytest.fixture(scope="module")
def crowd():
    """A thousand agents."""
    table, _ = make_hlcr(1000, 3, 3, 2, 5, 0.3, random_state=1)
    fitted = HLCRRegressor(5, n_sweeps=10, n_threads=1).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    return fitted, table


def events(table):
    return {"X": frame(table), "y": table.y, "agent": table.agent, "entity": table.entity}


def segments(ax: Axes) -> list[np.ndarray]:
    """Both ends of the drawn intervals, (intervals, ends, xy), in the order they were drawn."""
    return [np.array(c.get_segments()) for c in ax.collections if isinstance(c, LineCollection)]


@pytest.mark.parametrize("draw", OF_MODEL + OF_EVENTS, ids=lambda f: f.__name__)
def test_each_plot_draws_on_the_given_axes_and_returns_it(model, split, draw):
    figure, (first, second) = plt.subplots(1, 2)
    settings, arguments = dict(mpl.rcParams), events(split[1]) if draw in OF_EVENTS else {}
    assert draw(model, **arguments, ax=second) is second
    assert plt.get_fignums() == [figure.number]
    assert second.has_data()
    assert not first.has_data()
    assert second.get_xlabel()
    assert second.get_ylabel() or draw is plot.coefficients
    figure.canvas.draw()
    assert dict(mpl.rcParams) == settings


@pytest.mark.parametrize("draw", OF_MODEL + OF_EVENTS, ids=lambda f: f.__name__)
def test_without_axes_a_new_figure_is_made_and_nothing_is_cut_off(model, split, draw):
    ax = draw(model, **events(split[1]) if draw in OF_EVENTS else {})
    assert plt.get_fignums() == [ax.figure.number]
    ax.figure.canvas.draw()
    whole = ax.figure.bbox.padded(2.0)
    inside = ax.get_tightbbox()
    assert whole.x0 <= inside.x0 < inside.x1 <= whole.x1
    assert whole.y0 <= inside.y0 < inside.y1 <= whole.y1


def test_traces_are_those_of_the_chains_or_rounds(model):
    ax = plot.traces(model, quantity="noise_scale", target="weight in kg")
    if isinstance(model, FedHLCRRegressor):
        expected = [model.history_[model.history_["round"] > 0]]
        first_kept = model.server_.kept_draws[0].round
    else:
        expected = [model.trace_[model.trace_["chain"] == chain] for chain in (0, 1)]
        first_kept = model.trace_["sweep"][model.trace_["kept"]].min()
    assert len(ax.lines) == len(expected)
    for line, records in zip(ax.lines, expected, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), records["noise_scale"])
    assert ax.get_ylabel() == "noise scale (units of weight in kg)"
    assert ax.patches[0].get_x() == first_kept > 1


def test_traces_of_all_quantities(model):
    federated = isinstance(model, FedHLCRRegressor)
    for quantity in ("log_joint", "n_clusters", "labels_changed", "global_concentration", "agent_concentration"):
        assert plot.traces(model, quantity=quantity).lines
    if federated:
        assert plot.traces(model, quantity="validation_mse").lines
    with pytest.raises(ValueError, match="`quantity` must be one of log_joint, noise_scale"):
        plot.traces(model, quantity="X")


def test_coefficients_are_those_of_the_model_within_their_intervals(model):
    ax = plot.coefficients(model, per="unit", level=0.9)
    points = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose([line.get_xdata() for line in points], model.coef_)
    wide, narrow = np.array(segments(ax))[..., 0], np.array(segments(plot.coefficients(model, per="unit", level=0.3)))
    assert wide.shape == (3, 3, 2)
    assert (wide[..., 0] < model.coef_).all()
    assert (model.coef_ < wide[..., 1]).all()
    assert (np.diff(wide) > np.diff(narrow[..., 0])).all()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["age", "dose", "a name that i…"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["0", "1", "2"]


def test_coefficients_are_compared_by_the_spread_of_the_features(model, split):
    spread = split[0].X.std(axis=0)
    ax = plot.coefficients(model, features=["dose", 0], clusters=[2], level=None, target="pain")
    (points,) = (line for line in ax.lines if line.get_marker() == "o")
    np.testing.assert_allclose(points.get_xdata(), (model.coef_[2] * spread)[[1, 0]])
    assert not segments(ax)
    assert ax.get_xlabel() == "change of pain\nper standard deviation of the feature"
    assert ax.get_legend().get_title().get_text() == "cluster\n(1 of 3)"


def test_spreads_do_not_depend_on_standardization(split):
    train, _ = split
    raw = HLCRRegressor(2, standardize=False, n_sweeps=4, n_threads=1)
    raw.fit(train.X * [1.0, 10.0, 0.0] + 3.0, train.y, agent=train.agent, entity=train.entity)
    points = plot.coefficients(raw, features=[0, 1, 2], level=None).lines[1]
    spread = (train.X * [1.0, 10.0, 0.0]).std(axis=0)
    np.testing.assert_allclose(points.get_xdata(), raw.coef_[0] * spread, atol=1e-7)


def test_bars_are_the_cluster_weights(model):
    ax = plot.cluster_weights(model)
    np.testing.assert_array_equal([bar.get_height() for bar in ax.patches], model.cluster_weights_)
    (intervals,) = segments(ax)
    np.testing.assert_array_equal(intervals[:, 0, 0], [0, 1, 2])
    assert (intervals[:, 0, 1] < model.cluster_weights_).all()
    assert (model.cluster_weights_ < intervals[:, 1, 1]).all()
    assert not segments(plot.cluster_weights(model, level=None))


def compositions(model):
    """What agents' entities are, by cluster, counted one by one."""
    memory, target = model.posterior_.memory, model.alignment_.target
    out = np.zeros((len(model.agent_ids_), model.n_clusters_))
    for draw, labels in enumerate(memory.labels):
        for agent, label in zip(memory.entities.index.agent_of, labels, strict=True):
            out[agent, target[draw, label]] += 1
    return out / out.sum(axis=1, keepdims=True)


def test_agents_are_sorted_by_their_main_cluster(model):
    ax = plot.agent_map(model)
    shown = np.asarray(ax.images[0].get_array())
    main = shown.argmax(axis=1)
    assert (np.diff(main) >= 0).all()
    for cluster in range(3):
        assert (np.diff(shown[main == cluster].max(axis=1)) <= 0).all()
    np.testing.assert_allclose(np.sort(shown, axis=0), np.sort(compositions(model), axis=0))
    (borders,) = segments(ax)
    np.testing.assert_array_equal(borders[:, 0, 1], np.flatnonzero(np.diff(main)) + 0.5)


def test_few_agents_are_named(split):
    train, _ = split
    few = np.isin(train.agent, np.unique(train.agent)[:4])
    fitted = HLCRRegressor(2, n_sweeps=6, n_threads=1)
    fitted.fit(train.X[few], train.y[few], agent=train.agent[few], entity=train.entity[few])
    ax = plot.agent_map(fitted)
    shown = np.asarray(ax.images[0].get_array())
    for name, row in zip(ax.get_yticklabels(), shown, strict=True):
        at = [str(agent) for agent in fitted.agent_ids_].index(name.get_text())
        np.testing.assert_allclose(row, compositions(fitted)[at])


def test_a_public_model_has_no_agents_to_show(model):
    public = loading.from_bytes(saving.to_bytes(model, public=True))
    for draw in (plot.agent_map, plot.label_certainty):
        with pytest.raises(ValueError, match="`model` is public"):
            draw(public)
    plot.coefficients(public)
    plot.cluster_weights(public)
    plot.traces(public)


def test_a_server_model_has_no_trace_to_show(split, tmp_path):
    """It is public, and its history is elsewhere."""
    train, _ = split
    fitted = FedHLCRRegressor(2, rounds=3, n_threads=1)
    fitted.fit(train.X, train.y, agent=train.agent, entity=train.entity)
    fitted.server_.model().save(tmp_path / "costs.model")
    with pytest.raises(ValueError, match=r"the model has no trace: .*history\.json"):
        plot.traces(fedhlcr.load(tmp_path / "costs.model"))
    assert not plt.get_fignums()


def test_a_thousand_agents_are_drawn_at_once_with_few_labels(crowd):
    fitted, _ = crowd
    start = time.perf_counter()
    ax = plot.agent_map(fitted)
    ax.figure.canvas.draw()
    assert time.perf_counter() - start < 5.0
    assert ax.images[0].get_array().shape == (1000, 5)
    assert len(ax.get_yticks()) < 10
    assert ax.get_ylabel() == "1,000 agents, by main cluster"


def test_points_are_predictions_and_observations(model, split):
    test = split[1]
    ax = plot.predicted_against_observed(model, **events(test), target="weight in kg")
    points = ax.lines[0]
    expected = model.predict(frame(test), agent=test.agent, entity=test.entity)
    np.testing.assert_array_equal(points.get_xdata(), expected)
    np.testing.assert_array_equal(points.get_ydata(), test.y)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted weight in kg", "observed weight in kg")
    assert f"R² = {model.score(frame(test), test.y, agent=test.agent, entity=test.entity):.3f}" in ax.get_title()


def test_many_events_are_counted_in_cells(crowd):
    fitted, table = crowd
    again = np.tile(np.arange(len(table.y)), 20)
    start = time.perf_counter()
    arguments = {"agent": table.agent[again], "entity": table.entity[again]}
    ax = plot.predicted_against_observed(fitted, table.X[again], table.y[again], **arguments)
    plot.calibration(fitted, table.X[again], table.y[again], **arguments)
    assert time.perf_counter() - start < 15.0
    assert ax.collections[0].get_array().sum() == len(again) > 100_000
    assert all(len(line.get_xdata()) <= 2 for line in ax.lines)


def test_calibration_is_the_share_inside_the_models_intervals(model, split):
    test = split[1]
    curve = plot.calibration(model, **events(test)).lines[-1]
    shares = dict(zip(*curve.get_data(), strict=True))
    for level in (0.5, 0.9):
        lower, upper = model.predict_interval(frame(test), agent=test.agent, entity=test.entity, level=level)
        assert shares[level] == pytest.approx(np.mean((lower <= test.y) & (test.y <= upper)), abs=0.005)


def test_a_right_model_is_calibrated_and_a_wrong_one_is_not(model, split):
    test = split[1]
    levels, shares = plot.calibration(model, **events(test)).lines[-1].get_data()
    assert np.abs(shares - levels).max() < 0.08
    # mutant: twice the noise
    doubled = test.y + np.sqrt(3.0) * np.random.default_rng(0).standard_normal(len(test.y))
    levels, shares = plot.calibration(model, **{**events(test), "y": doubled}).lines[-1].get_data()
    assert (levels - shares).max() > 0.15


def test_of_too_many_events_a_sample_is_used(model, split, monkeypatch):
    from fedhlcr.plot import _of_events as module

    whole = plot.calibration(model, **events(split[1])).lines[-1].get_ydata()
    monkeypatch.setattr(module, "MAX_EVENTS", len(split[1].y) * 3 // 4)
    part = plot.calibration(model, **events(split[1])).lines[-1].get_ydata()
    assert 0.0 < np.abs(part - whole).max() < 0.08


def test_certainty_is_that_of_the_responsibilities_and_rises_with_events(model, split):
    ax = plot.label_certainty(model)
    dots, median = ax.lines
    agents, entities = (np.array(ids, dtype=object) for ids in zip(*model.pair_ids_, strict=True))
    np.testing.assert_allclose(dots.get_ydata(), model.responsibilities(agents, entities).max(axis=1))
    assert dots.get_xdata().sum() == pytest.approx(len(split[0].y))
    assert median.get_ydata()[-1] > median.get_ydata()[0] + 0.1
    assert ax.get_xlabel() == "events of the entity"


@pytest.mark.parametrize("draw", OF_MODEL + OF_EVENTS, ids=lambda f: f.__name__)
def test_anything_but_a_fitted_model_and_axes_is_refused(model, split, draw):
    arguments = events(split[1]) if draw in OF_EVENTS else {}
    with pytest.raises(NotFittedError):
        draw(HLCRRegressor(), **arguments)
    with pytest.raises(TypeError, match=r"`model` must be an estimator of fedhlcr, .* is of type LinearRegression"):
        draw(LinearRegression(), **arguments)
    with pytest.raises(TypeError, match="`ax` must be one matplotlib Axes, but is of type ndarray"):
        draw(model, **arguments, ax=plt.subplots(1, 2)[1])


def test_errors_name_the_cure_and_leave_no_figure(model, split):
    for level in (0.0, 1.0, 90, "0.9"):
        with pytest.raises(ValueError, match="`level` must lie between 0 and 1"):
            plot.cluster_weights(model, level=level)
    with pytest.raises(ValueError, match="`per` must be 'spread' or 'unit'"):
        plot.coefficients(model, per="sd")
    for clusters in ([], [3], [-1], [0, 0], 1):
        with pytest.raises(ValueError, match="`clusters` must be a list of different numbers from 0 to 2"):
            plot.coefficients(model, clusters=clusters)
    for features in ([], ["height"], [3], "age"):
        with pytest.raises(ValueError, match="`features` must be a list of names or positions of the 3 features"):
            plot.coefficients(model, features=features)
    for draw in OF_EVENTS:
        with pytest.raises(ValueError, match="`y` has 3 "):
            draw(model, **{**events(split[1]), "y": [1234.5] * 3})
    assert not plt.get_fignums()


def test_one_draw_has_no_intervals(split):
    train, _ = split
    lone = HLCRRegressor(2, n_sweeps=2, n_draws=1, n_threads=1)
    lone.fit(train.X, train.y, agent=train.agent, entity=train.entity)
    for draw in (plot.coefficients, plot.cluster_weights):
        with pytest.raises(ValueError, match=r"at least 2 kept draws, but the model has 1; .* level=None"):
            draw(lone)
        assert draw(lone, level=None).has_data()
    for draw in (plot.traces, plot.agent_map, plot.label_certainty):
        assert draw(lone).has_data()


def test_without_validation_there_is_no_validation_error(split):
    train, _ = split
    fitted = FedHLCRRegressor(2, rounds=3, n_threads=1)
    fitted.fit(train.X, train.y, agent=train.agent, entity=train.entity)
    with pytest.raises(ValueError, match="pass `validation` to fit"):
        plot.traces(fitted, quantity="validation_mse")


def comparison(counts=(1, 2, 4, 8, 12, 16), found=(3, 5), behind_of_auto=0.04):
    """Made up: the best is 8, the suggested 4, that of most evidence 2; or the best and suggested is "auto"."""
    rows = [
        CountResult(count, -1.0 - behind, 0.2, -behind, error, evidence, 0.8, 1.5, (count,) * len(found))
        for count, behind, error, evidence in zip(
            counts,
            (0.9, 0.5, 0.01, 0.0, 0.02, 0.03),
            (0.1, 0.05, 0.02, 0.0, 0.01, 0.01),
            (-900.0, -700.0, -710.0, -720.0, -730.0, -740.0),
            strict=True,
        )
    ]
    auto = CountResult("auto", -1.0 - behind_of_auto, 0.2, -behind_of_auto, 0.02, -705.0, 0.8, 1.5, found)
    return Comparison(tuple(rows), auto, len(found), 100)


def test_cluster_counts_are_shown_with_the_errors_of_their_differences():
    result = comparison()
    figure, (first, second) = plt.subplots(1, 2)
    ax = plot.cluster_counts(result, second)
    assert ax is second
    assert not first.has_data()
    figure.canvas.draw()
    lines = {line.get_label(): line for line in ax.lines}
    curve = next(line for line in ax.lines if line.get_linestyle() == "-" and line.get_marker() == "o")
    np.testing.assert_array_equal(curve.get_xdata(), [row.n_clusters for row in result.rows])
    np.testing.assert_allclose(curve.get_ydata(), [row.log_density for row in result.rows])
    bars, auto = segments(ax)
    assert np.ptp(auto[..., 1]) / 2 == pytest.approx(0.02)
    np.testing.assert_allclose(np.ptp(bars[..., 1], axis=1) / 2, [row.difference_se for row in result.rows], atol=1e-12)
    for label, place in {"best: 8": (8, -1.0), "suggested: 4": (4, -1.01), "auto: 3–5": (4, -1.04)}.items():
        assert (lines[label].get_xdata()[0], lines[label].get_ydata()[0]) == pytest.approx(place)
    assert ax.get_legend() is not None


def test_auto_is_marked_where_it_is_best():
    ax = plot.cluster_counts(comparison(found=(3, 4), behind_of_auto=-0.5))
    lines = {line.get_label(): line for line in ax.lines}
    for label in ("best: auto", "suggested: auto"):
        assert (lines[label].get_xdata()[0], lines[label].get_ydata()[0]) == pytest.approx((3.5, -0.5))
    assert max(line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == "--") == pytest.approx(-0.5)


def test_evidence_of_cluster_counts_has_no_errors():
    result = comparison(found=(4, 4))
    ax = plot.cluster_counts(result, quantity="evidence")
    lines = {line.get_label(): line for line in ax.lines}
    assert not segments(ax)
    assert lines["by evidence: 2"].get_xdata()[0] == 2
    assert lines["auto: 4"].get_ydata()[0] == -705.0
    assert not any(label.startswith("suggested") for label in lines)


def test_cluster_counts_are_the_ticks_of_the_axis():
    few, many = comparison(), comparison(counts=(100, 101, 102, 150, 220, 1000), found=(150, 220))
    for result, named in ((few, ["1", "2", "4", "8", "12", "16"]), (many, ["100", "150", "220", "1,000"])):
        ax = plot.cluster_counts(result)
        ax.figure.canvas.draw()
        assert ax.get_xscale() == "log"
        assert [text.get_text() for text in ax.get_xticklabels()] == named
        assert not len(ax.get_xticks(minor=True))
        inside, whole = ax.get_tightbbox(), ax.figure.bbox.padded(2.0)
        assert whole.x0 <= inside.x0 < inside.x1 <= whole.x1
        assert whole.y0 <= inside.y0 < inside.y1 <= whole.y1


def test_cluster_counts_refuse_anything_but_a_comparison(model):
    with pytest.raises(TypeError, match="`comparison` must be a Comparison"):
        plot.cluster_counts(model)
    with pytest.raises(ValueError, match="`quantity` must be one of log_density, evidence, but is 'r2'"):
        plot.cluster_counts(comparison(), quantity="r2")
    with pytest.raises(TypeError, match="`ax` must be one matplotlib Axes"):
        plot.cluster_counts(comparison(), ax=plt.subplots(1, 2)[1])


def test_aligned_draws_average_to_what_is_reported(model):
    draws, aligned = model.posterior_.draws, model.alignment_
    coef, mass = alignment.coef_by_draw(draws, aligned)
    assert coef.shape == (len(draws), 3, 4)
    mean = np.einsum("dk,dkc->kc", mass, coef) / mass.sum(axis=0)[:, None]
    np.testing.assert_allclose(mean, alignment.mean_coef(draws, aligned), rtol=1e-9, atol=1e-12)
    weights = aligned.by_draw(np.exp(draws.log_weights))
    np.testing.assert_allclose(weights.mean(axis=0), model.cluster_weights_, rtol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)


def test_intervals_weight_draws_by_mass(rng):
    values = rng.standard_normal((500, 2))
    lower, upper = alignment.central_interval(values, np.ones_like(values), 0.8)
    np.testing.assert_allclose([lower, upper], np.quantile(values, [0.1, 0.9], axis=0), atol=0.03)
    mass = np.where(np.arange(500)[:, None] < 250, 1.0, 0.0) * [1.0, 0.0]
    lower, upper = alignment.central_interval(values, mass, 0.8)
    np.testing.assert_allclose([lower[0], upper[0]], np.quantile(values[:250, 0], [0.1, 0.9]), atol=0.05)
    assert np.isnan([lower[1], upper[1]]).all()


@pytest.mark.slow
def test_only_plots_import_matplotlib_and_say_if_it_is_missing():
    code = """
import sys
import fedhlcr
fedhlcr.HLCRRegressor, fedhlcr.FedHLCRRegressor, fedhlcr.describe_clusters
assert "matplotlib" not in sys.modules
sys.modules["matplotlib"] = None
try:
    from fedhlcr import plot
except ImportError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert install_command("plot") in told
