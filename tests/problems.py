"""Small problems for tests of samplers, built without the estimator."""

from __future__ import annotations

import numpy as np

from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.model.gaussian import Gaussian
from fedhlcr.model.gram import GramLayout, entity_grams
from fedhlcr.samplers.state import EntityData

# The model of the paper: entities of a cluster are equal, and so is the noise of all entities.
PAPER = {"effects": "none", "noise": "common"}


def entities_from(X, y, agent, entity, *, fit_intercept=True, n_threads=1) -> EntityData:
    """Entities with raw Gram matrices: no shift, no scaling."""
    X, y = np.asarray(X, float), np.asarray(y, float)
    hierarchy = build_hierarchy(X, y, np.ones(len(y)), agent, entity)
    layout = GramLayout(X.shape[1], fit_intercept)
    grams = entity_grams(hierarchy, layout, np.zeros(X.shape[1] + 1))
    return EntityData(Gaussian(layout), hierarchy.index, grams, n_threads)


def tiny_table(seed: int, sizes=(3, 2, 1), n_events=2, n_features=1, noise=1.0):
    """Few entities with few events: small enough to enumerate all labelings."""
    rng = np.random.default_rng(seed)
    agent = np.repeat(np.arange(len(sizes)), sizes)
    entity = np.concatenate([np.arange(n) for n in sizes])
    agent, entity = np.repeat(agent, n_events), np.repeat(entity, n_events)
    X = rng.standard_normal((len(agent), n_features))
    slopes = rng.standard_normal((2, n_features))
    label = np.repeat(rng.integers(2, size=sum(sizes)), n_events)
    y = (slopes[label] * X).sum(axis=1) + noise * rng.standard_normal(len(agent))
    return X, y, agent, entity
