"""What the server makes of contributions: the delta rule (exact) and the blend rule (the paper's).

A rule opens a round with a law for the agents, takes in their contributions, and closes it with a state.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

import numpy as np

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.streams import Stream
from fedhlcr.federation.ledger import Ledger
from fedhlcr.federation.messages import MOST_ROUNDS, BlendLaw, GibbsLaw, Law
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import Hyperparameters, ModelSpec, initial_hyperparameters
from fedhlcr.model.regression import CoefPrior, draw_coef
from fedhlcr.samplers import blocked
from fedhlcr.samplers.merging import Merger, merge_globals
from fedhlcr.samplers.state import ClusterSums, Globals, ServerState
from fedhlcr.storage import codec
from fedhlcr.storage.reader import (
    RecordReader,
    log_weights,
    not_negative,
    positive,
    square_finite,
    square_positive,
    within,
)

RuleName = Literal["delta", "blend"]


class Rule(Protocol):
    """A round is `open`, any number of `absorb`, `close`."""

    cluster_of: IndexArray  # (original clusters,) the present cluster of each
    has_tables: bool  # whether contributions carry table counts

    @property
    def settled(self) -> bool:
        """Whether draws may be kept: no cluster is merged any more."""

    def open(self, round_number: int) -> Law: ...

    def absorb(self, agents: IndexArray, sums: AgentSums) -> None: ...

    def close(self, n_known: int, n_accepted: int) -> ServerState | None:
        """The state after the round; None as long as nobody has contributed anything."""

    def finish(self) -> ServerState | None:
        """The state with as many clusters as are wanted, where the run ends before there are; None if it is so."""

    def forget(self, agent: int) -> None: ...

    def grow(self, n_agents: int) -> None: ...

    def to_record(self) -> codec.Record: ...

    def restore(self, reader: RecordReader, n_agents: int) -> None: ...


class DeltaRule:
    """Exact blocked Gibbs with any subset of agents per round.

    The state of the chain is the ledger, entries of absent agents included: a round is a random-scan Gibbs sweep over
    those that answered. The labels of an agent and its entry never differ.
    """

    has_tables = True

    def __init__(self, layout: GramLayout, spec: ModelSpec, n_clusters: int, merger: Merger, stream: Stream) -> None:
        self._layout, self._spec, self._stream = layout, spec, stream
        self._merger = merger
        self.cluster_of = np.arange(n_clusters)
        self.ledger = Ledger(n_clusters, layout.packed_size)
        self._round = 0
        self._drawn: Globals | None = None
        self._state: ServerState | None = None

    @property
    def settled(self) -> bool:
        return self._merger.over

    def open(self, round_number: int) -> GibbsLaw:
        self._round = round_number
        # round 1 is the start of a centralised chain, its sweep 0
        rng = self._stream.generator(round_number - 1)
        if self._state is None:
            n_clusters = int(self.cluster_of.max()) + 1
            self._drawn = blocked.initial_globals(self._layout, self._spec, n_clusters, rng)
        else:
            self._drawn = blocked.draw_globals(self._layout, self._state, self._spec, rng)
        hyper = self._drawn.hyper
        return GibbsLaw(
            self._drawn.coef, self._drawn.log_weights, float(hyper.noise_scale), float(hyper.agent_concentration)
        )

    def absorb(self, agents: IndexArray, sums: AgentSums) -> None:
        self.ledger.replace(agents, sums)

    def close(self, n_known: int, n_accepted: int) -> ServerState | None:  # noqa: ARG002
        if self.ledger.is_empty or self._drawn is None:
            return None
        self._state = self._given(self._drawn)
        return self._merged(self._merger.look(self._layout, self._state))

    def finish(self) -> ServerState | None:
        if self._state is None or self._merger.over or self._merger.n_wanted is None:
            return None
        return self._merged(self._merger.merge_now(self._layout, self._state))

    def _merged(self, target: IndexArray | None) -> ServerState:
        """The state after cluster k has become target[k]."""
        assert self._state is not None
        if target is not None:
            self.cluster_of = np.append(target, -1)[self.cluster_of]
            merged = merge_globals(self._state.globals, self._state.sums.entity_counts, target)
            self._state = self._given(merged)
        return self._state

    def _given(self, drawn: Globals) -> ServerState:
        """The state that follows from ledger, clusters and globals: what a checkpoint need not hold."""
        return ServerState.given(self._layout, self._round, self.ledger.total().regroup(self.cluster_of), drawn)

    def forget(self, agent: int) -> None:
        self.ledger.remove(agent)
        if self._state is not None:
            self._state = None if self.ledger.is_empty else self._given(self._state.globals)

    def grow(self, n_agents: int) -> None:
        self.ledger.grow(n_agents)

    def to_record(self) -> codec.Record:
        record: codec.Record = {
            "round": self._round,
            "cluster_of": self.cluster_of,
            "idle": self._merger.idle,
            "over": self._merger.over,
            **self.ledger.to_record(),
        }
        return record if self._state is None else record | globals_to_record(self._state.globals)

    def restore(self, reader: RecordReader, n_agents: int) -> None:
        self._round = reader.value("round", int, within(0, MOST_ROUNDS))
        drawn = read_globals(reader, self._layout) if "coef" in reader else None
        n_clusters = len(self.cluster_of) if drawn is None else drawn.n_clusters
        self.cluster_of = reader.clusters("cluster_of", self.cluster_of.shape, n_clusters)
        self._merger.idle, self._merger.over = reader.value("idle", int, not_negative), reader.value("over", bool)
        self.ledger.restore(reader, n_agents)
        self._state = None if drawn is None else self._given(drawn)


class BlendRule:
    """The paper's federation: statistics blended with a learning rate, agents without an account. Paper: Algorithm 3.

    S ← (1 − γ) S + γ · (all agents / participants) · Σ contributions. As printed the factor is missing, and with a
    fraction π of the agents per round the statistics settle at π of the data; counts are added to the message, for
    the label prior needs them. All clusters are equal at first, so round 1 only draws labels from the prior.
    """

    has_tables = False
    settled = True

    def __init__(
        self,
        layout: GramLayout,
        spec: ModelSpec,
        n_clusters: int,
        learning_rate: float,
        participation_scaling: bool,
        stream: Stream,
    ) -> None:
        self._layout, self._stream = layout, stream
        self._hyper = initial_hyperparameters(spec, layout.n_coef)
        self._learning_rate, self._scaling = learning_rate, participation_scaling
        self.cluster_of = np.arange(n_clusters)
        self._blended = ClusterSums.zero(n_clusters, layout.packed_size)
        self._incoming = Ledger(n_clusters, layout.packed_size)
        self._n_agents = self._round = 0

    def open(self, round_number: int) -> BlendLaw:
        self._round = round_number
        self._incoming = Ledger(len(self.cluster_of), self._layout.packed_size)
        self._incoming.grow(self._n_agents)
        hyper, data = self._hyper, self._layout.normal_equations(self._blended.grams)
        prior = hyper.coef_prior.scale**-2.0
        rows, columns = np.tril_indices(self._layout.n_coef)
        precision = (data.xx / hyper.noise_scale**2 + np.diag(prior))[:, rows, columns]
        linear = data.xy / hyper.noise_scale**2 + hyper.coef_prior.mean * prior
        return BlendLaw(
            precision,
            linear,
            self._blended.entity_counts,
            hyper.noise_scale,
            hyper.global_concentration,
            hyper.agent_concentration,
        )

    def absorb(self, agents: IndexArray, sums: AgentSums) -> None:
        self._incoming.replace(agents, sums)

    def close(self, n_known: int, n_accepted: int) -> ServerState | None:
        if n_accepted:
            gamma = self._learning_rate
            factor = gamma * (n_known / n_accepted if self._scaling else 1.0)
            came, old = self._incoming.total(), self._blended
            self._blended = replace(
                came,
                grams=(1.0 - gamma) * old.grams + factor * came.grams,
                entity_counts=(1.0 - gamma) * old.entity_counts + factor * came.entity_counts,
            )
        if not self._blended.entity_counts.any():
            return None
        return self._drawn_state()

    def finish(self) -> ServerState | None:
        return None

    def _drawn_state(self) -> ServerState:
        """Coefficients drawn from the blended regressions, weights as the paper's prior has them."""
        alpha, counts = self._hyper.global_concentration, self._blended.entity_counts
        log_weights = np.log((counts + alpha / len(counts)) / (counts.sum() + alpha))
        given = Globals(np.zeros((len(counts), self._layout.n_coef)), log_weights, self._hyper)
        state = ServerState.given(self._layout, self._round, self._blended, given)
        coef = draw_coef(state.regressions, self._stream.generator(self._round, "blend"))
        return replace(state, globals=replace(given, coef=coef))

    def forget(self, agent: int) -> None:  # noqa: ARG002
        raise RuntimeError(
            "the blend rule keeps no account of single agents, so what this one contributed cannot be taken out; it is "
            "not asked any more, and what it sent fades as rounds go on. Use rule='delta' where agents may withdraw."
        )

    def grow(self, n_agents: int) -> None:
        self._n_agents = n_agents

    def to_record(self) -> codec.Record:
        return {"round": self._round, "grams": self._blended.grams, "entity_counts": self._blended.entity_counts}

    def restore(self, reader: RecordReader, n_agents: int) -> None:  # noqa: ARG002
        self._round = reader.value("round", int, within(0, MOST_ROUNDS))
        self._blended = replace(
            self._blended,
            grams=reader.array("grams", "f8", self._blended.grams.shape, np.isfinite),
            entity_counts=reader.array("entity_counts", "f8", self._blended.entity_counts.shape, not_negative),
        )


def globals_to_record(drawn: Globals) -> codec.Record:
    hyper = drawn.hyper
    return {
        "coef": drawn.coef,
        "log_weights": drawn.log_weights,
        "noise_scale": float(hyper.noise_scale),
        "coef_mean": hyper.coef_prior.mean,
        "coef_scale": hyper.coef_prior.scale,
        "global_concentration": float(hyper.global_concentration),
        "agent_concentration": float(hyper.agent_concentration),
    }


def read_globals(reader: RecordReader, layout: GramLayout) -> Globals:
    """From the fields of `globals_to_record`, checked."""
    hyper = Hyperparameters(
        reader.value("noise_scale", float, square_positive),
        CoefPrior(
            reader.array("coef_mean", "f8", (layout.n_coef,), np.isfinite),
            reader.array("coef_scale", "f8", (layout.n_coef,), positive),
        ),
        reader.value("global_concentration", float, positive),
        reader.value("agent_concentration", float, positive),
    )
    coef = reader.array("coef", "f8", (None, layout.n_coef), square_finite)
    return Globals(coef, reader.array("log_weights", "f8", (len(coef),), log_weights), hyper)
