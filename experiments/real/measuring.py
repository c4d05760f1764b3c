"""One cell: one method on one split of one table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from experiments.methods import METHODS
from experiments.real.tables import ALL, FEW, SMALL, TABLES, load, split_events
from experiments.study import Figures, Settings

if TYPE_CHECKING:
    from fedhlcr.datasets.hierarchical import HierarchicalData


def settings(full: bool) -> list[Settings]:
    """In full, five splits of all tables; else one of the small tables that are here."""
    names = list(TABLES) if full else [name for name in SMALL if TABLES[name].is_here()]
    return [
        {"table": name, "events": events, "split": seed, "method": method}
        for seed in range(5 if full else 1)
        for name in names
        for events in (ALL, FEW)
        for method in METHODS
    ]


def measure(*, table: str, events: str | int, split: int, method: str) -> Figures:
    return fit_and_score(method, *split_events(load(table), events, split), seed=split)


def fit_and_score(method: str, train: HierarchicalData, test: HierarchicalData, *, seed: int) -> Figures:
    """Held-out R² and mean squared error, and the seconds a fit takes on one core."""
    from sklearn.metrics import mean_squared_error, r2_score
    from threadpoolctl import threadpool_limits

    if method.endswith("mlp"):
        # its threads are limited only if they are there
        import torch  # noqa: F401
    model = METHODS[method].make(seed)
    with threadpool_limits(1):
        start = time.perf_counter()
        model.fit(train.X, train.y, agent=train.agent, entity=train.entity)
        seconds = time.perf_counter() - start
        predicted = model.predict(test.X, agent=test.agent, entity=test.entity)
    return {
        "r2": float(r2_score(test.y, predicted)),
        "mse": float(mean_squared_error(test.y, predicted)),
        "seconds": round(seconds, 3),
    }
