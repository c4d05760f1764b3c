"""A simulated federation: all agents are in this process, and faults of a real federation are simulated.

An engine delivers a broadcast to agents and returns their contributions. This one runs shards of agents on threads, and
yields the contributions of each shard when they are ready. Late ones are kept until the next round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import SIZE_LIMIT, not_negative, within
from fedhlcr._support.streams import Stream, text_key
from fedhlcr._support.threads import stream_results
from fedhlcr._support.wording import ENTITY, EVENT
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.engines.simulated_parties import N_STAGES, SimulatedParties
from fedhlcr.exceptions import ArgumentError, DataWarning, DisclosureError, warn_user
from fedhlcr.federation.agent_state import AgentState, joined
from fedhlcr.federation.fixed_sums import Integers
from fedhlcr.federation.kept_sums import KeptSums
from fedhlcr.federation.messages import Contribution, Contributions
from fedhlcr.federation.mods import Mod
from fedhlcr.federation.open_round import Invitation, Reply
from fedhlcr.federation.shard import AgentShard
from fedhlcr.federation.sums import PAGE_SIZE
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.model.likelihood import read_likelihood
from fedhlcr.privacy.disclosure import DisclosureRule
from fedhlcr.privacy.terms import Terms
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader, checkpoint_reader
from fedhlcr.storage.records import under


class Fate(IntEnum):
    """What can happen to an agent that was asked. It draws new labels in all cases but the first."""

    ABSENT = 0
    LOST = 1
    LATE = 2
    FINE = 3


class InProcessEngine:
    """Carries messages between a server and the agents of this process, `everyone`.

    Parameters
    ----------
    agents : all agents; the engine changes their arrays
    failure_rate : probability that an agent that was asked fails: it does not answer, its answer is lost, or its answer
        arrives after the round, each with the same probability
    seed : seed of the faults
    n_threads : number of threads that run shards
    """

    def __init__(self, agents: AgentShard, *, failure_rate: float = 0.0, seed: int = 0, n_threads: int = 1) -> None:
        self.everyone = agents
        self._shards = agents.split()
        self._position = {name: position for position, name in enumerate(agents.agents)}
        self._failure_rate = failure_rate
        self._stream = Stream(seed)
        self._n_threads = n_threads
        # as bytes if they came from a checkpoint
        self._late: list[Contributions | bytes] = []
        self._n_deliveries = 0
        self._away: set[str] = set()
        self._round_parties: SimulatedParties | None = None

    @classmethod
    def from_hierarchy(
        cls,
        hierarchy: Hierarchy,
        *,
        failure_rate: float,
        seed: int,
        n_threads: int,
        mods: Sequence[Mod] = (),
        disclosure: DisclosureRule | None = None,
    ) -> Self:
        """The engine for the agents of a table. They keep its events if the run needs them.

        Nothing leaves this process, so all agents take part unless a disclosure rule is given.
        """
        agents = AgentShard.from_hierarchy(hierarchy, n_threads)
        agents.mods = tuple(mods)
        # a simulation plays the agents, so it derives their secrets from its seed, to be reproducible
        keys = [text_key(f"secret/{seed}/{part}/{name}") for name in agents.agents for part in range(2)]
        agents.secrets = np.array(keys, dtype=np.uint64).reshape(-1, 2)
        engine = cls(agents, failure_rate=failure_rate, seed=seed, n_threads=n_threads)
        if disclosure is not None:
            engine._leave_out(disclosure)
        return engine

    def _leave_out(self, rule: DisclosureRule) -> None:
        """Send agents away that have too few events or entities for the rule."""
        agents = self.everyone
        joins = rule.joins(agents.n_events(), np.diff(agents.agent_start), agents.n_features)
        if not joins.any():
            raise DisclosureError(
                f"no agent takes part: each needs {EVENT.count(rule.least_events(agents.n_features))} and "
                f"{ENTITY.count(rule.min_entities)}; lower `min_events` or `min_entities` of the rule."
            )
        self.send_away(name for name, joined in zip(agents.agents, joins, strict=True) if not joined)
        if n_left_out := int((~joins).sum()):
            warn_user(rule.warning(n_left_out, len(joins), agents.n_features), DataWarning)

    def agents(self) -> list[str]:
        """Names of the agents that can be reached now."""
        if not self._away:
            return self.everyone.agents
        return [name for name in self.everyone.agents if name not in self._away]

    def send_away(self, agents: Iterable[str]) -> None:
        """Make agents, given by name, unreachable: they have not joined yet, or have left."""
        self._away |= set(agents)

    def bring_back(self, agents: Iterable[str]) -> None:
        """Make agents reachable again."""
        self._away -= set(agents)

    def deliver(self, call: Invitation) -> Iterator[Reply]:
        """Yield replies: first the late ones of the round before, then those of each shard when it is ready."""
        replies = self._late
        self._late = []
        yield from replies
        asked, acknowledged = self._sorted_call(call)
        fates = self._draw_fates()[asked]
        present = fates != Fate.ABSENT
        asked = asked[present]
        acknowledged = acknowledged[present]
        fates = fates[present]
        parts = list(self._by_shard(asked, acknowledged))

        def answer(number: int) -> Contributions | None:
            shard, agents, rounds = parts[number]
            try:
                return shard.answer(call.broadcast, agents, rounds)
            except DisclosureError:
                return None

        fate_of = dict(zip(asked.tolist(), fates.tolist(), strict=True))
        for contributions in stream_results(answer, len(parts), self._n_threads):
            if contributions is None:
                continue
            # by name: mods may have left agents out
            own = np.array([fate_of[self._position[name]] for name in contributions.agents], dtype=np.int64)
            if len(late := np.flatnonzero(own == Fate.LATE)):
                self._late.append(contributions.take(late))
            arrived = np.flatnonzero(own == Fate.FINE)
            if len(arrived) == len(contributions):
                yield contributions
            elif len(arrived):
                yield contributions.take(arrived)

    def parties(self, call: Invitation) -> dict[str, list[str]]:
        """Begin a round of secure sums: each agent is a device of its own."""
        self._round_parties = self.open_parties(call)
        return {name: [name] for name in call.agents}

    def open_parties(self, call: Invitation) -> SimulatedParties:
        """Let the agents asked draw labels, and return them as the devices of a secure sum."""
        asked, acknowledged = self._sorted_call(call)
        fates = self._draw_fates()[asked]
        stages = self._stream.generator(self._n_deliveries, "stages").integers(N_STAGES, size=len(self.everyone))
        names = self.everyone.agents
        last = {names[i]: int(stages[i]) for i in asked[fates != Fate.FINE].tolist()}
        present = np.array([last.get(names[i], N_STAGES) > 0 for i in asked.tolist()], dtype=bool)
        asked = asked[present]
        acknowledged = acknowledged[present]
        vectors: dict[str, Integers] = {}
        out_of_step: set[str] = set()
        for shard, agents, rounds in self._by_shard(asked, acknowledged):
            lost = shard.out_of_step(call.broadcast, agents, rounds)
            out_of_step |= {shard.agents[i] for i in agents[lost].tolist()}
            if lost.all():
                continue
            with contextlib.suppress(DisclosureError):
                contributions = shard.answer(call.broadcast, agents[~lost], rounds[~lost])
                if leaving := sorted(call.leaving.intersection(contributions.agents)):
                    shard.leave(leaving)
                vectors |= dict(zip(contributions.agents, shard.vectors(call.broadcast, contributions), strict=True))
        return SimulatedParties(vectors, frozenset(out_of_step), last)

    def exchange(self, terms: Terms, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """The answers of all agents that answer a message of the round's secure sum."""
        assert self._round_parties is not None
        return self._round_parties.exchange(terms, messages)

    def _sorted_call(self, call: Invitation) -> tuple[IndexArray, IndexArray]:
        """Positions of the agents asked, ascending, and the round that the server acknowledges to each."""
        positions = np.array([self._position[name] for name in call.agents], dtype=np.int64)
        order = np.argsort(positions, kind="stable")
        return positions[order], call.acknowledged[order]

    def _by_shard(
        self, asked: IndexArray, acknowledged: IndexArray
    ) -> Iterator[tuple[AgentShard, IndexArray, IndexArray]]:
        """The shards that have agents asked, the agents' positions there, and their acknowledged rounds."""
        shards, starts = np.unique(asked // PAGE_SIZE, return_index=True)
        for number, (first, last) in zip(shards.tolist(), pairwise([*starts.tolist(), len(asked)]), strict=True):
            yield self._shards[number], asked[first:last] - number * PAGE_SIZE, acknowledged[first:last]

    def _draw_fates(self) -> IndexArray:
        """What happens to each agent in this round, if it is asked."""
        rng = self._stream.generator(self._n_deliveries, "faults")
        n_agents = len(self.everyone)
        self._n_deliveries += 1
        return np.where(rng.random(n_agents) < self._failure_rate, rng.integers(Fate.FINE, size=n_agents), Fate.FINE)

    def place(self, name: str) -> int:
        """The position of an agent among all agents here."""
        return self._position[name]

    def state_bytes(self) -> int:
        """About the size of what `to_record` returns."""
        states = [shard.agent_state for shard in self._shards if shard.agent_state is not None]
        kept = [of for state in states for of in (state.accepted, state.pending)]
        everyone = self.everyone
        labels = (everyone.accepted, everyone.pending, everyone.accepted_round, everyone.pending_round)
        return sum(array.nbytes for of in kept for array in of.values()) + sum(array.nbytes for array in labels)

    def n_copies(self, call: Invitation) -> int:
        """One for each agent asked: every agent stands for a device of its own."""
        return len(call.agents)

    def entity_grams(self, run: int, layout: GramLayout, units: Standardization) -> FloatArray:
        """(entities, packed) the matrices of all agents, in the units of the run, whether or not they were asked."""
        for shard in self._shards:
            shard.enter_run(run, layout, units)
        if units.curves is None:
            return self.everyone.grams
        # matrices with curves are larger, so each shard has its own
        return np.concatenate([shard.grams for shard in self._shards])

    def events_of(self, shard: int, entities: tuple[int, int]) -> EventStore:
        """The events of a range of a shard's entities, in the user's units, if its agents have kept them."""
        return self._shards[shard].needed_events().of_entities(*entities)

    def to_record(self, forgotten: Collection[str] = ()) -> codec.Record:
        """The agents' labels and late replies, without those of `forgotten` agents. Matrices follow from the events."""
        everyone = self.everyone
        late = [data for data in self._late_bytes() if Contribution.from_bytes(data).agent not in forgotten]
        self._late = list(late)
        kept = np.array([name not in forgotten for name in everyone.agents])
        of_entity = np.repeat(kept, np.diff(everyone.agent_start))
        return {
            "fingerprint": self._fingerprint,
            "accepted": np.where(of_entity, everyone.accepted, np.int32(-1)),
            "pending": np.where(of_entity, everyone.pending, np.int32(-1)),
            "accepted_round": everyone.accepted_round.copy(),
            "pending_round": everyone.pending_round.copy(),
            "late": np.frombuffer(b"".join(late), dtype=np.uint8),
            "late_sizes": np.array([len(data) for data in late], dtype=np.int64),
            "n_deliveries": self._n_deliveries,
            "away": sorted(self._away),
            **self._private_record(kept),
            **self._kept_record(np.flatnonzero(~kept)),
        }

    def _late_bytes(self) -> list[bytes]:
        """The replies that will arrive too late, each as it would travel."""
        travelling: list[bytes] = []
        for late in self._late:
            travelling += [late] if isinstance(late, bytes) else [late[i].to_bytes() for i in range(len(late))]
        return travelling

    def _kept_record(self, forgotten: IndexArray) -> codec.Record:
        """The sums that agents keep under secure aggregation."""
        known = next((shard.kept for shard in self._shards if shard.kept is not None), None)
        if known is None:
            return {}
        parts = [shard.kept or KeptSums(known.likelihood, len(shard)) for shard in self._shards]
        return under("kept.", KeptSums.joined(parts, forgotten).to_record())

    def _restore_kept(self, reader: RecordReader) -> None:
        if reader.is_empty:
            return
        whole = KeptSums.read(reader, self.everyone.n_features, len(self.everyone))
        for number, shard in enumerate(self._shards):
            shard.kept = whole.part(number * PAGE_SIZE, number * PAGE_SIZE + len(shard))

    def _private_record(self, kept: NDArray[np.bool_]) -> codec.Record:
        """The agents' state, if the likelihood has one."""
        states = [shard.agent_state for shard in self._shards]
        if all(state is None for state in states):
            return {}
        likelihood = next(state.likelihood for state in states if state is not None)
        layout = likelihood.layout
        whole = [
            shard.start_agent_state(likelihood) if shard.agent_state is None else shard.agent_state
            for shard in self._shards
        ]
        groups = np.array(layout.curve_groups, dtype=np.int64)
        own: codec.Record = {"fit_intercept": layout.fit_intercept, "curve_groups": groups}
        return under("private.", own | joined(whole, kept))

    def _restore_private(self, reader: RecordReader) -> None:
        if reader.is_empty:
            return
        groups = tuple(reader.array("curve_groups", "i8", (None,), within(1, SIZE_LIMIT)).tolist())
        n_features = self.everyone.n_features + sum(groups)
        layout = GramLayout(n_features, reader.value("fit_intercept", bool), groups)
        likelihood = read_likelihood(reader, layout)
        event_start = None
        if likelihood.needs_events:
            sizes = [np.diff(shard.needed_events().event_start) for shard in self._shards]
            event_start = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
        whole = AgentState(likelihood, self.everyone.agent_start, event_start)
        whole.restore(reader)
        for number, shard in enumerate(self._shards):
            first = number * PAGE_SIZE
            shard.agent_state = whole.part(first, first + len(shard))

    def restore(self, record: codec.Record) -> None:
        """Continue from a checkpoint, with the same agents."""
        reader = checkpoint_reader(record)
        if reader.value("fingerprint", str) != self._fingerprint:
            raise ArgumentError(
                "the checkpoint was made with other data or another failure rate; resume with the same data and "
                "failure rate."
            )
        self.everyone.restore(reader)
        self._restore_private(reader.part("private."))
        self._restore_kept(reader.part("kept."))
        self._n_deliveries = reader.value("n_deliveries", int, not_negative)
        self._away = set(reader.texts("away"))
        sizes = reader.array("late_sizes", "i8", (None,), not_negative)
        late = reader.array("late", "u1", (int(sizes.sum()),)).tobytes()
        self._late = [late[end - size : end] for end, size in zip(np.cumsum(sizes), sizes, strict=True)]

    @cached_property
    def _fingerprint(self) -> str:
        """A digest of the faults, of the agents' and entities' ids, and of the agents' column means."""
        digest = blake2b(repr((float(self._failure_rate), self._stream)).encode(), digest_size=16)
        for part in (
            self.everyone.agent_keys,
            self.everyone.entity_keys,
            self.everyone.agent_start,
            self.everyone.shifts,
        ):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()
