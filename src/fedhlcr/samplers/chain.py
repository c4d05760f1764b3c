"""One chain from start to end: start with too many clusters, merge, sample, keep draws."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.streams import Stream
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Globals
from fedhlcr.samplers import blocked, collapsed
from fedhlcr.samplers.merging import Merger, MergeSchedule, merge_state
from fedhlcr.samplers.state import ChainState, Draw, EntityData
from fedhlcr.settings import LabelPrior, SamplerName

Progress = Callable[[ChainState], None]

# A chain starts with this many times the wanted clusters: the surplus keeps it out of local optima.
START_FACTOR = 3


@dataclass(frozen=True)
class ChainPlan:
    """How long a chain runs, with how many clusters, and which draws it keeps.

    A chain knows how long it runs, so the plan can fix `first_kept` and `thinning` beforehand. A federation may stop at
    any round and cannot do so: `federation.kept_draws.DrawKeeper` thins its draws as it goes.

    Attributes
    ----------
    n_draws : draws to keep, at most
    n_clusters : clusters wanted; None finds the number by merging
    max_clusters : clusters to start with if `n_clusters` is None
    """

    n_sweeps: int = 200
    n_draws: int = 100
    n_clusters: int | None = None
    max_clusters: int = 64
    sampler: SamplerName = "blocked"
    label_prior: LabelPrior = "tables"

    def start_clusters(self, n_entities: int) -> int:
        if self.n_clusters is None:
            return min(self.max_clusters, n_entities)
        return max(self.n_clusters, min(START_FACTOR * self.n_clusters, n_entities))

    @property
    def first_kept(self) -> int:
        """Draws are kept from the rounds after this one: the second half of the sweeps."""
        return self.n_sweeps // 2

    @property
    def thinning(self) -> int:
        """One draw is kept every `thinning` sweeps."""
        return max(1, (self.n_sweeps - self.first_kept) // self.n_draws)


class SweepRecord(NamedTuple):
    """One row of the trace. Permuting the clusters changes none of its numbers.

    `shared` holds the quantities that the likelihood's globals declare as traced.
    """

    chain: int
    sweep: int
    log_joint: float
    shared: dict[str, float]
    n_clusters: int
    labels_changed: int
    kept: bool

    def row(self) -> tuple[float, ...]:
        """The values, in the order of `trace_columns`."""
        before = self[:3]
        after = self[4:]
        return *before, *self.shared.values(), *after


def trace_columns(globals_type: type[Globals]) -> list[tuple[str, type]]:
    """Names and types of a trace's columns."""
    shared = [(q.name, float) for q in globals_type.traced_quantities()]
    before: list[tuple[str, type]] = [("chain", int), ("sweep", int), ("log_joint", float)]
    return [*before, *shared, ("n_clusters", int), ("labels_changed", int), ("kept", bool)]


@dataclass(frozen=True)
class ChainResult:
    """The kept draws of a chain (none if it was interrupted too early), its last draw, and its trace."""

    kept: list[Draw]
    last: Draw
    trace: list[SweepRecord]
    interrupted: bool


def run_chain(
    entities: EntityData, spec: ModelSpec, plan: ChainPlan, stream: Stream, progress: Progress | None = None
) -> ChainResult:
    """Run a chain. Ctrl-C ends it early and keeps what has been sampled so far.

    Draws are kept from the second half of the sweeps, when merging is over and the sampler is exact. A chain that is
    interrupted in the first half keeps the draws since merging ended.
    """
    start_clusters = plan.start_clusters(len(entities))
    schedule = MergeSchedule.until(max(1, plan.first_kept))
    merger = Merger.planned(schedule, plan.n_clusters, spec, over=start_clusters == plan.n_clusters)
    draws: deque[Draw] = deque(maxlen=plan.n_draws)
    trace: list[SweepRecord] = []
    interrupted = False
    state = blocked.initial_state(entities, spec, start_clusters, stream)
    shortcuts = blocked.Shortcuts(entities)
    try:
        while state.round < plan.n_sweeps:
            state = _step(entities, spec, plan, state, stream, merger.going_back(), shortcuts)
            state = _merged(entities, state, merger.look(entities.likelihood, state))
            state = state.at(merger.stage(state.round), entities.likelihood, spec)
            if merger.is_exact(entities.likelihood, state.round) and state.round % plan.thinning == 0:
                if state.round > plan.first_kept and draws and draws[0].round <= plan.first_kept:
                    # draws of the first half are for a chain that ends there
                    draws.clear()
                draws.append(Draw.of(state))
            trace.append(_record(state, stream.chain))
            if progress is not None:
                progress(state)
    except KeyboardInterrupt:
        interrupted = True
    first_kept = plan.first_kept if state.round > plan.first_kept else 0
    kept = [draw for draw in draws if draw.round > first_kept]
    rounds = {draw.round for draw in kept}
    trace = [record._replace(kept=record.sweep in rounds) for record in trace]
    if interrupted and not kept and merger.several is not None:
        # interrupted while one cluster was compared with several: the user gets the several
        state = _step(entities, spec, plan, state, stream, merger.several, shortcuts)
    if plan.n_clusters is not None and not merger.over:
        # interrupted before the merge: the user still gets the wanted number of clusters
        state = _merged(entities, state, merger.merge_now(entities.likelihood, state))
    return ChainResult(kept, Draw.of(state), trace, interrupted)


def _step(
    entities: EntityData,
    spec: ModelSpec,
    plan: ChainPlan,
    state: ChainState,
    stream: Stream,
    drawn: Globals | None,
    shortcuts: blocked.Shortcuts,
) -> ChainState:
    if plan.sampler == "blocked":
        return blocked.step(entities, spec, state, stream, drawn, shortcuts)
    return collapsed.step(entities, spec, state, stream, plan.label_prior)


def _merged(entities: EntityData, state: ChainState, target: NDArray[np.int64] | None) -> ChainState:
    return state if target is None else merge_state(entities.likelihood, state, target)


def _record(state: ChainState, chain: int) -> SweepRecord:
    return SweepRecord(
        chain,
        state.round,
        state.log_joint,
        state.globals.traced(),
        int(state.sums.occupied.sum()),
        int(state.sums.scalars["labels_changed"]),
        kept=False,
    )


def trace_table(results: list[ChainResult], globals_type: type[Globals], target_scale: float = 1.0) -> NDArray[np.void]:
    """The traces of all chains as one structured array, which dataframe constructors accept as it is."""
    rows = [record.row() for result in results for record in result.trace]
    table = np.array(rows, dtype=np.dtype(trace_columns(globals_type)))
    for q in globals_type.traced_quantities():
        table[q.name] = q.reported(table[q.name], target_scale)
    return table
