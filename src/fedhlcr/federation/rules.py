"""How the server uses contributions: the delta rule, which is exact, and the blend rule of the paper.

A rule opens a round with a law for the agents, takes in their contributions, and closes the round with a new state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import finite, not_negative, within
from fedhlcr._support.streams import Stream
from fedhlcr.exceptions import FederationError
from fedhlcr.federation.account import Account
from fedhlcr.federation.fixed_accounts import FixedAccount, RunningTotal
from fedhlcr.federation.fixed_sums import SumTerms
from fedhlcr.federation.laws import BlendLaw, Law
from fedhlcr.federation.ledger import Ledger
from fedhlcr.federation.messages import MOST_ROUNDS
from fedhlcr.federation.sums import AgentSums
from fedhlcr.federation.weights import MAX_WEIGHT
from fedhlcr.model.gaussian import Gaussian
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import draw_coef
from fedhlcr.model.schema import GRAMS, Globals
from fedhlcr.model.sums import ClusterSums
from fedhlcr.samplers import blocked
from fedhlcr.samplers.merging import Merger, merge_globals, merge_shift
from fedhlcr.samplers.state import ServerState
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import under


class Rule(Protocol):
    """A round calls `open` once, `absorb` any number of times, and `close` once."""

    round: int  # the last one that was opened
    cluster_of: IndexArray  # (original clusters,) the present cluster of each original one
    has_tables: bool  # whether contributions carry table counts
    begins_afresh: bool  # whether no contribution to an earlier round counts in the open one

    @property
    def settled(self) -> bool:
        """Whether merging of clusters has ended, so that draws may be kept."""

    def open(self, round_number: int) -> Law:
        """The law under which agents draw their labels in this round."""

    def absorb(self, agents: IndexArray, sums: AgentSums) -> None:
        """Take in the sums of the given agents."""

    def close(self, n_known: int, n_accepted: int) -> ServerState | None:
        """The state after the round; None as long as no agent has contributed an entity."""

    def finish(self) -> ServerState | None:
        """Merge down to the number of clusters wanted if the run ends early; None if there is nothing to merge."""

    def forget(self, agent: int) -> None:
        """Remove an agent's contribution."""

    def grow(self, n_agents: int) -> None:
        """Make room for new agents."""

    def terms(self) -> SumTerms | None:
        """How agents report sums in fixed point; None if they report them in floating point."""

    def to_record(self) -> codec.Record: ...

    def restore(self, reader: RecordReader, n_agents: int) -> None: ...


