"""Predictions equal those of the mixture over draws and clusters, written out with numpy and scipy."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtri
from scipy.stats import norm

from fedhlcr import NEW, HLCRClassifier, HLCRCountRegressor, HLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import ConvergenceWarning
from fedhlcr.kernels import label_weights as kernels
from fedhlcr.kernels import mixtures
from fedhlcr.kernels.mixtures import NEGLIGIBLE, Mixture
from fedhlcr.posterior import prediction
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.posterior.prediction import LabelWeights, Profiles, score_law

LEVELS = (0.0005, 0.05, 0.5, 0.95, 0.9995)
TABLE, _ = make_hlcr(n_agents=30, n_clusters=3, n_features=2, random_state=4)
PLAIN = {"effects": "none", "noise": "common"}


def fitted(**options):
    model = HLCRRegressor(n_draws=12, n_threads=1, random_state=0, **options)
    return model.fit(TABLE.X, TABLE.y, agent=TABLE.agent, entity=TABLE.entity)


@pytest.fixture(scope="module")
def plain():
    return fitted(n_clusters=3, **PLAIN)


@pytest.fixture(scope="module")
def chains():
    with warnings.catch_warnings():
        # few draws, for speed
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fitted(n_clusters=3, n_chains=2, **PLAIN)


def rows_of(model):
    """Some rows of known entities, of a new entity, and of a new agent, in no order."""
    rng = np.random.default_rng(3)
    rows = rng.permutation(len(TABLE.y))[:60]
    agent, entity = np.array(TABLE.agent, dtype=object)[rows], np.array(TABLE.entity, dtype=object)[rows]
    entity[:15] = "new"
    agent[10:20] = "nobody"
    return TABLE.X[rows] * rng.choice([1.0, 30.0], size=(60, 1)), agent, entity


def own_mixture(model, agent, entity):
    """Weights, coefficients and scales over draws and clusters, from the definition of the label weights."""
    posterior = model.posterior_
    draws, memory = posterior.draws, posterior.memory
    index, layout = memory.entities.index, posterior.layout
    agents = {identifier: place for place, identifier in enumerate(index.agent_ids)}
    place = agents.get(agent, -1)
    pairs = [e for e in range(index.n_entities) if index.agent_of[e] == place]
    known = [e for e in pairs if index.entity_ids[e] == entity]
    weights = []
    for d in range(len(draws)):
        counts = np.bincount(memory.labels[d, pairs], minlength=draws.n_clusters).astype(float)
        log_weights = np.zeros(draws.n_clusters)
        if known:
            counts[memory.labels[d, known[0]]] -= 1.0
            log_weights = -layout.rss(memory.entities.grams[known[0]], draws.coef[d]) / (2 * draws.noise_scale[d] ** 2)
        with np.errstate(divide="ignore"):
            log_weights = log_weights + np.log(counts + draws.prior_weights[d])
        weights.append(np.exp(log_weights - logsumexp(log_weights)) / len(draws))
    scales = np.repeat(draws.noise_scale, draws.n_clusters)
    return np.concatenate(weights), draws.coef.reshape(-1, layout.n_coef), scales


def exact_quantile(weights, centres, scales, level):
    ends = (centres - 40 * scales).min(), (centres + 40 * scales).max()
    return brentq(lambda y: weights @ norm.cdf(y, centres, scales) - level, *ends, xtol=1e-15, rtol=1e-15)


def check_against_definition(model):
    X, agent, entity = rows_of(model)
    found = model.predict_moments(X, agent, entity, LEVELS)
    density = model.log_density(X, found.mean + 1.0, agent, entity)
    units = model.posterior_.standardization
    design = np.column_stack([np.ones(len(X)), units.apply(X)])
    np.testing.assert_allclose(model.predict(X, agent, entity), found.mean, rtol=1e-12)
    for r, x in enumerate(design):
        weights, coef, scales = own_mixture(model, agent[r], entity[r])
        centres = coef @ x
        mean = weights @ centres
        std = np.sqrt(weights @ (scales**2 + (centres - mean) ** 2))
        np.testing.assert_allclose(found.mean[r], units.restore_target(mean), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.std[r], std * units.scale[-1], rtol=1e-9)
        target = units.apply_target(found.mean[r] + 1.0)
        expected = logsumexp(norm.logpdf(target, centres, scales), b=weights) - np.log(units.scale[-1])
        np.testing.assert_allclose(density[r], expected, rtol=1e-9, atol=1e-9)
        for level, quantile in zip(LEVELS, found.quantiles[r], strict=True):
            exact = exact_quantile(weights, centres, scales, level)
            np.testing.assert_allclose(units.apply_target(quantile), exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["plain", "chains"])
def test_predictions_are_those_of_the_mixture(name, request):
    check_against_definition(request.getfixturevalue(name))


def test_one_draw_and_one_cluster():
    model = HLCRRegressor(n_clusters=1, n_draws=1, n_threads=1, random_state=0, **PLAIN)
    check_against_definition(model.fit(TABLE.X, TABLE.y, agent=TABLE.agent, entity=TABLE.entity))


def test_the_oracle_notices_that_an_entity_counts_itself(plain, monkeypatch):
    """A mutant: the counts of an agent include the entity itself, so that its own label has too much weight."""
    right = LabelWeights.of

    def mutant(self, agents, entities, **options):
        weights = right(self, agents, entities, **options)
        own = self.memory.labels[:, entities].T[..., None] == np.arange(weights.shape[2])
        weights = weights * np.where(own & (entities >= 0)[:, None, None], 1.05, 1.0)
        return weights / weights.sum(axis=2, keepdims=True)

    monkeypatch.setattr(LabelWeights, "of", mutant)
    with pytest.raises(AssertionError):
        check_against_definition(plain)


def test_effects_are_plain_clusters_where_there_are_none(plain):
    """With effects that were not found, predictions and their time are those of plain clusters."""
    model = fitted(n_clusters=3, effects="entity", noise="entity")
    draws = model.posterior_.draws
    none = replace(
        draws.stacked,
        effect_covariance=np.zeros_like(draws.effect_covariance),
        agent_effect_scale=np.zeros_like(draws.agent_effect_scale),
        noise_shape=np.full(len(draws), np.inf),
    )
    memory = model.posterior_.memory
    fresh = {name: np.zeros_like(values) for name, values in memory.agent_state.items()}
    posterior = replace(model.posterior_, draws=replace(draws, stacked=none), memory=replace(memory, agent_state=fresh))
    assert posterior.likelihood.has_plain_entities(none)
    assert not posterior.likelihood.has_plain_entities(draws.stacked)
    X, agent, entity = rows_of(model)
    profiles = check_model(model).read_events(X, agent, entity).profiles
    fast = posterior.predict(X, profiles, LEVELS)
    own = [part for part in posterior.mixtures(X, profiles) if not isinstance(part.mixture, Mixture)]
    assert own, "mixtures of profiles that might have coefficients of their own"
    for part in own:
        slow = prediction.moments_of(part, LEVELS)
        units = posterior.standardization
        np.testing.assert_allclose(fast.mean[part.rows], units.restore_target(slow.mean), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(fast.std[part.rows], slow.std * units.scale[-1], rtol=1e-9)
        np.testing.assert_allclose(fast.quantiles[part.rows], units.restore_target(slow.quantiles), atol=1e-9)


@pytest.mark.parametrize("options", [PLAIN, {"effects": "entity+agent", "noise": "entity"}], ids=["plain", "effects"])
def test_blocks_and_threads_do_not_matter(options, monkeypatch):
    model = fitted(n_clusters=3, **options)
    X, agent, entity = rows_of(model)
    expected = model.predict_moments(X, agent, entity, LEVELS)
    density = model.log_density(X, expected.mean, agent, entity)
    for name, value in (("WEIGHTS_AT_ONCE", 150), ("PLAIN_WEIGHTS_AT_ONCE", 150), ("ROWS_AT_ONCE", 3)):
        monkeypatch.setattr(prediction, name, value)
    store = model.posterior_.memory.entities
    model.posterior_ = replace(
        model.posterior_, memory=replace(model.posterior_.memory, entities=replace(store, n_threads=3))
    )
    for found, own in zip(model.predict_moments(X, agent, entity, LEVELS), expected, strict=True):
        np.testing.assert_array_equal(found, own)
    np.testing.assert_array_equal(model.log_density(X, expected.mean, agent, entity), density)


def test_large_agents_are_counted_once_and_rows_of_draws_may_not_fit(plain, monkeypatch):
    X, agent, entity = rows_of(plain)
    expected = plain.predict_moments(X, agent, entity, LEVELS)
    for at_once in (prediction.SCORES_AT_ONCE, 1):
        monkeypatch.setattr("fedhlcr.posterior.memory.LARGE_AGENT", 0)
        monkeypatch.setattr(prediction, "SCORES_AT_ONCE", at_once)
        plain.posterior_ = replace(plain.posterior_)
        for found, own in zip(plain.predict_moments(X, agent, entity, LEVELS), expected, strict=True):
            np.testing.assert_allclose(found, own, rtol=1e-11, atol=1e-11)


def test_what_is_kept_does_not_belong_to_copies(plain):
    before = len(pickle.dumps(replace(plain.posterior_)))
    plain.predict(TABLE.X[:5], agent=NEW)
    assert "_weights" in vars(plain.posterior_)
    assert len(pickle.dumps(plain.posterior_)) == before


def test_profiles_are_sorted_pairs():
    rng = np.random.default_rng(0)
    agent_of = np.repeat(np.arange(6), 3)
    for n_rows, shift in ((200, 0), (5, 100_000)):
        entities = rng.integers(-1, len(agent_of), n_rows)
        agents = np.where(entities < 0, rng.integers(-1, 6, n_rows), agent_of[entities])
        entities = np.where(entities < 0, entities, entities + shift)
        found = Profiles.of(agents, entities)
        expected, of_row = np.unique(np.column_stack([agents, entities]), axis=0, return_inverse=True)
        np.testing.assert_array_equal(np.column_stack([found.agents, found.entities]), expected)
        np.testing.assert_array_equal(found.of_row, of_row.ravel())


def quantiles_of(weights, centres, scales, levels=LEVELS):
    mixture = Mixture(np.array([weights]), np.array(centres)[:, None], np.array(scales))
    mean, std, out = np.empty(1), np.empty(1), np.empty((1, len(levels)))
    arrays = np.ones((1, 1)), np.array([0, 1]), np.array(levels), ndtri(levels)
    mixtures.mixture_rows(mixture, *arrays, mean, std, out, 0, 1)
    return mean[0], std[0], out[0]


HARD = {
    "two far apart": ([0.3, 0.7], [-1e6, 1e6], [1.0, 2.0]),
    "tiny scales": ([0.45, 0.25, 0.3], [0.0, 1.0, 2.0], [1e-9, 1e-7, 1e-8]),
    "narrow in wide": ([0.5, 0.5], [0.0, 0.1], [1e-6, 10.0]),
    "heavy tail": ([0.999, 0.001], [0.0, 0.0], [1.0, 1e4]),
    "zero weights": ([0.0, 1.0, 0.0], [1e5, 0.5, -1e5], [1.0, 0.1, 1.0]),
    "one": ([1.0], [3.0], [0.2]),
    "small weight in the tail": ([0.9993, 0.0007], [0.0, 50.0], [1.0, 0.1]),
    "far from zero": ([0.4, 0.6], [1e9, 1e9 + 3.0], [1.0, 0.5]),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_quantiles_are_bracketed(name):
    weights, centres, scales = (np.array(of) for of in HARD[name])
    _, std, found = quantiles_of(weights, centres, scales)
    for level, quantile in zip(LEVELS, found, strict=True):
        exact = exact_quantile(weights, centres, scales, level)
        assert quantile == pytest.approx(exact, rel=1e-15, abs=1e-10 * std)


def test_distribution_function_is_accurate_in_both_tails():
    x = np.linspace(-9, 9, 721)
    arrays = np.zeros(1), np.ones(1), np.ones(1)
    mass, density, slope = np.array([mixtures.mass_and_density(value, *arrays) for value in x]).T
    np.testing.assert_allclose(mass, norm.cdf(x), rtol=1e-11, atol=1e-16)
    np.testing.assert_allclose(density, norm.pdf(x), rtol=1e-11)
    np.testing.assert_allclose(slope, -x * norm.pdf(x), rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("distance", [10.0, 1e3, 3e4])
def test_pruned_components_do_not_matter_however_far_they_are(distance):
    """With the least weight that counts, and with a little more."""
    for weight in (NEGLIGIBLE, 2.0 * NEGLIGIBLE):
        mean, std, quantiles = quantiles_of([1.0, weight], [0.0, distance], [1.0, 1.0])
        assert mean == pytest.approx(weight * distance, abs=1e-9)
        assert std == pytest.approx(np.sqrt(1.0 + weight * distance**2), rel=1e-9)
        np.testing.assert_allclose(quantiles, ndtri(LEVELS), rtol=1e-9, atol=1e-9)


def test_clusters_are_skipped_only_where_they_have_no_weight():
    """Skipping changes no weight by more than e^−40, and skips something."""
    rng = np.random.default_rng(5)
    n_draws, n_clusters, packed, n_entities = 20, 4, 6, 40
    base = 30.0 * rng.normal(size=(n_clusters, 1, packed))
    rows = base + 0.05 * rng.normal(size=(n_clusters, n_draws, packed))
    rows[3] = 30.0 * rng.normal(size=(n_draws, packed))
    grams = rng.normal(size=(n_entities, packed)) * rng.choice([0.01, 0.1, 1.0], size=(n_entities, 1))
    prior = rng.uniform(0.1, 1.0, size=(n_clusters, n_draws))
    # a chain with fewer clusters is padded
    prior[2, 10:] = 0.0
    law = score_law(rows, prior, np.repeat([0, 1], 10), grams)
    labels = np.where(np.arange(n_draws)[:, None] < 10, 0, 1) * np.ones((1, n_entities), dtype=np.uint8)
    agents = kernels.AgentLabels(
        labels.astype(np.uint8),
        np.array([0, 25, n_entities]),
        np.empty((0, n_clusters, n_draws)),
        np.full(2, -1),
    )
    agent_of, entity_of = np.repeat([0, 1], [25, 15]), np.arange(n_entities)
    fast, full = (np.empty((n_entities, n_draws, n_clusters)) for _ in range(2))
    kernels.label_weights(grams, agents, law, agent_of, entity_of, 0, n_entities, fast)
    unbounded = law._replace(radius=np.full_like(law.radius, np.inf))
    kernels.label_weights(grams, agents, unbounded, agent_of, entity_of, 0, n_entities, full)
    np.testing.assert_allclose(fast, full, rtol=1e-12, atol=np.exp(-40.0))
    assert ((fast == 0.0) & (full > 0.0)).any()
    counts = np.zeros((n_entities, n_draws, n_clusters))
    counts[:, :10, 0] = counts[:, 10:, 1] = np.where(agent_of == 0, 24, 14)[:, None]
    with np.errstate(divide="ignore"):
        expected = np.log(counts + prior.T) + np.einsum("ep,kdp->edk", grams, rows)
    expected = np.exp(expected - logsumexp(expected, axis=2, keepdims=True))
    np.testing.assert_allclose(full, expected, rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize("estimator", [HLCRClassifier, HLCRCountRegressor])
def test_rows_of_new_entities_alone_equal_those_beside_known_ones(estimator):
    """Likelihoods with weights of events: there are none in a block without known entities."""
    y = (TABLE.y > np.median(TABLE.y)).astype(int)
    model = estimator(n_clusters=2, n_sweeps=20, n_draws=4, n_threads=1)
    with warnings.catch_warnings():
        # few draws, for speed
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(TABLE.X, y, agent=TABLE.agent, entity=TABLE.entity)
    X, agent, entity = rows_of(model)
    ends = np.array(model.predict_interval(X, agent, entity))
    for new in (slice(0, 10), slice(10, 20)):
        alone = np.array(model.predict_interval(X[new], agent[new], entity[new]))
        np.testing.assert_allclose(alone, ends[:, new], rtol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_quantiles_of_many_components_are_those_of_their_distribution_function(seed):
    """They are searched for among a few components first: clusters near and far, draws alike or not."""
    rng = np.random.default_rng(seed)
    n_clusters, n_draws = rng.integers(8, 20), rng.integers(40, 90)
    assert n_clusters * n_draws > mixtures.MANY
    centres = rng.normal(size=n_clusters) * 10.0 ** rng.uniform(-1, 2)
    means = (centres + rng.normal(size=(n_draws, n_clusters)) * 10.0 ** rng.uniform(-3, 0.5)).ravel()
    scales = np.repeat(np.exp(0.2 * rng.normal(size=n_draws)), n_clusters)
    weights = rng.dirichlet(np.full(n_clusters, 0.5), size=n_draws).ravel() / n_draws
    levels, found = np.array([0.0005, 0.05, 0.5, 0.9, 0.999]), np.empty((1, 5))
    mean, std = mixtures.moments(means, weights, scales)
    mixtures.mixture_quantiles(means, weights, scales, 1.0 / scales, levels, norm.ppf(levels), mean, std, found, 0)
    for x, level in zip(found[0], levels, strict=True):
        error = weights @ norm.cdf((x - means) / scales) - level
        density = weights @ (norm.pdf((x - means) / scales) / scales)
        # as many digits of the quantile as the distribution function has, where it is flat
        assert abs(error) < 1e-10 * std * density + 1e-15


def test_first_components_of_another_place_do_no_harm():
    """The search among all begins anew where the first components are far from the quantile."""
    means, scales = np.concatenate([np.full(100, 50.0), np.linspace(-1.0, 1.0, 900)]), np.ones(1000)
    weights, levels, found = np.full(1000, 1e-3), np.array([0.05, 0.5]), np.empty((1, 2))
    mean, std = mixtures.moments(means, weights, scales)
    mixtures.mixture_quantiles(means, weights, scales, scales, levels, norm.ppf(levels), mean, std, found, 0)
    np.testing.assert_allclose([weights @ norm.cdf(x - means) for x in found[0]], levels, atol=1e-12)
