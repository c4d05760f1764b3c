"""Replicated targets are draws from the predictive distribution, and share what entities share."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fedhlcr import NEW, HLCRClassifier, HLCRCountRegressor, HLCRRegressor
from fedhlcr.datasets import HierarchicalData
from fedhlcr.posterior import replicates
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.posterior.replicates import replicate

MODELS = {
    "effects": (HLCRRegressor, {"effects": "entity", "noise": "entity"}, "real"),
    "agents' effects": (HLCRRegressor, {"effects": "entity+agent", "noise": "entity"}, "real"),
    "plain": (HLCRRegressor, {"effects": "none", "noise": "common"}, "real"),
    "student": (HLCRRegressor, {"noise": "student"}, "real"),
    "classes": (HLCRClassifier, {"effects": "entity"}, "binary"),
    "counts": (HLCRCountRegressor, {"effects": "entity"}, "count"),
}
N = 3000


@cache
def fitted(name):
    kind, settings, target = MODELS[name]
    table = opposite_slopes(target)
    model = kind(2, n_sweeps=60, n_draws=40, n_threads=1, **settings)
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity), table


def opposite_slopes(target):
    """Two clusters that differ much, and few noisy events of each entity, so that many labels are not certain."""
    rng = np.random.default_rng(5)
    agent, entity = np.repeat(np.arange(12), 20), np.tile(np.repeat(np.arange(5), 4), 12)
    x = rng.normal(size=len(agent))
    slope = np.where(rng.random((12, 5)) < 0.5, 1.0, -1.0)[agent, entity]
    if target == "binary":
        y = (rng.random(len(x)) < 1.0 / (1.0 + np.exp(-2.5 * slope * x))).astype(float)
    elif target == "count":
        y = rng.poisson(np.exp(0.5 + 0.6 * slope * x)).astype(float)
    else:
        y = 1.2 * slope * x + rng.normal(size=len(x))
    return HierarchicalData(x[:, None], y, agent, entity, ("x",))


def drawn(model, table, *, known=True, n=N):
    events = check_model(model).read_events(table.X, table.agent, table.entity if known else NEW)
    return replicate(model.posterior_, events.matrix, events.profiles, n, 7)


def far_apart(model, table, targets, *, known=True):
    """How far means and variances of replicates are from the model's: root mean squares, in standard errors."""
    moments = model.predict_moments(table.X, table.agent, table.entity if known else NEW)
    n = len(targets)
    mean = (targets.mean(axis=0) - moments.mean) / (moments.std / np.sqrt(n))
    squares = (targets - moments.mean) ** 2
    variance = (squares.mean(axis=0) - moments.std**2) / (squares.std(axis=0) / np.sqrt(n))
    return max(np.sqrt((mean**2).mean()), np.sqrt((variance**2).mean()))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.ci) for name in MODELS])
@pytest.mark.parametrize("known", [True, False], ids=["known entities", "new entities"])
def test_replicates_have_the_mean_and_the_variance_of_predictions(name, known):
    model, table = fitted(name)
    assert far_apart(model, table, drawn(model, table, known=known), known=known) < 1.35


@pytest.mark.slow
@pytest.mark.parametrize("name", ["effects", "plain", "classes"])
def test_replicates_that_ignore_the_labels_are_noticed(name, monkeypatch):
    """Mutant: every entity draws any cluster."""
    model, table = fitted(name)

    def any_cluster(weights, rng):
        return rng.integers(weights.shape[1], size=len(weights))

    monkeypatch.setattr(replicates, "draw_labels", any_cluster)
    assert far_apart(model, table, drawn(model, table)) > 3.0


@pytest.mark.slow
def test_replicates_that_take_the_most_probable_label_are_noticed(monkeypatch):
    model, table = fitted("plain")
    monkeypatch.setattr(replicates, "draw_labels", lambda weights, rng: weights.argmax(axis=1))
    assert far_apart(model, table, drawn(model, table)) > 2.0


def test_replicates_depend_on_the_seed_only():
    model, table = fitted("effects")
    events = check_model(model).read_events(table.X, table.agent, table.entity)
    one, same = (replicate(model.posterior_, events.matrix, events.profiles, 5, 7) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    assert (replicate(model.posterior_, events.matrix, events.profiles, 5, 8) != one).all()


def test_classes_are_zero_or_one_and_counts_are_whole():
    model, table = fitted("classes")
    assert set(np.unique(drawn(model, table, n=5))) == {0.0, 1.0}
    model, table = fitted("counts")
    counts = drawn(model, table, n=5)
    assert (counts == np.floor(counts)).all()
    assert counts.min() == 0.0


def test_events_of_one_entity_share_their_coefficients_and_newcomers_do_not():
    """Replicates of two events of one entity are correlated, those of two new entities are less so."""
    model, table = fitted("plain")
    # far from the centre, clusters differ
    X = np.full((2, 1), 3.0)
    events = check_model(model).read_events(X, table.agent[:2] * 0, NEW)
    same, apart = (
        replicate(model.posterior_, X, events.profiles, 2000, 1, newcomer=np.array(who)) for who in ([0, 0], [0, 1])
    )
    assert np.corrcoef(same.T)[0, 1] > np.corrcoef(apart.T)[0, 1] + 0.15


def test_labels_are_drawn_by_their_weights():
    rng = np.random.default_rng(0)
    weights = np.tile([0.2, 0.0, 0.5, 0.3], (20_000, 1)) * rng.uniform(0.1, 3.0, (20_000, 1))
    shares = np.bincount(replicates.draw_labels(weights, rng), minlength=4) / 20_000
    np.testing.assert_allclose(shares, [0.2, 0.0, 0.5, 0.3], atol=0.015)
    assert shares[1] == 0.0
