"""Mixtures of regressions by expectation maximisation: latent class regression, and soft federated EM.

An event is to them what an entity is: a set of events, through its Gram matrix. So both steps are matrix products of
packed matrices, made once, with as many columns as there are classes. Arrays by class and unit have classes first:
sums over classes then run along memory. The literature on these methods says *class* for what HLCR calls a cluster,
so this module says it too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import StrOptions

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.ridges import solve_ridge
from fedhlcr.baselines.federated import BYTES_PER_NUMBER, FederatedRival, RandomCohorts, Round, Settings
from fedhlcr.baselines.rival import AUTO, COUNT, SEED, TOLERANCE, Coefficients, Constraints, Rival, Rows, Standardized
from fedhlcr.model.gram import GramLayout

# In standardised units: they keep the equations of a small class regular, and its noise above zero.
PENALTY = 1e-3
LEAST_VARIANCE = 1e-4


@dataclass(frozen=True)
class MixtureUnits:
    """The units that have a class: events or entities."""

    layout: GramLayout
    grams: FloatArray  # (units, packed)
    n_events: int

    @classmethod
    def entities(cls, data: Standardized) -> MixtureUnits:
        return cls(data.layout, data.grams, data.events.n_events)

    @classmethod
    def events(cls, data: Standardized) -> MixtureUnits:
        rows, columns = np.tril_indices(data.layout.width)
        augmented = np.column_stack([data.design(), data.target()])
        return cls(data.layout, augmented[:, rows] * augmented[:, columns], data.events.n_events)

    def __len__(self) -> int:
        return len(self.grams)

    def random_classes(self, n_classes: int, rng: np.random.Generator) -> FloatArray:
        """(classes, units) of zeros and ones."""
        return np.eye(n_classes)[:, rng.integers(n_classes, size=len(self))]

    def regressions(self, responsibilities: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Coefficients (classes, n_coef) and variances (classes,) of units weighted by (classes, units)."""
        sums = responsibilities @ self.grams
        coef = solve_ridge(self.layout, sums, PENALTY)
        variance = (self.layout.rss(sums, coef) + LEAST_VARIANCE) / (self.layout.n_events(sums) + 1.0)
        return coef, np.maximum(variance, LEAST_VARIANCE)

    def log_densities(self, coef: FloatArray, variance: FloatArray) -> FloatArray:
        """(classes, units) log density of each unit under each regression."""
        rss = self.layout.rss_vectors(coef) @ self.grams.T
        np.maximum(rss, 0.0, out=rss)
        sizes = self.layout.n_events(self.grams)
        rss /= variance[:, None]
        rss += np.multiply.outer(np.log(2.0 * np.pi * variance), sizes)
        rss *= -0.5
        return rss


