"""The error that cannot be beaten by much: that of a chain that starts at the truth."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.streams import Stream
from fedhlcr.data.hierarchy import build_hierarchy, row_agents, row_entities
from fedhlcr.datasets import HierarchicalData, HLCRTruth
from fedhlcr.model.gaussian import Gaussian
from fedhlcr.model.gram import GramLayout, Standardization, entity_grams
from fedhlcr.model.priors import ModelSpec
from fedhlcr.posterior import AgentMemory, Draws, Posterior, Profiles
from fedhlcr.samplers import blocked, collapsed
from fedhlcr.samplers.state import Draw, EntityData


def limit_mse(
    train: HierarchicalData,
    test: HierarchicalData,
    truth: HLCRTruth,
    *,
    n_sweeps: int = 400,
    burn_in: int = 50,
    n_threads: int = 1,
) -> float:
    """Held-out error of a collapsed chain started at the true labels, with the true hyperparameters (δ = β = 1, α = K).

    All entities of the truth must have events in `train`.
    """
    n_clusters = len(truth.coef)
    spec = ModelSpec(truth.noise_scale, 1.0, float(n_clusters), 1.0)
    hierarchy = build_hierarchy(train.X, train.y, np.ones(len(train)), train.agent, train.entity)
    layout, raw = GramLayout(train.X.shape[1]), np.zeros(train.X.shape[1] + 1)
    entities = EntityData(Gaussian(layout), hierarchy.index, entity_grams(hierarchy, layout, raw), n_threads)
    stream = Stream(77)
    state = blocked.state_from_labels(entities, spec, truth.labels.astype(np.int32), n_clusters, stream)
    kept = []
    for sweep in range(n_sweeps):
        state = collapsed.step(entities, spec, state, stream)
        if sweep >= burn_in:
            kept.append(Draw.of(state))
    units = Standardization(raw, np.ones_like(raw))
    posterior = Posterior(Gaussian(layout), units, Draws.from_chains([kept]), AgentMemory.from_chains(entities, [kept]))
    agents = entities.index.find_agents(row_agents(test.agent, len(test)))
    pairs = entities.index.find_entities(agents, row_entities(test.entity, len(test)))
    return float(((posterior.predict(test.X, Profiles.of(agents, pairs)).mean - test.y) ** 2).mean())
