"""One cell: one method on one split of one table."""

from __future__ import annotations

from experiments.methods import available_methods, fit_and_score
from experiments.real.tables import ALL, FEW, SMALL, TABLES, load, split_events
from experiments.study import Figures, Settings


def settings(full: bool) -> list[Settings]:
    """In full, five splits of all tables; else one of the small tables that are here."""
    names = list(TABLES) if full else [name for name in SMALL if TABLES[name].is_here()]
    return [
        {"table": name, "events": events, "split": seed, "method": method}
        for seed in range(5 if full else 1)
        for name in names
        for events in (ALL, FEW)
        for method in available_methods()
    ]


def measure(*, table: str, events: str | int, split: int, method: str) -> Figures:
    return fit_and_score(method, *split_events(load(table), events, split), seed=split)
