"""The evidence of a partition against quadrature, enumeration, and the axioms of probability."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from fedhlcr._support.streams import Stream
from fedhlcr.analysis.evidence import partition_evidence
from fedhlcr.model.mixed import MixedEntityNoise
from fedhlcr.model.priors import Gamma, InverseGamma, ModelSpec
from tests.enumeration import log_label_prior
from tests.problems import entities_from, tiny_table

FIXED = ModelSpec(noise_scale=0.8, coef_scale=1.3, global_concentration=1.1, agent_concentration=0.7)
PARTITIONS = [[0, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0], [0, 1, 2, 0, 1, 2]]


def problem(slopes=(0.0,) * 6, n_events=2):
    """Six entities of three agents, with few events each and one coefficient; slopes are added to those there are."""
    X, y, agent, entity = tiny_table(4, sizes=(3, 2, 1), n_events=n_events)
    y = y + np.repeat(slopes, n_events) * X[:, 0]
    return X, y, agent, entity, entities_from(X, y, agent, entity, fit_intercept=False)


def estimate(entities, spec, labels, n_clusters, n_runs=1):
    return np.median(
        [partition_evidence(entities, spec, np.array(labels), n_clusters, Stream(s)) for s in range(n_runs)]
    )


def log_likelihood(X, y, labels, sigma, delta, ratio) -> float:
    """y is normal, with the coefficients integrated out: w ~ N(0, δ²(I + κ·11ᵀ)), κ being that of a common mean."""
    design = X * (np.repeat(labels, len(y) // len(labels))[:, None] == np.arange(max(labels) + 1))
    n_clusters = design.shape[1]
    covariance = delta**2 * design @ (np.eye(n_clusters) + ratio * np.ones((n_clusters, n_clusters))) @ design.T
    root = np.linalg.cholesky(covariance + sigma**2 * np.eye(len(y)))
    return float(norm.logpdf(np.linalg.solve(root, y)).sum() - np.log(np.diagonal(root)).sum())


def log_inverse_gamma(log_scale, prior: InverseGamma):
    """log density of log s, where s² is inverse gamma."""
    constant = prior.shape * np.log(prior.rate) - gammaln(prior.shape) + np.log(2.0)
    return constant - 2.0 * prior.shape * log_scale - prior.rate * np.exp(-2.0 * log_scale)


def log_gamma(log_c, prior: Gamma):
    """log density of log c, where c is gamma."""
    return prior.shape * (log_c + np.log(prior.rate)) - gammaln(prior.shape) - prior.rate * np.exp(log_c)


def integral(log_f, first, second):
    """log ∫∫ f over two evenly spaced grids."""
    values = [log_f(a, b) for a, b in product(first, second)]
    return float(logsumexp(values) + np.log((first[1] - first[0]) * (second[1] - second[0])))


def numberings(labels, n_clusters):
    used = len(set(labels))
    return float(gammaln(n_clusters + 1) - gammaln(n_clusters - used + 1))


@pytest.mark.parametrize("labels", PARTITIONS)
@pytest.mark.parametrize("n_clusters", [3, 5])
def test_with_fixed_hyperparameters_it_is_exact(labels, n_clusters):
    X, y, _, _, entities = problem()
    likelihood = log_likelihood(X, y, labels, 0.8, 1.3, 0.0)
    prior = log_label_prior(np.array(labels), entities.index.agent_of, n_clusters, 1.1, 0.7)
    exact = likelihood + prior + numberings(labels, n_clusters)
    assert estimate(entities, FIXED, labels, n_clusters) == pytest.approx(exact, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zero_mean", "common_mean", "adaptive"])
def test_learned_scales_are_integrated_out(kind):
    labels = PARTITIONS[2]
    X, y, _, _, entities = problem(slopes=np.array([-3.0, 0.0, 4.0])[labels], n_events=6)
    spec = ModelSpec(coef_prior=kind, target_spread=1.5, global_concentration=1.1, agent_concentration=0.7)
    priors = spec.hyperpriors.for_spread(1.5)
    ratios = {"zero_mean": [0.0], "common_mean": [priors.coef_mean_ratio]}
    log_sigmas, log_deltas = np.linspace(-5, 3, 41), np.linspace(-8, 4, 49)

    def with_ratio(ratio):
        def log_f(s, d):
            prior = log_inverse_gamma(s, priors.noise_variance) + log_inverse_gamma(d, priors.coef_variance)
            return log_likelihood(X, y, labels, np.exp(s), np.exp(d), ratio) + prior

        return integral(log_f, log_sigmas, log_deltas)

    parts = [with_ratio(ratio) for ratio in ratios.get(kind, [0.0, priors.coef_mean_ratio])]
    prior = log_label_prior(np.array(labels), entities.index.agent_of, 4, 1.1, 0.7)
    exact = logsumexp(parts) - np.log(len(parts)) + prior + numberings(labels, 4)
    assert estimate(entities, spec, labels, 4, n_runs=15) == pytest.approx(exact, abs=0.1)


@pytest.mark.parametrize("n_clusters", [2, 5])
def test_learned_concentrations_are_integrated_out(n_clusters):
    X, y, _, _, entities = problem()
    labels = PARTITIONS[0]
    spec = ModelSpec(noise_scale=0.8, coef_scale=1.3)
    priors, agent_of = spec.hyperpriors, entities.index.agent_of

    def log_f(log_alpha, log_beta):
        prior = log_gamma(log_alpha, priors.global_concentration) + log_gamma(log_beta, priors.agent_concentration)
        return log_label_prior(np.array(labels), agent_of, n_clusters, np.exp(log_alpha), np.exp(log_beta)) + prior

    grid = np.linspace(-10, 4, 29)
    exact = log_likelihood(X, y, labels, 0.8, 1.3, 0.0) + integral(log_f, grid, grid) + numberings(labels, n_clusters)
    assert estimate(entities, spec, labels, n_clusters, n_runs=10) == pytest.approx(exact, abs=0.06)


def partitions(n_entities, n_clusters):
    """Labels of all partitions into at most n_clusters parts: each new part has the next number."""
    return [
        labels
        for labels in product(range(n_clusters), repeat=n_entities)
        if all(labels[i] <= max(labels[:i], default=-1) + 1 for i in range(n_entities))
    ]


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 6])
def test_partitions_sum_to_the_whole(n_clusters):
    """Where all partitions explain the targets as well, their evidences sum to p(y): p(partition | K) sums to 1."""
    y = np.array([0.3, -1.2, 0.4, 2.0])
    entities = entities_from(np.zeros((4, 1)), y, [0, 0, 1, 1], [0, 1, 0, 1], fit_intercept=False)
    spec = ModelSpec(noise_scale=1.0, coef_scale=1.0, global_concentration=1.1, agent_concentration=0.7)
    total = logsumexp([estimate(entities, spec, labels, n_clusters) for labels in partitions(4, n_clusters)])
    assert total == pytest.approx(norm.logpdf(y).sum(), abs=0.01)


def test_only_the_partition_matters_not_its_numbers():
    _, _, _, _, entities = problem()
    first, second = (estimate(entities, FIXED, labels, 5) for labels in ([0, 0, 1, 1, 0, 1], [4, 4, 2, 2, 4, 2]))
    assert first == pytest.approx(second, abs=0.02)


def test_evidence_with_effects_is_not_available():
    *_, entities = problem()
    mixed = replace(entities, likelihood=MixedEntityNoise(entities.layout))
    assert np.isnan(estimate(mixed, FIXED, PARTITIONS[0], 2))
