"""One cell of the paper's figures: one rule, or the limit, cross-validated on one drawn table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.figures import standard_error
from experiments.study import Figures, Record, Settings
from experiments.synthetic.data import Size, folds, synth_hlcr
from experiments.synthetic.federations import Look, settings_of, watch
from experiments.synthetic.limit import limit_mse

LIMIT = "limit"


def cell(size: Size, noise_scale: float, rule: str, seed: int, **federation: Any) -> Settings:
    """Settings of `measure`; the settings of a federation are learning_rate, participation, n_rounds and by_round."""
    known = {"learning_rate": 0.0, "participation": 1.0, "n_rounds": 0, "by_round": False, **federation}
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
    by_round: bool,
) -> Figures:
    """Mean squared errors over the five folds: at the end, and if wanted of each round's state."""
    size = Size(entities, events, clusters)
    table, truth = synth_hlcr(size, noise_scale, seed)
    if rule == LIMIT:
        return {"end": float(np.mean([limit_mse(*fold, truth, n_sweeps=250) for fold in folds(table, seed)]))}
    settings = settings_of(rule, size, noise_scale, learning_rate)
    look = Look.STATES if by_round else Look.END
    runs = [
        watch(fold, settings, participation=participation, n_rounds=n_rounds, seed=seed, look=look)
        for fold in folds(table, seed)
    ]
    figures: Figures = {"end": float(np.mean([run.running[-1] for run in runs]))}
    if by_round:
        figures["each"] = [float(f"{error:.6g}") for error in np.mean([run.each for run in runs], axis=0)]
    return figures


def select(records: Iterable[Record], **settings: Any) -> list[Record]:
    """Records with these settings, by seed."""
    chosen = [record for record in records if settings.items() <= record.settings.items()]
    return sorted(chosen, key=lambda record: record.settings["seed"])


def clearly_above(these: ArrayLike, others: ArrayLike) -> bool:
    """Whether these are higher, seed by seed, by more than twice the standard error of the mean difference."""
    difference = np.asarray(these, float) - np.asarray(others, float)
    return bool(difference.mean() > 2.0 * standard_error(difference) and difference.mean() > 0.0)


def tell_excess(blend_is: str, pairs: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]) -> str:
    """How much the error of delta is above that of blend, from the errors of both by seed at each point."""
    excess = {point: float(delta.mean() / blend.mean()) - 1.0 for point, (delta, blend) in pairs.items()}
    worst = max(excess, key=excess.__getitem__)
    above = sum(each > 0.01 for each in excess.values())
    error = float(standard_error(np.divide(*pairs[worst])))
    return (
        f"Delta, which learns everything, compared with {blend_is}, which is given the true hyperparameters: its error "
        f"is more than 1 % higher at {above} of {len(excess)} points. The largest difference is {excess[worst]:+.1%} ± "
        f"{error:.1%} ({worst}), the median {np.median(list(excess.values())):+.1%}."
    )


def ends(records: Iterable[Record], **settings: Any) -> NDArray[np.float64]:
    """(seeds,) errors at the end."""
    return np.array([record.figures["end"] for record in select(records, **settings)])
