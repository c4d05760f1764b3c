"""SynthHLCR as the paper has it: 128 agents, 128 entity ids, five folds.

The paper leaves open the number of features F, δ, α, β and the law of x. Ours: four features and the constant (F = 5),
x ~ N(0, I), δ = 1, α = K, β = 1. Every agent has N_* of the 128 entity ids, each with N_** events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr.datasets import HierarchicalData, HLCRTruth, make_hlcr

N_AGENTS, N_ENTITY_IDS, N_FEATURES, N_FOLDS = 128, 128, 4, 5
COEF_SCALE, AGENT_CONCENTRATION = 1.0, 1.0
LAW = (
    f"There are {N_AGENTS} agents, each with N_* of {N_ENTITY_IDS} entity ids, and each entity has N_** events; "
    f"x = (1, N(0, I)) with F = {N_FEATURES + 1}, δ = {COEF_SCALE:g}, α = K, β = {AGENT_CONCENTRATION:g}; five-fold "
    "cross-validation over the events of each entity"
)
SAME = "The data are drawn as for figure (a)"


class Size(NamedTuple):
    """N_*, N_** and K."""

    entities: int
    events: int
    clusters: int

    def __str__(self) -> str:
        return f"N_* = {self.entities}, N_** = {self.events}, K = {self.clusters}"


class Fold(NamedTuple):
    train: HierarchicalData
    test: HierarchicalData


def synth_hlcr(size: Size, noise_scale: float, seed: int) -> tuple[HierarchicalData, HLCRTruth]:
    """Data drawn from the model."""
    table, truth = make_hlcr(
        N_AGENTS,
        size.entities,
        size.events,
        N_FEATURES,
        size.clusters,
        noise_scale,
        coef_scale=COEF_SCALE,
        agent_concentration=AGENT_CONCENTRATION,
        balanced=True,
        random_state=seed,
    )
    rng = np.random.default_rng([seed, 1])
    # sorted, so that the labels of the truth, which are sorted by agent and entity, stay where they are
    ids = np.sort(np.array([rng.permutation(N_ENTITY_IDS)[: size.entities] for _ in range(N_AGENTS)]), axis=1)
    return replace(table, entity=ids[table.agent, table.entity]), truth


def own_slopes(size: Size, noise_scale: float, spread: float, seed: int) -> HierarchicalData:
    """Every entity has slopes of its own, drawn from N(w_k, spread² I) for its cluster k."""
    table, _ = synth_hlcr(size, noise_scale, seed)
    pair = pair_of_events(table)
    design = np.column_stack([np.ones(len(table)), table.X])
    own = spread * np.random.default_rng([seed, 2]).standard_normal((pair.max() + 1, N_FEATURES + 1))
    return replace(table, y=table.y + (design * own[pair]).sum(axis=1))


def pair_of_events(table: HierarchicalData) -> NDArray[np.intp]:
    """(events,) the position of each event's agent–entity pair among all, sorted by agent and entity."""
    return np.unique(np.column_stack([table.agent, table.entity]), axis=0, return_inverse=True)[1].ravel()


def folds(table: HierarchicalData, seed: int) -> Iterator[Fold]:
    """Every event is held out once, and every fold holds out about a fifth of each entity's events."""
    fold_of = assign_folds(table, seed)
    for fold in range(N_FOLDS):
        yield Fold(table[fold_of != fold], table[fold_of == fold])


def assign_folds(table: HierarchicalData, seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng([seed, 3])
    fold_of = np.empty(len(table), dtype=np.int64)
    shuffled = rng.permutation(len(table))
    order = shuffled[np.lexsort((table.entity[shuffled], table.agent[shuffled]))]
    # cards are dealt on from entity to entity, so that the folds are of one size
    fold_of[order] = np.arange(len(table)) % N_FOLDS
    return fold_of
