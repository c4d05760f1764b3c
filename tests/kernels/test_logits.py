"""The kernels of log odds agree with slow versions of them, with quadrature and with optimisation by scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import bernoulli, nbinom, norm

from fedhlcr import reference_logits as reference
from fedhlcr.kernels import logits
from fedhlcr.model.counts import LOG_SIZE
from fedhlcr.model.logits import spread_normals
from fedhlcr.model.mixed_agents import weighted_entities
from tests.effects_problems import random_covariance
from tests.logits_problems import LIKELIHOODS, entities_of, given_globals, hierarchy_with

SIZES, N_EVENTS, K = (3, 2), 4, 3


def problem(target, seed=0, n_features=2):
    rng = np.random.default_rng(seed)
    n = sum(SIZES) * N_EVENTS
    X, weight, offset = rng.normal(size=(n, n_features)), rng.choice([1.0, 2.0], size=n), rng.normal(size=n)
    y = rng.integers(0, 2 if target == "binary" else 9, size=n)
    entities = entities_of(LIKELIHOODS[target], hierarchy_with(X, y, SIZES, N_EVENTS, weight=weight, offset=offset))
    terms = entities.likelihood.event_terms(entities.events, {LOG_SIZE: rng.normal(size=sum(SIZES))})
    return rng, entities, terms


@pytest.mark.parametrize("target", LIKELIHOODS)
def test_log_likelihoods_of_clusters(target):
    rng, entities, terms = problem(target)
    events, coef = entities.events, rng.normal(size=(K, 3))
    out, everyone = np.empty((5, K)), np.arange(5)
    logits.write_log_likelihoods(events.X, terms, events.event_start, everyone, 0, 5, coef, 0, out)
    np.testing.assert_allclose(out, reference.log_likelihoods(events, terms, coef), rtol=1e-11)
    each = np.empty(events.n_events)
    logits.event_log_likelihoods(events.X, terms, events.event_start, everyone, np.tile(coef[0], (5, 1)), 0, each)
    np.testing.assert_allclose(np.add.reduceat(each, events.event_start[:-1]), out[:, 0], rtol=1e-11)


def test_the_log_likelihood_of_very_many_events_does_not_overflow():
    n = 5 * logits.MOST_FACTORS // 2
    terms = logits.EventTerms(np.ones(n), np.full(n, 0.5), np.zeros(n), np.zeros(n))
    out = np.empty((1, 1))
    logits.write_log_likelihoods(
        np.empty((n, 0)), terms, np.array([0, n]), np.zeros(1, int), 0, 1, np.zeros((1, 1)), 0, out
    )
    assert out[0, 0] == pytest.approx(-n * np.log(2.0), rel=1e-12)


def test_event_terms_are_those_of_bernoulli_and_negative_binomial_laws():
    for target in LIKELIHOODS:
        rng, entities, terms = problem(target)
        events = entities.events
        eta = rng.normal(size=events.n_events)
        found = reference.log_density(terms, eta)
        if target == "binary":
            expected = bernoulli.logpmf(events.y, 1.0 / (1.0 + np.exp(-eta - events.offset)))
        else:
            size = np.exp(events.offset - terms.fixed)
            expected = nbinom.logpmf(events.y, size, size / (size + np.exp(eta + events.offset)))
        np.testing.assert_allclose(found, events.weight * expected, rtol=1e-10)


@pytest.mark.parametrize("target", LIKELIHOODS)
def test_weighted_targets_have_the_density_of_the_events(target):
    """Given weights, log densities of normal working targets differ between coefficients as κψ − ωψ²/2 does."""
    rng, entities, terms = problem(target)
    weights = rng.gamma(2.0, size=entities.n_events)
    grams = reference.working_grams(entities.layout, entities.events, terms, weights)
    kernel = weighted_entities(entities.grams, entities.events, terms.kappa / weights - terms.fixed, weights)
    np.testing.assert_allclose(kernel, grams, rtol=1e-12)
    coef = rng.normal(size=(2, 3))
    scores = [-0.5 * entities.layout.rss(grams, w) for w in coef]
    psi = [reference.linear_parts(entities.events, np.tile(w, (5, 1))) + terms.fixed for w in coef]
    direct = [np.add.reduceat(terms.kappa * p - 0.5 * weights * p**2, entities.events.event_start[:-1]) for p in psi]
    np.testing.assert_allclose(scores[0] - scores[1], direct[0] - direct[1], rtol=1e-9)


@pytest.mark.parametrize("target", LIKELIHOODS)
@pytest.mark.parametrize("rank", [1, 3])
def test_densities_with_effects_integrated_out(target, rank):
    rng, entities, terms = problem(target)
    likelihood, events, owner = entities.likelihood, entities.events, entities.index.agent_of
    current = given_globals(
        likelihood, K, coef=rng.normal(size=(K, 3)), effect_covariance=random_covariance(rng, 3, rank)
    )
    steps, out = rng.normal(size=(2, 3)), np.empty((5, K))
    law = likelihood.kernel_law(current, 0)
    points = spread_normals(16, rank)
    arrays = events.X, terms, events.event_start, np.arange(5), 0, 5
    logits.integrated_densities(*arrays, law, steps, owner, points, out)
    for e in range(5):
        for k in range(K):
            expected = reference.integrated_density(
                events, terms, e, current.coef[k] + steps[owner[e]], current, points
            )
            assert out[e, k] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("target", LIKELIHOODS)
@pytest.mark.parametrize("variance", [0.5, 9.0])
def test_the_density_is_close_to_the_integral_over_one_effect(target, variance):
    rng, entities, terms = problem(target)
    covariance, points = np.diag([variance, 0.0, 0.0]), spread_normals(16, 1)
    current, coef = given_globals(entities.likelihood, 1, effect_covariance=covariance), rng.normal(size=3)
    for e in range(5):
        own = slice(*entities.events.event_start[e : e + 2])

        def density(effect, own=own):
            eta = reference.linear_parts(entities.events, np.tile(coef + np.array([effect, 0.0, 0.0]), (5, 1)))
            return np.exp(reference.log_density(terms, eta)[own].sum()) * norm.pdf(effect, 0.0, np.sqrt(variance))

        exact = np.log(quad(density, -20.0, 20.0, epsabs=1e-30, limit=200)[0])
        found = reference.integrated_density(entities.events, terms, e, coef, current, points)
        assert found == pytest.approx(exact, abs=0.02)


def test_no_overflow():
    for psi in (-1e8, -800.0, 0.0, 800.0, 1e8):
        assert logits.log_twice_cosh(psi) == pytest.approx(np.logaddexp(0.5 * psi, -0.5 * psi), rel=1e-14)
