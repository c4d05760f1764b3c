"""A map of the entities: a dot for each, coloured by cluster, faded if the cluster is uncertain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import percent
from fedhlcr.analysis.axes import feature_axes
from fedhlcr.analysis.names import shortened
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.figures.figure import Panel
from fedhlcr.figures.lines import cycle_panel, strongest_axis
from fedhlcr.figures.palette import color_class
from fedhlcr.report.findings import Findings, ListedEntities
from fedhlcr.report.places import Places

# Width of the drawing, its smallest and largest height, and the radius of a dot, in the same units.
WIDTH = 1000.0
LOWEST = 420.0
HIGHEST = 900.0
RADIUS = 6.0
# Room around the outermost places, as a share of the map's extent; degrees that it covers at least.
MARGIN = 0.06
LEAST_DEGREES = 0.2
# Most dots. Of more entities, those at one place share a dot; of more places, evenly spaced ones are drawn.
MAX_DOTS = 1_200
# Characters of the name that a dot tells.
LONGEST = 80
# Places with a name beside them; of these, those also shown on a phone.
MAX_LABELS = 9
PHONE_LABELS = 4
# Names closer than this, in per cent of the map, would overlap.
LABEL_WIDTH = 15.0
LABEL_HEIGHT = 8.0
# At most one entity in so many, at either side, is left beyond the edge if the map then shrinks by this factor.
FEW = 100
WORTH_IT = 0.8
STEPS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0)
MAX_MERIDIANS = 7
# Clusters with a curve, largest first.
MAX_CURVES = 6
# The angle between dots around one place fills a disc evenly.
GOLDEN_ANGLE = 2.399963


class Label(NamedTuple):
    """The name of a place, in per cent of the map's width and height."""

    text: str
    left: float
    top: float
    is_right: bool
    is_extra: bool


def map_section(model: HierarchicalPredictor, findings: Findings, places: Places) -> dict[str, Any]:
    """The map of all listed entities with a place, and season curves if the model has a cycle."""
    entities = findings.entities
    assert entities is not None
    rows = np.flatnonzero(np.isfinite(places.latitude[entities.position]))
    at = entities.position[rows]
    frame = Projection.around(places.latitude[at], places.longitude[at])
    x, y = frame.project(places.latitude[at], places.longitude[at])
    spots = _spots(x, y)
    dots, shared = _dots(entities, rows, spots)
    drawn = Markup("").join(
        Markup(
            '<a href="#entity={}" class="{}" aria-label="{}">'
            '<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" fill-opacity="{:.2f}"/></a>'
        ).format(dot.row, color_class(dot.cluster), dot.words, *_fit(dot, frame), dot.radius, 0.3 + 0.7 * dot.certainty)
        for dot in dots
    )
    counts = np.bincount(entities.label[rows], minlength=model.n_clusters_)
    shown = np.flatnonzero(counts)
    svg = Markup('<svg class="places" viewBox="0 0 {:.0f} {:.0f}" role="group" aria-label="{}">{}{}</svg>').format(
        WIDTH, frame.height, f"Map of {len(dots):,} dots; arrow keys move between them", frame.graticule(), drawn
    )
    return {
        "svg": svg,
        "labels": _labels(entities, rows, spots, [places.names[p] for p in at], frame),
        "clusters": [(int(k), int(counts[k])) for k in shown],
        "n_known": len(rows),
        "n_all": len(entities),
        # beyond the edges, with dots at the edge
        "n_beyond": int(((x < 0.0) | (x > WIDTH) | (y < 0.0) | (y > frame.height)).sum()),
        # dots of places, if entities at one place share one
        "n_drawn": len(dots) if shared else None,
        "seasons": season_panel(model, shown),
    }


def season_panel(model: HierarchicalPredictor, clusters: IndexArray) -> Panel | None:
    """The curves of the largest clusters over the strongest cycle; None if there is no cycle."""
    axes = tuple(axis for axis in feature_axes(model) if axis.cycle is not None)
    if not axes:
        return None
    return cycle_panel(model, clusters[:MAX_CURVES].tolist(), strongest_axis(model, axes))


