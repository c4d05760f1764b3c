"""What agents have claimed to have, which cannot change between rounds: their events and the number of their entities.

As long as sums are those of the events themselves, the sum of an agent's matrices over clusters is the same in every
round, whatever the labels, and equal to its matrix in the survey. Where a likelihood divides events by noise variances
or subtracts effects, only the number of events and of entities stays the same.

Of an agent's matrix a few random sums are kept, with coefficients that only this server process knows: any other matrix
has other sums. A checkpoint does not hold claims. They follow from the ledger, except those of agents that have only
answered the survey.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray, for_kernels
from fedhlcr.federation.sums import AgentSums
from fedhlcr.kernels.grams import add_rows
from fedhlcr.model.gram import GramLayout

# How far sums may differ because of rounding, relative to the largest entry of the matrix in usual units, by default.
MAX_CHANGE = 1e-6
# Random sums that are kept of each matrix.
N_MARKS = 4
OTHER_EVENTS = "its events are not those of its earlier replies"
OTHER_ENTITIES = "its entities are not those of its earlier replies"


class Claims:
    """By agent: marks of the matrix of all events, and the numbers of events and entities; NaN if not known.

    Parameters
    ----------
    n_inputs : number of features, without curves
    max_change : how far claims may change, relative to the claims
    """

    def __init__(self, n_inputs: int, max_change: float = MAX_CHANGE) -> None:
        self._own = GramLayout(n_inputs)
        self._max_change = max_change
        # not from the seed of the run, which agents know
        self._secret = np.random.default_rng().normal(size=(self._own.packed_size, N_MARKS))
        self._marks = np.empty((0, N_MARKS))
        self._counts = np.empty((0, 2))
        self._usual_events: float | None = None

    def grow(self, n_agents: int) -> None:
        missing = n_agents - len(self._marks)
        if missing > 0:
            self._marks = np.append(self._marks, np.full((missing, N_MARKS), np.nan), axis=0)
            self._counts = np.append(self._counts, np.full((missing, 2), np.nan), axis=0)

    def forget(self, agent: int) -> None:
        if agent < len(self._marks):
            self._marks[agent] = np.nan
            self._counts[agent] = np.nan
            self._usual_events = None

    def set_survey(self, agents: IndexArray, grams: FloatArray, units: FloatArray) -> None:
        """Take the matrices of the survey, in the units of the run, as claims; `units` are usual mean squares."""
        self.grow(int(agents.max(initial=-1)) + 1)
        self._marks[agents] = self._scaled(grams, units) @ self._secret
        self._counts[agents, 0] = grams[:, 0]
        self._usual_events = None

    def check(
        self, agents: IndexArray, sums: AgentSums, layout: GramLayout, units: FloatArray, *, of_events: bool
    ) -> list[str | None]:
        """For each agent why its sums are not what it claimed before, or None.

        `of_events` says whether the matrices are sums over events as they are.
        """
        if np.isinf(self._max_change):
            return [None] * len(agents)
        self.grow(int(agents.max(initial=-1)) + 1)
        now = _counts(sums)
        claimed = self._counts[agents]
        with np.errstate(invalid="ignore"):
            # what is not known cannot differ: comparisons with NaN are false
            far = np.abs(now - claimed) > self._max_change * np.maximum(now, claimed)
            other_events = far[:, 0]
            if of_events:
                other_events = other_events | self._differ(agents, _totals(sums, layout), units)
        reasons = np.where(other_events, OTHER_EVENTS, np.where(far[:, 1], OTHER_ENTITIES, ""))
        return [str(reason) or None for reason in reasons]

    def _differ(self, agents: IndexArray, totals: FloatArray, units: FloatArray) -> NDArray[np.bool_]:
        scaled = self._scaled(totals, units)
        allowed = self._max_change * np.sqrt(scaled.shape[1]) * np.maximum(np.abs(scaled).max(axis=1), 1.0)
        return np.asarray((np.abs(scaled @ self._secret - self._marks[agents]) > allowed[:, None]).any(axis=1))

    def note(
        self, agents: IndexArray, sums: AgentSums, layout: GramLayout, units: FloatArray, *, of_events: bool
    ) -> None:
        """Remember what accepted sums claim, where nothing was known."""
        self._note_counts(agents, _counts(sums))
        if of_events and (new := np.isnan(self._marks[agents, 0])).any():
            self._marks[agents[new]] = (self._scaled(_totals(sums, layout), units) @ self._secret)[new]

    def note_sizes(self, agents: IndexArray, sizes: FloatArray) -> None:
        """Remember the numbers of entities and events, the first two sizes, where nothing was known."""
        self._note_counts(agents, sizes[:, 1::-1])

    def _note_counts(self, agents: IndexArray, counts: FloatArray) -> None:
        self.grow(int(agents.max(initial=-1)) + 1)
        if (new := np.isnan(self._counts[agents])).any():
            self._counts[agents] = np.where(new, counts, self._counts[agents])
            self._usual_events = None

    def usual_events(self) -> float:
        """The median number of events of the agents that have some; infinite if nothing is known."""
        if self._usual_events is None:
            events = self._counts[:, 0]
            known = events[events > 0.0]
            self._usual_events = float(np.median(known)) if len(known) else float("inf")
        return self._usual_events

    def _scaled(self, grams: FloatArray, units: FloatArray) -> FloatArray:
        """(agents, packed) the matrices per event, with columns over their usual root mean squares."""
        usual = np.append(units[: self._own.width - 1], units[-1])
        roots = np.sqrt(np.where(usual > 0.0, usual, 1.0))
        return grams / (np.maximum(grams[:, :1], 1e-300) * self._own.pack(np.outer(roots, roots)))


def _counts(sums: AgentSums) -> FloatArray:
    """(agents, 2) numbers of events and of entities."""
    counts_events = sums.schema.counts_events
    events = sums.by_agent(sums.grams[:, 0]) if counts_events else sums.scalar("events")
    return np.column_stack([events, sums.by_agent(sums.entity_counts)])


def _totals(sums: AgentSums, layout: GramLayout) -> FloatArray:
    """(agents, packed) each agent's sum over clusters, without curves."""
    rows = for_kernels(layout.without_curves(sums.grams))
    totals = np.zeros((len(sums), rows.shape[1]))
    add_rows(rows, sums.row_owner, totals)
    return totals
