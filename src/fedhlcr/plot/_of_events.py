"""Plots of fitted models beside events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import AGENT, ENTITY, EVENT, noun, percent, printable
from fedhlcr.analysis.axes import feature_axes
from fedhlcr.analysis.summary import shorten
from fedhlcr.data import inputs
from fedhlcr.data.hierarchy import UNKNOWN, row_agents, row_entities
from fedhlcr.data.inputs import as_frame
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.drawn_events import DrawnEvents
from fedhlcr.exceptions import ArgumentError
from fedhlcr.figures.choices import check_agents, check_level, chosen_axis, chosen_clusters, label_of_target
from fedhlcr.figures.fit import LEVELS, calibration_panel, cloud_panel, interval_coverage, reliability_panel
from fedhlcr.figures.lines import MAX_TOGETHER, effect_panels, entity_panel, read_given_events, strongest_axis
from fedhlcr.figures.palette import cluster_style, ink_on
from fedhlcr.figures.replicates import replicate_panel
from fedhlcr.plot._drawing import axes_or_new, draw, draw_panels, panels_or_new
from fedhlcr.posterior.fitted_model import FittedModel, check_model

__all__ = [
    "calibration",
    "effects",
    "entity",
    "posterior_predictive",
    "predicted_against_observed",
    "reliability",
]

LAYOUTS = ("panels", "together")
# Inches of a panel of one cluster, panels in a row, and inches of figures with room above.
PANEL_SIZE = (1.75, 1.6)
N_COLUMNS = 4
TALL_FIGURE = (3.5, 2.9)
# Most events to judge intervals by; of more, a random sample is taken. Shares then have a standard error of 0.5 %.
MAX_EVENTS = 10_000
# Clusters with less probability have no bar of their own.
LEAST_SHOWN = 0.01
MAX_BARS = 6


def effects(
    model: HierarchicalPredictor,
    feature: str | int | None = None,
    X: Any = None,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    ax: Axes | Sequence[Axes] | NDArray[np.object_] | None = None,
    *,
    level: float | None = 0.9,
    clusters: Sequence[int] | None = None,
    layout: Literal["panels", "together"] | None = None,
    target: str | None = None,
    exposure: Any = None,
) -> Axes | NDArray[np.object_]:
    """A feature against the target in every cluster: the line of the cluster, its band, and events.

    Features are shown as a reader knows them: the month instead of its sine and cosine, miles instead of their
    logarithm, the levels of a category. A line is the posterior mean of what the cluster predicts if all other features
    have their means; the band is its interval of probability `level`. Of a classifier it is the probability of the
    second class, of a count model the rate.

    Events are drawn in the panel of their entity's cluster, adjusted to average other features: the line plus the
    residual of the model's own prediction. Of more than 250 events, 250 are drawn, and the means of all of them in
    twelve groups of equally many as larger dots. Classes and counts are always drawn as means: the line, times the
    factor by which the odds, or the rate, of what was observed differ from what the model predicted of the same events.
    The y axis leaves out the outermost hundredth of the dots at either end. Events of entities that were not fitted
    have no cluster, so they are left out.

    Parameters
    ----------
    model : a fitted estimator of any sort; a public one has no clusters for events
    feature : name or position of a feature, or name of its axis, such as "month"; None is the strongest
    X, y, agent, entity : events to draw, as in `score`; None draws lines only
    ax : one Axes for all clusters together, or an array of Axes, one for each cluster; None makes a new figure
    level : probability of the bands; None leaves them out
    clusters : numbers of clusters; None is all, at most the sixteen largest
    layout : {"panels", "together"}; None is together for up to four clusters
    target : name of y in labels, best with its unit
    exposure : as in `score`, for counts; rates are shown per unit of it

    Returns
    -------
    ax : Axes, or an array of them (clusters,) if every cluster has one
    """
    model = check_model(model)
    check_level(level, model)
    shown = chosen_clusters(model, clusters)
    events = read_given_events(model, X, y, agent, entity, exposure)
    axes = feature_axes(model, None if events is None else events.X)
    axis = strongest_axis(model, axes) if feature is None else chosen_axis(model, axes, feature)
    together = _is_together(layout, ax, len(shown))
    panels = effect_panels(model, axis, shown, events, level=level, target=target, together=together)
    if together:
        return draw(panels[0], axes_or_new(ax))
    return draw_panels(panels, panels_or_new(ax, len(panels), PANEL_SIZE, N_COLUMNS), only_outer=ax is None)


def _is_together(layout: str | None, ax: Any, n: int) -> bool:
    if layout is not None and layout not in LAYOUTS:
        raise ArgumentError(f"`layout` must be 'panels' or 'together', but is {layout!r}.")
    if layout is None:
        return isinstance(ax, Axes) or (ax is None and n <= MAX_TOGETHER)
    if layout == "panels" and isinstance(ax, Axes) and n > 1:
        raise ArgumentError(f"`layout` is 'panels', but `ax` is one Axes; pass an array of {n} Axes, or leave it out.")
    return layout == "together"


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
    model = check_agents(model)
    check_level(level, model)
    position = _position(model, agent, entity)
    events = _own_events(model, position, agent, entity, X, y, exposure)
    panel = entity_panel(model, position, feature, events, level=level, target=target)
    ax = draw(panel, axes_or_new(ax, TALL_FIGURE), loc="best")
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


def posterior_predictive(
    model: HierarchicalPredictor,
    X: Any,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    ax: Axes | None = None,
    *,
    n_replicates: int = 100,
    target: str | None = None,
    exposure: Any = None,
) -> Axes:
    """Posterior predictive check: observed targets against targets that the model draws for the same events.

    A replicate is a whole table from one kept draw: every entity draws its cluster and its own coefficients, every
    event its noise. Real targets are shown as histograms, counts as bars on a square root axis with the 90 % interval
    of the replicates, and classes as the share of the second class among the events of each agent, with 90 % intervals.
    The line above has a number between 0 and 1 for each statistic: the share of replicates in which it is larger than
    observed. Near 0 or 1, the model does not reproduce it.

    Of more than 10,000 events a sample of 10,000 is used. The random numbers depend on the seed of the fit only.

    Parameters
    ----------
    model : a fitted estimator of any sort
    X, y, agent, entity : events, as in `score`; fitted ones check the fit, others the predictions
    ax : Axes to draw on; None makes a new figure
    n_replicates : tables to draw, at least 20
    target : name of y in labels, best with its unit
    exposure : as in `score`, for counts

    Returns
    -------
    ax : Axes
    """
    model = check_model(model)
    if not isinstance(n_replicates, int | np.integer) or n_replicates < 20:
        raise ArgumentError(f"`n_replicates` must be a whole number of at least 20, but is {n_replicates!r}.")
    panel = replicate_panel(model, (X, y, agent, entity, exposure), int(n_replicates), target)
    ax = draw(panel, axes_or_new(ax, TALL_FIGURE), loc="best")
    ax.title.set_fontsize(0.9 * float(ax.xaxis.label.get_fontsize()))
    return ax


def predicted_against_observed(
    model: HierarchicalPredictor,
    X: Any,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    ax: Axes | None = None,
    *,
    target: str | None = None,
) -> Axes:
    """Observed against predicted targets. For a good model, events lie evenly around the diagonal.

    Predictions are on the horizontal axis: at each prediction, the mean of the observed targets should equal it. With
    the axes swapped, even perfect predictions look too flat. More than 5,000 events are shown as counts in cells.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    X, y, agent, entity : events, as in `score`; best some that were not fitted
    ax : Axes to draw on; None makes a new figure
    target : name of y in labels, best with its unit; None is that of its column

    Returns
    -------
    ax : Axes
    """
    model = _check_real(model)
    X, y, agent, entity, *_ = model.events_of(X, y, agent, entity)
    predicted = model.predict_moments(X, agent, entity).mean
    observed = inputs.target_vector(y, len(predicted))
    ax = draw(cloud_panel(observed, predicted, label_of_target(model, target)), axes_or_new(ax))
    if len(observed) > 1:
        r2 = r2_score(observed, predicted)
        ax.set_title(f"{EVENT.count(len(observed))}, R² = {r2:.3f}", fontsize=ax.xaxis.label.get_fontsize())
    return ax


def calibration(
    model: HierarchicalPredictor,
    X: Any,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Share of the targets inside the central intervals, against the probability of the intervals.

    On the diagonal the intervals are right; below it they are too narrow, above it too wide. The band is two standard
    errors wide to either side, for independent events. Of more than 10,000 events a sample of 10,000 is used.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    X, y, agent, entity : events, as in `score`; best some that were not fitted
    ax : Axes to draw on; None makes a new figure

    Returns
    -------
    ax : Axes
    """
    model = _check_real(model)
    inside, n_events, _ = interval_coverage(model, X, y, agent, entity, None, LEVELS, MAX_EVENTS)
    return draw(calibration_panel(inside, LEVELS, n_events), axes_or_new(ax), loc="upper left")


