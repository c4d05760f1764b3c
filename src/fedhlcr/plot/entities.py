"""One entity: its events, its own line, that of its cluster, and how probable its clusters are."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import AGENT, ENTITY, noun, percent, printable
from fedhlcr.analysis.axes import Axis, feature_axes
from fedhlcr.analysis.axis_lines import axis_line, target_axis
from fedhlcr.analysis.entity_lines import entity_feature_means, entity_line, entity_strengths
from fedhlcr.analysis.links import Link
from fedhlcr.analysis.summary import shorten
from fedhlcr.data.hierarchy import UNKNOWN, row_agents, row_entities
from fedhlcr.data.inputs import as_frame
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.drawn_events import DrawnEvents
from fedhlcr.exceptions import ArgumentError
from fedhlcr.plot.axis_drawing import draw_line, set_place_axis, set_target_axis, value_limits
from fedhlcr.plot.canvas import axes_or_new, check_agents, check_level, evenly, legend
from fedhlcr.plot.effects import Scatter, group_means, read_given_events
from fedhlcr.plot.features import chosen_axis
from fedhlcr.plot.palette import GREY, ClusterStyle, cluster_style, ink_on

# Of more events, a sample is drawn.
MAX_DOTS = 1_000
# Clusters with less probability have no bar of their own.
LEAST_SHOWN = 0.01
MAX_BARS = 6
FIGURE_SIZE = (3.5, 2.9)
INK = ClusterStyle("#222222", "-", "o")


def entity(
    model: HierarchicalPredictor,
    agent: Any = None,
    entity: Any = None,
    feature: str | int | None = None,
    X: Any = None,
    y: Any = None,
    ax: Axes | None = None,
    *,
    level: float | None = 0.9,
    target: str | None = None,
    exposure: Any = None,
) -> Axes:
    """One entity: its events, its own line with a band, the line of its cluster, and the probabilities of its clusters.

    The black line is what the model expects of the entity, and the band its interval of probability `level`, without
    the noise of events. The coloured line is that of its most probable cluster. Both have the entity's own averages of
    all other features. Dots are its events, adjusted to these averages; of a classifier or a count model, they are
    means of groups. The bars above show how probable each cluster is.

    Parameters
    ----------
    model : a fitted estimator of any sort, but not a public one
    agent, entity : the ids of one fitted entity; `agent` may be left out if there is only one
    feature : name or position of a feature, or name of its axis; None is the one that moves this entity's target most
    X, y : events of the entity
        They may contain those of others if they have the columns of ids that `fit` was given; None draws no events.
    ax : Axes to draw on; None makes a new figure
    level : probability of the band; None leaves it out
    target : name of y in labels, best with its unit
    exposure : as in `score`, for counts; rates are shown per unit of it

    Returns
    -------
    ax : Axes
    """
    check_agents(model)
    check_level(level, model)
    position = _position(model, agent, entity)
    events = _own_events(model, position, agent, entity, X, y, exposure)
    axes = feature_axes(model, None if events is None else events.X)
    if feature is None:
        axis = axes[int(np.argmax(entity_strengths(model, axes, position)))]
    else:
        axis = chosen_axis(model, axes, feature)
    cluster = int(model.labels_[position])
    others = entity_feature_means(model, np.array([position]))[0]
    own = entity_line(model, axis, position, None, 0.9 if level is None else level, others)
    shared = axis_line(model, axis, cluster, others=others)
    ax = axes_or_new(ax, FIGURE_SIZE)
    draw_line(ax, shared, cluster_style(cluster), f"cluster {cluster}", band=False, width=4.0)
    draw_line(ax, own, INK, f"this {noun(model.entity_column_, ENTITY).one}", band=level is not None)
    link = target_axis(model)
    shown = np.empty(0)
    if events is not None:
        shown = _draw_events(ax, axis, own.adjusted(axis.places(events.X), events.residuals), events, link.link)
    set_place_axis(ax, axis)
    set_target_axis(ax, link, target, value_limits((own, shared), shown, tails=0.0))
    legend(ax, loc="best")
    _draw_probabilities(ax, model.responsibilities(agent, entity), _title(model, position))
    return ax


def _position(model: HierarchicalPredictor, agent: Any, entity: Any) -> int:
    """The entity's position in `pair_ids_`."""
    if entity is None or np.ndim(entity) or (agent is not None and np.ndim(agent)):
        raise ArgumentError("`agent` and `entity` must be the ids of one fitted entity, such as a pair of `pair_ids_`.")
    index = model.posterior_.memory.entities.index
    sole = model.sole_agent_
    given = sole[0] if agent is None and sole is not None else agent
    position = UNKNOWN
    if given is not None:
        agents = index.find_agents(row_agents(np.array([given], dtype=object), 1))
        position = int(index.find_entities(agents, row_entities(np.array([entity], dtype=object), 1))[0])
    if position == UNKNOWN:
        several = model.sole_agent_ is None and agent is None
        cure = "pass `agent` too" if several else "`pair_ids_` lists all pairs; `adapt` learns new ones"
        raise ArgumentError(f"`agent` and `entity` name no entity that the model knows; {cure}.")
    return position