def normalize(log_joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Responsibilities (classes, units) from log joint densities, computed in place, and the log evidence (units,)."""
    most = log_joint.max(axis=0)
    log_joint -= most
    np.exp(log_joint, out=log_joint)
    sums = log_joint.sum(axis=0)
    log_joint /= sums
    return log_joint, most + np.log(sums)


class ClassMixture(NamedTuple):
    """A fitted mixture of regressions.

    Attributes
    ----------
    weights : (classes,)
    coef : (classes, n_coef)
    variance : (classes,)
    responsibilities : (units, classes), units being events or entities
    log_likelihood : of the table
    """

    weights: FloatArray
    coef: FloatArray
    variance: FloatArray
    responsibilities: FloatArray
    log_likelihood: float


@dataclass(eq=False, repr=False)
class LCRRegressor(Rival):
    """Latent class regression, fitted by EM from several starts.

    With `label="event"` the class of a new event is unknown, so the mean of the classes' regressions predicts it. With
    `label="entity"` a known entity is predicted by its probable classes.

    Starts are "em-EM" (Biernacki, Celeux and Govaert, 2003): several short runs from random classes. Only the most
    likely one continues.

    Parameters
    ----------
    n_classes : int or "auto", default="auto"
        Number of classes; "auto" takes the best of 1, 2, 3, 4, 6, 8, 12, … by `criterion`, up to `max_classes` or until
        two in a row are worse than the best.
    label : {"event", "entity"}, default="event"
        What has a class.
    criterion : {"bic", "icl"}, default="bic"
    max_classes : int, default=64
    n_init : int, default=10
        Number of short runs for each number of classes.
    short_iter : int, default=10
        Steps of a short run.
    max_iter : int, default=200
        Most further steps of the most likely short run.
    tol : float, default=1e-5
        A run ends when the mean log likelihood per event grows by less.
    random_state : int or None, default=0

    Attributes
    ----------
    mixture_ : Mixture, in standardised units
    n_classes_ : int
    criteria_ : dict, the criterion of each number of classes tried; the least is best
    """

    _parameter_constraints: ClassVar[Constraints] = {
        "n_classes": [COUNT, AUTO],
        "label": [StrOptions({"event", "entity"})],
        "criterion": [StrOptions({"bic", "icl"})],
        "max_classes": [COUNT],
        "n_init": [COUNT],
        "short_iter": [COUNT],
        "max_iter": [COUNT],
        "tol": [TOLERANCE],
        "random_state": SEED,
    }

    n_classes: Any = "auto"
    label: str = "event"
    criterion: str = "bic"
    max_classes: int = 64
    n_init: int = 10
    short_iter: int = 10
    max_iter: int = 200
    tol: float = 1e-5
    random_state: int | None = 0

    def _solve(self, data: Standardized) -> Coefficients:
        units = MixtureUnits.events(data) if self.label == "event" else MixtureUnits.entities(data)
        self.mixture_ = mixture = self._best_number(units, np.random.default_rng(self.random_state))
        self.n_classes_ = len(mixture.coef)
        of_all = mixture.weights @ mixture.coef
        if self.label == "event":
            return Coefficients(of_all)
        return Coefficients(of_all, of_entities=mixture.responsibilities @ mixture.coef)

    def _best_number(self, units: MixtureUnits, rng: np.random.Generator) -> ClassMixture:
        """The mixture with the best number of classes; fills `criteria_`."""
        sizes = _sizes(self.max_classes) if self.n_classes == "auto" else [self.n_classes]
        best = self._best_start(units, sizes[0], rng)
        self.criteria_ = {sizes[0]: self._judge(best)}
        n_worse = 0
        for size in sizes[1:]:
            mixture = self._best_start(units, size, rng)
            criterion = self._judge(mixture)
            if criterion < min(self.criteria_.values()):
                best = mixture
                n_worse = 0
            else:
                n_worse += 1
            self.criteria_[size] = criterion
            if n_worse == 2:
                break
        return best

    def _best_start(self, units: MixtureUnits, n_classes: int, rng: np.random.Generator) -> ClassMixture:
        n_starts = self.n_init if n_classes > 1 else 1
        starts = (units.random_classes(n_classes, rng) for _ in range(n_starts))
        short = (_climb(units, start, self.short_iter, self.tol) for start in starts)
        best = max(short, key=lambda mixture: mixture.log_likelihood)
        return _climb(units, best.responsibilities.T, self.max_iter, self.tol)

    def _judge(self, fit: ClassMixture) -> float:
        """BIC, or ICL, which also counts how uncertain the classes are."""
        n_classes, n_coef = fit.coef.shape
        n_parameters = n_classes * (n_coef + 2) - 1
        judged = -2.0 * fit.log_likelihood + n_parameters * np.log(len(fit.responsibilities))
        if self.criterion == "icl":
            certain = np.maximum(fit.responsibilities, 1e-300)
            judged -= 2.0 * float(np.sum(certain * np.log(certain)))
        return float(judged)


def _climb(units: MixtureUnits, responsibilities: FloatArray, n_steps: int, tol: float) -> ClassMixture:
    """At most `n_steps` steps of EM from responsibilities (classes, units)."""
    before = -np.inf
    for _ in range(n_steps):
        coef, variance = units.regressions(responsibilities)
        weights = _weights(responsibilities)
        log_joint = units.log_densities(coef, variance)
        log_joint += np.log(weights)[:, None]
        responsibilities, evidence = normalize(log_joint)
        now = float(evidence.sum())
        if now - before < tol * units.n_events:
            break
        before = now
    return ClassMixture(weights, coef, variance, responsibilities.T, now)


def _weights(responsibilities: FloatArray) -> FloatArray:
    """Shares of the classes, all above zero."""
    sums = responsibilities.sum(axis=1) + 1e-9
    return sums / sums.sum()


def _sizes(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, …"""
    sizes = [1, 2, 3]
    while sizes[-1] < most:
        sizes.append(2 * sizes[-2])
    return [size for size in sizes if size <= most]


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


@dataclass(eq=False, repr=False)
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

    n_classes: Any = "auto"
    n_init: int = 5
    short_iter: int = 10
    max_iter: int = 100
    tol: float = 1e-5
    participation: float = 1.0
    random_state: int | None = 0

    def _solve(self, data: Standardized) -> AgentMixtures:
        model = super()._solve(data)
        self.agent_weights_ = model.agent_weights
        self.coef_ = model.coef
        return model

    def _train(self, data: Standardized, settings: Settings) -> list[Round[AgentMixtures]]:
        n_classes = settings["n_classes"]
        table = _AgentEvents.of(data)
        rng = np.random.default_rng(self.random_state)
        n_starts = self.n_init if n_classes > 1 else 1
        runs = [_Run(table, n_classes, self.participation, rng) for _ in range(n_starts)]
        for run in runs:
            run.advance(min(self.short_iter, self.max_iter), self.tol)
        best = max(runs, key=_Run.log_likelihood) if n_starts > 1 else runs[0]
        best.advance(self.max_iter, self.tol)
        return best.rounds


class _AgentEvents(NamedTuple):
    """Events sorted by agent; those of agent i are [first[i], first[i + 1])."""

    events: MixtureUnits
    first: IndexArray
    owner: IndexArray  # (events,) agent of each

    @classmethod
    def of(cls, data: Standardized) -> _AgentEvents:
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

    def __init__(self, table: _AgentEvents, n_classes: int, participation: float, rng: np.random.Generator) -> None:
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
