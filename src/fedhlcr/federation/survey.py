"""Round 0: from one unlabelled matrix of each participant to the units of the run, fixed for good."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhlcr import codec
from fedhlcr.arrays import FloatArray, IndexArray
from fedhlcr.federation.messages import Contributions
from fedhlcr.federation.sums import AgentSums
from fedhlcr.gram import GramLayout, Standardization
from fedhlcr.kernels.grams import change_units


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
    def from_record(cls, record: codec.Record) -> Units:
        units = Standardization(record["shift"], record["scale"])
        return cls(units, record["target_spread"], record["mean_squares"])


class Survey:
    """The replies to round 0."""

    def __init__(self, layout: GramLayout) -> None:
        self._layout = layout
        self._agents: list[IndexArray] = []
        self._sums: list[AgentSums] = []
        self._shifts: list[FloatArray] = []

    @property
    def is_empty(self) -> bool:
        """Whether no event was reported."""
        return all(len(sums.grams) == 0 for sums in self._sums)

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

    def fix(self, *, standardize: bool, max_mean_square: float) -> Units:
        """The units of all events reported, summed in the order of the agents."""
        agents, sums, shifts = np.concatenate(self._agents), AgentSums.stack(self._sums), np.concatenate(self._shifts)
        self._sums.clear()
        if (np.diff(agents) < 0).any():
            order = np.argsort(agents, kind="stable")
            sums, shifts = sums.take(order), shifts[order]
        # those without events have no say
        grams, own_shifts = sums.grams, shifts[sums.row_owner]
        usual = self._usual(grams, own_shifts, max_mean_square)
        if not usual.all():
            grams, own_shifts = grams[usual], own_shifts[usual]
        shift = self._mean(grams, own_shifts)
        around = np.arange(len(grams) + 1)
        change_units(grams, around, own_shifts - shift, np.ones(len(shift)))
        pooled = grams.sum(axis=0)
        standardization = Standardization.from_gram(self._layout, pooled, shift, scale=standardize)
        pooled = standardization.rescale(self._layout, pooled)
        mean_squares = self._layout.diagonal(pooled) / self._layout.n_events(pooled)
        return Units(standardization, float(np.sqrt(mean_squares[-1])) or 1.0, mean_squares)

    def _mean(self, grams: FloatArray, own_shifts: FloatArray) -> FloatArray:
        """The mean of all events; zero where there is no intercept to take it up."""
        shift = np.zeros(own_shifts.shape[1])
        if self._layout.fit_intercept:
            share = self._layout.n_events(grams) / self._layout.n_events(grams).sum()
            for _ in range(2):
                # twice: the mean of a constant is that constant
                shift = shift + np.einsum("a,af->f", share, own_shifts - shift)
        return shift

    def _usual(self, grams: FloatArray, own_shifts: FloatArray, max_mean_square: float) -> NDArray[np.bool_]:
        """Agents whose columns do not lie absurdly far from those of most: one must not spoil the units for all."""
        own_spread = self._layout.diagonal(grams)[:, 1:] / self._layout.n_events(grams)[:, None]
        squares = own_spread + (own_shifts - np.median(own_shifts, axis=0)) ** 2
        typical = np.median(squares, axis=0)
        unusual = squares > max_mean_square * np.where(typical > 0, typical, np.inf)
        return np.asarray(~unusual.any(axis=1))
