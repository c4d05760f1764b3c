"""How sure the labels of entities are: the probability of each one's cluster, and the most probable other cluster."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.posterior.prediction import Profiles

# Exact probabilities are slow: of more entities than this, only the least certain have them.
MAX_EXACT = 50_000


class Memberships(NamedTuple):
    """The label of every entity, its probability, and all probabilities of the listed entities.

    Attributes
    ----------
    label : (entities,) as in `labels_`
    certainty : (entities,) probability of the label; for entities that are not listed, its share of the draws
    listed : positions of the entities with exact probabilities, ascending
    probability : (listed, clusters)
    """

    label: IndexArray
    certainty: FloatArray
    listed: IndexArray
    probability: FloatArray

    def runners_up(self) -> tuple[IndexArray, FloatArray]:
        """(listed,) the most probable of the other clusters, and its probability; −1 and 0 if there is one cluster."""
        n_listed, n_clusters = self.probability.shape
        if n_clusters == 1:
            return np.full(n_listed, -1), np.zeros(n_listed)
        others = self.probability.copy()
        others[np.arange(n_listed), self.label[self.listed]] = -1.0
        return others.argmax(axis=1), others.max(axis=1)


def memberships(model: FittedModel, most_exact: int | None = MAX_EXACT) -> Memberships:
    """The memberships of all entities of a model; None computes exact probabilities for all."""
    n_all = len(model.labels_)
    n_exact = n_all if most_exact is None else most_exact
    certainty = _votes(model) if n_all > n_exact else np.zeros(n_all)
    listed = np.sort(np.argsort(certainty, kind="stable")[:n_exact])
    probability = np.zeros((0, model.n_clusters_))
    if n_all:
        agents = model.posterior_.memory.entities.index.agent_of[listed]
        probability = model.cluster_probabilities(Profiles.of(agents, listed))
    certainty[listed] = probability[np.arange(len(listed)), model.labels_[listed]]
    return Memberships(model.labels_, certainty, listed, probability)


def _votes(model: FittedModel) -> FloatArray:
    """(entities,) share of the draws in which an entity has its label: a rough but fast certainty."""
    labels = model.posterior_.memory.labels
    target = model.alignment_.target
    agreeing: NDArray[np.int64] = np.zeros(labels.shape[1], dtype=np.int64)
    for row, reported in zip(labels, target, strict=True):
        agreeing += reported[row] == model.labels_
    return agreeing / len(labels)