def _check_real(model: Any) -> FittedModel:
    """What a fitted model of real numbers found; anything else is refused."""
    found = check_model(model)
    if found.family.has_link:
        raise ArgumentError(
            "`model` predicts classes or counts, but this plot is for real numbers; use `plot.reliability` for it."
        )
    return found


def reliability(
    model: HierarchicalPredictor,
    X: Any,
    y: Any = None,
    agent: Any = None,
    entity: Any = None,
    ax: Axes | None = None,
    *,
    exposure: Any = None,
) -> Axes:
    """Observed against predicted probabilities or mean counts, in groups of equally many events.

    On the diagonal they are equal. Of a classifier, a point is the share of the second class among a tenth of the
    events, with its 90 % interval (Jeffreys); of a count model, it is their mean count, with a 90 % interval from its
    standard error. Intervals take events as independent. Grey bars at the bottom are a histogram of the predictions.

    Parameters
    ----------
    model : classifier or count model, fitted
    X, y, agent, entity : events, as in `score`; best some that were not fitted
    ax : Axes to draw on; None makes a new figure
    exposure : as in `score`, for counts

    Returns
    -------
    ax : Axes
    """
    model = check_model(model)
    if not model.family.has_link:
        raise ArgumentError(
            "`model` predicts real numbers; use `plot.predicted_against_observed` and `plot.calibration` for it."
        )
    X, y, agent, entity, _, exposure = model.events_of(X, y, agent, entity, exposure=exposure)
    predicted = model.predict_moments(X, agent, entity, exposure=exposure).mean
    observed = model.numeric_target(y, len(predicted))
    panel = reliability_panel(
        observed, predicted, has_classes=model.family.has_classes, title=EVENT.count(len(observed))
    )
    return draw(panel, axes_or_new(ax), loc="upper left")
