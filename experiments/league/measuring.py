"""One cell: one model on one split of one table."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.league import responses
from experiments.league.tables import BINARY, COUNTS, REGIMES, TABLES, is_played, load
from experiments.methods import compile_kernels
from experiments.study import Figures, MissingDataError, Settings

if TYPE_CHECKING:
    from fedhlcr import HLCRRegressor
    from fedhlcr.datasets.hierarchical import HierarchicalData

# What each model is called, and its settings.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("default", {}),
    "paper": ("the paper's model, the old default", {"effects": "none", "noise": "common"}),
    "entity": ("effects of entities", {"effects": "entity"}),
    "agent": ("effects of entities and agents", {"effects": "entity+agent"}),
    "one": ("one cluster", {"n_clusters": 1}),
    "common": ("common noise", {"noise": "common"}),
    "student": ("Student-t noise", {"noise": "student"}),
    "curves": ("curves", {"curves": "auto"}),
}
N_SPLITS = 5


def settings(full: bool) -> list[Settings]:
    """In full, N_SPLITS splits of all tables with all models; else one split of five tables with the default."""
    names = (*TABLES, *BINARY, *COUNTS) if full else ("gapminder", "cigar", "blackmore", "toenail", "owls")
    try:
        return [
            {"table": name, "regime": regime, "split": split, "model": model}
            for split in range(N_SPLITS if full else 1)
            for name in names
            for regime in REGIMES
            if is_played(name, regime, split)
            for model in (models_of(name) if full else ("default",))
        ]
    except MissingDataError:
        # a single cell, which then says what is missing
        return [{"table": names[0], "regime": REGIMES[0], "split": 0, "model": "default"}]


def models_of(table: str) -> tuple[str, ...]:
    return tuple(MODELS if table in TABLES else responses.MODELS)


def measure(*, table: str, regime: str, split: int, model: str) -> Figures:
    """The figures of one model on one split, which depend on the kind of the target."""
    if table in BINARY:
        return responses.measure_classes(*load(table, regime, split), model, split)
    if table in COUNTS:
        return responses.measure_counts(*load(table, regime, split), model, split)
    return measure_real(table, regime, split, model)


def measure_real(table: str, regime: str, split: int, model: str) -> Figures:
    """Held-out R², coverage of 90 % intervals of all events and of the noisiest fifth of entities, clusters found."""
    from sklearn.metrics import r2_score
    from threadpoolctl import threadpool_limits

    from fedhlcr import HLCRRegressor

    train, test = load(table, regime, split)
    compile_kernels()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = HLCRRegressor(random_state=split, n_threads=1, **MODELS[model][1])
        fitted.fit(train.X, train.y, agent=train.agent, entity=train.entity)
        lower, upper = fitted.predict_interval(test.X, test.agent, test.entity)
        predicted = fitted.predict(test.X, test.agent, test.entity)
    inside = (test.y >= lower) & (test.y <= upper)
    noisy = _in_noisiest_fifth(fitted, train, test)
    return {
        "r2": float(r2_score(test.y, predicted)),
        "coverage": float(inside.mean()),
        "coverage_noisiest": float(inside[noisy].mean()),
        "n_events": len(inside),
        "n_noisy": int(noisy.sum()),
        "n_clusters": fitted.n_clusters_,
    }


def _in_noisiest_fifth(fitted: HLCRRegressor, train: HierarchicalData, test: HierarchicalData) -> NDArray[np.bool_]:
    """(test events,) whether the entity is among the fifth with the largest mean squared errors of training events."""
    squares = (train.y - fitted.predict(train.X, train.agent, train.entity)) ** 2
    texts = [np.array([f"{a}/{e}" for a, e in zip(of.agent, of.entity, strict=True)]) for of in (train, test)]
    pairs, of_train = np.unique(texts[0], return_inverse=True)
    mean = np.bincount(of_train, weights=squares) / np.bincount(of_train)
    return np.isin(texts[1], pairs[mean >= np.quantile(mean, 0.8)])
