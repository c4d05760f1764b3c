"""Round 0: from one unlabelled matrix of each participant to the units of the run, fixed for good."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.federation.messages import SURVEY_CLUSTERS, Contributions
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.gram import GramLayout, Standardization, has_spread, read_units
from fedhlcr.model.schema import gram_sums
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader, not_negative, positive, within

# Agents to hear of before the units are fixed, if there are so many: a few may be of one kind.
ENOUGH_AGENTS = 30
# Times an agent is asked that does not answer.
MOST_ASKED = 2
# Mean square, in multiples of what is typical, beyond which an agent has no say in a column's units.
FARTHEST = 1e3
# Times the events of a usual agent that one agent counts for at most.
MOST_SHARES = 10


@dataclass(frozen=True)
class Units:
    """What the survey fixes.

    Attributes
    ----------
    standardization : shift and scale of all columns
    target_spread : root mean square of the target, in these units; where learned scales start
    mean_squares : (width,) of every column, in these units; what is usual
    """

    standardization: Standardization
    target_spread: float
    mean_squares: FloatArray

    def to_record(self) -> codec.Record:
        return {
            "shift": self.standardization.shift,
            "scale": self.standardization.scale,
            "target_spread": self.target_spread,
            "mean_squares": self.mean_squares,
        }

    @classmethod
    def read(cls, reader: RecordReader, layout: GramLayout) -> Units:
        found, units = read_units(reader, fit_intercept=layout.fit_intercept)
        reader.require(found == layout, "shift")
        mean_squares = reader.array("mean_squares", "f8", (layout.width,), not_negative)
        return cls(units, reader.value("target_spread", float, positive), mean_squares)


class Survey:
    """The replies to round 0. Every agent is asked at most MOST_ASKED times, and heard once."""

    def __init__(self, layout: GramLayout) -> None:
        self._layout = layout
        self._times_asked: Counter[int] = Counter()
        self._agents: list[IndexArray] = []
        self._sums: list[AgentSums] = []
        self._shifts: list[FloatArray] = []

    @property
    def agents(self) -> IndexArray:
        """Positions of those that have answered."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self._agents])

    @property
    def n_informative(self) -> int:
        """Agents that have reported events."""
        return sum(len(sums.grams) for sums in self._sums)

    def left_to_ask(self, candidates: IndexArray) -> IndexArray:
        """Those that have not been heard, and whom it makes sense to ask again; anyone, as long as nothing is known."""
        unheard = np.setdiff1d(candidates, self.agents)
        hopeful = [agent for agent in unheard.tolist() if self._times_asked[agent] < MOST_ASKED]
        return unheard if self.n_informative == 0 else np.array(hopeful, dtype=np.int64)

    def ask(self, agents: IndexArray) -> None:
        self._times_asked.update(agents.tolist())

    def absorb(self, agents: IndexArray, contributions: Contributions) -> None:
        self._agents.append(agents)
        self._sums.append(contributions.sums)
        self._shifts.append(contributions.shifts)

    def forget(self, agent: int) -> None:
        """Leave out what an agent has reported."""
        for number, agents in enumerate(self._agents):
            others = np.flatnonzero(agents != agent)
            self._agents[number] = agents[others]
            self._sums[number], self._shifts[number] = self._sums[number].take(others), self._shifts[number][others]

    def to_record(self) -> codec.Record:
        asked = np.array(sorted(self._times_asked.items()), dtype=np.int64).reshape(-1, 2)
        record: codec.Record = {"times_asked": asked}
        if self._agents:
            sums, shifts = AgentSums.stack(self._sums), np.concatenate(self._shifts)
            record |= {"agents": self.agents, "shifts": shifts, **sums.to_record()}
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
            self._agents, self._shifts, self._sums = [agents], [shifts], [sums]

    def fix(self, *, standardize: bool) -> Units:
        """The units of all events reported: each column's mean, and root mean square around it.

        Column by column, agents that lie absurdly far from most have no say, and none has more than MOST_SHARES times
        that of a usual one: what one agent claims must not spoil the units for all. A column without spread among
        those asked may have some elsewhere; it keeps its own unit. A centralised fit, which sees all events and has
        nobody to mistrust, takes plain means (`Standardization.from_gram`).
        """
        order = np.argsort(self.agents, kind="stable")
        sums, shifts = AgentSums.stack(self._sums).take(order), np.concatenate(self._shifts)[order]
        # those without events have no say
        own_means = shifts[sums.row_owner]
        n_events = self._layout.n_events(sums.grams)
        own_squares = self._layout.diagonal(sums.grams)[:, 1:] / n_events[:, None]
        weight = np.minimum(n_events, MOST_SHARES * np.median(n_events))[:, None] * _usual(own_means, own_squares)
        shift = _mean(own_means, weight) if self._layout.fit_intercept else np.zeros(own_means.shape[1])
        squares = _mean(own_squares + (own_means - shift) ** 2, weight)
        scale = np.ones_like(shift)
        if standardize:
            varies = has_spread(np.sqrt(squares), shift)
            scale, squares = np.where(varies, np.sqrt(squares), 1.0), np.where(varies, squares, 0.0)
        mean_squares = np.concatenate([[1.0], squares / scale**2])
        return Units(Standardization(shift, scale), float(np.sqrt(mean_squares[-1])) or 1.0, mean_squares)


def _mean(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Weighted means of columns, in two passes: of a constant, the constant. What weighs nothing may be anything."""
    share = weight / weight.sum(axis=0)
    values = np.where(share > 0.0, values, 0.0)
    means = np.zeros(values.shape[1])
    for _ in range(2):
        means = means + (share * (values - means)).sum(axis=0)
    return means


def _usual(own_means: FloatArray, own_squares: FloatArray) -> NDArray[np.bool_]:
    """(agents, columns): whose column does not lie absurdly far from where most have it.

    Where most have no spread at all, those that have some are compared among themselves.
    """
    squares = own_squares + (own_means - np.median(own_means, axis=0)) ** 2
    typical = np.median(squares, axis=0)
    for column in np.flatnonzero(typical == 0.0):
        some = squares[:, column] > 0.0
        typical[column] = np.median(squares[some, column]) if some.any() else 1.0
    return np.asarray(squares <= FARTHEST * typical)
