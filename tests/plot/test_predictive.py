"""Posterior predictive checks: what is drawn is observed and replicated, and wrong models are noticed."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

from fedhlcr import NEW, HLCRRegressor, plot
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import ArgumentError
from tests.responses import classifier, counter, events


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def regressor():
    table, _ = make_hlcr(20, 5, 8, 2, 2, 0.5, random_state=3)
    model = HLCRRegressor(2, n_sweeps=60, n_threads=1)
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity), table


def summary(ax):
    """The numbers above the plot, by the name of the statistic."""
    line = ax.get_title().splitlines()[1]
    return {name.strip(): float(p) for name, p in re.findall(r"([^,:]+): ([\d.]+)", line)}


def test_densities_are_those_of_the_targets_and_the_right_model_passes(regressor):
    model, table = regressor
    given = {"X": table.X, "agent": table.agent, "entity": table.entity}
    ax = plot.posterior_predictive(model, y=table.y, **given, target="weight in kg")
    observed = next(line for line in ax.lines if line.get_label() == "observed")
    width = np.diff(observed.get_xdata()[:2])[0]
    assert (observed.get_ydata() * width).sum() == pytest.approx(1.0, abs=0.02)
    assert sum("replicated" in line.get_label() for line in ax.lines) == 25
    assert ax.get_xlabel() == "weight in kg"
    passed = summary(ax)
    assert set(passed) == {"mean", "SD", "min.", "max."}
    assert all(0.02 < p < 0.98 for p in passed.values())
    # mutants: other targets than the model's
    moved = summary(plot.posterior_predictive(model, y=table.y + 0.5, **given))
    assert moved["mean"] == 0.0
    wider = summary(plot.posterior_predictive(model, y=1.5 * table.y, **given))
    assert wider["SD"] == 0.0


def test_classes_are_shares_of_agents_with_intervals():
    frame, classes, _ = events()
    model = classifier()
    given = {"X": frame, "agent": "clinic", "entity": "patient"}
    ax = plot.posterior_predictive(model, y=classes, **given)
    dots = next(line for line in ax.lines if line.get_label() == "observed")
    shares = [(classes[frame["clinic"] == clinic] == "severe").mean() for clinic in range(4)]
    np.testing.assert_allclose(np.sort(dots.get_xdata()), np.sort(shares))
    names = [text.get_text() for text in ax.get_yticklabels()]
    np.testing.assert_allclose(dots.get_xdata(), [shares[int(name)] for name in names])
    intervals = np.array(ax.collections[0].get_segments())[:, :, 0]
    assert (intervals[:, 0] < dots.get_xdata()).sum() >= 3
    assert (dots.get_xdata() < intervals[:, 1]).sum() >= 3
    assert ax.get_xlabel() == "share of “severe”"
    assert 0.05 < summary(ax)["share"] < 0.95
    swapped = np.where(classes == "severe", "mild", "severe")
    assert summary(plot.posterior_predictive(model, y=swapped, **given))["share"] in (0.0, 1.0)


def test_counts_are_bars_with_intervals_and_too_many_zeros_are_noticed():
    frame, _, visits = events()
    model = counter()
    given = {"X": frame, "agent": "clinic", "entity": "patient"}
    ax = plot.posterior_predictive(model, y=visits, **given)
    bars = ax.containers[0].patches
    assert sum(bar.get_height() for bar in bars) == len(visits)
    assert 0.05 < summary(ax)["mean"] < 0.95
    assert set(summary(ax)) == {"mean", "SD", "zeros", "max."}
    assert "or more" in ax.get_xlabel()
    inflated = np.where(np.random.default_rng(0).random(len(visits)) < 0.2, 0, visits)
    assert summary(plot.posterior_predictive(model, y=inflated, **given))["zeros"] == 0.0
    half = plot.posterior_predictive(model, y=visits, exposure=2.0, **given)
    assert summary(half)["mean"] == 1.0


def test_the_same_model_draws_the_same_replicates(regressor):
    model, table = regressor
    one, same = (
        plot.posterior_predictive(model, table.X, table.y, table.agent, table.entity, n_replicates=20) for _ in range(2)
    )
    for a, b in zip(one.lines, same.lines, strict=True):
        np.testing.assert_array_equal(a.get_ydata(), b.get_ydata())


def test_events_without_entities_are_replicated_too(regressor):
    model, table = regressor
    ax = plot.posterior_predictive(model, table.X, table.y, table.agent, NEW, n_replicates=20)
    assert 0.0 <= summary(ax)["mean"] <= 1.0


def test_too_few_replicates_are_refused(regressor):
    model, table = regressor
    for n in (0, 19, 20.5, "many"):
        with pytest.raises(ArgumentError, match="`n_replicates` must be a whole number of at least 20"):
            plot.posterior_predictive(model, table.X, table.y, table.agent, table.entity, n_replicates=n)
