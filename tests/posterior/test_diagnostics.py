"""R-hat and effective sample size on chains whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr.posterior.diagnostics import effective_size, r_hat


def autoregressive(rng, correlation, shape):
    noise = rng.standard_normal(shape)
    chain = np.empty(shape)
    chain[:, 0] = noise[:, 0]
    for t in range(1, shape[1]):
        chain[:, t] = correlation * chain[:, t - 1] + np.sqrt(1 - correlation**2) * noise[:, t]
    return chain


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_effective_size_of_autoregressive_chains(rng, correlation):
    chains = autoregressive(rng, correlation, (4, 5000))
    expected = chains.size * (1 - correlation) / (1 + correlation)
    assert effective_size(chains) == pytest.approx(expected, rel=0.15)
    assert r_hat(chains) < 1.01


def test_chains_with_different_means_disagree(rng):
    chains = rng.standard_normal((3, 200)) + np.array([[0.0], [0.0], [3.0]])
    assert r_hat(chains) > 1.3
    assert effective_size(chains) < 20


def test_chains_of_different_spread_disagree(rng):
    chains = rng.standard_normal((2, 400)) * np.array([[1.0], [10.0]])
    assert r_hat(chains) > 1.2


def test_a_drifting_chain_disagrees_with_itself(rng):
    assert r_hat(rng.standard_normal((1, 200)) + np.linspace(0, 5, 200)) > 1.3


def test_constants_agree():
    assert r_hat(np.full((2, 50), 3.0)) == 1.0
    assert effective_size(np.full((2, 50), 3.0)) == 100.0
    assert r_hat(np.repeat([[1.0], [2.0]], 50, axis=1)) == float("inf")


def test_too_few_draws_give_nan():
    assert np.isnan(r_hat(np.zeros((2, 3))))
    assert np.isnan(effective_size(np.zeros((2, 3))))
