"""Soft federated EM: every agent mixes K shared regressions in its own proportions (Marfoq et al., 2021).

In a round the server sends K regressions. An agent computes the responsibilities of its events, takes their means as
its own proportions, and sends K weighted Gram matrices. The server adds these and solves for the regressions.
As in `mixtures`, the K regressions are called classes, as in the literature; in HLCR they are clusters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.baselines.federated import BYTES_PER_NUMBER, FederatedRival, RandomCohorts, Round, Settings
from fedhlcr.baselines.mixtures import MixtureUnits, normalize
from fedhlcr.baselines.rival import AUTO, COUNT, TOLERANCE, Coefficients, Constraints, Rows, Standardized


class AgentMixtures(NamedTuple):
    """Shared regressions, and each agent's mixture of them.

    Attributes
    ----------
    coef : (classes, n_coef)
    agent_weights : (agents, classes)
    sizes : (agents,) number of events
    """

    coef: FloatArray
    agent_weights: FloatArray
    sizes: IndexArray

    def predict(self, rows: Rows) -> FloatArray:
        weights = self.sizes @ self.agent_weights / self.sizes.sum()
        return Coefficients(weights @ self.coef, self.agent_weights @ self.coef).predict(rows)


class FedEMRegressor(FederatedRival[AgentMixtures]):
    """Mixture of shared regressions with proportions per agent, and a class per event.

    A known agent is predicted by its own mixture, a new one by the mean mixture. Entities are not used.

    In the first round all agents are asked, with random responsibilities. In each later round, every agent asked gets
    the coefficients and the variance of all classes, and sends a packed Gram matrix for each. The server keeps the last
    answer of each agent.

    Parameters
    ----------
    n_classes : int or "auto", default="auto"
        Number of classes; "auto" tries 1, 2, 4, 8 and 16.
    n_init : int, default=5
        Number of random starts. Each runs for `short_iter` rounds; only the most likely one continues.
    short_iter : int, default=10
    max_iter : int, default=100
        Most rounds, including those of the start.
    tol : float, default=1e-5
        The run ends when the mean log likelihood per event has grown by less since all agents were asked last.
    participation : float, default=1.0
        Share of the agents asked in each round after the first.
    random_state : int or None, default=0

    Attributes
    ----------
    agent_weights_ : (agents, classes)
    coef_ : (classes, n_features + 1), the intercept first, in standardised units
    n_classes_ : int
    rounds_, n_rounds_, bytes_per_round_ : as in every federated baseline, for the start that was kept
    """

    _grid: ClassVar[dict[str, tuple[Any, ...]]] = {"n_classes": (1, 2, 4, 8, 16)}
    _parameter_constraints: ClassVar[Constraints] = {
        **FederatedRival._parameter_constraints,
        "n_classes": [COUNT, AUTO],
        "n_init": [COUNT],
        "short_iter": [COUNT],
        "max_iter": [COUNT],
        "tol": [TOLERANCE],
    }

    def __init__(
        self,
        n_classes="auto",
        n_init=5,
        short_iter=10,
        max_iter=100,
        tol=1e-5,
        participation=1.0,
        random_state=0,
    ):
        self.n_classes = n_classes
        self.n_init = n_init
        self.short_iter = short_iter
        self.max_iter = max_iter
        self.tol = tol
        self.participation = participation
        self.random_state = random_state

    def _solve(self, data: Standardized) -> AgentMixtures:
        model = super()._solve(data)
        self.agent_weights_ = model.agent_weights
        self.coef_ = model.coef
        return model

    def _train(self, data: Standardized, settings: Settings) -> list[Round[AgentMixtures]]:
        n_classes = settings["n_classes"]
        table = _Table.of(data)
        rng = np.random.default_rng(self.random_state)
        n_starts = self.n_init if n_classes > 1 else 1
        runs = [_Run(table, n_classes, self.participation, rng) for _ in range(n_starts)]
        for run in runs:
            run.advance(min(self.short_iter, self.max_iter), self.tol)
        best = max(runs, key=_Run.log_likelihood) if n_starts > 1 else runs[0]
        best.advance(self.max_iter, self.tol)
        return best.rounds


class _Table(NamedTuple):
    """Events sorted by agent; those of agent i are [first[i], first[i + 1])."""

    events: MixtureUnits
    first: IndexArray
    owner: IndexArray  # (events,) agent of each

    @classmethod
    def of(cls, data: Standardized) -> _Table:
        first = data.first_event
        return cls(MixtureUnits.events(data), first, np.repeat(np.arange(len(first) - 1), np.diff(first)))

    @property
    def sizes(self) -> IndexArray:
        return np.diff(self.first)

    def by_agent(self, of_event: FloatArray) -> FloatArray:
        """Sums over the events of each agent, along the last axis."""
        return np.add.reduceat(of_event, self.first[:-1], axis=-1)


class _Run:
    """The rounds of one start."""

    def __init__(self, table: _Table, n_classes: int, participation: float, rng: np.random.Generator) -> None:
        self._table = table
        self._rng = rng
        self._attendance = RandomCohorts(len(table.sizes), participation)
        self._responsibilities = table.events.random_classes(n_classes, rng)
        # log evidence of each agent when it was asked last, and of all agents once all had been asked
        self._evidence = np.full(len(table.sizes), -np.inf)
        self._evidence_before = -np.inf
        self._ended = False
        self.rounds: list[Round[AgentMixtures]] = []
        self._maximize(n_bytes=self._bytes_up(len(table.sizes)))

    def advance(self, n_rounds: int, tol: float) -> None:
        """Run until there are `n_rounds` rounds, or the likelihood stops growing."""
        while len(self.rounds) < n_rounds and not self._ended:
            asked = self._attendance.ask(self._rng)
            self._weigh(asked)
            n_down = self._coef.size + self._variance.size
            self._maximize(n_bytes=self._bytes_up(len(asked)) + BYTES_PER_NUMBER * len(asked) * n_down)
            if self._attendance.complete:
                evidence = float(self._evidence.sum())
                self._ended = evidence - self._evidence_before < tol * len(self._table.events)
                self._evidence_before = evidence
                self._attendance.restart()

    def log_likelihood(self) -> float:
        return float(normalize(self._log_joint(slice(None)))[1].sum())

    def _weigh(self, asked: IndexArray) -> None:
        """The agents' half of a round: responsibilities of their events."""
        everyone = len(asked) == len(self._table.sizes)
        rows = slice(None) if everyone else np.flatnonzero(np.isin(self._table.owner, asked))
        evidence = np.zeros(len(self._table.events))
        self._responsibilities[:, rows], evidence[rows] = normalize(self._log_joint(rows))
        self._evidence[asked] = self._table.by_agent(evidence)[asked]

    def _maximize(self, n_bytes: int) -> None:
        """The server's half of a round, from the last answer of each agent."""
        self._coef, self._variance = self._table.events.regressions(self._responsibilities)
        self._agent_weights = (self._table.by_agent(self._responsibilities) / self._table.sizes).T
        self.rounds.append(Round(AgentMixtures(self._coef, self._agent_weights, self._table.sizes), n_bytes))

    def _log_joint(self, rows: IndexArray | slice) -> FloatArray:
        events = replace(self._table.events, grams=self._table.events.grams[rows])
        log_joint = events.log_densities(self._coef, self._variance)
        log_joint += np.log(self._agent_weights + 1e-12).T[:, self._table.owner[rows]]
        return log_joint

    def _bytes_up(self, n_agents: int) -> int:
        return BYTES_PER_NUMBER * n_agents * len(self._responsibilities) * self._table.events.layout.packed_size
