"""Predictions and intervals of all training rows against the fit itself: L, then classes, counts and effects."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cost import fit, shape_of, timing
from benchmarks.cost_model import CHECK
from benchmarks.problems import N_CLUSTERS, draw_l
from benchmarks.report import Findings, Options, Row, at_most, at_most_unit, say
from benchmarks.timing import Side, samples
from fedhlcr import HLCRClassifier, HLCRCountRegressor, HLCRRegressor
from fedhlcr.datasets import HierarchicalData, make_hlcr

PREDICTION_BOUND, INTERVAL_BOUND, FIT_BOUND = 1.0, 1.5, 40.0
# Standard deviation of the effects of entities where there are some.
EFFECT_SCALE = 0.3


class Kind(NamedTuple):
    """A sort of model, and a table for it."""

    name: str
    model: Any
    table: HierarchicalData


def run(options: Options) -> Findings:
    table, _ = draw_l(options.seed, 1_000 if options.quick else 10_000)
    model = HLCRRegressor(n_threads=options.threads)
    times = _measure(model, table, rounds=1 if options.quick else 2)
    name = f"{len(table) / 1e6:.1f} million events"
    shape = shape_of(table, model) | {"threads": options.threads}
    stages = ("default fit", "predictions", "intervals")
    rows = _rows(name, times)
    rows.append(at_most_unit(f"default fit of {name}, seconds", median(times[0]), FIT_BOUND, "s"))
    rows += _rows_of_strangers(name, model, table, median(times[0]))
    for kind in _kinds(options):
        rows += _rows(f"{len(kind.table):,} events, {kind.name}", _measure(kind.model, kind.table, rounds=1))
    return Findings(
        rows=rows, timings=[timing(stage, CHECK, shape, own) for stage, own in zip(stages, times, strict=True)]
    )


def _rows_of_strangers(name: str, model: Any, table: HierarchicalData, fitting: float) -> list[Row]:
    """The same rows as if they were of entities, or of agents, that the model does not know."""
    new_entities, new_agents = table.entity + table.entity.max() + 1, table.agent + table.agent.max() + 1
    rows = []
    for whose, ids in {
        "new entities": (table.agent, new_entities),
        "new agents": (new_agents, table.entity),
    }.items():
        sides = Side(partial(model.predict, table.X, *ids)), Side(partial(model.predict_interval, table.X, *ids))
        rows += _rows(f"{name} of {whose}", [[fitting], *samples(*sides, rounds=1)])
    return rows


def _kinds(options: Options) -> list[Kind]:
    """Classes, counts, and entities whose coefficients differ from their clusters'."""
    shape = 100 if options.quick else 1_000, 16, 10, 16, N_CLUSTERS
    classes, counts, real = (
        make_hlcr(*shape, target=target, random_state=options.seed)[0] for target in ("binary", "count", "real")
    )
    rng = np.random.default_rng(options.seed)
    _, entity = np.unique(np.column_stack([real.agent, real.entity]), axis=0, return_inverse=True)
    effects = EFFECT_SCALE * rng.standard_normal((entity.max() + 1, real.X.shape[1] + 1))[entity.ravel()]
    y = real.y + effects[:, 0] + (effects[:, 1:] * real.X).sum(axis=1)
    return [
        Kind("classes", HLCRClassifier(n_threads=options.threads), classes),
        Kind("counts", HLCRCountRegressor(n_threads=options.threads), counts),
        Kind("effects", HLCRRegressor(n_threads=options.threads, effects="entity"), replace(real, y=y)),
    ]


def _measure(model: Any, table: HierarchicalData, rounds: int) -> list[list[float]]:
    """Seconds of fits, predictions and intervals. The first call of each compiles, and its time does not count."""
    ids = table.agent, table.entity
    # the default prediction of a classifier is the class
    predict = getattr(model, "predict_proba", model.predict)
    return samples(
        Side(partial(fit, model, table)),
        Side(lambda: predict(table.X, *ids)),
        Side(lambda: model.predict_interval(table.X, *ids)),
        rounds=rounds,
    )


def _rows(name: str, times: list[list[float]]) -> list[Row]:
    fitting, predicting, bounding = map(median, times)
    say("predictions", f"{name}: fit {fitting:.2f} s, predictions {predicting:.2f} s, intervals {bounding:.2f} s")
    return [
        at_most(f"predictions of {name}, time over that of the fit", predicting / fitting, PREDICTION_BOUND),
        at_most(f"intervals of {name}, time over that of the fit", bounding / fitting, INTERVAL_BOUND),
    ]