@dataclass(frozen=True)
class Projection:
    """Degrees to the drawing: equirectangular, with east to west shortened by the cosine of the latitude.

    Attributes
    ----------
    west, north : degrees at the left and upper edges; `west` may be below −180 if the map crosses the date line
    per_degree : units of the drawing in a degree from north to south
    shortened : units of a degree from east to west, as a share of those from north to south
    height : of the drawing
    """

    west: float
    north: float
    per_degree: float
    shortened: float
    height: float

    @classmethod
    def around(cls, latitude: FloatArray, longitude: FloatArray) -> Projection:
        """The map of all places but a few far ones. It leaves out the widest gap, so that it may cross any meridian."""
        turned = _first_longitude(longitude)
        (left, right), (south, north) = (_extent(own) for own in ((longitude - turned) % 360.0, latitude))
        shortened = max(0.2, float(np.cos(np.radians((south + north) / 2.0))))
        across = max((right - left) * shortened, LEAST_DEGREES)
        down = max(north - south, LEAST_DEGREES)
        across, down = (extent * (1.0 + 2.0 * MARGIN) for extent in (across, down))
        # a long and narrow map gets room beside it
        across, down = max(across, down * WIDTH / HIGHEST), max(down, across * LOWEST / WIDTH)
        return cls(
            west=turned + (left + right) / 2.0 - across / 2.0 / shortened,
            north=(south + north + down) / 2.0,
            per_degree=WIDTH / across,
            shortened=shortened,
            height=WIDTH * down / across,
        )

    def project(self, latitude: FloatArray, longitude: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Units from the left and from the top; negative or beyond the drawing for places beyond its edges."""
        middle = self.west + WIDTH / self.per_degree / self.shortened / 2.0
        east = (longitude - middle + 180.0) % 360.0 - 180.0 + middle - self.west
        return east * self.shortened * self.per_degree, (self.north - latitude) * self.per_degree

    def graticule(self) -> Markup:
        """Meridians and parallels at round degrees, with their degrees at the edges."""
        width = WIDTH / self.per_degree / self.shortened
        height = self.height / self.per_degree
        step = next((step for step in STEPS if max(width, height) / step <= MAX_MERIDIANS), STEPS[-1])
        lines = []
        for n in range(int(np.ceil(self.west / step)), int(np.floor((self.west + width) / step)) + 1):
            x = (n * step - self.west) * self.shortened * self.per_degree
            lines.append(Markup('<path d="M{0:.1f} 0V{1:.0f}"/>').format(x, self.height))
        for n in range(int(np.ceil((self.north - height) / step)), int(np.floor(self.north / step)) + 1):
            y = (self.north - n * step) * self.per_degree
            lines.append(Markup('<path d="M0 {0:.1f}H{1:.0f}"/>').format(y, WIDTH))
        return Markup('<g class="graticule" aria-hidden="true">{}</g>').format(Markup("").join(lines))


def _extent(degrees: FloatArray) -> tuple[float, float]:
    """The range of all values or, if it is much smaller, that without the outermost hundredth at either side."""
    ordered = np.sort(degrees)
    few = len(ordered) // FEW
    low = ordered[few]
    high = ordered[-1 - few]
    low = low if ordered[-1] - low < WORTH_IT * (ordered[-1] - ordered[0]) else ordered[0]
    high = high if high - low < WORTH_IT * (ordered[-1] - low) else ordered[-1]
    return float(low), float(high)


def _first_longitude(longitude: FloatArray) -> float:
    """The most western place, behind the widest gap."""
    places = np.unique(longitude)
    gaps = np.diff(np.append(places, places[0] + 360.0))
    return float(places[(int(gaps.argmax()) + 1) % len(places)])


class Spot(NamedTuple):
    """One place, and the entities there: positions among the entities with a place."""

    x: float
    y: float
    members: IndexArray


def _spots(x: FloatArray, y: FloatArray) -> list[Spot]:
    """The distinct places, to a unit of the drawing's tenth."""
    keys, of_place = np.unique(np.round(np.column_stack([x, y]), 1), axis=0, return_inverse=True)
    order = np.argsort(of_place.reshape(-1), kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(of_place.reshape(-1)))[:-1])
    return [Spot(float(east), float(south), group) for (east, south), group in zip(keys, groups, strict=True)]


