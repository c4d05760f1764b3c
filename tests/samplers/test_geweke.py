"""Geweke's joint test: alternating the sampler and data simulation must reproduce the prior of all hyperparameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.model import conjugate
from fedhlcr.model.gaussian import GaussianGlobals
from fedhlcr.model.priors import Gamma, Hyperpriors, InverseGamma, ModelSpec
from fedhlcr.model.regression import CoefPrior
from fedhlcr.posterior.diagnostics import effective_size
from fedhlcr.samplers import blocked, collapsed, label_prior
from fedhlcr.samplers.state import ChainState
from tests.effects_problems import Events
from tests.problems import entities_from

K, SIZES, N_EVENTS = 3, (3, 2, 4, 1), 2
PRIORS = Hyperpriors(InverseGamma(6.0, 5.0), InverseGamma(6.0, 5.0), 0.7, Gamma(3.0, 2.0), Gamma(3.0, 2.0))
QUANTITIES = (
    "log σ",
    "log δ",
    "μ²",
    "spread of δ",
    "log α",
    "log β",
    "clusters",
    "Σ N²",
    "Σ within-agent N²",
    "y²",
    "w²",
)


def design():
    rng = np.random.default_rng(5)
    agent = np.repeat(np.repeat(np.arange(len(SIZES)), SIZES), N_EVENTS)
    entity = np.repeat(np.concatenate([np.arange(n) for n in SIZES]), N_EVENTS)
    return rng.standard_normal((len(agent), 1)), agent, entity


def draw_prior(rng, kind):
    """Globals and labels from the prior."""
    inverse_gamma = lambda p, size=None: p.rate / rng.gamma(p.shape, size=size)  # noqa: E731
    alpha, beta = (rng.gamma(p.shape) / p.rate for p in (PRIORS.global_concentration, PRIORS.agent_concentration))
    if kind == "adaptive":
        kind = rng.choice(["common_mean", "zero_mean"])
    if kind == "common_mean":
        scale = inverse_gamma(PRIORS.coef_variance, 2) ** 0.5
        prior = CoefPrior(np.sqrt(PRIORS.coef_mean_ratio) * scale * rng.standard_normal(2), scale)
    else:
        prior = CoefPrior(np.zeros(2), np.full(2, inverse_gamma(PRIORS.coef_variance) ** 0.5))
    coef = prior.mean + prior.scale * rng.standard_normal((K, 2))
    log_weights = label_prior.draw_log_weights(rng, np.zeros(K), alpha)
    labels = []
    for size in SIZES:
        # the agent's weights integrated out: an urn of its own entities and βψ
        counts = beta * np.exp(log_weights)
        for _ in range(size):
            k = rng.choice(K, p=counts / counts.sum())
            labels.append(k)
            counts[k] += 1
    drawn = GaussianGlobals(
        coef=coef,
        log_weights=log_weights,
        noise_scale=inverse_gamma(PRIORS.noise_variance) ** 0.5,
        coef_mean=prior.mean,
        coef_scale=prior.scale,
        global_concentration=alpha,
        agent_concentration=beta,
    )
    return drawn, np.array(labels, dtype=np.int32)


def draw_target(rng, X, drawn, labels):
    coef = drawn.coef[np.repeat(labels, N_EVENTS)]
    return coef[:, 0] + coef[:, 1] * X[:, 0] + drawn.noise_scale * rng.standard_normal(len(X))


def quantities(drawn, labels, y):
    own = np.repeat(np.arange(len(SIZES)), SIZES)
    counts = np.zeros((len(SIZES), K))
    np.add.at(counts, (own, labels), 1)
    totals = counts.sum(axis=0)
    return (
        np.log(drawn.noise_scale),
        np.log(drawn.coef_scale).mean(),
        (drawn.coef_mean**2).mean(),
        np.abs(np.diff(np.log(drawn.coef_scale)))[0],
        np.log(drawn.global_concentration),
        np.log(drawn.agent_concentration),
        (totals > 0).sum(),
        (totals**2).sum(),
        (counts**2).sum(),
        np.log1p((y**2).mean()),
        np.log1p((drawn.coef[labels] ** 2).mean()),
    )


def z_scores(step, kind, n_draws, seed=3):
    """Difference of means between the prior and the chain, in standard errors, for each quantity and its square."""
    X, agent, entity = design()
    spec, events = ModelSpec(coef_prior=kind, hyperpriors=PRIORS), Events(X.reshape(-1, N_EVENTS, 1), SIZES)
    empty = entities_from(X, np.zeros(len(X)), agent, entity)
    rng, stream = np.random.default_rng(seed), Stream(seed)
    prior = []
    for _ in range(n_draws):
        drawn, labels = draw_prior(rng, kind)
        prior.append(quantities(drawn, labels, draw_target(rng, X, drawn, labels)))
    chain, state = [], None
    for _ in range(n_draws):
        y = draw_target(rng, X, drawn, labels)
        entities = replace(empty, grams=events.grams(empty.layout, y.reshape(-1, N_EVENTS)))
        round_number = 0 if state is None else state.round
        sums = blocked.sums_of_labels(entities, drawn, labels, round_number, stream)
        if state is not None:
            # new data, but the tables and auxiliaries the chain is at
            sums = replace(state.sums, blocks=sums.blocks)
        state = step(entities, spec, ChainState.of(entities.likelihood, round_number, labels, sums, drawn), stream)
        drawn, labels = state.globals, state.labels
        chain.append(quantities(drawn, labels, y))
    prior, chain = np.array(prior), np.array(chain)
    prior, chain = np.hstack([prior, prior**2]), np.hstack([chain, chain**2])
    moving = chain.std(axis=0) > 0
    size = np.array([effective_size(column[None]) if m else 1.0 for column, m in zip(chain.T, moving, strict=True)])
    error = np.sqrt(prior.var(axis=0) / n_draws + chain.var(axis=0) / size)
    return np.where(moving, (prior.mean(axis=0) - chain.mean(axis=0)) / np.where(moving, error, 1.0), 0.0)


STEPS = {"blocked": blocked.step, "collapsed": collapsed.step}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "kind"),
    [
        ("blocked", "adaptive"),
        ("blocked", "zero_mean"),
        ("collapsed", "adaptive"),
        pytest.param("blocked", "common_mean", marks=pytest.mark.slow),
        pytest.param("collapsed", "common_mean", marks=(pytest.mark.slow, pytest.mark.ci)),
        pytest.param("collapsed", "zero_mean", marks=pytest.mark.slow),
    ],
)
def test_geweke(sampler, kind):
    scores = z_scores(STEPS[sampler], kind, 5_000)
    assert np.abs(scores).max() < 4, dict(zip(QUANTITIES * 2, scores.round(1), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("sampler", STEPS)
def test_geweke_long_run(sampler):
    scores = z_scores(STEPS[sampler], "adaptive", 40_000, seed=8)
    assert np.abs(scores).max() < 4, dict(zip(QUANTITIES * 2, scores.round(1), strict=True))


@pytest.mark.slow
@pytest.mark.ci
def test_geweke_catches_a_wrong_conditional(monkeypatch):
    def too_sure(rng, prior, n, squares):
        return (prior.rate + 0.5 * squares) / rng.standard_gamma(prior.shape + n, size=np.shape(squares))

    monkeypatch.setattr(conjugate, "draw_variance", too_sure)
    assert np.abs(z_scores(blocked.step, "common_mean", 2_000)).max() > 6


@pytest.mark.slow
def test_geweke_catches_scales_drawn_together(monkeypatch):
    monkeypatch.setattr(
        conjugate,
        "draw_variance",
        lambda rng, prior, n, squares: (prior.rate + 0.5 * squares) / rng.standard_gamma(prior.shape + 0.5 * n),
    )
    assert np.abs(z_scores(blocked.step, "common_mean", 3_000)).max() > 6


@pytest.mark.slow
@pytest.mark.ci
def test_geweke_catches_wrong_odds(monkeypatch):
    exact = conjugate.log_common_mean_marginal
    monkeypatch.setattr(conjugate, "log_common_mean_marginal", lambda coef, priors: exact(coef, priors) + 0.5)
    assert np.abs(z_scores(blocked.step, "adaptive", 5_000)).max() > 6


@pytest.mark.slow
def test_geweke_catches_a_wrong_concentration(monkeypatch):
    exact = label_prior.draw_agent_concentration
    monkeypatch.setattr(
        label_prior,
        "draw_agent_concentration",
        lambda rng, tables, log_q, s, prior: exact(rng, tables, log_q, 0.0, prior),
    )
    assert np.abs(z_scores(blocked.step, "common_mean", 5_000)).max() > 6
