"""Plots of classifiers and count models."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection

from fedhlcr import HLCRRegressor, plot
from fedhlcr.analysis.effects import step_ratios
from fedhlcr.analysis.scores import calibration_bins
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot._drawing import log_locator
from tests.responses import classifier, counter, events


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def given(model):
    frame, classes, visits = events()
    y = classes if hasattr(model, "classes_") else visits
    return {"X": frame, "y": y, "agent": "clinic", "entity": "patient"}


def lines(ax):
    """Both ends of the drawn intervals, (intervals, ends, xy)."""
    return next(np.array(c.get_segments()) for c in ax.collections if isinstance(c, LineCollection))


@pytest.mark.parametrize(("fitted", "label"), [(classifier, "odds ratio"), (counter, "rate ratio")])
def test_ratios_are_drawn_on_a_log_axis_with_their_intervals(fitted, label):
    model = fitted()
    ax = plot.ratios(model, level=0.8)
    _, lower, upper = step_ratios(model, 0.8)
    assert ax.get_xscale() == "log"
    assert label in ax.get_xlabel()
    np.testing.assert_allclose(lines(ax)[:, :, 0], np.column_stack([lower[0], upper[0]]))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["time, SD", "treated", "nothing, SD"]
    assert not any(isinstance(c, LineCollection) for c in plot.ratios(model, level=None).collections)


def test_ticks_of_ratios_are_few_on_any_range():
    ax = plot.ratios(classifier())
    for low, high in ((0.4, 1.5), (0.05, 3.0), (1e-9, 1e6)):
        ticks = log_locator(low, high).tick_values(low, high)
        assert 2 <= ((ticks >= low) & (ticks <= high)).sum() <= 8
    assert ax.has_data()


def test_reliability_of_probabilities_shows_the_calibration_bins():
    model = classifier()
    ax = plot.reliability(model, **given(model))
    frame, classes, _ = events()
    probability = model.predict_proba(frame, agent="clinic", entity="patient")[:, 1]
    bins = calibration_bins((classes == "severe").astype(float), probability)
    np.testing.assert_allclose(lines(ax)[:, :, 1], [(b.lower, b.upper) for b in bins])
    np.testing.assert_allclose(ax.lines[1].get_xydata(), [(b.predicted, b.observed) for b in bins])
    assert ax.get_xlabel() == "predicted probability"


def test_reliability_of_counts_shows_means_of_ten_groups():
    model = counter()
    ax = plot.reliability(model, **given(model))
    x, y = ax.lines[1].get_xydata().T
    assert len(x) == 10
    assert (np.diff(x) > 0.0).all()
    assert y.mean() == pytest.approx(events()[2].mean(), rel=0.02)
    assert ax.get_ylabel() == "observed mean count"
    doubled = plot.reliability(model, **given(model), exposure=2.0)
    assert doubled.lines[1].get_xdata() == pytest.approx(2.0 * x, rel=1e-6)


@pytest.mark.parametrize(("fitted", "scale"), [(classifier, "log odds"), (counter, "log rate")])
def test_other_plots_name_the_scale(fitted, scale):
    model = fitted()
    assert f"change of {scale}" in plot.coefficients(model).get_xlabel()
    assert plot.curves(model).get_ylabel() == f"change of {scale}"
    for draw in (plot.traces, plot.cluster_weights, plot.agent_map, plot.label_certainty):
        assert draw(model).has_data()


@pytest.mark.parametrize("draw", [plot.predicted_against_observed, plot.calibration])
def test_plots_of_real_numbers_refuse_classes_and_counts(draw):
    for model in (classifier(), counter()):
        with pytest.raises(ArgumentError, match=r"use `plot.reliability`"):
            draw(model, **given(model))


def test_plots_of_responses_refuse_real_numbers():
    frame, _, visits = events()
    model = HLCRRegressor(1, n_sweeps=4, n_threads=1).fit(frame, visits, agent="clinic", entity="patient")
    with pytest.raises(ArgumentError, match="real numbers"):
        plot.ratios(model)
    with pytest.raises(ArgumentError, match="real numbers"):
        plot.reliability(model, frame, visits, "clinic", "patient")
