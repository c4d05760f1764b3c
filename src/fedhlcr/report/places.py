"""Where entities are: coordinates from a mapping, a function or a table, for the map of a report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import listed, printable
from fedhlcr.analysis.effects import id_columns
from fedhlcr.data import inputs
from fedhlcr.data.hierarchy import EntityIndex
from fedhlcr.data.ids import canonical_text
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError

LATITUDES = ("latitude", "lat")
LONGITUDES = ("longitude", "lon", "lng", "long")
# Columns that may name a place.
PLACE_NAMES = ("place", "city", "location", "name")
EXPECTED = "(latitude, longitude) or (latitude, longitude, name of the place), in degrees"

# (latitude, longitude, name)
Spot: TypeAlias = tuple[float, float, str]
AnyPlaces: TypeAlias = Mapping[Any, Any] | Callable[[Any], Any] | Any


@dataclass(frozen=True)
class Places:
    """The place of each entity, in the model's order.

    Attributes
    ----------
    latitude, longitude : (entities,) in degrees; NaN where the place is not known
    names : (entities,) names of the places; empty where there is none
    """

    latitude: FloatArray
    longitude: FloatArray
    names: list[str]

    @property
    def n_known(self) -> int:
        return int(np.isfinite(self.latitude).sum())


def locate(model: HierarchicalPredictor, places: AnyPlaces) -> Places:
    """Find the place of each entity of a fitted model.

    Parameters
    ----------
    model : fitted, with its entities
    places : a mapping from ids to (latitude, longitude) or (latitude, longitude, name), where ids are those of
        entities, of agents, or (agent, entity); a function that returns this, or None, for the id of an entity; or a
        dataframe with columns for the ids, named as in the fit, and latitude and longitude
    """
    index = model.posterior_.memory.entities.index
    frame = inputs.as_frame(places)
    if frame is not None:
        spots = _of_frame(model, index, frame)
    elif isinstance(places, Mapping):
        spots = _of_mapping(index, {_key(key): _spot(value) for key, value in places.items()})
    elif callable(places):
        found = [_spot(value) if (value := places(own)) is not None else None for own in index.entities.values]
        spots = [found[entity] for entity in index.entity_of]
    else:
        raise ArgumentTypeError(
            "`places` must be a mapping, a function or a dataframe, but is of type "
            f"{type(places).__name__}; pass a mapping from entity ids to {EXPECTED}."
        )
    located = _gathered(spots)
    if index.n_entities and not located.n_known:
        raise ArgumentError(
            "`places` has no place for any entity of the model; its ids must be those of entities or agents, as in fit."
        )
    return located


def place_columns(model: HierarchicalPredictor, columns: Iterable[str]) -> tuple[list[str], list[str], str | None]:
    """Those of some columns that give ids, coordinates (latitude, longitude) and the name of a place, or None."""
    columns = list(columns)
    plain = {name.strip().casefold(): name for name in reversed(columns)}
    agent, entity = id_columns(model)
    known_ids = (agent or "agent", entity or "entity")
    ids = [name for name in known_ids if name in columns]
    wanted = [next((plain[own] for own in known if own in plain), None) for known in (LATITUDES, LONGITUDES)]
    missing = [known[0] for known, own in zip((LATITUDES, LONGITUDES), wanted, strict=True) if own is None]
    if not ids:
        missing.insert(0, listed([repr(name) for name in reversed(known_ids)], "or"))
    if missing:
        raise ArgumentError(
            f"the table of places has no column {listed(missing)}; it needs a column of ids, named as in the fit, and "
            "the columns latitude and longitude."
        )
    name = next((plain[own] for own in PLACE_NAMES if own in plain and plain[own] not in ids), None)
    return ids, [own for own in wanted if own is not None], name


def _of_frame(model: HierarchicalPredictor, index: EntityIndex, frame: Any) -> list[Spot | None]:
    ids, coordinates, name = place_columns(model, frame.columns)
    keys = zip(*([canonical_text(value) for value in frame[own].to_list()] for own in ids), strict=True)
    names = [""] * len(frame) if name is None else frame[name].to_list()
    values = zip(*(frame[own].to_list() for own in coordinates), names, strict=True)
    # a row without coordinates is a place that is not known
    spots = {key: _spot(value) for key, value in zip(keys, values, strict=True) if None not in value[:2]}
    if len(ids) == 2:
        return _of_mapping(index, dict(spots))
    by_id = {key[0]: spot for key, spot in spots.items()}
    return _looked_up(index, by_id, of_agents=ids[0] == (id_columns(model)[0] or "agent"))


def _of_mapping(index: EntityIndex, spots: Mapping[Any, Spot]) -> list[Spot | None]:
    """By pairs if keys are pairs; else by entity or, if no key is one of an entity, by agent."""
    if any(isinstance(key, tuple) for key in spots):
        agents = list(index.agents.texts)
        entities = list(index.entities.texts)
        pairs = zip(index.agent_of.tolist(), index.entity_of.tolist(), strict=True)
        return [spots.get((agents[agent], entities[entity])) for agent, entity in pairs]
    of_entities = any(text in spots for text in index.entities.texts)
    return _looked_up(index, spots, of_agents=not of_entities)


def _looked_up(index: EntityIndex, spots: Mapping[Any, Spot], *, of_agents: bool) -> list[Spot | None]:
    ids, of_pair = (index.agents, index.agent_of) if of_agents else (index.entities, index.entity_of)
    found = [spots.get(text) for text in ids.texts]
    return [found[own] for own in of_pair.tolist()]


def _key(key: Any) -> Any:
    return tuple(canonical_text(part) for part in key) if isinstance(key, tuple) else canonical_text(key)


def _spot(value: Any) -> Spot:
    """Check the coordinates of a place. Errors do not show them."""
    try:
        north, east, *rest = value
        north = float(north)
        east = float(east)
    except (TypeError, ValueError):
        raise ArgumentError(f"`places` has an entry that is no place; each must be {EXPECTED}.") from None
    if math.isnan(north) or math.isnan(east):
        return math.nan, math.nan, ""
    if abs(north) > 90.0 or not -180.0 <= east <= 360.0:
        raise ArgumentError(
            "`places` has a latitude beyond −90 to 90 or a longitude beyond −180 to 360; the latitude comes first, and "
            "both are in degrees."
        )
    name = printable(rest[0]) if rest and rest[0] is not None else ""
    return north, (east + 180.0) % 360.0 - 180.0, name


def _gathered(spots: list[Spot | None]) -> Places:
    unknown = (np.nan, np.nan, "")
    columns = list(zip(*(spot or unknown for spot in spots), strict=True)) or [(), (), ()]
    return Places(np.array(columns[0], dtype=np.float64), np.array(columns[1], dtype=np.float64), list(columns[2]))
