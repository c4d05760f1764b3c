"""Collinear, duplicated and constant columns fit at any size, in every sampler, rule and baseline."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr.baselines import GroupedRidge, MixedModelRegressor
from tests.problems import PAPER

N_AGENTS, N_ENTITIES, N_EVENTS = 20, 3, 20
N_ROWS = N_AGENTS * N_ENTITIES * N_EVENTS
AGENT = np.repeat(np.arange(N_AGENTS), N_ENTITIES * N_EVENTS)
ENTITY = np.tile(np.repeat(np.arange(N_ENTITIES), N_EVENTS), N_AGENTS)
NOISE_SCALE = 0.1
FIXED = {"noise_scale": 0.1, "coef_scale": 1.0, "global_concentration": 1.0, "agent_concentration": 1.0}

MODELS = {
    "blocked": lambda **options: HLCRRegressor(4, random_state=0, **options),
    "collapsed": lambda **options: HLCRRegressor(4, sampler="collapsed", n_sweeps=40, random_state=0, **options),
    "merging": lambda **options: HLCRRegressor(**PAPER, random_state=0, **options),
    "delta": lambda **options: FedHLCRRegressor(4, random_state=0, **options),
    "blend": lambda **options: FedHLCRRegressor(4, rule="blend", rounds=60, random_state=0, **FIXED, **options),
}


# Effects of collinear columns have scales of which the data say nothing, so a target without noise and columns that are
# not standardised are left to the models without effects.
WITH_EFFECTS = {**MODELS, "effects": lambda **options: HLCRRegressor(random_state=0, **options)}


def with_redundant(X):
    """The columns, a copy of one, a large multiple of one, their sum, and a constant."""
    return np.column_stack([X, X[:, 0], 1e8 * X[:, 1], X.sum(axis=1), np.full(len(X), 3.7)])


def table(rng):
    """Independent columns and a target: each agent–entity pair follows one of three regressions."""
    X = rng.normal(size=(N_ROWS, 3))
    slopes = 2.0 * rng.normal(size=(3, X.shape[1]))
    clusters = rng.integers(3, size=(N_AGENTS, N_ENTITIES))[AGENT, ENTITY]
    return X, (X * slopes[clusters]).sum(axis=1) + NOISE_SCALE * rng.normal(size=N_ROWS)


def error_of(model, X, y, **fit_options):
    model.fit(X, y, agent=AGENT, entity=ENTITY, **fit_options)
    predicted = model.predict(X, agent=AGENT, entity=ENTITY)
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


@pytest.mark.parametrize("weight", [1.0, 1e4])
@pytest.mark.parametrize("name", WITH_EFFECTS)
def test_redundant_columns_do_not_change_the_fit(name, weight, rng):
    X, y = table(rng)
    model = WITH_EFFECTS[name]()
    weights = np.full(N_ROWS, weight)
    assert error_of(model, with_redundant(X), y, sample_weight=weights) < 1.1 * NOISE_SCALE
    # in standard deviations of the columns
    effects = np.asarray(model.coef_) * with_redundant(X).std(axis=0)
    assert np.abs(effects).max() < 50


@pytest.mark.parametrize("name", MODELS)
def test_large_values_that_are_not_standardised(name, rng):
    """1e8 squared, times the events: the prior is far below the rounding errors of the sums."""
    X, y = table(rng)
    model = MODELS[name](standardize=False)
    assert error_of(model, 1e8 * np.column_stack([X, X[:, 0]]), y) < 1.1 * NOISE_SCALE
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("name", WITH_EFFECTS)
def test_all_columns_constant(name, rng):
    _, y = table(rng)
    X = np.full((N_ROWS, 2), [2.5, -1e6])
    assert error_of(WITH_EFFECTS[name](), X, y) < 1.1 * y.std()


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_and_an_exact_target(name, rng):
    """Columns that sum to one; without noise, sigma becomes so small that the prior is lost in rounding."""
    X = rng.dirichlet(np.full(8, 0.5), size=N_ROWS)
    clusters = rng.integers(3, size=(N_AGENTS, N_ENTITIES))[AGENT, ENTITY]
    y = (X * rng.normal(size=(3, 8))[clusters]).sum(axis=1)
    model = MODELS[name]()
    assert error_of(model, X, y, sample_weight=np.full(N_ROWS, 1e4)) < 0.02 * y.std()
    assert np.abs(model.coef_).max() < 50


@pytest.mark.parametrize("model", [GroupedRidge("entity"), GroupedRidge("all"), MixedModelRegressor()])
def test_baselines_with_redundant_columns(model, rng):
    X, y = table(rng)
    plain = error_of(model, X, y)
    assert error_of(model, with_redundant(X), y) < 1.05 * plain


@pytest.mark.slow
def test_probabilities_of_the_papers_size():
    """805,000 events of 62 probabilities, 3,500 agents with one entity each."""
    rng = np.random.default_rng(0)
    n_events, n_agents, n_classes = 805_000, 3_500, 62
    X = rng.standard_gamma(0.1, size=(n_events, n_classes)) + 1e-12
    X /= X.sum(axis=1, keepdims=True)
    agent = rng.integers(n_agents, size=n_events)
    clusters = rng.integers(4, size=n_agents)[agent]
    y = np.einsum("nf,nf->n", X, rng.normal(size=(4, n_classes))[clusters]) + NOISE_SCALE * rng.normal(size=n_events)
    model = HLCRRegressor(8, random_state=0).fit(X, y, agent=agent, entity=agent)
    predicted = model.predict(X, agent=agent, entity=agent)
    assert np.sqrt(np.mean((predicted - y) ** 2)) < 1.01 * NOISE_SCALE
    assert np.abs(model.coef_).max() < 50
