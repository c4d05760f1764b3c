"""Tidy tables of the agents and entities of a fitted model. `fedhlcr inspect --entities` writes the second one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import free_name
from fedhlcr.analysis.effects import feature_names
from fedhlcr.analysis.frames import Columns, IdColumn
from fedhlcr.analysis.memberships import effective_clusters, memberships
from fedhlcr.analysis.tables import INTERCEPT
from fedhlcr.exceptions import ArgumentError
from fedhlcr.posterior.alignment import mean_compositions
from fedhlcr.posterior.entity_coef import entity_coef_interval
from fedhlcr.posterior.predictive import interval_ends
from fedhlcr.posterior.user_units import coef_transform

# Numbers in the effects of agents that are read at once, all draws together.
NUMBERS_AT_ONCE = 1 << 22


class _Named:
    """Columns under names that are free. Columns of the user's table keep their names; others get underscores."""

    def __init__(self, model: Any) -> None:
        self.features = feature_names(model)
        self.columns: dict[str, NDArray[Any] | IdColumn] = {}

    def add(self, name: str, values: NDArray[Any] | IdColumn) -> str:
        name = free_name(name, {*self.columns, *self.features})
        self.columns[name] = values
        return name

    def add_ids(self, model: Any, *, entities: bool) -> None:
        """The ids, under the names of their columns. If there is only one agent, without a name, it has no column."""
        index = model.posterior_.memory.entities.index
        agent = index.agent_of if entities else np.arange(index.n_agents)
        if not entities or any(index.agents.texts):
            name = free_name(model.agent_column_ or "agent", {*self.features, model.entity_column_})
            self.columns[name] = IdColumn.of(index.agents, agent)
        if entities:
            name = free_name(model.entity_column_ or "entity", {*self.features, *self.columns})
            self.columns[name] = IdColumn.of(index.entities, index.entity_of)


def entity_columns(model: Any, level: float) -> Columns:
    """One row for each entity of each agent, in the order of `labels_`."""
    _require_entities(model)
    table = _Named(model)
    found = memberships(model, None)
    runner_up, probability = found.runners_up()
    table.add_ids(model, entities=True)
    table.add("cluster", found.label)
    table.add("probability", found.certainty)
    table.add("second_cluster", runner_up)
    table.add("second_probability", probability)
    table.add("n_events", _events_of_entities(model))
    figures = _entity_figures(model, level)
    intercept = table.add(INTERCEPT, figures.mean[:, 0])
    table.columns |= dict(zip(table.features, figures.mean[:, 1:].T, strict=True))
    for ending, values in (("std", figures.std), ("lower", figures.lower), ("upper", figures.upper)):
        for name, of in zip((intercept, *table.features), values.T, strict=True):
            table.add(f"{name}_{ending}", of)
    if not model.family.has_link:
        table.add("noise", model.entity_noise_)
    return table.columns


def long_entity_columns(model: Any, level: float) -> Columns:
    """One row for each entity and coefficient, the intercept first."""
    _require_entities(model)
    figures = _entity_figures(model, level)
    table = _Named(model)
    names = feature_names(model)
    # here features are values, not columns
    table.features = []
    table.add_ids(model, entities=True)
    table.add("cluster", model.labels_)
    n_entities, n_coef = figures.mean.shape
    table.columns = {name: _repeated(values, n_coef) for name, values in table.columns.items()}
    coefficients = np.array([free_name(INTERCEPT, names), *names], dtype=object)
    table.add("feature", IdColumn(coefficients, np.tile(np.arange(n_coef), n_entities)))
    for name, values in figures._asdict().items():
        table.add(name, values.ravel())
    return table.columns


def _repeated(column: NDArray[Any] | IdColumn, times: int) -> NDArray[Any] | IdColumn:
    if isinstance(column, IdColumn):
        return IdColumn(column.distinct, np.repeat(column.codes, times))
    return np.repeat(column, times)


class _Figures(NamedTuple):
    """(entities, 1 + n_features_in_) each: intercepts, then slopes."""

    mean: FloatArray
    std: FloatArray
    lower: FloatArray
    upper: FloatArray


def _entity_figures(model: Any, level: float) -> _Figures:
    return _Figures(
        np.column_stack([model.entity_intercept_, model.entity_coef_]),
        np.column_stack([model.entity_intercept_std_, model.entity_coef_std_]),
        *entity_coef_interval(model.posterior_, coef_transform(model, np.zeros(model.n_features_in_)), level),
    )


def agent_columns(model: Any, level: float) -> Columns:
    """One row for each agent, in the order of `agent_ids_`."""
    _require_entities(model)
    store = model.posterior_.memory.entities
    table = _Named(model)
    shares = mean_compositions(model.posterior_.memory, model.alignment_)
    n_events = np.bincount(
        store.index.agent_of, weights=_events_of_entities(model), minlength=store.index.n_agents
    ).astype(np.float64)
    table.add_ids(model, entities=False)
    table.add("n_entities", np.diff(store.index.agent_start))
    table.add("n_events", _whole(n_events))
    table.add("cluster", shares.argmax(axis=1))
    table.add("effective_clusters", effective_clusters(shares))
    for name, values in (("share", shares), ("weight", model.agent_weights_)):
        for k, of in enumerate(values.T):
            table.add(f"{name}_{k}", of)
    found = model.entity_differences()
    if found is not None and found.has_agent_effect.any():
        _add_effects(table, model, level, found.has_agent_effect)
    return table.columns


def _add_effects(table: _Named, model: Any, level: float, has_effect: NDArray[np.bool_]) -> None:
    """Add the effects of agents: of the level, then of each slope that has any."""
    names = np.array(["level", *table.features], dtype=object)[has_effect]
    blocks = zip(*_effect_blocks(model, level, has_effect), strict=True)
    for ending, parts in zip(("", "_std", "_lower", "_upper"), blocks, strict=True):
        for name, of in zip(names, np.concatenate(parts).T, strict=True):
            table.add(f"{name}_effect{ending}", of)


def _effect_blocks(model: Any, level: float, chosen: NDArray[np.bool_]) -> Iterator[tuple[FloatArray, ...]]:
    """Mean, standard deviation and ends of the intervals, (agents, chosen effects) each, of consecutive agents."""
    posterior = model.posterior_
    kept = posterior.memory.agent_state["agent_effects"]
    transform = coef_transform(model, model.feature_means_)[chosen]
    size = max(1, NUMBERS_AT_ONCE // (kept.shape[0] * kept.shape[2]))
    for first in range(0, kept.shape[1], size):
        values = kept[:, first : first + size].astype(np.float64) @ transform.T
        ends = np.quantile(values, interval_ends(level), axis=0, method="inverted_cdf")
        if len(values) == 1:
            ends = np.full_like(ends, np.nan)
            std = np.full(values.shape[1:], np.nan)
        else:
            std = values.std(axis=0)
        yield values.mean(axis=0), std, *ends


def _events_of_entities(model: Any) -> NDArray[Any]:
    posterior = model.posterior_
    return _whole(posterior.layout.n_events(posterior.memory.entities.grams))


def _whole(numbers: FloatArray) -> NDArray[Any]:
    """Whole numbers as such; frequencies of events may add up to others."""
    numbers = np.array(numbers)
    return numbers.astype(np.int64) if (numbers % 1.0 == 0.0).all() else numbers


def _require_entities(model: Any) -> None:
    if not len(model.posterior_.memory.entities):
        raise ArgumentError(
            "the model is public, so it holds no agents or entities; use the model that was saved without "
            "public=True, or `adapt` this one to events first."
        )
