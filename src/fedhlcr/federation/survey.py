"""The survey, round 0: it fixes the units of the run from one Gram matrix of each participant's events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import not_negative, square_positive, within
from fedhlcr.federation.messages import SURVEY_CLUSTERS, Contributions
from fedhlcr.federation.sums import AgentSums
from fedhlcr.kernels.grams import change_units
from fedhlcr.model.curves import N_QUANTILES, Curves, pooled_quantiles
from fedhlcr.model.gram import GramLayout, Standardization, has_spread, read_units
from fedhlcr.model.schema import gram_sums
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader

# Agents that should answer before the units are fixed, if there are so many: a few agents may not be representative.
ENOUGH_AGENTS = 30
# How often an agent that does not answer is asked.
MOST_ASKED = 2
# An agent whose mean square of a column exceeds this multiple of the median does not influence the column's units.
FARTHEST = 1e3
# With a link, sums hold working targets instead of targets. Their mean square is about this multiple of the squared
# spread of the linear part.
WORKING_TARGETS = 10.0
# An agent counts for at most this multiple of the median number of events.
MOST_SHARES = 10


@dataclass(frozen=True)
class Units:
    """The units of a run, which the survey fixes.

    Attributes
    ----------
    standardization : shift and scale of all columns
    target_spread : root mean square of the target in these units; learned scales start there
    mean_squares : (width,) mean square of every column in these units; later contributions are compared with it
    """

    standardization: Standardization
    target_spread: float
    mean_squares: FloatArray

    def with_own_target(self, linear_spread: float) -> Units:
        """The same for targets that stay as they are, where the linear part has this spread."""
        mean_squares = self.mean_squares.copy()
        mean_squares[-1] = WORKING_TARGETS * linear_spread**2
        return replace(
            self,
            standardization=self.standardization.with_own_target(),
            target_spread=linear_spread,
            mean_squares=mean_squares,
        )

    def to_record(self) -> codec.Record:
        return {
            **self.standardization.to_record(),
            "target_spread": self.target_spread,
            "mean_squares": self.mean_squares,
        }

    @classmethod
    def read(cls, reader: RecordReader, layout: GramLayout) -> Units:
        found, units = read_units(reader, fit_intercept=layout.fit_intercept)
        reader.require(found.n_inputs == layout.n_features, "shift")
        mean_squares = reader.array("mean_squares", "f8", (found.width,), not_negative)
        return cls(units, reader.value("target_spread", float, square_positive), mean_squares)


class Survey:
    """The replies to round 0. An agent is asked at most MOST_ASKED times, and its first reply counts.

    Parameters
    ----------
    layout : of the agents' own columns
    curve_columns : positions of the columns that may get a curve; agents report their quantiles
    """

    def __init__(self, layout: GramLayout, curve_columns: tuple[int, ...] = ()) -> None:
        self._layout = layout
        self._curve_columns = curve_columns
        self._times_asked: Counter[int] = Counter()
        self._agents: list[IndexArray] = []
        self._sums: list[AgentSums] = []
        self._shifts: list[FloatArray] = []
        self._quantiles: list[FloatArray] = []

    @property
    def agents(self) -> IndexArray:
        """Positions of the agents that have answered."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self._agents])

    @property
    def n_informative(self) -> int:
        """Number of agents that have reported events."""
        return sum(len(sums.grams) for sums in self._sums)

    def n_events(self) -> float:
        """Number of events that agents have reported."""
        return float(sum(self._layout.n_events(sums.grams).sum() for sums in self._sums))

    def answers(self) -> tuple[AgentSums, FloatArray]:
        """All replies, in the order of the agents: a matrix of each one's events around its own means, and these."""
        order = np.argsort(self.agents, kind="stable")
        return AgentSums.stack(self._sums).take(order), np.concatenate(self._shifts)[order]

    def left_to_ask(self, candidates: IndexArray) -> IndexArray:
        """Candidates that have not answered; once there are events, only those asked less than MOST_ASKED times."""
        unanswered = np.setdiff1d(candidates, self.agents)
        asked_less = [agent for agent in unanswered.tolist() if self._times_asked[agent] < MOST_ASKED]
        return unanswered if self.n_informative == 0 else np.array(asked_less, dtype=np.int64)

    def ask(self, agents: IndexArray) -> None:
        self._times_asked.update(agents.tolist())

    def absorb(self, agents: IndexArray, contributions: Contributions) -> None:
        self._agents.append(agents)
        self._sums.append(contributions.sums)
        self._shifts.append(contributions.shifts)
        if contributions.quantiles is not None:
            self._quantiles.append(contributions.quantiles)

    def forget(self, agent: int) -> None:
        """Drop the reply of an agent."""
        for number, agents in enumerate(self._agents):
            others = np.flatnonzero(agents != agent)
            self._agents[number] = agents[others]
            self._sums[number], self._shifts[number] = self._sums[number].take(others), self._shifts[number][others]
            if self._quantiles:
                self._quantiles[number] = self._quantiles[number][others]

    def to_record(self) -> codec.Record:
        asked = np.array(sorted(self._times_asked.items()), dtype=np.int64).reshape(-1, 2)
        record: codec.Record = {"times_asked": asked}
        if self._agents:
            sums = AgentSums.stack(self._sums)
            shifts = np.concatenate(self._shifts)
            record |= {"agents": self.agents, "shifts": shifts, **sums.to_record()}
        if self._quantiles:
            record["quantiles"] = np.concatenate(self._quantiles)
        return record

    def restore(self, reader: RecordReader, n_agents: int) -> None:
        asked = reader.array("times_asked", "i8", (None, 2), not_negative)
        reader.require((asked[:, 0] < n_agents).all(), "times_asked")
        self._times_asked = Counter(dict(asked.tolist()))
        if "agents" in reader:
            agents = reader.array("agents", "i8", (None,), within(0, n_agents))
            reader.require(len(np.unique(agents)) == len(agents), "agents")
            shifts = reader.array("shifts", "f8", (len(agents), self._layout.width - 1), np.isfinite)
            sums = AgentSums.read(reader, gram_sums(self._layout.packed_size), len(SURVEY_CLUSTERS))
            reader.require(len(sums) == len(agents), "agents")
            self._agents = [agents]
            self._shifts = [shifts]
            self._sums = [sums]
            if self._curve_columns:
                shape = (len(agents), len(self._curve_columns), N_QUANTILES)
                self._quantiles = [reader.array("quantiles", "f8", shape, np.isfinite)]

    def fix(self, *, standardize: bool, trusting: bool = False) -> Units:
        """The units of a run: the mean of each column over all events reported, and the root mean square around it.

        One agent's reply must not spoil the units for all. So, column by column, an agent far from most others is left
        out, and no agent counts for more than MOST_SHARES times the median number of events. A column without spread
        among these agents may vary elsewhere; its scale is 1. A centralised fit sees all events and need not protect
        itself, so it takes plain means (`Standardization.from_gram`); so does a `trusting` federation.
        """
        sums, shifts = self.answers()
        # agents without events have no row
        own_means = shifts[sums.row_owner]
        n_events = self._layout.n_events(sums.grams)
        own_squares = self._layout.diagonal(sums.grams)[:, 1:] / n_events[:, None]
        shares = n_events if trusting else np.minimum(n_events, MOST_SHARES * np.median(n_events))
        weight = shares[:, None] * (trusting | _usual(own_means, own_squares))
        shift = _mean(own_means, weight) if self._layout.fit_intercept else np.zeros(own_means.shape[1])
        squares = _mean(own_squares + (own_means - shift) ** 2, weight)
        scale = np.ones_like(shift)
        if standardize:
            varies = has_spread(np.sqrt(squares), shift)
            scale = np.where(varies, np.sqrt(squares), 1.0)
            squares = np.where(varies, squares, 0.0)
        mean_squares = np.concatenate([[1.0], squares / scale**2])
        target_spread = float(np.sqrt(mean_squares[-1])) or 1.0
        units = Units(Standardization(shift, scale), target_spread, mean_squares)
        if not self._quantiles:
            return units
        order = np.argsort(self.agents, kind="stable")
        own_quantiles = np.concatenate(self._quantiles)[order][sums.row_owner]
        return _with_curves(units, self._curves(own_quantiles, shares))

    def claims(self, units: Standardization) -> tuple[IndexArray, FloatArray]:
        """The agents that have reported events, and the matrix of each agent's events in the units of the run."""
        sums = AgentSums.stack(self._sums)
        shifts = np.concatenate(self._shifts)
        grams = sums.grams.copy()
        inputs = [*range(self._layout.n_features), -1]
        offsets = shifts[sums.row_owner] - units.shift[inputs]
        change_units(grams, np.arange(len(grams) + 1), offsets, 1.0 / units.scale[inputs])
        return self.agents[sums.row_owner], grams

    def _curves(self, own_quantiles: FloatArray, weight: FloatArray) -> Curves | None:
        """The curves of the columns asked for that have enough distinct values over all agents."""
        quantiles = np.zeros((self._layout.n_features, N_QUANTILES))
        quantiles[list(self._curve_columns)] = pooled_quantiles(own_quantiles, weight)
        return Curves.from_quantiles(quantiles, self._curve_columns)