class Dot(NamedTuple):
    """A dot on the map: the entity that it opens, and what it shows."""

    row: int
    x: float
    y: float
    radius: float
    cluster: int
    certainty: float
    words: str


def _dots(entities: ListedEntities, rows: IndexArray, spots: list[Spot]) -> tuple[list[Dot], bool]:
    """A dot for each entity, those at one place around it; or, of very many, one for each place."""
    if len(rows) > MAX_DOTS:
        kept = np.unique(np.linspace(0, len(spots) - 1, MAX_DOTS).astype(np.int64))
        return [_shared_dot(entities, rows, spots[n]) for n in kept], True
    dots = []
    for spot in spots:
        members = spot.members[np.argsort(entities.label[rows[spot.members]], kind="stable")]
        for n, row in enumerate(rows[members].tolist()):
            label = int(entities.label[row])
            certainty = float(entities.certainty[row])
            angle = GOLDEN_ANGLE * n
            radius = 1.1 * RADIUS * np.sqrt(n)
            x = spot.x + radius * np.cos(angle)
            y = spot.y + radius * np.sin(angle)
            words = f"{shortened(entities.name(row), LONGEST)}: cluster {label}, {percent(certainty)}"
            dots.append(Dot(row, x, y, RADIUS, label, certainty, words))
    return dots, False


def _shared_dot(entities: ListedEntities, rows: IndexArray, spot: Spot) -> Dot:
    """One dot for all entities at a place. It opens the one with the most events."""
    own = rows[spot.members]
    counts = np.bincount(entities.label[own])
    label = int(counts.argmax())
    share = float(counts[label] / len(own))
    largest = int(own[entities.n_events[own].argmax()])
    many = f"{entities.names.entity.count(len(own))}, {percent(share)} in cluster {label}"
    name = shortened(entities.name(largest), LONGEST)
    words = f"{name}: cluster {label}" if len(own) == 1 else f"{name} and others: {many}"
    return Dot(largest, spot.x, spot.y, RADIUS * min(3.0, len(own) ** 0.25), label, share, words)


def _fit(dot: Dot, frame: Projection) -> tuple[float, float]:
    """Keep a dot on the drawing."""
    return (
        float(np.clip(dot.x, dot.radius, WIDTH - dot.radius)),
        float(np.clip(dot.y, dot.radius, frame.height - dot.radius)),
    )


def _labels(
    entities: ListedEntities, rows: IndexArray, spots: list[Spot], names: list[str], frame: Projection
) -> tuple[Label, ...]:
    """Names of the outermost places and of those with the most entities, as far as they do not overlap."""
    x = np.array([spot.x for spot in spots])
    y = np.array([spot.y for spot in spots])
    by_size = np.argsort([-len(spot.members) for spot in spots], kind="stable")
    # the four outermost places in turn with the largest ones
    order = [*by_size[:1], y.argmin(), x.argmin(), y.argmax(), x.argmax(), *by_size[1:]]
    chosen: list[Label] = []
    for n in dict.fromkeys(map(int, order)):
        text = _place_name(entities, rows, spots[n], names)
        left = 100.0 * x[n] / WIDTH
        top = 100.0 * y[n] / frame.height
        arrow = "←" if left < 0.0 else "→" if left > 100.0 else "↑" if top < 0.0 else "↓" if top > 100.0 else ""
        text = f"{arrow} {text}".strip() if text else ""
        left, top = (min(max(own, 1.5), 98.5) for own in (left, top))
        apart = all(abs(left - own.left) > LABEL_WIDTH or abs(top - own.top) > LABEL_HEIGHT for own in chosen)
        if text and apart:
            chosen.append(Label(text, left, top, left > 82.0, len(chosen) >= PHONE_LABELS))
        if len(chosen) == MAX_LABELS:
            break
    return tuple(chosen)


def _place_name(entities: ListedEntities, rows: IndexArray, spot: Spot, names: list[str]) -> str:
    """The name of a place; if it has none, that of the only entity or of the only agent there."""
    if given := next((names[member] for member in spot.members if names[member]), ""):
        return given
    own = rows[spot.members]
    if len(own) == 1:
        return entities.entities[entities.entity[own[0]]]
    agents = np.unique(entities.agent[own])
    return entities.agents[agents[0]] if len(agents) == 1 and len(entities.agents) > 1 else ""
