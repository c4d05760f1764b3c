"""Small problems with Student-t noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Stage
from fedhlcr.model.student import MixedStudentNoise
from fedhlcr.samplers.state import EntityData
from tests.problems import entities_from


def student_entities(rng, sizes, n_events, *, n_features=1, fit_intercept=True) -> EntityData:
    """Entities of agents with the given sizes, with random events."""
    agent = np.repeat(np.repeat(np.arange(len(sizes)), sizes), n_events)
    entity = np.repeat(np.concatenate([np.arange(n) for n in sizes]), n_events)
    X, y = rng.normal(size=(len(agent), n_features)), rng.normal(size=len(agent))
    entities = entities_from(X, y, agent, entity, fit_intercept=fit_intercept)
    events = build_hierarchy(X, y, np.ones(len(y)), agent, entity).events
    return replace(entities, likelihood=MixedStudentNoise(entities.layout), events=events)


def given_globals(likelihood: MixedStudentNoise, n_clusters: int, **changes):
    """Globals at the last stage, with fixed concentrations; the unit of the noise is its scale, as always here."""
    start = likelihood.start(ModelSpec(global_concentration=1.0, agent_concentration=0.7), n_clusters)
    unit = changes.get("noise_scale", start.noise_unit)
    return replace(start, **{"stage": float(Stage.EXACT), "noise_unit": unit, **changes})