def _with_curves(units: Units, curves: Curves | None) -> Units:
    """The units with those of the curves, which have mean zero and unit mean square, before those of the target."""
    if curves is None:
        return units
    of_columns = units.standardization
    n_appended = sum(curves.groups)
    shift = np.insert(of_columns.shift, -1, np.zeros(n_appended))
    scale = np.insert(of_columns.scale, -1, np.ones(n_appended))
    mean_squares = np.insert(units.mean_squares, -1, np.ones(n_appended))
    return replace(units, standardization=Standardization(shift, scale, curves), mean_squares=mean_squares)


def _mean(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Weighted means of columns. The second pass makes the mean of a constant exact. Values of weight 0 are ignored."""
    share = weight / weight.sum(axis=0)
    values = np.where(share > 0.0, values, 0.0)
    means = np.zeros(values.shape[1])
    for _ in range(2):
        means = means + (share * (values - means)).sum(axis=0)
    return means


def _usual(own_means: FloatArray, own_squares: FloatArray) -> NDArray[np.bool_]:
    """(agents, columns) whether an agent's column lies near those of most agents.

    If a column has no spread at most agents, only the agents at which it has some are compared.
    """
    squares = own_squares + (own_means - np.median(own_means, axis=0)) ** 2
    typical = np.median(squares, axis=0)
    for column in np.flatnonzero(typical == 0.0):
        with_spread = squares[:, column] > 0.0
        typical[column] = np.median(squares[with_spread, column]) if with_spread.any() else 1.0
    return np.asarray(squares <= FARTHEST * typical)