class DeltaRule:
    """Exact blocked Gibbs with any subset of agents per round.

    The state of the chain is the account, including the entries of absent agents. So a round is a random-scan Gibbs
    sweep over the agents that answered. An agent's entry always agrees with the labels that the agent continues from.
    """

    has_tables = True
    begins_afresh = False

    def __init__(
        self,
        likelihood: AnyLikelihood,
        spec: ModelSpec,
        n_clusters: int,
        merger: Merger,
        stream: Stream,
        account: Account | None = None,
        settling: int = 0,
    ) -> None:
        self._settling = settling
        self._exact_since = 0
        self._likelihood = likelihood
        self._spec = spec
        self._stream = stream
        self._merger = merger
        self.cluster_of = np.arange(n_clusters)
        self.account = Ledger(n_clusters, likelihood.sum_schema) if account is None else account
        self.round = 0
        self._drawn: Globals | None = None
        self._state: ServerState | None = None
        # `cluster_of` of the several clusters that a comparison with one may go back to
        self._several_of = self.cluster_of

    @property
    def settled(self) -> bool:
        """Whether merging is over, and most agents have answered since."""
        is_exact = self._merger.is_exact(self._likelihood, self.round)
        return is_exact and self.round - self._exact_since >= self._settling

    def open(self, round_number: int) -> Globals:
        self.round = round_number
        # round 1 corresponds to the start of a centralised chain, its sweep 0
        rng = self._stream.generator(round_number - 1)
        several = self._merger.going_back()
        self.begins_afresh = several is not None and not np.array_equal(self.cluster_of, self._several_of)
        if several is not None:
            self._go_back(several)
        elif self._state is not None and self.account.is_empty:
            # the account has started again: the last globals hold until agents have answered
            self._drawn = self._state.globals
            self.begins_afresh = True
        elif self._state is None:
            n_clusters = int(self.cluster_of.max()) + 1
            self._drawn = blocked.initial_globals(self._likelihood, self._spec, n_clusters, rng)
        else:
            self._drawn, shift = blocked.draw_globals(self._likelihood, self._state, self._spec, rng)
            if shift is not None:
                self._shift(shift, self._drawn)
        assert self._drawn is not None
        return self._drawn.for_agents()

    def _go_back(self, several: Globals) -> None:
        """From one cluster to the several before; agents start again, each when it is asked next."""
        self._drawn = several
        if self.begins_afresh:
            self.account.clear()
            self.cluster_of = self._several_of
            self._state = self._state_with(several)

    def absorb(self, agents: IndexArray, sums: AgentSums) -> None:
        self.account.replace(agents, sums)

    def begin_epoch(self) -> None:
        """Start the account again from zero: agents send all their sums when they are asked next."""
        self.account.clear()
        self._exact_since = self.round
        if self._state is not None:
            self._state = self._state_with(self._state.globals)

    def terms(self) -> SumTerms | None:
        if not isinstance(self.account, FixedAccount):
            return None
        terms = SumTerms(0, is_secure=False)
        if (shifts := self.account.shifted) is not None:
            terms = replace(terms, effects=shifts.effects, targets=shifts.targets)
        if isinstance(self.account, RunningTotal):
            rows = self.account.rows(self.cluster_of)
            terms = replace(terms, epoch=self.account.epoch, is_secure=True, rows=rows)
        return terms

    def scaled_down(self) -> IndexArray:
        """Positions of agents whose contributions count less, because they are far larger than most."""
        weights = self.account.weights() if isinstance(self.account, Ledger) else np.ones(0)
        return np.flatnonzero(weights < 1.0)

    def close(self, n_known: int, n_accepted: int) -> ServerState | None:  # noqa: ARG002
        if self.account.is_empty or self._drawn is None:
            return None
        self._state = self._state_with(self._drawn)
        was_exact = self._merger.is_exact(self._likelihood, self.round - 1)
        target = self._merger.look(self._likelihood, self._state)
        if target is not None and target.max() == 0:
            self._several_of = self.cluster_of
        self._merged(target)
        if not was_exact and self._merger.is_exact(self._likelihood, self.round):
            self._exact_since = self.round
        stage = self._merger.stage(self.round)
        current = self._likelihood.enter(stage, self._state.globals, self._state.sums, self._spec)
        if current is not self._state.globals:
            self._state = self._state_with(current)
        return self._state

    def _shift(self, shift: FloatArray, current: Globals) -> None:
        """Move every agent's effects by the shift of its cluster (clusters, n_coef), whether or not it is present."""
        by_original = np.append(shift, np.zeros((1, shift.shape[1])), axis=0)[self.cluster_of]
        self.account.shift(self._likelihood, self._likelihood.effect_shift(by_original, current))

    def finish(self) -> ServerState | None:
        if self._state is None or self._merger.over or self._merger.n_wanted is None:
            return None
        return self._merged(self._merger.merge_now(self._likelihood, self._state))

    def _merged(self, target: IndexArray | None) -> ServerState:
        """The state after cluster k has become target[k]."""
        assert self._state is not None
        if target is not None:
            before = self._state.globals
            merged = merge_globals(before, self._state.sums.entity_counts, target)
            if self._likelihood.has_stages:
                self._shift(merge_shift(before, merged, target), before)
            self.cluster_of = np.append(target, -1)[self.cluster_of]
            self._state = self._state_with(merged)
        return self._state

    def _state_with(self, drawn: Globals) -> ServerState:
        """The state that follows from account, clusters and globals. A checkpoint need not hold it."""
        return ServerState.of_sums(self._likelihood, self.round, self.account.total().regroup(self.cluster_of), drawn)

    def forget(self, agent: int) -> None:
        self.account.remove(agent)
        if self._state is not None:
            self._state = None if self.account.is_empty else self._state_with(self._state.globals)

    def grow(self, n_agents: int) -> None:
        self.account.grow(n_agents)

    def to_record(self) -> codec.Record:
        record: codec.Record = {
            "round": self.round,
            "cluster_of": self.cluster_of,
            "idle": self._merger.idle,
            "over": self._merger.over,
            **self._stage_record(),
            **self.account.to_record(),
        }
        return record if self._state is None else record | self._state.globals.to_record()

    def _stage_record(self) -> codec.Record:
        if not self._likelihood.has_stages:
            return {}
        merger = self._merger
        compared = {} if merger.comparison is None else merger.comparison.to_record()
        return {
            "with_effects": merger.with_effects,
            "merged_at": merger.merged_at,
            "exact_since": self._exact_since,
            **({} if merger.several is None else {"several_of": self._several_of}),
            **under("compared.", compared),
        }

    def restore(self, reader: RecordReader, n_agents: int) -> None:
        self.round = reader.value("round", int, within(0, MOST_ROUNDS))
        if self._likelihood.has_stages:
            self._merger.with_effects = reader.value("with_effects", bool)
            self._merger.merged_at = reader.value("merged_at", int, within(0, MOST_ROUNDS))
            self._exact_since = reader.value("exact_since", int, within(0, MOST_ROUNDS))
        kind = self._likelihood.globals_type
        n_coef = self._likelihood.layout.n_coef
        if self._likelihood.has_stages:
            self._restore_comparison(reader, kind, n_coef)
        drawn = kind.read(reader, n_coef) if "coef" in reader else None
        n_clusters = len(self.cluster_of) if drawn is None else drawn.n_clusters
        self.cluster_of = reader.clusters("cluster_of", self.cluster_of.shape, n_clusters)
        self._merger.idle = reader.value("idle", int, not_negative)
        self._merger.over = reader.value("over", bool)
        self.account.restore(reader, n_agents)
        self._state = None if drawn is None else self._state_with(drawn)

    def _restore_comparison(self, reader: RecordReader, kind: type[Globals], n_coef: int) -> None:
        comparison = self._merger.comparison
        if comparison is not None:
            comparison.restore(reader.part("compared."), kind, n_coef)
            if comparison.several is not None:
                n_several = comparison.several.n_clusters
                self._several_of = reader.clusters("several_of", self.cluster_of.shape, n_several)


