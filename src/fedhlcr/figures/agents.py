"""Which entities are in which cluster, and how certain that is; how common clusters are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.figures.figure import Mark, Panel, Scale, evenly
from fedhlcr.posterior.alignment import central_interval

# Most entities to compute the certainty of; of more, a random sample is taken.
MAX_ENTITIES = 20_000
# Most entities to show as points.
MAX_DOTS = 1_500
# Groups of entities by their number of events.
MAX_GROUPS = 10


def by_main_cluster(weights: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order of the agents by main cluster, then by its share; and their main clusters in that order."""
    main = weights.argmax(axis=1)
    order = np.lexsort((-weights.max(axis=1), main))
    return order, main[order]


def certainty_panel(model: HierarchicalPredictor) -> Panel:
    """Probability of each entity's most probable cluster, against its number of events."""
    posterior = model.posterior_
    every = posterior.layout.n_events(posterior.memory.entities.grams)
    # an entity has no events here if all its weights are zero
    seen = np.flatnonzero(every > 0.0)
    chosen = seen[evenly(len(seen), MAX_ENTITIES)]
    certainty = _certainty(model, chosen)
    n_events = every[chosen]
    groups = _groups(n_events)
    middle = np.array([np.exp(np.log(n_events[group]).mean()) for group in groups])
    low, median, high = np.array([np.quantile(certainty[group], (0.1, 0.5, 0.9)) for group in groups]).T
    dots = evenly(len(chosen), MAX_DOTS)
    marks = (
        Mark("dots", "faint", n_events[dots], certainty[dots], name="entity"),
        Mark("line", "spread", middle, low=low, high=high, name="80 % of them"),
        Mark("line", "curve", middle, median, name="median"),
    )
    kind = "log" if n_events.max() >= 10 * n_events.min() else "linear"
    x = Scale(label="events of the entity", kind="log") if kind == "log" else Scale(label="events of the entity")
    return Panel(x, Scale(0.0, 1.03, "probability of its cluster"), marks, legend="")


def weight_panel(model: HierarchicalPredictor, level: float | None) -> Panel:
    """Weights of the clusters, with posterior intervals."""
    marks = [
        Mark("bars", "weight", np.array([float(k)]), model.cluster_weights_[k : k + 1], cluster=k)
        for k in range(model.n_clusters_)
    ]
    if level is not None:
        weights = model.alignment_.by_draw(np.exp(model.posterior_.draws.log_weights))
        low, high = central_interval(weights, np.ones_like(weights), level)
        marks.append(Mark("levels", "ink", np.arange(model.n_clusters_, dtype=np.float64), low=low, high=high))
    x = Scale(-0.6, model.n_clusters_ - 0.4, "cluster", kind="whole")
    return Panel(x, Scale(0.0, None, "weight of the cluster"), tuple(marks))


def _certainty(model: HierarchicalPredictor, entities: NDArray[np.int64]) -> FloatArray:
    agents, ids = np.empty((2, len(entities)), dtype=object)
    agents[:] = [model.pair_ids_[e][0] for e in entities]
    ids[:] = [model.pair_ids_[e][1] for e in entities]
    return model.responsibilities(agents, ids).max(axis=1)


def _groups(n_events: FloatArray) -> list[NDArray[np.int64]]:
    """Entities with equal numbers of events; with similar numbers, if there are many different ones."""
    edges = np.unique(n_events)
    if len(edges) > MAX_GROUPS:
        edges = np.geomspace(edges[0], edges[-1], MAX_GROUPS + 1)[:-1]
    group = np.searchsorted(edges, n_events, side="right")
    return [np.flatnonzero(group == g) for g in np.unique(group)]
