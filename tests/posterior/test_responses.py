"""Predictions of classes and counts equal those of their mixtures, written out with numpy and scipy."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, ndtr

from fedhlcr import HLCRClassifier, HLCRCountRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import ConvergenceWarning
from fedhlcr.kernels.responses import mean_logistic
from fedhlcr.kernels.steps import ROUNDING
from fedhlcr.posterior import prediction
from fedhlcr.posterior.fitted_model import check_model

N_DRAWS = 20
SORTS = [
    (HLCRClassifier, "none"),
    (HLCRClassifier, "entity"),
    (HLCRCountRegressor, "none"),
    (HLCRCountRegressor, "entity"),
]


@pytest.fixture(scope="module", params=SORTS, ids=lambda sort: f"{sort[0].__name__}-{sort[1]}")
def fitted(request):
    """A model, its table, and rows of known entities, of a new entity and of a new agent, in no order."""
    estimator, effects = request.param
    kind = "binary" if estimator is HLCRClassifier else "count"
    table, _ = make_hlcr(15, 4, 6, 2, 2, target=kind, random_state=3)
    model = estimator(2, n_sweeps=60, n_draws=N_DRAWS, n_threads=1, effects=effects, random_state=0)
    with warnings.catch_warnings():
        # few draws, for speed
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    rows = np.random.default_rng(3).permutation(len(table.y))[:60]
    agent, entity = np.array(table.agent, dtype=object)[rows], np.array(table.entity, dtype=object)[rows]
    entity[:15] = "new"
    agent[10:20] = "nobody"
    return model, (table.X[rows], agent, entity), table.y[rows]


def components(model, X, agent, entity):
    """For each row: weights, means and standard deviations of its log odds, over draws and clusters; dense algebra."""
    profiles = check_model(model).read_events(X, agent, entity).profiles
    found = {}
    for part in model.posterior_.mixtures(np.asarray(X), profiles):
        own = part.mixture.own
        n_draws, n_clusters, n_coef = own.coef.shape
        columns = own.columns - own.first
        for row, x, p in zip(part.rows, part.design, part.profile, strict=True):
            weights, means, scales = [], [], []
            for draw in range(n_draws):
                gram = unpacked(own.grams[p, min(draw, own.grams.shape[1] - 1)], n_coef + own.first + 1)
                G, g = gram[own.first : -1, own.first : -1], gram[own.first : -1, -1]
                group, lane = divmod(draw, own.roots.shape[4])
                root = np.zeros((n_coef, len(columns)))
                root[columns] = own.roots[own.is_new_agent[p], group, :, :, lane]
                V = root @ np.linalg.inv(np.eye(len(columns)) + root.T @ G @ root) @ root.T
                for k in range(n_clusters):
                    start = own.coef[draw, k] + own.agent_effects[p, draw]
                    weights.append(own.weights[p, draw, k])
                    means.append(x @ (start + V @ (g - G @ start)))
                    scales.append(math.sqrt(own.noise[p, draw] + x @ V @ x))
            found[row] = np.array(weights), np.array(means), np.array(scales)
    return [found[row] for row in range(len(X))]


def unpacked(packed, width):
    full = np.zeros((width, width))
    full[np.tril_indices(width)] = packed
    return full + np.tril(full, -1).T


def test_probabilities_and_their_intervals(fitted):
    model, rows, _ = fitted
    if not isinstance(model, HLCRClassifier):
        pytest.skip("counts have no probabilities")
    X, agent, entity = rows
    found, ends = model.predict_proba(*rows)[:, 1], np.array(model.predict_interval(*rows, level=0.8))
    for row, (weights, means, scales) in enumerate(components(model, X, agent, entity)):
        expected = sum(w * mean_logistic(m, s**2) for w, m, s in zip(weights, means, scales, strict=True))
        assert found[row] == pytest.approx(expected, rel=1e-9)

        def excess(x, level, weights=weights, means=means, scales=scales):
            z = (x - means) / scales
            tails = weights * ndtr(-np.abs(z))
            return math.fsum([*weights[z > 0.0], *-tails[z > 0.0], *tails[z <= 0.0], ROUNDING - level])

        bracket = (means - 40.0 * scales).min(), (means + 40.0 * scales).max()
        for level, end in zip((0.1, 0.9), ends[:, row], strict=True):
            # where the distribution function is flat, weights of 1e-17 that the kernel leaves out may matter
            low, high = (
                expit(brentq(excess, *bracket, args=(level + off,), xtol=1e-14, rtol=1e-14, maxiter=1000))
                for off in (-1e-16, 1e-16)
            )
            assert low - 1e-9 <= end <= high + 1e-9


def test_blocks_and_threads_do_not_matter(fitted, monkeypatch):
    model, rows, y = fitted
    predict = model.predict_proba if isinstance(model, HLCRClassifier) else model.predict
    expected = predict(*rows), np.array(model.predict_interval(*rows)), model.log_density(rows[0], y, *rows[1:])
    for name, value in (("WEIGHTS_AT_ONCE", 150), ("ROWS_AT_ONCE", 3)):
        monkeypatch.setattr(prediction, name, value)
    memory = model.posterior_.memory
    threaded = replace(memory, entities=replace(memory.entities, n_threads=3))
    monkeypatch.setattr(model, "posterior_", replace(model.posterior_, memory=threaded))
    found = predict(*rows), np.array(model.predict_interval(*rows)), model.log_density(rows[0], y, *rows[1:])
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own, other)
