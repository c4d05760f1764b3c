"""How much faster sweeps, matrices and predictions are on several threads, beside the bare matrix product."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.blocked import chain, threads_each
from benchmarks.problems import N_CLUSTERS, NOISE_SCALE, entities_of, hierarchy_of
from benchmarks.report import Options, Row, at_least, informational, say, skipped
from benchmarks.timing import Side, alternate
from fedhlcr import HLCRRegressor
from fedhlcr._support.streams import Stream
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.datasets import make_hlcr
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers import blocked
from fedhlcr.samplers.state import EntityData, label_law

BOUND = 1.6  # on two threads
N_FEATURES = 16
BATCH_SECONDS = 0.5


def run(options: Options) -> list[Row]:
    if options.threads < 2:
        return [skipped("speed-up by threads", "--threads is 1")]
    table, truth = make_hlcr(
        1_000 if options.quick else 5_000, 16, 10, N_FEATURES, N_CLUSTERS, NOISE_SCALE, random_state=options.seed
    )
    hierarchy = hierarchy_of(table)
    # rows in any order, as they come from users
    mixed = table[np.random.default_rng(options.seed).permutation(len(table))]
    # a few draws of a short fit are enough: more of them take more time, on any number of threads
    model = HLCRRegressor(N_CLUSTERS, n_sweeps=40, n_draws=20, n_threads=options.threads, effects="none")
    model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    models = {n: _on(model, n) for n in (1, options.threads)}
    sides = {
        **_sweeps(hierarchy, truth.labels.astype(np.int32), options),
        "building matrices": [Side(partial(_build, mixed, n)) for n in models],
        "predictions": [Side(partial(one.predict, table.X, table.agent, table.entity)) for one in models.values()],
        "intervals": [
            Side(partial(one.predict_interval, table.X, table.agent, table.entity)) for one in models.values()
        ],
    }
    rows = []
    for what, (one, several) in sides.items():
        seconds = alternate(one, several, rounds=2 if options.quick else 5, batch_seconds=BATCH_SECONDS)
        say("threads", f"{what}: {seconds[0]:.4f} s on 1 thread, {seconds[1]:.4f} s on {options.threads}")
        ratio, row = seconds[0] / seconds[1], f"{what}, speed-up by {threads_each(options.threads)}"
        rows.append(informational(row, ratio) if what == PRODUCT else at_least(row, ratio, BOUND))
    return rows


PRODUCT = "bare matrix product"


def _build(table: HierarchicalData, n_threads: int) -> EntityData:
    """From ids and rows to standardised matrices, as a fit does it."""
    return entities_of(hierarchy_of(table, n_threads), n_threads, standardize=True)


def _on(model: HLCRRegressor, n_threads: int) -> HLCRRegressor:
    """The same fitted model with another number of threads."""
    other = HLCRRegressor().set_params(**model.get_params())
    posterior = model.posterior_
    entities = replace(posterior.memory.entities, n_threads=n_threads)
    posterior = replace(posterior, memory=replace(posterior.memory, entities=entities))
    vars(other).update(vars(model) | {"n_threads": n_threads, "posterior_": posterior})
    return other


def _sweeps(hierarchy: Hierarchy, labels: np.ndarray, options: Options) -> dict[str, list[Side]]:
    """Sweeps that have settled, and the product each of them contains."""
    stream = Stream(options.seed)
    entities = {n: entities_of(hierarchy, n, standardize=True) for n in (1, options.threads)}
    state = blocked.state_from_labels(entities[1], ModelSpec(), labels, N_CLUSTERS, stream)
    for _ in range(5):
        state = blocked.step(entities[1], ModelSpec(), state, stream)
    grams = entities[1].grams
    scores = np.ascontiguousarray(label_law(entities[1].likelihood, state.globals, 0).score_rows.T)
    limited = {n: partial(threadpool_limits, n, user_api="blas") for n in entities}
    return {
        PRODUCT: [Side(lambda: grams @ scores, limited[n]) for n in entities],
        "sweeps": [Side(chain(own, state, stream), limited[1]) for own in entities.values()],
    }