def _own_events(
    model: HierarchicalPredictor, position: int, agent: Any, entity: Any, X: Any, y: Any, exposure: Any
) -> DrawnEvents | None:
    """The events of this entity among those given."""
    if X is None:
        return read_given_events(model, X, y, None, None, exposure)
    frame = as_frame(X)
    has_ids = frame is not None and model.entity_column_ in frame.columns
    agents, entities = (
        None if given is None or has_ids else np.full(len(X), given, dtype=object) for given in (agent, entity)
    )
    events = read_given_events(model, X, y, agents, entities, exposure)
    assert events is not None
    return events.take(events.entity == position)


def _draw_events(ax: Axes, axis: Axis, values: FloatArray, events: DrawnEvents, link: Link | None) -> FloatArray:
    """Draw the events, or means of groups of them, and return the values drawn."""
    if not len(values):
        return values
    scatter = Scatter(axis.places(events.X), values)
    if link is not None:
        scatter = group_means(axis, scatter, link)
    some = evenly(len(scatter.places), MAX_DOTS)
    x = scatter.places[some]
    y = scatter.values[some]
    name = "its events" if link is None else "means of its events"
    ax.plot(x, y, "o", color=GREY, markersize=3.0, alpha=0.6, markeredgewidth=0, label=name, zorder=2)
    return y


def _title(model: HierarchicalPredictor, position: int) -> str:
    own_agent, own_entity = model.pair_ids_[position]
    words = f"{noun(model.entity_column_, ENTITY).one} {shorten(printable(own_entity))}"
    if model.sole_agent_ is None:
        words += f" of {noun(model.agent_column_, AGENT).one} {shorten(printable(own_agent))}"
    return words


def _draw_probabilities(ax: Axes, probabilities: FloatArray, title: str) -> None:
    """A bar above the Axes, divided by the probabilities of the clusters, which are numbered in it."""
    bar = ax.inset_axes((0.0, 1.02, 1.0, 0.07))
    size = float(ax.xaxis.label.get_fontsize())
    order = [k for k in np.argsort(-probabilities, kind="stable")[:MAX_BARS] if probabilities[k] >= LEAST_SHOWN]
    left = 0.0
    for k in order:
        share = float(probabilities[k])
        bar.barh(0, share, left=left, height=1.0, color=cluster_style(int(k)).color, edgecolor="white", linewidth=0.6)
        words = f"cluster {k}: {percent(share)}" if share > 0.3 else str(k) if share > 0.04 else ""
        ink = ink_on(cluster_style(int(k)).color)
        bar.text(left + share / 2, 0, words, ha="center", va="center", fontsize=0.8 * size, color=ink)
        left += share
    if left < 1.0 - LEAST_SHOWN:
        bar.barh(0, 1.0 - left, left=left, height=1.0, color="#eeeeee", edgecolor="white", linewidth=0.6)
    bar.set_xlim(0.0, 1.0)
    bar.set_ylim(-0.5, 0.5)
    bar.axis("off")
    bar.set_title(title, fontsize=size, pad=3)
