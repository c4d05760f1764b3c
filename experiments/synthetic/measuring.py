"""One cell of the paper's figures: one rule, or the limit, cross-validated on one drawn table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.study import Figures, Record, Settings
from experiments.synthetic.data import Size, folds, synth_hlcr
from experiments.synthetic.federations import Watched, settings_of, watch
from experiments.synthetic.limit import limit_mse

LIMIT = "limit"


def cell(size: Size, noise_scale: float, rule: str, seed: int, **federation: Any) -> Settings:
    """Settings of `measure`; a federation is told by learning_rate, participation and n_rounds."""
    known = {"learning_rate": 0.0, "participation": 1.0, "n_rounds": 0, **federation}
    return {**size._asdict(), "noise_scale": noise_scale, "rule": rule, "seed": seed, **known}


def measure(
    *,
    entities: int,
    events: int,
    clusters: int,
    noise_scale: float,
    rule: str,
    seed: int,
    learning_rate: float,
    participation: float,
    n_rounds: int,
) -> Figures:
    """Mean squared errors over the five folds: at the end, and of each round's draw."""
    size = Size(entities, events, clusters)
    table, truth = synth_hlcr(size, noise_scale, seed)
    if rule == LIMIT:
        return {"end": float(np.mean([limit_mse(*fold, truth) for fold in folds(table, seed)]))}
    settings = settings_of(rule, size, noise_scale, learning_rate)
    runs = [
        watch(fold, settings, participation=participation, n_rounds=n_rounds, seed=seed, averaged=False)
        for fold in folds(table, seed)
    ]
    return {"end": float(np.mean([run.running[-1] for run in runs])), "each": by_round(runs, lambda run: run.each)}


def by_round(runs: Sequence[Watched], series: Callable[[Watched], list[float]]) -> list[float]:
    """The mean over runs after each round, to six digits."""
    return [float(f"{value:.6g}") for value in np.mean([series(run) for run in runs], axis=0)]


def select(records: Iterable[Record], **settings: Any) -> list[Record]:
    """Records with these settings, by seed."""
    chosen = [record for record in records if settings.items() <= record.settings.items()]
    return sorted(chosen, key=lambda record: record.settings["seed"])


def ends(records: Iterable[Record], **settings: Any) -> NDArray[np.float64]:
    """(seeds,) errors at the end."""
    return np.array([record.figures["end"] for record in select(records, **settings)])
