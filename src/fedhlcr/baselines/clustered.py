"""Clustered federated learning: IFCA, with one hard cluster for each agent or for each entity.

A round of IFCA: the server sends K regressions, everyone takes the one that fits its own data best and sends what the
server needs to improve it. For a linear model that is a Gram matrix, and improving is solving: no step size, no local
epochs, the end point of the gradient steps of Ghosh et al. (2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.baselines.federated import BYTES_PER_NUMBER, Attendance, FederatedRival, Round, Settings
from fedhlcr.baselines.ridge import solve_ridge
from fedhlcr.baselines.rival import AUTO, COUNT, Coefficients, Constraints, Rows, Standardized
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.model.gram import GramLayout


class Clusters(NamedTuple):
    """Hard clusters of agents or of entities, with a regression each.

    Attributes
    ----------
    coef : (clusters, n_coef)
    labels : (groups,) cluster that fits each agent or entity best
    sizes : (groups,) number of events
    level : what is clustered
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


class IFCARegressor(FederatedRival[Clusters]):
    """Iterative federated clustering: every agent, or every entity, takes the regression that fits it best.

    A group not seen in `fit` is predicted by the mean of the clusters, weighted by their events.

    In the first round all agents are asked for a start. In each later one, every agent asked gets the regressions of
    all clusters, and sends for each cluster among its own the number of the cluster and one packed Gram matrix. The
    server keeps what each agent sent last, so a cluster that nobody asked belongs to stays as it is. A start ends when
    no one has moved to another cluster since everyone was asked.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of clusters; "auto" tries 1, 2, 4, 8, 16, 32 and 64.
    level : {"agent", "entity"}, default="agent"
        What has a cluster; the method as published knows agents only.
    penalty : float or "auto", default="auto"
        Of the squared slopes of each cluster, in standardised units: as many events as it is worth. "auto" tries 0.01
        and 1.
    n_init : int, default=10
        Starts, of which the best fit is kept: the first from random clusters of all groups, the second from groups
        drawn at random that are clusters by themselves, and so on in turn.
    max_iter : int, default=100
        The most rounds from each start.
    participation : float, default=1.0
        Share of the agents asked in each round but the first.
    random_state : int or None, default=0

    Attributes
    ----------
    labels_ : (groups,) cluster of each agent or entity
    n_clusters_, penalty_ : as given or chosen
    rounds_, n_rounds_, bytes_per_round_ : as of every federated rival, of the start that was kept
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

    def __init__(
        self,
        n_clusters="auto",
        level="agent",
        penalty="auto",
        n_init=10,
        max_iter=100,
        participation=1.0,
        random_state=0,
    ):
        self.n_clusters = n_clusters
        self.level = level
        self.penalty = penalty
        self.n_init = n_init
        self.max_iter = max_iter
        self.participation = participation
        self.random_state = random_state

    def _solve(self, data: Standardized) -> Clusters:
        model = super()._solve(data)
        self.labels_ = model.labels
        return model

    def _train(self, data: Standardized, settings: Settings) -> list[Round[Clusters]]:
        n_clusters = settings["n_clusters"]
        groups = _Groups.of(data, self.level, settings["penalty"])
        rng = np.random.default_rng(self.random_state)
        n_starts = self.n_init if n_clusters > 1 else 1
        runs = [self._run(groups, n_clusters, rng, seeded=start % 2 == 1) for start in range(n_starts)]
        return min(runs, key=lambda rounds: groups.left_by(rounds[-1].model))

    def _run(
        self, groups: _Groups, n_clusters: int, rng: np.random.Generator, *, seeded: bool
    ) -> list[Round[Clusters]]:
        labels = groups.first_labels(n_clusters, rng, seeded=seeded)
        attendance = Attendance(groups.n_agents, self.participation)
        coef = np.zeros((n_clusters, groups.layout.n_coef))
        n_numbers = groups.numbers_sent(labels)
        rounds: list[Round[Clusters]] = []
        while True:
            coef = groups.regressions(labels, coef)
            best = groups.rss(coef).argmin(axis=1)
            rounds.append(Round(Clusters(coef, best, groups.sizes, self.level), BYTES_PER_NUMBER * n_numbers))
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
    """What is clustered: agents or entities, through their Gram matrices."""

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
        """A random cluster for each group; or, if seeded, a cluster of its own for some, and UNKNOWN for the others."""
        if not seeded:
            return rng.integers(n_clusters, size=len(self.grams))
        seeds = rng.permutation(len(self.grams))[:n_clusters]
        labels = np.full(len(self.grams), UNKNOWN)
        labels[seeds] = np.arange(len(seeds))
        return labels

    def regressions(self, labels: IndexArray, before: FloatArray) -> FloatArray:
        """(clusters, n_coef) of the groups in each cluster; of an empty cluster, the one before."""
        known = labels != UNKNOWN
        sums = np.zeros((len(before), self.layout.packed_size))
        np.add.at(sums, labels[known], self.grams[known])
        occupied = self.layout.n_events(sums) > 0.0
        return np.where(occupied[:, None], solve_ridge(self.layout, sums, self.penalty), before)

    def rss(self, coef: FloatArray) -> FloatArray:
        """(groups, clusters) what each regression leaves of each group."""
        return np.maximum(self.grams @ self.layout.rss_vectors(coef).T, 0.0)

    def left_by(self, clusters: Clusters) -> float:
        return float(self.rss(clusters.coef).min(axis=1).sum())

    def numbers_sent(self, labels: IndexArray) -> int:
        """By agents whose groups have these labels: for each of their clusters its number and a Gram matrix."""
        known = labels != UNKNOWN
        pairs = np.unique(np.stack([self.agent_of[known], labels[known]]), axis=1)
        return pairs.shape[1] * (1 + self.layout.packed_size)
