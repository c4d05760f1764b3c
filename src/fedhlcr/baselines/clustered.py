"""Clustered federated learning: IFCA, with one hard cluster for each agent or for each entity.

A round of IFCA: the server sends K regressions, everyone takes the one that fits its own data best and sends what the
server needs to improve it. For a linear model that is a Gram matrix, and improving is solving: no step size, no local
epochs, the end point of the gradient steps of Ghosh et al. (2020).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedhlcr.arrays import FloatArray, IndexArray
from fedhlcr.baselines.linear import Coefficients, LinearRival, Standardized
from fedhlcr.baselines.ridge import solve_ridge
from fedhlcr.gram import GramLayout, entity_grams

LEVELS = ("agent", "entity")
NUMBERS_TRIED = (1, 2, 4, 8, 16, 32)
# In standardised units; what keeps the equations of a small cluster regular.
PENALTY = 1e-2
N_FOLDS = 5


class Clustering(NamedTuple):
    """Regressions of the clusters (clusters, n_coef), who is in which, and what is left unexplained."""

    coef: FloatArray
    labels: IndexArray
    rss: float
    n_rounds: int


class IFCARegressor(LinearRival):
    """Iterative federated clustering: every agent, or every entity, takes the regression that fits it best.

    A group not seen in `fit` is predicted by the mean of the clusters, weighted by their events.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of clusters; "auto" takes the best of 1, 2, 4, 8, 16 and 32 on every fifth event.
    level : {"agent", "entity"}, default="agent"
        What has a cluster; the method as published knows agents only.
    n_init : int, default=5
        Starts from random clusters, of which the best fit is kept.
    max_iter : int, default=100
        The most rounds from each start.
    random_state : int or None, default=0

    Attributes
    ----------
    labels_ : (groups,) cluster of each agent or entity
    n_clusters_ : int
    n_rounds_ : int, of the start that was kept
    """

    def __init__(self, n_clusters="auto", level="agent", n_init=5, max_iter=100, random_state=0):
        self.n_clusters = n_clusters
        self.level = level
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def _solve(self, data: Standardized) -> Coefficients:
        if self.level not in LEVELS:
            raise ValueError(f"`level` must be 'agent' or 'entity', but is {self.level!r}.")
        self.n_clusters_ = self._choose(data) if self.n_clusters == "auto" else self.n_clusters
        grams = self._groups(data, data.grams)
        found = self._best_start(data.layout, grams, self.n_clusters_)
        self.labels_, self.n_rounds_ = found.labels, found.n_rounds
        own = found.coef[found.labels]
        sizes = data.layout.n_events(grams)
        of_all = sizes @ own / sizes.sum()
        return Coefficients(of_all, own) if self.level == "agent" else Coefficients(of_all, None, own)

    def _groups(self, data: Standardized, grams: FloatArray) -> FloatArray:
        return data.by_agent(grams) if self.level == "agent" else grams

    def _choose(self, data: Standardized) -> int:
        """The number of clusters whose regressions predict every fifth event best."""
        held_out = (np.arange(data.events.n_events) % N_FOLDS == N_FOLDS - 1).astype(float)
        grams = entity_grams(replace(data.events, weight=held_out), data.layout, data.units.shift)
        test = data.units.rescale(data.layout, grams)
        train, test = self._groups(data, data.grams - test), self._groups(data, test)
        errors = {}
        for number in [number for number in NUMBERS_TRIED if number <= len(train)]:
            found = self._best_start(data.layout, train, number)
            errors[number] = float(data.layout.rss(test, found.coef[found.labels]).sum())
        return min(errors, key=errors.__getitem__)

    def _best_start(self, layout: GramLayout, grams: FloatArray, n_clusters: int) -> Clustering:
        rng = np.random.default_rng(self.random_state)
        starts = self.n_init if n_clusters > 1 else 1
        return min((self._run(layout, grams, n_clusters, rng) for _ in range(starts)), key=lambda found: found.rss)

    def _run(self, layout: GramLayout, grams: FloatArray, n_clusters: int, rng: np.random.Generator) -> Clustering:
        labels = rng.integers(n_clusters, size=len(grams))
        everyone = np.arange(len(grams))
        n_rounds, moved = 0, True
        while moved and n_rounds < self.max_iter:
            n_rounds += 1
            sums = np.zeros((n_clusters, grams.shape[1]))
            np.add.at(sums, labels, grams)
            coef = solve_ridge(layout, sums, PENALTY)
            rss = np.maximum(grams @ layout.rss_vectors(coef).T, 0.0)
            before, labels = labels, rss.argmin(axis=1)
            moved = not np.array_equal(before, labels)
        return Clustering(coef, labels, float(rss[everyone, labels].sum()), n_rounds)
