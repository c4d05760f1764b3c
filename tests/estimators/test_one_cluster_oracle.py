"""One cluster with effects agrees with an oracle that has no Pólya–Gamma weights: the posterior on a grid.

Features are constant within entities, so that only the intercept has effects. With these integrated out by quadrature,
the posterior of the two coefficients and of the effects' scale is a function of three numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit, log_expit, logsumexp

from fedhlcr import HLCRClassifier
from fedhlcr.model.binary import Logistic
from fedhlcr.posterior.diagnostics import effective_size

N_ENTITIES, N_EVENTS, COEF_SCALE = 40, 6, 1.5


class Table(NamedTuple):
    x: np.ndarray  # (entities,)
    ones: np.ndarray  # (entities,) how many of the events are 1

    @classmethod
    def drawn(cls, seed: int = 0) -> Table:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal(N_ENTITIES)
        x -= x.mean()
        eta = 0.5 + 0.8 * x + 1.2 * rng.standard_normal(N_ENTITIES)
        return cls(x, rng.binomial(N_EVENTS, expit(eta)))


class Oracle(NamedTuple):
    means: np.ndarray  # of w₀, w₁ and log s
    spreads: np.ndarray
    probabilities: np.ndarray  # (entities,) of a 1 in another event of each entity


def log_scale_prior(scale):
    """Half-t with 2 degrees of freedom; the scale of the intercept's effects is that of the linear part."""
    return -1.5 * np.log1p(0.5 * (scale / Logistic.linear_spread) ** 2)


def oracle(table: Table, n_points: int = 37, n_nodes: int = 41) -> Oracle:
    first, second = np.linspace(-1.5, 2.5, n_points), np.linspace(-1.0, 3.0, n_points)
    log_scales = np.linspace(np.log(0.02), np.log(8.0), n_points)
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    log_node_weights = np.log(node_weights / node_weights.sum())
    grid = [of.ravel() for of in np.meshgrid(first, second, indexing="ij")]
    log_posterior, probabilities = [], []
    for log_scale in log_scales:
        # (points of w, entities, nodes)
        eta = (grid[0][:, None] + grid[1][:, None] * table.x)[..., None] + np.exp(log_scale) * nodes
        ones = table.ones[:, None]
        log_joint = ones * log_expit(eta) + (N_EVENTS - ones) * log_expit(-eta) + log_node_weights
        log_density = logsumexp(log_joint, axis=2)
        probabilities.append((np.exp(log_joint - log_density[..., None]) * expit(eta)).sum(axis=2))
        prior = -0.5 * (grid[0] ** 2 + grid[1] ** 2) / COEF_SCALE**2 + log_scale_prior(np.exp(log_scale)) + log_scale
        log_posterior.append(log_density.sum(axis=1) + prior)
    weights = np.exp(np.array(log_posterior) - logsumexp(log_posterior))
    values = np.array([np.tile(grid[0], (n_points, 1)), np.tile(grid[1], (n_points, 1))])
    values = np.array([*values, np.repeat(log_scales[:, None], len(grid[0]), axis=1)])
    means = (weights * values).sum(axis=(1, 2))
    spreads = np.sqrt((weights * values**2).sum(axis=(1, 2)) - means**2)
    return Oracle(means, spreads, np.einsum("sw,swe->e", weights, np.array(probabilities)))


def fitted(table: Table, n_sweeps: int, seed: int = 0):
    entity = np.repeat(np.arange(N_ENTITIES), N_EVENTS)
    y = (np.arange(len(entity)) % N_EVENTS < table.ones[entity]).astype(int)
    params = {"coef_scale": COEF_SCALE, "effects": "entity", "standardize": False, "random_state": seed}
    model = HLCRClassifier(1, n_sweeps=n_sweeps, n_draws=n_sweeps // 2, **params)
    return model.fit(table.x[entity, None], y, agent=entity // 8, entity=entity)


def assert_agrees(n_sweeps, data=0):
    table = Table.drawn(data)
    expected, model = oracle(table), fitted(table, n_sweeps)
    draws = model.posterior_.draws.stacked
    scale = 0.5 * np.log(draws.effect_covariance[:, 0, 0])
    values = np.column_stack([draws.coef[:, 0], scale])
    sizes = np.array([effective_size(column[None]) for column in values.T])
    errors = expected.spreads / np.sqrt(sizes)
    assert (np.abs(values.mean(axis=0) - expected.means) < 4 * errors).all()
    # a standard deviation has a relative error of about 1/√(2n)
    assert (np.abs(values.std(axis=0) / expected.spreads - 1.0) < 4 / np.sqrt(sizes)).all()
    p = model.predict_proba(table.x[:, None], agent=np.arange(N_ENTITIES) // 8, entity=np.arange(N_ENTITIES))[:, 1]
    tolerance = 0.3 / np.sqrt(sizes.min())
    np.testing.assert_allclose(p, expected.probabilities, atol=tolerance)


@pytest.mark.slow
def test_the_oracle_does_not_depend_on_its_grid():
    table = Table.drawn()
    one, other = oracle(table, 31, 31), oracle(table, 37, 41)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


@pytest.mark.slow
def test_one_cluster_with_effects_agrees_with_the_oracle():
    assert_agrees(2_000)


@pytest.mark.slow
@pytest.mark.parametrize("data", [1, 2])
def test_one_cluster_with_effects_agrees_with_the_oracle_in_a_long_run(data):
    assert_agrees(20_000, data)
