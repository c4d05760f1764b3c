"""The explorer of a report: everything about one agent or one entity, looked up on the page.

The data are packed, since a page may hold 40,000 entities. Names, numbers of events and labels are read from
the tables of agents and entities, which the page has anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import Noun, number
from fedhlcr.analysis.axis_lines import target_axis
from fedhlcr.analysis.effects import INTERVAL_LEVEL
from fedhlcr.analysis.facts import AgentFacts
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.report.charts import color_class
from fedhlcr.report.entity_lines import DrawnAxis, drawn_axes, entity_lines, pack_events
from fedhlcr.report.events import DrawnEvents
from fedhlcr.report.findings import Findings, ListedEntities
from fedhlcr.report.packing import CHARACTERS_PER_BYTE, pack, pack_shares, to_block
from fedhlcr.report.room import MAX_SHARES, most_shares, room_for_details, size_of_agents, size_of_entities

# Axes and events of each entity: as many as fit for all entities, but not fewer than the last of these.
DETAILS = ((4, 40), (4, 20), (3, 12))
N_NEIGHBOURS = 5
# Beyond this number, agents have no neighbours.
MOST_AGENTS = 20_000
BYTES_PER_VALUE = 2


@dataclass(frozen=True)
class Explorer:
    """The explorer's section of a page.

    Attributes
    ----------
    data : for a script element
    has_agents : whether agents can be looked up: there is more than one
    has_events : whether lines have dots
    n_detailed, n_entities : numbers of entities with details, and of all
    """

    data: Markup
    has_agents: bool
    has_events: bool
    n_detailed: int
    n_entities: int


class Detail(NamedTuple):
    """What is shown of which entities: rows of the table of entities, ascending; axes; most events of each."""

    rows: IndexArray
    axes: list[DrawnAxis]
    n_events: int


def explorer_section(
    model: HierarchicalPredictor, findings: Findings, events: DrawnEvents | None, judged: DrawnEvents | None
) -> Explorer | None:
    """The explorer of all listed entities and their agents; None if the model holds none.

    Parameters
    ----------
    events : events to draw as dots; None draws none
    judged : held-out events, for the errors of agents
    """
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
    data = {
        "nouns": {"agent": _forms(findings.names.agent), "entity": _forms(findings.names.entity)},
        "colors": [color_class(k) for k in range(model.n_clusters_)],
        "target": {
            "name": target.name,
            "base": target.base,
            "offset": target.offset,
            "percent": target.family.has_classes,
        },
        "level": INTERVAL_LEVEL,
        "first": _first(entities, detail),
        "shares": pack_shares(entities.probability, most_shares(entities.n_all)),
        **_details(model, entities, detail, known),
        "agents": _agents(agents, judged) if len(agents) > 1 else None,
    }
    return Explorer(to_block(data), len(agents) > 1, known is not None, len(detail.rows), len(entities))


def _forms(noun: Noun) -> list[str]:
    return [noun.one, noun.many]


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
        "lines": entity_lines(model, axes, positions).to_plain() if axes else None,
        "events": drawn,
        "neighbours": pack(nearest(coordinates(model)[positions], N_NEIGHBOURS)),
    }


def coordinates(model: HierarchicalPredictor) -> FloatArray:
    """(entities, coordinates) the regressions of entities on one scale, so that distances between them mean something.

    The level at average features, the change per standard deviation of each feature, and the coefficients of curves.
    All are in units of the target or, with a link, on the linear scale.
    """
    slopes = model.entity_coef_
    posterior = model.posterior_
    level = model.entity_intercept_ + slopes @ model.feature_means_
    every = posterior.standardization.feature_slopes(posterior.layout, model.entity_regressions().mean)
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
