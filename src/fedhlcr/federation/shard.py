"""The agents' side of a round: they keep Gram matrices and labels, and answer a broadcast.

A shard is many agents in stacked arrays, so that one call of a kernel serves all of them. An agent draws the same
labels whichever other agents share its shard. `group.AgentGroup` adds what a device needs: ids, a file and predictions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray, KeyArray, LabelArray, ranges
from fedhlcr._support.checks import SIZE_LIMIT, within
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import Blocks
from fedhlcr._support.wording import FEATURE
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import EntityIndex, Hierarchy
from fedhlcr.exceptions import BroadcastError
from fedhlcr.federation.agent_state import AgentState
from fedhlcr.federation.fixed_sums import Integers, VectorLayout
from fedhlcr.federation.kept_sums import NO_EPOCH, KeptSums
from fedhlcr.federation.label_draws import label_entities
from fedhlcr.federation.laws import BlendLaw
from fedhlcr.federation.messages import MOST_ROUNDS, NEVER, SURVEY_ROUND, Broadcast, Contributions
from fedhlcr.federation.mods import Mod, with_mods
from fedhlcr.federation.sums import PAGE_SIZE, AgentSums, weighted_counts
from fedhlcr.federation.survey_sums import survey_part
from fedhlcr.kernels.arguments import AgentAnswers, EntityArrays
from fedhlcr.kernels.grams import change_units, sum_by_cluster
from fedhlcr.model.arguments import AgentFigures, AgentsPart, agent_figures
from fedhlcr.model.curves import N_QUANTILES, column_quantiles, same_curves
from fedhlcr.model.gram import GramLayout, Standardization, agent_means, entity_grams, event_grams
from fedhlcr.model.likelihood import AnyLikelihood, read_likelihood
from fedhlcr.model.schema import GRAMS, Globals, gram_sums
from fedhlcr.storage.reader import RecordReader

logger = logging.getLogger(__name__)


@dataclass
class AgentShard:
    """Consecutive agents in stacked arrays: their Gram matrices, their labels, and which labels the server accepted.

    Matrices are around the agents' own means at first, and in the units of a run once these are known.

    Attributes
    ----------
    agents : canonical texts of the agents' ids
    agent_start : (agents + 1,) entities of agent i are [agent_start[i], agent_start[i + 1])
    agent_keys, entity_keys : (agents,) and (entities,) keys of their random numbers
    grams : (entities, packed) around each agent's own `shifts` until the units of the run are known
    shifts : (agents, n_features + 1) column means of each agent
    accepted : (entities,) labels by original cluster that the server last acknowledged; −1 for none
    pending : (entities,) labels of the last answer, which the server may or may not have received; −1 for none
    accepted_round, pending_round : (agents,) the rounds of these labels
    session, newest_round : of the newest broadcast that was answered
    agent_state : what the likelihood lets agents keep besides labels, once a broadcast has brought the likelihood
    is_split : whether `split` has handed the arrays over to smaller shards
    mods : functions that contributions pass through before they leave the agents, the outermost first
    secrets : (agents, 2) what agents mix into the keys of their random numbers where sums are private, so that the
        server, which knows the seed, cannot test guesses of their labels; None mixes nothing in
    kept : under secure aggregation, the sums that the server has of each agent, and those of the last answer
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
    accepted: LabelArray
    pending: LabelArray
    accepted_round: IndexArray
    pending_round: IndexArray
    session: int = 0
    newest_round: int = NEVER
    is_split: bool = False
    agent_state: AgentState | None = None
    mods: tuple[Mod, ...] = ()
    secrets: KeyArray | None = None
    kept: KeptSums | None = None
    run: int | None = None
    layout: GramLayout | None = None
    units: Standardization | None = None
    events: EventStore | None = None
    run_events: EventStore | None = None
    run_figures: AgentFigures | None = None

    @classmethod
    def from_hierarchy(cls, hierarchy: Hierarchy, n_threads: int = 1) -> AgentShard:
        """All agents of a table. They keep its events until they know whether the run needs them."""
        shifts = agent_means(hierarchy)
        grams = entity_grams(hierarchy, GramLayout(hierarchy.X.shape[1]), shifts, n_threads)
        shard = cls.unlabelled(hierarchy.index, grams, shifts)
        shard.events = hierarchy.events
        return shard

    @classmethod
    def unlabelled(cls, index: EntityIndex, grams: FloatArray, shifts: FloatArray) -> AgentShard:
        """Agents that have not answered any broadcast yet."""
        return cls(
            list(index.agents.texts),
            index.agent_start,
            index.agent_keys,
            index.entity_keys,
            grams,
            shifts,
            accepted=np.full(len(grams), -1, dtype=np.int32),
            pending=np.full(len(grams), -1, dtype=np.int32),
            accepted_round=np.full(index.n_agents, NEVER),
            pending_round=np.full(index.n_agents, NEVER),
        )

    def restore(self, reader: RecordReader) -> None:
        """Set labels and acknowledged rounds, in place, from a record of the same agents."""
        for name in ("accepted", "pending"):
            labels = getattr(self, name)
            labels[:] = reader.array(name, "i4", labels.shape, within(-1, SIZE_LIMIT))
        for name in ("accepted_round", "pending_round"):
            rounds = getattr(self, name)
            rounds[:] = reader.array(name, "i8", rounds.shape, within(NEVER, MOST_ROUNDS))

    def read_agent_state(self, reader: RecordReader) -> None:
        """Set the agent state from a record of the same agents, if it has one; the layout must be known."""
        if reader.is_empty or self.layout is None:
            return
        likelihood = read_likelihood(reader, self.layout)
        reader.require(self.events is not None or not likelihood.needs_events, "likelihood")
        self.agent_state = self.start_agent_state(likelihood)
        self.agent_state.restore(reader)

    def start_agent_state(self, likelihood: AnyLikelihood) -> AgentState:
        """The state of agents that have not answered yet."""
        events = self.needed_events().event_start if likelihood.needs_events else None
        return AgentState(likelihood, self.agent_start, events)

    def split(self, size: int = PAGE_SIZE) -> list[AgentShard]:
        """The same agents in shards of `size`. They share this shard's arrays, and only they may change them now."""
        if self.is_split:
            raise BroadcastError(
                "these agents belong to an engine already; build them from their events again for another engine."
            )
        self.is_split = True
        parts = [self._part(first, min(first + size, len(self))) for first in range(0, len(self), size)]
        self.events = None
        return parts

    def _part(self, first: int, last: int) -> AgentShard:
        agents = slice(first, last)
        entities = slice(self.agent_start[first], self.agent_start[last])
        events = None if self.events is None else self.events.of_entities(entities.start, entities.stop)
        return AgentShard(
            self.agents[agents],
            self.agent_start[first : last + 1] - self.agent_start[first],
            self.agent_keys[agents],
            *(self.entity_keys[entities], self.grams[entities], self.shifts[agents]),
            *(self.accepted[entities], self.pending[entities]),
            *(self.accepted_round[agents], self.pending_round[agents]),
            run=self.run,
            layout=self.layout,
            units=self.units,
            mods=self.mods,
            secrets=None if self.secrets is None else self.secrets[agents],
            events=events,
        )

    def answer(self, broadcast: Broadcast, agents: IndexArray, acknowledged: IndexArray) -> Contributions:
        """Answer a broadcast for the given agents.

        Parameters
        ----------
        agents : positions, ascending
        acknowledged : round of each agent's last accepted contribution, or NEVER
        """
        self.check(broadcast)
        step = self._survey if broadcast.round == SURVEY_ROUND else self._sample
        contributions = with_mods(self.mods, lambda seen: step(seen, agents, acknowledged))(broadcast)
        if broadcast.terms is None or broadcast.round == SURVEY_ROUND:
            return contributions
        # last: whatever mods change is rounded too
        contributions = replace(contributions, sums=broadcast.terms.fixed(broadcast.likelihood, contributions.sums))
        if self.kept is not None:
            self.kept.propose(self._positions(contributions.agents), contributions.sums)
        return contributions

    def vectors(self, broadcast: Broadcast, contributions: Contributions) -> Integers:
        """(agents, n_values) what each agent adds to a cohort's sum: its difference to what the server has."""
        assert broadcast.terms is not None
        if broadcast.round == SURVEY_ROUND:
            return survey_part(broadcast.layout, contributions.sums, contributions.shifts, broadcast.terms.centre)
        assert self.kept is not None
        layout = VectorLayout(broadcast.likelihood.sum_schema, broadcast.terms.rows)
        return self.kept.differences(self._positions(contributions.agents), layout)

    def leave(self, names: Sequence[str]) -> None:
        """Let agents withdraw: the difference that they report next removes their sums from the server's total."""
        assert self.kept is not None
        self.kept.propose(self._positions(names), AgentSums.empty(self.kept.likelihood.sum_schema, len(names)))

    def _positions(self, names: Sequence[str]) -> IndexArray:
        if len(names) == len(self):
            return np.arange(len(self))
        place = {name: position for position, name in enumerate(self.agents)}
        return np.array([place[name] for name in names], dtype=np.int64)

    def out_of_step(self, broadcast: Broadcast, agents: IndexArray, acknowledged: IndexArray) -> NDArray[np.bool_]:
        """Which of these agents cannot say how their sums differ from what the server has, so that it must start again.

        That happens if an agent has lost its state, or if the server continues from an older checkpoint.
        """
        terms = broadcast.terms
        if terms is None or not terms.is_secure or broadcast.round == SURVEY_ROUND:
            return np.zeros(len(agents), dtype=bool)
        own = np.full(len(agents), NO_EPOCH) if self.kept is None else self.kept.epochs[agents]
        accepted = self.accepted_round[agents]
        pending = self.pending_round[agents]
        begins = (acknowledged == NEVER) & ((own < terms.epoch) | ((own == terms.epoch) & (accepted == NEVER)))
        goes_on = (own == terms.epoch) & ((acknowledged == pending) | (acknowledged == accepted))
        return ~(begins | (goes_on & (acknowledged != NEVER)))

    def _sample(self, broadcast: Broadcast, agents: IndexArray, acknowledged: IndexArray) -> Contributions:
        """Draw new labels under the broadcast's law, and sum the entities by them."""
        if broadcast.law is None or broadcast.standardization is None or broadcast.cluster_of is None:
            raise BroadcastError(
                f"the broadcast of round {broadcast.round} lacks its law, its units or its clusters; only the survey, "
                "round 0, has none."
            )
        if max(self.accepted.max(initial=-1), self.pending.max(initial=-1)) >= len(broadcast.cluster_of):
            raise BroadcastError(
                "the agents have labels of clusters that the broadcast does not have, so the server is not the one "
                "they answered before; build the agents from their events again to join this run."
            )
        self.check_units(broadcast.standardization)
        self.enter_run(broadcast.run, broadcast.layout, broadcast.standardization)
        if broadcast.standardization.curves is None and not broadcast.likelihood.needs_events:
            self.events = None
        self.session = broadcast.session
        self.newest_round = broadcast.round
        if isinstance(broadcast.law, BlendLaw):
            # under the blend rule the server acknowledges nothing: agents continue from their last answer
            acknowledged = self.pending_round[agents]
        self._keep_sums(broadcast, agents)
        self._settle(agents, acknowledged)
        labels = np.append(broadcast.cluster_of, -1)[self.accepted].astype(np.int32)
        part = self._part_of(broadcast, agents)
        new_labels, answers, scoring = label_entities(broadcast.likelihood, broadcast.law, part, labels)
        drawn = ranges(self.agent_start[agents], np.diff(self.agent_start)[agents])
        self.pending[drawn] = broadcast.representative[new_labels[drawn]]
        self.pending_round[agents] = broadcast.round
        if self.agent_state is None:
            blocks, own_scalars = self._sums(broadcast, agents, new_labels, answers)
        else:
            blocks, own_scalars = self._conclude(broadcast, part, scoring, new_labels, answers)
        positions, clusters = np.nonzero(answers.entities)
        sums = AgentSums(
            broadcast.likelihood.sum_schema,
            _row_start(answers),
            broadcast.representative[clusters].astype(np.int32),
            answers.entities[positions, clusters],
            answers.tables[positions, clusters],
            blocks,
            np.column_stack([answers.scalars, own_scalars]),
        )
        return self._contributions(broadcast, agents, sums, np.empty((len(agents), 0)))

    def _part_of(self, broadcast: Broadcast, agents: IndexArray) -> AgentsPart:
        """The given agents, as they take part in the round; a likelihood with an agent state finds it here."""
        likelihood = broadcast.likelihood
        if likelihood.has_state and (self.agent_state is None or self.agent_state.likelihood != likelihood):
            self.agent_state = self.start_agent_state(likelihood)
        state = {} if self.agent_state is None else self.agent_state.accepted
        arrays = self._arrays(broadcast.seed, mixed=broadcast.terms is not None)
        part = AgentsPart(arrays, agents, state, broadcast.sweep, Blocks((0, len(agents))))
        if likelihood.has_stages:
            if self.run_figures is None:
                self.run_figures = agent_figures(self.grams, self.agent_start, likelihood.layout.n_features)
            part = part._replace(figures=self.run_figures)
        if not likelihood.needs_events:
            return part
        if self.run_events is None:
            assert self.units is not None
            self.run_events = self.events_in(self.units, likelihood)
        return part._replace(events=self.run_events)

    def _sums(
        self, broadcast: Broadcast, agents: IndexArray, labels: LabelArray, answers: AgentAnswers
    ) -> tuple[dict[str, FloatArray], FloatArray]:
        """Blocks with a row for each cluster in which an agent has entities, and the likelihood's own scalars."""
        likelihood = broadcast.likelihood
        row_start = _row_start(answers)
        current = broadcast.law if isinstance(broadcast.law, Globals) else None
        summands = likelihood.summands(self.grams, current, labels)
        blocks = {block.name: np.empty((row_start[-1], block.size)) for block in likelihood.sum_schema.blocks}
        for name, rows in blocks.items():
            sum_by_cluster(summands.blocks[name], self.agent_start, agents, labels, row_start, answers.entities, rows)
        scalars = np.empty((len(agents), 0))
        if likelihood.own_scalars:
            owner = self._agent_of
            own = [weighted_counts(owner, summands.scalars[s.name], len(self))[agents] for s in likelihood.own_scalars]
            scalars = np.column_stack(own)
        return blocks, scalars

    def _conclude(
        self, broadcast: Broadcast, part: AgentsPart, scoring: FloatArray, labels: LabelArray, answers: AgentAnswers
    ) -> tuple[dict[str, FloatArray], FloatArray]:
        """The same for a likelihood with an agent state, which is drawn here and becomes pending."""
        assert self.agent_state is not None
        positions, clusters = np.nonzero(answers.entities)
        row_of = np.full(answers.entities.shape, -1, dtype=np.int64)
        row_of[positions, clusters] = np.arange(len(positions))
        rows = np.full(len(labels), -1, dtype=np.int64)
        chosen = part.chosen
        sizes = np.diff(self.agent_start)[part.agents]
        rows[chosen] = row_of[np.repeat(np.arange(len(part.agents)), sizes), labels[chosen]]
        concluded = broadcast.likelihood.conclude(part, broadcast.law, scoring, labels, rows, len(positions))
        asked = np.zeros(len(self), dtype=bool)
        asked[part.agents] = True
        self.agent_state.propose(concluded.state, asked)
        return concluded.blocks, concluded.scalars

    def labels_at(self, acknowledged: IndexArray) -> LabelArray:
        """(entities,) the labels, by original cluster, from which agents continue after these acknowledged rounds.

        −1 stands for an entity without a label.
        """
        sizes = np.diff(self.agent_start)
        arrived, never = (np.repeat(of, sizes) for of in (acknowledged == self.pending_round, acknowledged == NEVER))
        return np.where(never, -1, np.where(arrived, self.pending, self.accepted)).astype(np.int32)

    def check(self, broadcast: Broadcast) -> None:
        """Raise an error if the broadcast is not for these agents, or is older than one they have answered."""
        if broadcast.layout.n_inputs != self.n_features:
            raise BroadcastError(
                f"the broadcast has {FEATURE.count(broadcast.layout.n_inputs)}, but the agents here have "
                f"{self.n_features}; all agents of a federation must have the same columns."
            )
        if self.run is not None and broadcast.run != self.run:
            raise BroadcastError(
                "the broadcast belongs to another run than the one these agents take part in; "
                "build the agents from their events again to join it."
            )
        if (broadcast.session, broadcast.round) < (self.session, self.newest_round):
            raise BroadcastError(
                f"the broadcast of round {broadcast.round} is older than one that was answered already, of round "
                f"{self.newest_round}; agents do not answer it."
            )

    def _survey(self, broadcast: Broadcast, agents: IndexArray, _: IndexArray) -> Contributions:
        """One matrix of all events of each agent, around its own means. An agent without events has no row."""
        own_grams = self._own_grams()
        schema = gram_sums(own_grams.shape[1])
        sizes = np.diff(self.agent_start)[agents]
        rows = np.flatnonzero(sizes)
        row_start = np.searchsorted(rows, np.arange(len(agents) + 1))
        unlabelled = np.zeros(len(rows), dtype=np.int32)
        grams = np.empty((len(rows), own_grams.shape[1]))
        one_cluster = np.zeros(len(own_grams), dtype=np.int32)
        sum_by_cluster(
            own_grams, self.agent_start, agents, one_cluster, row_start, sizes[:, None].astype(np.int32), grams
        )
        scalars = np.zeros((len(agents), len(schema.scalars)))
        sums = AgentSums(schema, row_start, unlabelled, unlabelled, unlabelled, {GRAMS: grams}, scalars)
        contributions = self._contributions(broadcast, agents, sums, self.shifts[agents])
        if not broadcast.curve_columns:
            return contributions
        return replace(contributions, quantiles=self._quantiles(agents, list(broadcast.curve_columns)))

    def _contributions(
        self, broadcast: Broadcast, agents: IndexArray, sums: AgentSums, shifts: FloatArray
    ) -> Contributions:
        names = [self.agents[i] for i in agents]
        answered = broadcast.run, broadcast.session, broadcast.round
        return Contributions(*answered, names, broadcast.representative, sums, shifts)

    def _settle(self, agents: IndexArray, acknowledged: IndexArray) -> None:
        """Accept the pending labels of agents whose last answer the server received; discard the others'."""
        rounds = self.accepted_round.copy()
        rounds[agents] = acknowledged
        for kept in (self.agent_state, self.kept):
            if kept is not None:
                kept.settle(rounds == self.pending_round, rounds == NEVER)
        self.accepted[:] = self.labels_at(rounds)
        held = (acknowledged == NEVER) | (acknowledged == self.pending_round[agents])
        if unknown := int(np.sum(~held & (acknowledged != self.accepted_round[agents]))):
            logger.warning(
                "the server acknowledged a round whose labels %d agents no longer have, because it was restored from "
                "an older checkpoint; these agents continue from their last accepted labels.",
                unknown,
            )
        self.accepted_round[agents] = acknowledged

    def _arrays(self, seed: int, *, mixed: bool) -> EntityArrays:
        agent_keys = self.agent_keys
        entity_keys = self.entity_keys
        if mixed and self.secrets is not None:
            agent_keys = agent_keys ^ self.secrets[:, 0]
            entity_keys = entity_keys ^ self.secrets[self._agent_of, 1]
        return EntityArrays(self.grams, self.agent_start, entity_keys, Stream(seed).agent_streams(agent_keys))

    def _keep_sums(self, broadcast: Broadcast, agents: IndexArray) -> None:
        """Prepare for the differences that secure aggregation asks for."""
        if broadcast.terms is None or not broadcast.terms.is_secure:
            return
        if self.kept is None or self.kept.likelihood != broadcast.likelihood:
            self.kept = KeptSums(broadcast.likelihood, len(self))
        self.kept.epochs[agents] = broadcast.terms.epoch

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


def _row_start(answers: AgentAnswers) -> IndexArray:
    """(agents + 1,) an agent has a row for each cluster in which it has entities."""
    return np.concatenate([[0], np.cumsum((answers.entities > 0).sum(axis=1))])
