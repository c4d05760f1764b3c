"""The paper's table on FEMNIST as a study: its cells and their settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.femnist.report import report
from experiments.study import Figures, Settings, Study

PLAN = {"n_rounds": 25, "writers_per_round": 4, "local_epochs": 5, "batch_size": 20, "learning_rate": 0.2}
# of the hidden layer: as many as there are classes
N_COMPONENTS = 62


def settings_of_part(full: bool) -> Sequence[Settings]:
    fractions, seeds = ((0.05, 0.1, 0.25, 0.5), range(10, 15)) if full else ((0.05, 0.25), range(20, 22))
    return cells("part", fractions, seeds, PLAN if full else PLAN | {"n_rounds": 8})


def settings_of_full(full: bool) -> Sequence[Settings]:
    fractions, seeds = ((0.01, 0.05, 0.25), range(3)) if full else ((0.01, 0.05), range(1))
    more = {"n_rounds": 100, "writers_per_round": 10} if full else {"n_rounds": 8}
    return cells("full", fractions, seeds, PLAN | more)


def cells(source: str, fractions: Sequence[float], seeds: Sequence[int], plan: Settings) -> Sequence[Settings]:
    fixed = {"source": source, "n_components": N_COMPONENTS} | plan
    return [fixed | {"fraction": fraction, "seed": seed} for seed in seeds for fraction in fractions]


def measure(**settings: Any) -> Figures:
    # torch is needed, and loaded, only by those who measure
    from experiments.femnist.cell import measure_cell

    return measure_cell(**settings)


FEMNIST_TABLE = Study(
    name="femnist",
    title="Letters against digits after a CNN: FEMNIST, 107 writers",
    settings=settings_of_part,
    measure=measure,
    report=report,
    revision=2,
)
# one cell at once: the images of all writers, and what the network says of them, take some gigabytes
FEMNIST_FULL = replace(
    FEMNIST_TABLE,
    name="femnist-full",
    title="Letters against digits after a CNN: FEMNIST, all writers",
    settings=settings_of_full,
    n_jobs=1,
)
