"""The data of the benchmarks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedhlcr import hold_out_events
from fedhlcr.data.hierarchy import Hierarchy, build_hierarchy
from fedhlcr.datasets import make_hlcr
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.datasets.synthetic import HLCRTruth
from fedhlcr.kernels.grams import sum_rows
from fedhlcr.model.gaussian import Gaussian
from fedhlcr.model.gram import GramLayout, Standardization, column_means, entity_grams
from fedhlcr.samplers.state import EntityData

N_CLUSTERS = 16
NOISE_SCALE = 0.5


class Split(NamedTuple):
    """A synthetic table with a fifth of each entity's events held out; every entity keeps some."""

    train: HierarchicalData
    test: HierarchicalData
    truth: HLCRTruth


def draw_m(seed: int) -> Split:
    """M: 1000 agents with 16 entities of 10 events each, on average; 15 features, 16 clusters."""
    table, truth = make_hlcr(1000, 16, 10, 15, N_CLUSTERS, NOISE_SCALE, random_state=seed)
    train, test = hold_out_events(table.agent, table.entity, fraction=0.2, random_state=seed)
    return Split(table[train], table[test], truth)


def draw_s(seed: int) -> Split:
    """S: 128 agents with 8 entities of 5 events each, on average; 7 features, 8 clusters."""
    table, truth = make_hlcr(128, 8, 5, 7, 8, NOISE_SCALE, random_state=seed)
    train, test = hold_out_events(table.agent, table.entity, fraction=0.2, random_state=seed)
    return Split(table[train], table[test], truth)


def draw_l(seed: int, n_agents: int = 10_000) -> tuple[HierarchicalData, HLCRTruth]:
    """L: 10,000 agents with 16 entities of 10 events each, on average; 16 features, 16 clusters."""
    return make_hlcr(n_agents, 16, 10, 16, N_CLUSTERS, NOISE_SCALE, random_state=seed)


def hierarchy_of(table: HierarchicalData, n_threads: int = 1) -> Hierarchy:
    return build_hierarchy(table.X, table.y, np.ones(len(table)), table.agent, table.entity, None, n_threads)


def entities_of(hierarchy: Hierarchy, n_threads: int, *, standardize: bool) -> EntityData:
    """Gram matrices as the estimator makes them, or of the columns as they are."""
    layout = GramLayout(hierarchy.X.shape[1])
    shift = column_means(hierarchy, n_threads) if standardize else np.zeros(layout.n_features + 1)
    grams = entity_grams(hierarchy, layout, shift, n_threads)
    standardization = Standardization.from_gram(layout, sum_rows(grams), shift, scale=standardize)
    return EntityData(Gaussian(layout), hierarchy.index, standardization.rescale(layout, grams, n_threads), n_threads)
