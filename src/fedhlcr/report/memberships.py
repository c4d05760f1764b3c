"""Which cluster every entity is in, and how probable that is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.posterior.prediction import Profiles

# Most entities to list; of more, the least certain are listed.
MAX_LISTED = 50_000


class Memberships(NamedTuple):
    """The label of every entity, its probability, and all probabilities of the listed entities."""

    label: IndexArray
    certainty: FloatArray
    listed: IndexArray
    probability: FloatArray  # (listed, clusters)


def memberships_of(model: HierarchicalPredictor) -> Memberships:
    """The memberships of all entities that a model holds."""
    n_all = len(model.labels_)
    # exact probabilities are slow: with very many entities, only the least certain ones get them
    certainty = _votes(model) if n_all > MAX_LISTED else np.zeros(n_all)
    listed = np.sort(np.argsort(certainty, kind="stable")[:MAX_LISTED])
    probability = _responsibilities(model, listed) if n_all else np.zeros((0, model.n_clusters_))
    certainty[listed] = probability[np.arange(len(listed)), model.labels_[listed]]
    return Memberships(model.labels_, certainty, listed, probability)


def _responsibilities(model: HierarchicalPredictor, entities: IndexArray) -> FloatArray:
    """(entities, clusters) as `model.responsibilities`, for entities given by position."""
    profiles = Profiles.of(model.posterior_.memory.entities.index.agent_of[entities], entities)
    return model.profile_responsibilities(profiles)


def _votes(model: HierarchicalPredictor) -> FloatArray:
    """(entities,) share of the draws in which an entity has its label: a rough but fast certainty."""
    labels, target = model.posterior_.memory.labels, model.alignment_.target
    agreeing: NDArray[np.int64] = np.zeros(labels.shape[1], dtype=np.int64)
    for row, reported in zip(labels, target, strict=True):
        agreeing += reported[row] == model.labels_
    return agreeing / len(labels)
