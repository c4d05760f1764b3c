"""The explorer of a report: everything about one agent or one entity, looked up on the page.

The data are packed, since a page may hold 40,000 entities. Names, numbers of events and labels are read from
the tables of agents and entities, which the page has anyway.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import number
from fedhlcr.analysis.axis_lines import TargetAxis, target_axis
from fedhlcr.analysis.effects import INTERVAL_LEVEL
from fedhlcr.analysis.facts import AgentFacts
from fedhlcr.analysis.ticks import tick_text
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.figures.palette import color_class
from fedhlcr.figures.svg import LONG_TICK
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.report.entity_lines import DrawnAxis, drawn_axes, entity_lines, pack_events, pack_lines
from fedhlcr.report.events import DrawnEvents
from fedhlcr.report.findings import Findings, ListedEntities
from fedhlcr.report.packing import (
    CHARACTERS_PER_BYTE,
    MAX_SHARES,
    most_shares,
    pack,
    pack_shares,
    room_for_details,
    size_of_agents,
    size_of_entities,
    to_block,
)

# Numbers of ticks of the target on its whole range, and for logarithms between two powers of ten.
MOST_TICKS = (5, 10, 20, 40, 80, 160, 320, 640)
PARTS_OF_TEN = (9, 18, 45, 90, 180)
# Axes and events of each entity: as many as fit for all entities, but not fewer than the last of these.
DETAILS = ((4, 40), (4, 20), (3, 12))
N_NEIGHBOURS = 5
# Beyond this number, agents have no neighbours.
MOST_AGENTS = 20_000
BYTES_PER_VALUE = 2


class Detail(NamedTuple):
    """What is shown of which entities: rows of the table of entities, ascending; axes; most events of each."""

    rows: IndexArray
    axes: list[DrawnAxis]
    n_events: int


def explorer_section(
    model: HierarchicalPredictor, findings: Findings, events: DrawnEvents | None, judged: DrawnEvents | None
) -> dict[str, Any] | None:
    """The explorer of all listed entities and their agents; None if the model holds none.

    Parameters
    ----------
    events : events to draw as dots; None draws none
    judged : held-out events, for the errors of agents
    """
    names = findings.names
    entities = findings.entities
    agents = findings.agents
    if entities is None or agents is None:
        return None
    known = None if events is None or not (events.entity != UNKNOWN).any() else events
    of_agents = size_of_agents(agents.ids, agents.weights)
    of_entities = size_of_entities(entities.entities, entities.probability, entities.n_all)
    room = room_for_details(of_agents, of_entities)
    detail = _choose_detail(entities, drawn_axes(model, known), known, room)
    target = target_axis(model)
    details = _details(model, entities, detail, known)
    data = {
        "nouns": {name: [noun.one, noun.many] for name, noun in (("agent", names.agent), ("entity", names.entity))},
        "colors": [color_class(k) for k in range(model.n_clusters_)],
        "target": {
            "name": target.name,
            "base": target.base,
            "offset": target.offset,
            "percent": target.family.has_classes,
            **_target_ticks(target, details),
        },
        "level": INTERVAL_LEVEL,
        "first": _first(entities, detail),
        "shares": pack_shares(entities.probability, most_shares(entities.n_all)),
        **details,
        "agents": _agents(agents, judged) if len(agents) > 1 else None,
    }
    return {
        "data": to_block(data),
        "has_agents": len(agents) > 1,
        "has_events": known is not None,
        "n_detailed": len(detail.rows),
        "n_entities": len(entities),
    }


def _first(entities: ListedEntities, detail: Detail) -> int:
    """The entity shown first: one with details and the most events; of several, the least certain.

    Those whose label is not their most probable cluster come last.
    """
    rows = detail.rows
    is_odd = entities.probability[rows].argmax(axis=1) != entities.label[rows]
    return int(rows[np.lexsort((entities.certainty[rows], is_odd, -entities.n_events[rows]))[0]])


def _choose_detail(
    entities: ListedEntities, axes: list[DrawnAxis], events: DrawnEvents | None, budget: float
) -> Detail:
    """As much detail as fits. If not all entities fit, some of each kind are chosen: see `_chosen_rows`."""
    n_drawn = np.zeros(len(entities), dtype=np.int64)
    if events is not None:
        of_model = np.bincount(events.entity[events.entity != UNKNOWN], minlength=entities.n_all)
        n_drawn = of_model[entities.position]
    for n_axes, most in DETAILS:
        shown = axes[:n_axes]
        values = 4 * sum(len(axis.places) for axis in shown) + N_NEIGHBOURS + (len(shown) + 1) * n_drawn.clip(max=most)
        sizes = CHARACTERS_PER_BYTE * BYTES_PER_VALUE * values
        if sizes.sum() <= budget:
            return Detail(np.arange(len(entities)), shown, most)
    return Detail(_chosen_rows(entities, max(1, int(budget / sizes.mean()))), shown, most)


def _chosen_rows(entities: ListedEntities, n: int) -> IndexArray:
    """Rows of some entities: a third have the most events, a third are the least certain, the others evenly spaced."""
    chosen = np.zeros(len(entities), dtype=bool)
    for order in (np.argsort(-entities.n_events, kind="stable"), np.argsort(entities.certainty, kind="stable")):
        left = order[~chosen[order]]
        chosen[left[: n // 3]] = True
    left = np.flatnonzero(~chosen)
    spaced = np.linspace(0, len(left) - 1, n - int(chosen.sum())).astype(np.int64)
    chosen[left[spaced]] = True
    return np.flatnonzero(chosen)


def _details(
    model: HierarchicalPredictor, entities: ListedEntities, detail: Detail, events: DrawnEvents | None
) -> dict[str, Any]:
    """Lines, events and neighbours of the entities with details."""
    rows = detail.rows
    axes = detail.axes
    positions = entities.position[rows]
    drawn = None
    if events is not None and axes:
        drawn = pack_events(model, axes, positions, events, detail.n_events)
    return {
        "detailed": None if len(rows) == len(entities) else pack(rows),
        "axes": [axis.to_plain() for axis in axes],
        "lines": pack_lines(*entity_lines(model, axes, positions)) if axes else None,
        "events": drawn,
        "neighbours": pack(nearest(coordinates(model)[positions], N_NEIGHBOURS)),
    }


def _target_ticks(target: TargetAxis, details: dict[str, Any]) -> dict[str, Any]:
    """Ticks of the target from wide steps to narrow ones, of which the page's script takes those that fit a chart.

    `least` is the range of the lowest chart, so that it has ticks; `longest` are the letters of a tick that needs no
    more room than usual.
    """
    found: dict[str, Any] = {"ticks": [], "least": 0.0, "longest": LONG_TICK}
    if details["lines"] is None:
        return found
    low = details["lines"]["low"]
    high = details["lines"]["high"]
    if (events := details["events"]) is not None:
        # events are drawn around lines, or as they are
        around = (low, high) if events["adjusted"] else (0.0, 0.0)
        low, high = min(low, around[0] + events["low"]), max(high, around[1] + events["high"])
    steps = tick_steps(target, low, high)
    values = np.array([value for value, _ in steps[-1]])
    gaps = np.diff(values) if len(values) > 1 else np.array([high - low])
    return found | {"ticks": steps, "least": 2.0 * float(gaps.max())}


def tick_steps(target: TargetAxis, low: float, high: float) -> list[list[tuple[float, str]]]:
    """(value on the model's scale, text) of ticks between two values, in ever narrower steps."""
    steps: list[list[tuple[float, str]]] = []
    for most in MOST_TICKS:
        ticks = [(round(value, 9), text) for value, text in target.ticks(low, high, most)]
        if not steps or len(ticks) > len(steps[-1]):
            steps.append(ticks)
    if target.base is None or not steps[-1]:
        return steps
    # within a power of ten, evenly spaced values are read more easily
    powers = range(math.floor(math.log10(target.base**low)), math.ceil(math.log10(target.base**high)))
    for parts in PARTS_OF_TEN:
        shown = [10.0**power * (1.0 + 9.0 * n / parts) for power in powers for n in range(parts)]
        places = [(round(math.log(value, target.base), 9), tick_text(value - target.offset)) for value in shown]
        steps.append([(place, text) for place, text in places if low <= place <= high])
    return steps


def coordinates(model: HierarchicalPredictor) -> FloatArray:
    """(entities, coordinates) the regressions of entities on one scale, so that distances between them mean something.

    The level at average features, the change per standard deviation of each feature, and the coefficients of curves.
    All are in units of the target or, with a link, on the linear scale.
    """
    slopes = model.entity_coef_
    posterior = model.posterior_
    level = model.entity_intercept_ + slopes @ model.feature_means_
    every = posterior.standardization.feature_slopes(posterior.layout, check_model(model).entity_regressions.mean)
    return np.column_stack([level, slopes * model.feature_spreads_, every[:, posterior.layout.n_inputs :]])


def nearest(points: FloatArray, n: int) -> IndexArray:
    """(points, n) positions of the nearest other points, nearest first; fewer columns if there are fewer points."""
    # imported here, because it takes time to import
    from scipy.spatial import cKDTree

    n = min(n, len(points) - 1)
    if n < 1:
        return np.zeros((len(points), 0), dtype=np.int64)
    _, found = cKDTree(points).query(points, k=n + 1)
    # of several points at one place, a point need not be the first of its own neighbours
    own = found == np.arange(len(points))[:, None]
    own[~own.any(axis=1), -1] = True
    return np.asarray(found[~own].reshape(len(points), n), dtype=np.int64)


def _agents(agents: AgentFacts, judged: DrawnEvents | None) -> dict[str, Any]:
    """Shares of the clusters, similar agents, and errors."""
    found: dict[str, Any] = {
        "shares": pack_shares(agents.weights, MAX_SHARES),
        "neighbours": pack(nearest(agents.weights, N_NEIGHBOURS)) if len(agents) <= MOST_AGENTS else None,
        "errors": None,
    }
    if judged is not None and (judged.agent != UNKNOWN).any():
        seen = judged.agent != UNKNOWN
        counts = np.bincount(judged.agent[seen], minlength=len(agents))
        squares = np.bincount(judged.agent[seen], weights=judged.residuals[seen] ** 2, minlength=len(agents))
        errors = np.sqrt(squares / np.maximum(counts, 1))
        found["errors"] = {
            "counts": pack(counts),
            "own": [number(error) if n else "" for error, n in zip(errors.tolist(), counts.tolist(), strict=True)],
            "all": number(float(np.sqrt((judged.residuals**2).mean()))),
        }
    return found
