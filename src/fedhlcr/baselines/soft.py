"""Soft federated EM: every agent mixes K shared regressions in proportions of its own (Marfoq et al., 2021).

A round: the server sends K regressions; an agent weighs its events by how likely each regression made them, takes the
mean weights for its own proportions, and sends K weighted Gram matrices, which the server adds up and solves.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from fedhlcr.arrays import FloatArray
from fedhlcr.baselines.linear import Coefficients, LinearRival, Standardized

# In standardised units: what keeps the equations of a small class regular, and its noise from vanishing.
PENALTY, LEAST_VARIANCE = 1e-3, 1e-4


class FedEMRegressor(LinearRival):
    """Mixture of shared regressions with proportions per agent, and a class per event.

    A known agent is predicted by its own mixture, a new one by the mean mixture; entities play no part.

    Parameters
    ----------
    n_classes : int, default=4
    n_init : int, default=3
        Starts from random classes, of which the likeliest end is kept.
    max_iter : int, default=100
        The most rounds from each start.
    tol : float, default=1e-6
        A start has ended when the mean log likelihood of an event grows by less.
    random_state : int or None, default=0

    Attributes
    ----------
    agent_weights_ : (agents, classes)
    coef_ : (classes, n_features + 1), the intercept first, in standardised units
    n_rounds_ : int, of the start that was kept
    log_likelihood_ : float, of the standardised table
    """

    def __init__(self, n_classes=4, n_init=3, max_iter=100, tol=1e-6, random_state=0):
        self.n_classes = n_classes
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _solve(self, data: Standardized) -> Coefficients:
        rng = np.random.default_rng(self.random_state)
        fits = [self._run(data, rng) for _ in range(self.n_init)]
        self.log_likelihood_, self.n_rounds_, self.agent_weights_, self.coef_ = max(fits, key=lambda fit: fit[0])
        n_events = np.diff(data.events.event_start[data.index.agent_start])
        of_all = n_events @ self.agent_weights_ / n_events.sum() @ self.coef_
        return Coefficients(of_all, self.agent_weights_ @ self.coef_)

    def _run(self, data: Standardized, rng: np.random.Generator) -> tuple[float, int, FloatArray, FloatArray]:
        X, y = data.design(), data.target()
        first = data.events.event_start[data.index.agent_start]
        sizes = np.diff(first)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        responsibilities = rng.dirichlet(np.ones(self.n_classes), size=len(y))
        now, grown, n_rounds = -np.inf, np.inf, 0
        while grown >= self.tol * len(y) and n_rounds < self.max_iter:
            n_rounds += 1
            agent_weights = np.add.reduceat(responsibilities, first[:-1], axis=0) / sizes[:, None]
            coef, variance = weighted_regressions(X, y, responsibilities)
            log_joint = np.log(agent_weights + 1e-12)[owner] + log_densities(X, y, coef, variance)
            each = logsumexp(log_joint, axis=1)
            responsibilities = np.exp(log_joint - each[:, None])
            grown, now = float(each.sum()) - now, float(each.sum())
        return now, n_rounds, agent_weights, coef


def weighted_regressions(X: FloatArray, y: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Coefficients (classes, n_coef) and variances of regressions whose events have weights (events, classes)."""
    penalties = np.diag([1e-9, *np.full(X.shape[1] - 1, PENALTY)])
    coef = np.empty((weights.shape[1], X.shape[1]))
    for k, own in enumerate(weights.T):
        weighted = own[:, None] * X
        coef[k] = np.linalg.solve(weighted.T @ X + penalties, weighted.T @ y)
    rss = (weights * (y[:, None] - X @ coef.T) ** 2).sum(axis=0)
    return coef, np.maximum((rss + LEAST_VARIANCE) / (weights.sum(axis=0) + 1.0), LEAST_VARIANCE)


def log_densities(X: FloatArray, y: FloatArray, coef: FloatArray, variance: FloatArray) -> FloatArray:
    """(events, classes) of each event under each regression."""
    residual = y[:, None] - X @ coef.T
    return -0.5 * (np.log(2.0 * np.pi * variance) + residual**2 / variance)
