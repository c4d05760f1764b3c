"""Clustered federated learning: IFCA, with one hard cluster for each agent or for each entity.

In a round of IFCA the server sends K regressions. Each agent takes the one that fits its own data best, and sends what
the server needs to improve it. For a linear model that is a Gram matrix, and the server solves for the regression. So
there is no step size and no local epochs: this is the end point of the gradient steps of Ghosh et al. (2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.ridges import solve_ridge
from fedhlcr.baselines.federated import BYTES_PER_NUMBER, FederatedRival, RandomCohorts, Round, Settings
from fedhlcr.baselines.rival import AUTO, COUNT, Coefficients, Constraints, Rows, Standardized
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.model.gram import GramLayout


class ClusterModels(NamedTuple):
    """Hard clusters of agents or of entities, each with its regression.

    Attributes
    ----------
    coef : (clusters, n_coef)
    labels : (groups,) cluster that fits each agent or entity best
    sizes : (groups,) number of events
    level : "agent" or "entity"
    """

    coef: FloatArray
    labels: IndexArray
    sizes: FloatArray
    level: str

    def predict(self, rows: Rows) -> FloatArray:
        own = self.coef[self.labels]
        of_all = self.sizes @ own / self.sizes.sum()
        regressions = Coefficients(of_all, own) if self.level == "agent" else Coefficients(of_all, None, own)
        return regressions.predict(rows)


@dataclass(eq=False, repr=False)
class IFCARegressor(FederatedRival[ClusterModels]):
    """Iterative federated clustering: every agent or entity belongs to the cluster whose regression fits it best.

    A group not seen in `fit` is predicted by the mean of the clusters, weighted by their events.

    In the first round all agents are asked. In each later round, every agent asked gets the regressions of all
    clusters. For each of its own clusters it sends the cluster's number and one packed Gram matrix. The server keeps
    the last answer of each agent. A run ends when no group has changed its cluster since all agents were asked.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of clusters; "auto" tries 1, 2, 4, 8, 16, 32 and 64.
    level : {"agent", "entity"}, default="agent"
        What is clustered. The published method clusters agents.
    penalty : float or "auto", default="auto"
        Penalty of the squared slopes of each cluster, in standardised units. "auto" tries 0.01 and 1.
    n_init : int, default=10
        Number of starts; the best fit is kept. Starts alternate between random clusters of all groups and clusters of
        one random group each.
    max_iter : int, default=100
        Most rounds from each start.
    participation : float, default=1.0
        Share of the agents asked in each round after the first.
    random_state : int or None, default=0

    Attributes
    ----------
    labels_ : (groups,) cluster of each agent or entity
    n_clusters_, penalty_ : as given or chosen
    rounds_, n_rounds_, bytes_per_round_ : as in every federated baseline, for the start that was kept
    """

    _grid: ClassVar[dict[str, tuple[Any, ...]]] = {"n_clusters": (1, 2, 4, 8, 16, 32, 64), "penalty": (0.01, 1.0)}
    _parameter_constraints: ClassVar[Constraints] = {
        **FederatedRival._parameter_constraints,
        "n_clusters": [COUNT, AUTO],
        "level": [StrOptions({"agent", "entity"})],
        "penalty": [Interval(Real, 1e-6, None, closed="left"), AUTO],
        "n_init": [COUNT],
        "max_iter": [COUNT],
    }

    n_clusters: Any = "auto"
    level: str = "agent"
    penalty: Any = "auto"
    n_init: int = 10
    max_iter: int = 100
    participation: float = 1.0
    random_state: int | None = 0

    def _solve(self, data: Standardized) -> ClusterModels:
        model = super()._solve(data)
        self.labels_ = model.labels
        return model

    def _train(self, data: Standardized, settings: Settings) -> list[Round[ClusterModels]]:
        n_clusters = settings["n_clusters"]
        groups = _Groups.of(data, self.level, settings["penalty"])
        rng = np.random.default_rng(self.random_state)
        n_starts = self.n_init if n_clusters > 1 else 1
        runs = [self._run(groups, n_clusters, rng, seeded=start % 2 == 1) for start in range(n_starts)]
        return min(runs, key=lambda rounds: groups.left_by(rounds[-1].model))

    def _run(
        self, groups: _Groups, n_clusters: int, rng: np.random.Generator, *, seeded: bool
    ) -> list[Round[ClusterModels]]:
        labels = groups.first_labels(n_clusters, rng, seeded=seeded)
        attendance = RandomCohorts(groups.n_agents, self.participation)
        coef = np.zeros((n_clusters, groups.layout.n_coef))
        n_numbers = groups.numbers_sent(labels)
        rounds: list[Round[ClusterModels]] = []
        while True:
            coef = groups.regressions(labels, coef)
            best = groups.rss(coef).argmin(axis=1)
            rounds.append(Round(ClusterModels(coef, best, groups.sizes, self.level), BYTES_PER_NUMBER * n_numbers))
            if attendance.complete or len(rounds) == self.max_iter:
                return rounds
            asked = attendance.ask(rng)
            theirs = np.isin(groups.agent_of, asked)
            if np.any(best[theirs] != labels[theirs]):
                attendance.restart()
            labels = np.where(theirs, best, labels)
            n_numbers = len(asked) * coef.size + groups.numbers_sent(np.where(theirs, labels, UNKNOWN))


@dataclass(frozen=True)
class _Groups:
    """The agents or entities to cluster, with their Gram matrices."""

    layout: GramLayout
    grams: FloatArray  # (groups, packed)
    agent_of: IndexArray  # (groups,)
    n_agents: int
    penalty: float

    @classmethod
    def of(cls, data: Standardized, level: str, penalty: float) -> _Groups:
        n_agents = data.index.n_agents
        if level == "agent":
            return cls(data.layout, data.by_agent(data.grams), np.arange(n_agents), n_agents, penalty)
        return cls(data.layout, data.grams, data.index.agent_of, n_agents, penalty)

    @property
    def sizes(self) -> FloatArray:
        return self.layout.n_events(self.grams)

    def first_labels(self, n_clusters: int, rng: np.random.Generator, *, seeded: bool) -> IndexArray:
        """A random cluster for each group; if seeded, one random group for each cluster, and UNKNOWN for the others."""
        if not seeded:
            return rng.integers(n_clusters, size=len(self.grams))
        seeds = rng.permutation(len(self.grams))[:n_clusters]
        labels = np.full(len(self.grams), UNKNOWN)
        labels[seeds] = np.arange(len(seeds))
        return labels

    def regressions(self, labels: IndexArray, before: FloatArray) -> FloatArray:
        """(clusters, n_coef) regressions of the clusters; an empty cluster keeps the one before."""
        known = labels != UNKNOWN
        sums = np.zeros((len(before), self.layout.packed_size))
        np.add.at(sums, labels[known], self.grams[known])
        occupied = self.layout.n_events(sums) > 0.0
        return np.where(occupied[:, None], solve_ridge(self.layout, sums, self.penalty), before)

    def rss(self, coef: FloatArray) -> FloatArray:
        """(groups, clusters) residual sum of squares of each group under each regression."""
        return np.maximum(self.grams @ self.layout.rss_vectors(coef).T, 0.0)

    def left_by(self, clusters: ClusterModels) -> float:
        return float(self.rss(clusters.coef).min(axis=1).sum())

    def numbers_sent(self, labels: IndexArray) -> int:
        """Numbers sent by agents with these labels: for each of their clusters its number and a Gram matrix."""
        known = labels != UNKNOWN
        pairs = np.unique(np.stack([self.agent_of[known], labels[known]]), axis=1)
        return pairs.shape[1] * (1 + self.layout.packed_size)
