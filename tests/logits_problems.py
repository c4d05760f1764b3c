"""Small problems with yes-or-no targets and counts, and draws of such targets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhlcr.data.hierarchy import Hierarchy, build_hierarchy
from fedhlcr.model.binary import Logistic
from fedhlcr.model.counts import LOG_SIZE, NegativeBinomial
from fedhlcr.model.gram import GramLayout, entity_grams
from fedhlcr.model.logits import Logits
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Stage
from fedhlcr.samplers.state import EntityData

LIKELIHOODS = {"binary": Logistic, "count": NegativeBinomial}


def hierarchy_with(X, y, sizes, n_events, *, weight=None, offset=None) -> Hierarchy:
    """Entities of agents with the given sizes, with `n_events` events each."""
    agent = np.repeat(np.repeat(np.arange(len(sizes)), sizes), n_events)
    entity = np.repeat(np.concatenate([np.arange(n) for n in sizes]), n_events)
    weight = np.ones(len(y)) if weight is None else weight
    return build_hierarchy(X, np.asarray(y, float), weight, agent, entity, offset)


def entities_of(likelihood: type[Logits], hierarchy: Hierarchy) -> EntityData:
    """Entities whose features are as they are: no shift, no scaling."""
    layout = GramLayout(hierarchy.X.shape[1])
    grams = entity_grams(hierarchy, layout, np.zeros(layout.n_features + 1))
    return EntityData(likelihood(layout), hierarchy.index, grams, events=hierarchy.events)


def given_globals(likelihood: Logits, n_clusters: int, **changes):
    """Globals at the last stage, with fixed concentrations."""
    start = likelihood.start(ModelSpec(global_concentration=1.0, agent_concentration=0.7), n_clusters)
    return replace(start, **{"stage": float(Stage.EXACT), **changes})


def linear_part(entities: EntityData, coef) -> np.ndarray:
    """(events,) xᵀβ with an intercept, and the offset; `coef` is (entities, n_coef)."""
    events = entities.events
    own = np.repeat(coef, np.diff(events.event_start), axis=0)
    return own[:, 0] + (own[:, 1:] * events.X).sum(axis=1) + events.offsets


def draw_targets(rng, entities: EntityData, coef, agent_state) -> np.ndarray:
    """(events,) targets given the coefficients of entities, and the sizes r of agents if they are counts."""
    eta = linear_part(entities, coef)
    if isinstance(entities.likelihood, Logistic):
        return (rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    log_size = agent_state[LOG_SIZE][entities.index.agent_of]
    size = np.repeat(np.exp(log_size), np.diff(entities.events.event_start))
    # numpy has no Poisson numbers beyond 2⁶³
    rates = np.minimum(np.exp(eta) * rng.gamma(size) / size, 1e15)
    return rng.poisson(rates).astype(float)
