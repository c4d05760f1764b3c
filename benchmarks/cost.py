"""Seconds of each stage on tables of many shapes, one size varied at a time: what the cost model is fitted to.

The check is a table that differs from the others in every size; L, measured by `predictions`, is a second one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from benchmarks.cost_model import CENTRE, CHECK, fit_stage, stages_in
from benchmarks.problems import NOISE_SCALE, entities_of, hierarchy_of
from benchmarks.report import Findings, Options, Row, Timing, close_to_one, say
from benchmarks.timing import Call, Side, samples, seconds_of
from fedhlcr import HLCRRegressor
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import available_threads, single_threaded_blas
from fedhlcr.datasets import HierarchicalData, make_hlcr
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers import blocked
from fedhlcr.samplers.merging import MergeSchedule
from fedhlcr.samplers.state import ChainState, EntityData

TOLERANCE = 0.15
SETTLING_SWEEPS = 10
SWEEP_BATCH, BATCH = 0.15, 0.3


class Sizes(NamedTuple):
    """The arguments of `make_hlcr`."""

    agents: int
    entities_per_agent: int
    events_per_entity: int
    features: int
    clusters: int


CENTRE_SIZES = Sizes(4_000, 8, 10, 8, 8)
# One number varied; "agents" keeps the number of entities.
VARIED: dict[str, list[Sizes]] = {
    "events": [CENTRE_SIZES._replace(events_per_entity=n) for n in (3, 30)],
    "entities": [CENTRE_SIZES._replace(agents=n) for n in (1_000, 16_000)],
    "agents": [CENTRE_SIZES._replace(agents=n, entities_per_agent=32_000 // n) for n in (500, 32_000)],
    "features": [CENTRE_SIZES._replace(features=n) for n in (3, 16, 24)],
    "clusters": [CENTRE_SIZES._replace(clusters=n) for n in (4, 16, 32)],
}
CHECK_SIZES = Sizes(6_000, 12, 14, 12, 12)
QUICK_DIVISOR = 8


@dataclass(frozen=True)
class Problem:
    """A table, all that is computed from it in advance, and its shape.

    Attributes
    ----------
    fits : seconds of its default fits so far
    """

    varied: str
    table: HierarchicalData
    entities: EntityData
    state: ChainState
    model: HLCRRegressor
    shape: dict[str, float]
    fits: list[float]


def run(options: Options) -> Findings:
    _compile(options)
    problems = [_prepare(varied, sizes, options) for varied, sizes in _grid(options)]
    timings = _time_fits(problems, options)
    for stage, batch in (("sort the table", BATCH), ("matrices", BATCH), ("sweep", SWEEP_BATCH)):
        timings += _time_stage(stage, problems, options, batch)
    for stage in ("predictions", "intervals"):
        timings += _time_stage(stage, problems, options, 0.0)
    timings += _time_threads(problems[0], options)
    return Findings(rows=_check(timings), timings=timings)


def _grid(options: Options) -> Iterator[tuple[str, Sizes]]:
    for varied, shapes in ({CENTRE: [CENTRE_SIZES]} | VARIED | {CHECK: [CHECK_SIZES]}).items():
        for sizes in shapes:
            yield varied, sizes._replace(agents=sizes.agents // QUICK_DIVISOR) if options.quick else sizes


def _compile(options: Options) -> None:
    table, _ = make_hlcr(20, 4, 5, 3, 2, random_state=options.seed)
    model = HLCRRegressor(n_threads=options.threads)
    model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    model.predict(table.X, table.agent, table.entity)
    model.predict_interval(table.X, table.agent, table.entity)


def _prepare(varied: str, sizes: Sizes, options: Options) -> Problem:
    table, truth = make_hlcr(*sizes, NOISE_SCALE, random_state=options.seed)
    entities = entities_of(hierarchy_of(table), options.threads, standardize=True)
    stream = Stream(options.seed)
    labels = truth.labels.astype(np.int32)
    state = blocked.state_from_labels(entities, ModelSpec(), labels, sizes.clusters, stream)
    for _ in range(SETTLING_SWEEPS):
        state = blocked.step(entities, ModelSpec(), state, stream)
    model = HLCRRegressor(n_threads=options.threads)
    seconds = seconds_of(partial(fit, model, table))
    shape = shape_of(table, model) | {"threads": options.threads, "true_clusters": sizes.clusters}
    say("cost", f"{varied}: {len(table):,} events, {shape['entities']:,} entities, {sizes.features} features, "
        f"{shape['clusters']:.0f} clusters and {shape['effects']:.0f} effects found; fit {seconds:.2f} s")  # fmt: skip
    return Problem(varied, table, entities, state, model, shape, [seconds])


def fit(model: HLCRRegressor, table: HierarchicalData) -> HLCRRegressor:
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


def shape_of(table: HierarchicalData, model: HLCRRegressor) -> dict[str, float]:
    """The sizes that the cost of a fit and of its predictions depends on."""
    # until merging begins, a sweep works on all clusters, occupied or not
    n_before = MergeSchedule.until(max(1, model.n_sweeps // 2)).first
    occupied = model.trace_["n_clusters"]
    return {
        "events": len(table),
        "entities": len(model.labels_),
        "agents": len(model.agent_ids_),
        "features": table.X.shape[1],
        "clusters": model.n_clusters_,
        "effects": int((model.effect_scales_ > 0).sum()),
        "draws": len(model.posterior_.draws),
        "sweeps": len(occupied),
        "cluster_sweeps": float(model.max_clusters * n_before + occupied[n_before:].sum()),
    }


def _call(stage: str, problem: Problem, n_threads: int) -> Call:
    table, model = problem.table, problem.model
    if stage == "sort the table":
        return lambda: hierarchy_of(table)
    if stage == "matrices":
        hierarchy = hierarchy_of(table)
        return lambda: entities_of(hierarchy, n_threads, standardize=True)
    if stage == "sweep":
        return chain(replace(problem.entities, n_threads=n_threads), problem.state)
    model.set_params(n_threads=n_threads)
    predict = model.predict if stage == "predictions" else model.predict_interval
    return lambda: predict(table.X, table.agent, table.entity)


def chain(entities: EntityData, state: ChainState) -> Call:
    """A call that makes one more sweep of plain clusters, as the estimators make it."""
    stream = Stream(0)

    @single_threaded_blas
    def sweep() -> None:
        nonlocal state
        state = blocked.step(entities, ModelSpec(), state, stream)

    return sweep


def _time_stage(stage: str, problems: list[Problem], options: Options, batch: float) -> list[Timing]:
    sides = [Side(_call(stage, problem, options.threads)) for problem in problems]
    found = samples(*sides, rounds=1 if options.quick else 3, batch_seconds=batch)
    say("cost", f"{stage}: {min(map(median, found)):.4f} to {max(map(median, found)):.4f} s")
    timings = []
    for problem, times in zip(problems, found, strict=True):
        # a sweep of the stage has the true number of clusters, not the number that the fit found
        own = {"clusters": problem.shape["true_clusters"]} if stage == "sweep" else {}
        timings.append(timing(stage, problem.varied, problem.shape | own, times))
    return timings


def timing(stage: str, varied: str, shape: dict[str, float], times: list[float]) -> Timing:
    return Timing(stage, varied, shape, median(times), min(times), max(times))


def _time_fits(problems: list[Problem], options: Options) -> list[Timing]:
    for _ in range(0 if options.quick else 2):
        for problem in problems:
            problem.fits.append(seconds_of(partial(fit, problem.model, problem.table)))
    return [timing("default fit", problem.varied, problem.shape, problem.fits) for problem in problems]


def _time_threads(centre: Problem, options: Options) -> list[Timing]:
    """The centre with one thread, two, four and so on, as many as the machine has."""
    most = max(options.threads, available_threads())
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= most]
    timings = []
    for stage in ("matrices", "sweep", "predictions", "intervals"):
        # a side sets the model's threads when it begins
        sides = [Side(lambda s=stage, n=count: _call(s, centre, n)()) for count in counts]  # type: ignore[misc]
        if stage == "sweep":
            sides = [Side(_call(stage, centre, count)) for count in counts]
        batch = 0.0 if stage in ("predictions", "intervals") else SWEEP_BATCH
        for count, times in zip(counts, samples(*sides, rounds=3, batch_seconds=batch), strict=True):
            timings.append(timing(stage, "threads", centre.shape | {"threads": count}, times))
    return timings


def _check(timings: list[Timing]) -> list[Row]:
    """Predicted over measured at the table that nothing was fitted to."""
    rows = []
    for stage in stages_in(timings):
        model = fit_stage(stage, timings)
        for point in timings:
            if point.stage == stage and point.varied == CHECK:
                what = f"cost model, {stage} of a table it was not fitted to, predicted over measured"
                rows.append(close_to_one(what, model.seconds(point.shape) / point.seconds, TOLERANCE))
    return rows
