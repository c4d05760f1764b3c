"""The matrices of agents: around their own means at first, and in the units of a run once these are known."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, KeyArray
from fedhlcr.data.events import EventStore
from fedhlcr.exceptions import BroadcastError
from fedhlcr.federation.sums import weighted_counts
from fedhlcr.kernels.grams import change_units
from fedhlcr.model.arguments import AgentFigures
from fedhlcr.model.curves import N_QUANTILES, column_quantiles, same_curves
from fedhlcr.model.gram import GramLayout, Standardization, event_grams
from fedhlcr.model.likelihood import AnyLikelihood


@dataclass
class AgentMatrices:
    """The Gram matrices of the entities of consecutive agents, stacked, and how to convert them between units.

    Attributes
    ----------
    agents : canonical texts of the agents' ids
    agent_start : (agents + 1,) entities of agent i are [agent_start[i], agent_start[i + 1])
    agent_keys, entity_keys : (agents,) and (entities,) keys of their random numbers
    grams : (entities, packed) around each agent's own `shifts` until the units of the run are known
    shifts : (agents, n_features + 1) column means of each agent
    run, layout, units : of the federation, once a broadcast has brought them
    events : the agents' events, from which curves are made and which some likelihoods need; None once they are not
        needed
    run_events : the same in the units of the run, once a likelihood needs them
    run_figures : what agents add up of their matrices in every round, in the units of the run, once they are needed
    """

    agents: list[str]
    agent_start: IndexArray
    agent_keys: KeyArray
    entity_keys: KeyArray
    grams: FloatArray
    shifts: FloatArray
    run: int | None = field(default=None, kw_only=True)
    layout: GramLayout | None = field(default=None, kw_only=True)
    units: Standardization | None = field(default=None, kw_only=True)
    events: EventStore | None = field(default=None, kw_only=True)
    run_events: EventStore | None = field(default=None, kw_only=True)
    run_figures: AgentFigures | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.agents)

    @property
    def n_features(self) -> int:
        return self.shifts.shape[1] - 1

    def n_events(self) -> FloatArray:
        """(agents,) the number of each agent's events, by their weights."""
        owner = np.repeat(np.arange(len(self.agents)), np.diff(self.agent_start))
        return weighted_counts(owner, self.grams[:, 0], len(self.agents))

    def events_in(self, units: Standardization, likelihood: AnyLikelihood) -> EventStore:
        """The events in the units of a run, whether or not the agents take part in it."""
        return likelihood.events_in(self.needed_events(), units)

    def check_units(self, units: Standardization) -> None:
        """Raise an error if the units would make a matrix infinite: it could not be converted back."""
        here = self.grams
        there = self.grams_in(units)
        # after the first round the matrices have these units already, and `grams_in` returns them as they are
        if there is here:
            return
        # matrices with curves are built from the events, which are finite
        was_finite = np.isfinite(here) if here.shape == there.shape else np.ones_like(there, dtype=bool)
        if (was_finite & ~np.isfinite(there)).any():
            raise BroadcastError("the units of the broadcast do not fit the events here; agents do not answer it.")

    def grams_in(self, units: Standardization) -> FloatArray:
        """The matrices in the units of a run, whether or not the agents take part in it."""
        if self.units is not None and _equal(self.units, units):
            return self.grams
        if units.curves is not None or self._has_curves:
            return self._grams_from_events(units)
        grams = self.grams.copy()
        self._convert(grams, units.shift, units.scale)
        return grams

    @property
    def _has_curves(self) -> bool:
        return self.units is not None and self.units.curves is not None

    def _grams_from_events(self, units: Standardization) -> FloatArray:
        """The matrices in other units, built from the events: those of curves cannot be converted."""
        events = self.needed_events()
        expanded = replace(events, X=units.expand(events.X))
        layout = GramLayout(expanded.X.shape[1])
        return units.rescale(layout, event_grams(expanded, layout, units.shift, self._agent_of))

    def needed_events(self) -> EventStore:
        """The events; an error if the agents have not kept them."""
        if self.events is None:
            raise BroadcastError(
                "curves and noise='student' need events, but the agents here have not kept theirs; build the agents "
                "from their events again."
            )
        return self.events

    @property
    def _agent_of(self) -> IndexArray:
        """(entities,) the agent of each entity."""
        return np.repeat(np.arange(len(self)), np.diff(self.agent_start))

    def enter_run(self, run: int, layout: GramLayout, units: Standardization) -> None:
        """Join a run: convert the matrices to its units."""
        if self.units is None or not _equal(self.units, units):
            if units.curves is not None or self._has_curves:
                self.grams = self._grams_from_events(units)
            else:
                self._convert(self.grams, units.shift, units.scale)
            self.run_events = self.run_figures = None
        self.run = run
        self.layout = layout
        self.units = units

    def _convert(self, grams: FloatArray, shift: FloatArray, scale: FloatArray) -> None:
        """Convert matrices from the present units to others, in place.

        `shift` is (columns,), the same for all agents, or (agents, columns).
        """
        present = self.shifts
        if self.units is not None:
            change_units(grams, self.agent_start, np.zeros_like(self.shifts), self.units.scale)
            present = np.broadcast_to(self.units.shift, self.shifts.shape)
        change_units(grams, self.agent_start, present - shift, 1.0 / scale)

    def _own_grams(self) -> FloatArray:
        """The matrices around the agents' own means, without curves."""
        if self.units is None:
            return self.grams
        # the server has started again, and needs these matrices once more
        if self.units.curves is not None:
            return event_grams(self.needed_events(), GramLayout(self.n_features), self.shifts, self._agent_of)
        own_units = self.grams.copy()
        self._convert(own_units, self.shifts, np.ones(self.n_features + 1))
        return own_units

    def _quantiles(self, agents: IndexArray, columns: list[int]) -> FloatArray:
        """(agents, columns, N_QUANTILES) quantiles of the given columns; zeros for an agent without events."""
        out = np.zeros((len(agents), len(columns), N_QUANTILES))
        for quantiles, agent in zip(out, agents, strict=True):
            own = self.needed_events().of_entities(*self.agent_start[agent : agent + 2])
            if own.n_events:
                quantiles[:] = column_quantiles(own.X[:, columns], own.weight)
        return out


def _equal(one: Standardization, other: Standardization) -> bool:
    same = np.array_equal(one.shift, other.shift) and np.array_equal(one.scale, other.scale)
    return same and same_curves(one.curves, other.curves)