class BlendRule:
    """The paper's federation: statistics are blended with a learning rate γ. Paper: Algorithm 3.

        S ← (1 − γ) S + γ · (all agents / participants) · Σ contributions

    The paper lacks the factor in brackets: with a fraction π of the agents per round its statistics settle at π of the
    data. Here the message also has entity counts, because the labels' prior needs them. All clusters are equal at
    first, so round 1 only draws labels from the prior. The server keeps no entries of single agents.

    This rule supports the Gaussian likelihood only, and all hyperparameters must be given.
    """

    has_tables = False
    begins_afresh = False
    settled = True

    def __init__(
        self,
        layout: GramLayout,
        spec: ModelSpec,
        n_clusters: int,
        learning_rate: float,
        participation_scaling: bool,
        stream: Stream,
        max_weight: float = MAX_WEIGHT,
    ) -> None:
        self._likelihood = Gaussian(layout)
        self._stream = stream
        self._max_weight = max_weight
        self._current = self._likelihood.start(spec, n_clusters)
        self._learning_rate = learning_rate
        self._scaling = participation_scaling
        self.cluster_of = np.arange(n_clusters)
        self._blended = ClusterSums.zero(self._likelihood.sum_schema, n_clusters)
        self._incoming = Ledger(n_clusters, self._likelihood.sum_schema, max_weight)
        self._n_agents = self.round = 0

    def open(self, round_number: int) -> BlendLaw:
        self.round = round_number
        self._incoming = Ledger(len(self.cluster_of), self._likelihood.sum_schema, self._max_weight)
        self._incoming.grow(self._n_agents)
        current = self._current
        layout = self._likelihood.layout
        data = layout.normal_equations(self._blended.grams)
        prior = current.coef_scale**-2.0
        rows, columns = np.tril_indices(layout.n_coef)
        precision = (data.xx / current.noise_scale**2 + np.diag(prior))[:, rows, columns]
        linear = data.xy / current.noise_scale**2 + current.coef_mean * prior
        return BlendLaw(
            precision,
            linear,
            self._blended.entity_counts,
            current.noise_scale,
            current.global_concentration,
            current.agent_concentration,
        )

    def absorb(self, agents: IndexArray, sums: AgentSums) -> None:
        self._incoming.replace(agents, sums)

    def close(self, n_known: int, n_accepted: int) -> ServerState | None:
        if n_accepted:
            gamma = self._learning_rate
            factor = gamma * (n_known / n_accepted if self._scaling else 1.0)
            new = self._incoming.total()
            old = self._blended
            self._blended = replace(
                new,
                blocks={GRAMS: (1.0 - gamma) * old.grams + factor * new.grams},
                entity_counts=(1.0 - gamma) * old.entity_counts + factor * new.entity_counts,
            )
        if not self._blended.entity_counts.any():
            return None
        return self._drawn_state()

    def finish(self) -> ServerState | None:
        return None

    def _drawn_state(self) -> ServerState:
        """A state with coefficients drawn from the blended regressions, and weights from the paper's prior."""
        alpha = self._current.global_concentration
        counts = self._blended.entity_counts
        log_weights = np.log((counts + alpha / len(counts)) / (counts.sum() + alpha))
        current = replace(self._current, log_weights=log_weights)
        state = ServerState.of_sums(self._likelihood, self.round, self._blended, current)
        coef = draw_coef(state.regressions, self._stream.generator(self.round, "blend"))
        return replace(state, globals=replace(current, coef=coef))

    def forget(self, agent: int) -> None:  # noqa: ARG002
        raise FederationError(
            "the blend rule does not store the contributions of single agents, so this agent's cannot be removed. The "
            "agent will not be asked again, and its influence fades with every round. "
            "Use rule='delta' where agents may withdraw."
        )

    def grow(self, n_agents: int) -> None:
        self._n_agents = n_agents

    def terms(self) -> SumTerms | None:
        return None

    def to_record(self) -> codec.Record:
        return {"round": self.round, "grams": self._blended.grams, "entity_counts": self._blended.entity_counts}

    def restore(self, reader: RecordReader, n_agents: int) -> None:  # noqa: ARG002
        self.round = reader.value("round", int, within(0, MOST_ROUNDS))
        self._blended = replace(
            self._blended,
            blocks={GRAMS: reader.array(GRAMS, "f8", self._blended.grams.shape, finite)},
            entity_counts=reader.array("entity_counts", "f8", self._blended.entity_counts.shape, not_negative),
        )
