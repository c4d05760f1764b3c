"""A blocked sweep against the one matrix product it cannot do without, thread for thread."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.problems import N_CLUSTERS, draw_l, entities_of, hierarchy_of
from benchmarks.report import Options, Row, at_most, informational, say, void
from benchmarks.timing import Call, Side, alternate
from fedhlcr._support.streams import Stream
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers import blocked
from fedhlcr.samplers.state import ChainState, EntityData, label_law

# With one thread; the product has its own blocks and threads.
BOUND, SINGLE_BOUND = 1.35, 0.8
SETTLING_SWEEPS = 20
BATCH_SECONDS = 0.3


def run(options: Options) -> list[Row]:
    table, truth = draw_l(options.seed, 1_000 if options.quick else 10_000)
    entities = entities_of(hierarchy_of(table), options.threads, standardize=True)
    stream = Stream(options.seed)
    state = blocked.state_from_labels(entities, ModelSpec(), truth.labels.astype(np.int32), N_CLUSTERS, stream)
    for _ in range(SETTLING_SWEEPS):
        state = blocked.step(entities, ModelSpec(), state, stream)
    drawn = state.globals
    score_matrix = np.ascontiguousarray(label_law(entities.likelihood, drawn, 0).score_rows.T)
    shapes = " times ".join(f"({rows}, {columns})" for rows, columns in (entities.grams.shape, score_matrix.shape))
    say("blocked", f"the product is {shapes}")

    thread_counts = sorted({1, options.threads})
    sides = []
    for n_threads in thread_counts:
        limited, own = partial(threadpool_limits, n_threads, user_api="blas"), replace(entities, n_threads=n_threads)
        sides.append(Side(chain(own, state, stream), limited))
        sides.append(Side(chain(replace(own, single=True), state, stream), limited))
        sides.append(Side(lambda: entities.grams @ score_matrix, limited))
    seconds = alternate(*sides, rounds=3 if options.quick else 10, batch_seconds=BATCH_SECONDS)
    sweeps, singles, products = seconds[::3], seconds[1::3], seconds[2::3]
    for n_threads, sweep, product in zip(thread_counts, sweeps, products, strict=True):
        say("blocked", f"sweep {1e3 * sweep:.2f} ms, product {1e3 * product:.2f} ms on {threads_each(n_threads)}")
    rows = [
        at_most(f"blocked sweep, time over that of the matrix product, {threads_each(n)}", sweep / product, BOUND)
        for n, sweep, product in zip(thread_counts, sweeps, products, strict=True)
    ]
    rows.insert(0, at_most("blocked sweep, single precision, 1 thread", singles[0] / products[0], SINGLE_BOUND))
    if options.threads > 1:
        if products[-1] > products[0]:
            # BLAS then waits for a thread that has no core, several times as long as the product takes
            say("blocked", f"the product is slower on {options.threads} threads than on 1: no basis for a verdict")
            rows[-1] = void(rows[-1])
        rows.append(informational(f"blocked sweep, speed-up by {options.threads} threads", sweeps[0] / sweeps[-1]))
    return rows


def threads_each(n_threads: int) -> str:
    return "1 thread" if n_threads == 1 else f"{n_threads} threads"


def chain(entities: EntityData, state: ChainState, stream: Stream) -> Call:
    """A call that makes one more sweep, as a chain makes it: entities whose labels are certain are skipped."""
    shortcuts = blocked.Shortcuts(entities)

    def sweep() -> None:
        nonlocal state
        state = blocked.step(entities, ModelSpec(), state, stream, None, shortcuts)

    return sweep
