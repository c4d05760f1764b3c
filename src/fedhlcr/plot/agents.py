"""Which entities are in which cluster, and how certain that is."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import AGENT
from fedhlcr.analysis.summary import shorten
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.plot.canvas import axes_or_new, check_agents, color_bar, evenly, legend, log_axis
from fedhlcr.plot.palette import BLUE, GREY, NONE_TO_ALL
from fedhlcr.posterior.alignment import mean_compositions

# With more agents, their names are left out.
MAX_NAMED = 25
# Most entities to compute the certainty of; of more, a random sample is taken.
MAX_ENTITIES = 20_000
# Most entities to show as points.
MAX_DOTS = 1_500
# Groups of entities by their number of events.
MAX_GROUPS = 10


def agent_map(model: HierarchicalPredictor, ax: Axes | None = None) -> Axes:
    """Share of each agent's entities in each cluster, as an image with a row for each agent.

    Shares are means over the draws. They are not `agent_weights_`, which are the probabilities for a new entity.

    Agents are sorted by their main cluster, then by its share. Lines separate agents with different main clusters. Up
    to 25 agents are named.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    ax : Axes to draw on; None makes a new figure

    Returns
    -------
    ax : Axes
    """
    check_agents(model)
    shares = mean_compositions(model.posterior_.memory, model.alignment_)
    order, dominant = _by_dominant_cluster(shares)
    ax = axes_or_new(ax)
    ax.grid(visible=False)
    # nearest: smoothing a thousand rows into a few hundred pixels would smear the columns too
    image = ax.imshow(shares[order], cmap=NONE_TO_ALL, vmin=0.0, aspect="auto", interpolation="nearest")
    borders = np.flatnonzero(np.diff(dominant)) + 0.5
    ax.hlines(borders, -0.5, model.n_clusters_ - 0.5, color=GREY, linewidth=0.5)
    if len(order) <= MAX_NAMED:
        ax.set_yticks(np.arange(len(order)), [shorten(str(model.agent_ids_[agent])) for agent in order])
        ax.set_ylabel("agent")
    else:
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.set_ylabel(f"{AGENT.count(len(order))}, by main cluster")
    ax.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    ax.set_xlabel("cluster")
    color_bar(ax, image, "share of the agent's entities")
    return ax


def label_certainty(model: HierarchicalPredictor, ax: Axes | None = None) -> Axes:
    """Probability of each entity's most probable cluster, against its number of events.

    The line is the median of entities with similar numbers of events, the band covers 80 % of them, and points are
    entities. If several chains found different clusters, certainty is low even with many events.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    ax : Axes to draw on; None makes a new figure

    Returns
    -------
    ax : Axes
    """
    check_agents(model)
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
    ax = axes_or_new(ax)
    dots = evenly(len(chosen), MAX_DOTS)
    ax.plot(n_events[dots], certainty[dots], ".", color=GREY, markersize=2, alpha=0.4, label="entity", zorder=1)
    ax.fill_between(middle, low, high, color=BLUE, alpha=0.2, linewidth=0, label="80 % of them")
    ax.plot(middle, median, "o-", color=BLUE, linewidth=1.3, markersize=3.5, label="median")
    if n_events.max() >= 10 * n_events.min():
        log_axis(ax)
    ax.set_ylim(0.0, 1.03)
    ax.set_xlabel("events of the entity")
    ax.set_ylabel("probability of its cluster")
    legend(ax, loc="lower right")
    return ax


def _by_dominant_cluster(weights: FloatArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order of the agents, and their main clusters in that order."""
    dominant = weights.argmax(axis=1)
    order = np.lexsort((-weights.max(axis=1), dominant))
    return order, dominant[order]


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
