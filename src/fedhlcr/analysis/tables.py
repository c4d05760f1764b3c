"""Tidy tables of a fitted model: its clusters, coefficients, agents and entities, with intervals.

All are columns by name (`analysis.frames` makes dataframes of them). Their numbers are those of the fitted attributes,
of the summary and of the report, which compute them by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import free_name
from fedhlcr.analysis.effects import (
    change_intervals,
    entity_noise,
    entity_shares,
    feature_names,
    interval_over_draws,
    regressions_by_draw,
    step_ratios,
    step_sizes,
    typical_levels,
    unit_changes,
)
from fedhlcr.analysis.facts import Facts
from fedhlcr.analysis.frames import Columns, IdColumn
from fedhlcr.analysis.memberships import memberships
from fedhlcr.exceptions import ArgumentError
from fedhlcr.posterior.entity_coef import entity_coef_interval
from fedhlcr.posterior.responses import interval_ends
from fedhlcr.posterior.user_units import coef_transform

INTERCEPT = "intercept"
ENDINGS = ("", "_lower", "_upper")
CHANGES = tuple(f"change{end}" for end in ENDINGS)
# Numbers in the effects of agents that are read at once, all draws together.
NUMBERS_AT_ONCE = 1 << 22


def coef_columns(model: Any, level: float) -> Columns:
    """One row for each cluster and coefficient, clusters in order, the intercept first."""
    names = feature_names(model)
    drawn = regressions_by_draw(model)
    values = drawn.slopes
    mean = model.coef_
    has_intercept = model.posterior_.layout.fit_intercept
    if has_intercept:
        names = [free_name(INTERCEPT, names), *names]
        values = np.concatenate([drawn.intercepts[..., None], values], axis=2)
        mean = np.column_stack([model.intercept_, mean])
    lower, upper = interval_over_draws(values, drawn.mass, level)
    if model.family.has_link:
        extra = _ratio_columns(model, level)
    else:
        extra = dict(zip(CHANGES, (unit_changes(model), *change_intervals(model, level)), strict=True))
    n_clusters, n_coef = mean.shape
    columns: dict[str, NDArray[Any]] = {
        "cluster": np.repeat(np.arange(n_clusters), n_coef),
        "feature": np.tile(np.array(names, dtype=object), n_clusters),
        "mean": mean.ravel(),
        "std": _std_over_draws(values, drawn.mass, mean).ravel(),
        "lower": lower.ravel(),
        "upper": upper.ravel(),
        "is_clear": ((lower > 0.0) | (upper < 0.0)).ravel(),
    }
    for name, figures in extra.items():
        # there is no ratio or change of an intercept
        padded = np.column_stack([np.full(n_clusters, np.nan), figures]) if has_intercept else figures
        columns[name] = padded.ravel()
    return columns


def _std_over_draws(values: FloatArray, mass: FloatArray, mean: FloatArray) -> FloatArray:
    """(clusters, coefficients) standard deviations of (draws, clusters, coefficients), by mass; NaN if one draw."""
    weights = mass if len(mass) > 1 else np.zeros_like(mass)
    with np.errstate(invalid="ignore"):
        shares = weights / weights.sum(axis=0)
    return np.asarray(np.sqrt((shares[..., None] * (values - mean) ** 2).sum(axis=0)))


def _ratio_columns(model: Any, level: float) -> dict[str, FloatArray]:
    drawn = regressions_by_draw(model)
    name = model.family.ratio.replace(" ", "_")
    with np.errstate(over="ignore"):
        ends = [np.exp(end) for end in interval_over_draws(drawn.slopes, drawn.mass, level)]
        ratio = np.exp(model.coef_)
    figures = step_ratios(model, level)
    steps = np.broadcast_to(step_sizes(model), ratio.shape)
    per_unit = {f"{name}{end}": of for end, of in zip(ENDINGS, (ratio, *ends), strict=True)}
    per_step = {f"step_ratio{end}": of for end, of in zip(ENDINGS, figures, strict=True)}
    return {**per_unit, "step": steps, **per_step}


def cluster_columns(model: Any, level: float) -> Columns:
    """One row for each cluster."""
    draws = model.posterior_.draws
    aligned = model.alignment_
    to_response = model.posterior_.likelihood.family.to_response
    counts = aligned.by_draw(draws.entity_counts)
    weights = aligned.by_draw(np.exp(draws.log_weights))
    n_entities = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, n_entities, out=weights.copy(), where=n_entities > 0.0)
    drawn = regressions_by_draw(model)
    everyone = np.ones_like(counts)
    figures: dict[str, tuple[FloatArray, ...]] = {
        "share": (entity_shares(model), *interval_over_draws(shares, everyone, level)),
        "weight": (model.cluster_weights_, *interval_over_draws(weights, everyone, level)),
        # ends of intervals move along with a link
        "level": tuple(
            to_response(own) for own in (typical_levels(model), *interval_over_draws(drawn.levels, drawn.mass, level))
        ),
    }
    n_own, certainty = (np.full(model.n_clusters_, np.nan) for _ in range(2))
    if len(model.posterior_.memory.entities):
        found = Facts(model).members
        n_own = np.bincount(found.label, minlength=model.n_clusters_)
        with np.errstate(invalid="ignore"):
            certainty = np.bincount(found.label, weights=found.certainty, minlength=model.n_clusters_) / n_own
    columns: dict[str, NDArray[Any]] = {"cluster": np.arange(model.n_clusters_)}
    for name, values in figures.items():
        columns |= {f"{name}{end}": of for end, of in zip(ENDINGS, values, strict=True)}
    return {**columns, "n_entities": n_own, "certainty": certainty}


class _Table:
    """Columns under names that are free. Columns of the user's table keep their names; others get underscores."""

    def __init__(self, facts: Facts, taken: Iterable[str]) -> None:
        if not facts.holds_entities:
            raise ArgumentError(
                "the model is public, so it holds no agents or entities; use the model that was saved without "
                "public=True, or `adapt` this one to events first."
            )
        self.taken = set(taken)
        self.columns: dict[str, NDArray[Any] | IdColumn] = {}

    def add(self, name: str, values: NDArray[Any] | IdColumn) -> str:
        """Add a column, and return the name that it got."""
        name = free_name(name, {*self.columns, *self.taken})
        self.columns[name] = values
        return name

    def add_ids(self, model: Any, *, entities: bool, times: int = 1) -> None:
        """The ids, each so many times, under the names of their columns.

        If there is only one agent, without a name, it has no column.
        """
        index = model.posterior_.memory.entities.index
        agent = index.agent_of if entities else np.arange(index.n_agents)
        if not entities or any(index.agents.texts):
            # an agent is not named as entities are
            name = free_name(model.agent_column_ or "agent", {*self.taken, model.entity_column_})
            self.columns[name] = IdColumn.of(index.agents, np.repeat(agent, times))
        if entities:
            self.add(model.entity_column_ or "entity", IdColumn.of(index.entities, np.repeat(index.entity_of, times)))


def entity_columns(model: Any, level: float) -> Columns:
    """One row for each entity of each agent, in the order of `labels_`."""
    facts = Facts(model)
    names = feature_names(model)
    table = _Table(facts, names)
    found = memberships(model, None)
    runner_up, probability = found.runners_up()
    table.add_ids(model, entities=True)
    table.add("cluster", found.label)
    table.add("probability", found.certainty)
    table.add("second_cluster", runner_up)
    table.add("second_probability", probability)
    table.add("n_events", _whole(facts.events_of_entities))
    figures = _entity_figures(model, level)
    mean = figures.pop("mean")
    intercept = table.add(INTERCEPT, mean[:, 0])
    table.columns |= dict(zip(names, mean[:, 1:].T, strict=True))
    for ending, values in figures.items():
        for name, of in zip((intercept, *names), values.T, strict=True):
            table.add(f"{name}_{ending}", of)
    if not model.family.has_link:
        table.add("noise", entity_noise(model))
    return table.columns


def long_entity_columns(model: Any, level: float) -> Columns:
    """One row for each entity and coefficient, the intercept first."""
    # here features are values, not columns
    table = _Table(Facts(model), ())
    figures = _entity_figures(model, level)
    names = feature_names(model)
    n_entities, n_coef = figures["mean"].shape
    table.add_ids(model, entities=True, times=n_coef)
    table.add("cluster", np.repeat(model.labels_, n_coef))
    coefficients = np.array([free_name(INTERCEPT, names), *names], dtype=object)
    table.add("feature", IdColumn(coefficients, np.tile(np.arange(n_coef), n_entities)))
    for name, values in figures.items():
        table.add(name, values.ravel())
    return table.columns


def _entity_figures(model: Any, level: float) -> dict[str, FloatArray]:
    """Mean, standard deviation and ends of intervals, (entities, 1 + n_features_in_): intercepts, then slopes."""
    transform = coef_transform(model, np.zeros(model.n_features_in_))
    lower, upper = entity_coef_interval(model.posterior_, transform, level)
    return {
        "mean": np.column_stack([model.entity_intercept_, model.entity_coef_]),
        "std": np.column_stack([model.entity_intercept_std_, model.entity_coef_std_]),
        "lower": lower,
        "upper": upper,
    }


def agent_columns(model: Any, level: float) -> Columns:
    """One row for each agent, in the order of `agent_ids_`."""
    facts = Facts(model)
    names = feature_names(model)
    table = _Table(facts, names)
    agents = facts.agents
    assert agents is not None
    table.add_ids(model, entities=False)
    table.add("n_entities", agents.n_entities)
    table.add("n_events", _whole(agents.n_events))
    table.add("cluster", agents.main_cluster)
    table.add("effective_clusters", agents.effective_clusters())
    for name, values in (("share", agents.weights), ("weight", model.agent_weights_)):
        for k, of in enumerate(values.T):
            table.add(f"{name}_{k}", of)
    if facts.differences is not None and facts.differences.has_agent_effect.any():
        has_effect = facts.differences.has_agent_effect
        blocks = zip(*_effect_blocks(model, level, has_effect), strict=True)
        for ending, parts in zip(("", "_std", "_lower", "_upper"), blocks, strict=True):
            shown = np.array(["level", *names], dtype=object)[has_effect]
            for name, of in zip(shown, np.concatenate(parts).T, strict=True):
                table.add(f"{name}_effect{ending}", of)
    return table.columns


def _effect_blocks(model: Any, level: float, chosen: NDArray[np.bool_]) -> Iterator[tuple[FloatArray, ...]]:
    """Mean, standard deviation and ends of the intervals, (agents, chosen effects) each, of consecutive agents."""
    kept = model.posterior_.memory.agent_state["agent_effects"]
    transform = coef_transform(model, model.feature_means_)[chosen]
    size = max(1, NUMBERS_AT_ONCE // (kept.shape[0] * kept.shape[2]))
    for first in range(0, kept.shape[1], size):
        values = kept[:, first : first + size].astype(np.float64) @ transform.T
        ends = np.quantile(values, interval_ends(level), axis=0, method="inverted_cdf")
        std = values.std(axis=0)
        if len(values) == 1:
            ends = np.full_like(ends, np.nan)
            std = np.full_like(std, np.nan)
        yield values.mean(axis=0), std, *ends


def _whole(numbers: FloatArray) -> NDArray[Any]:
    """Whole numbers as such; frequencies of events may add up to others."""
    numbers = np.array(numbers)
    return numbers.astype(np.int64) if (numbers % 1.0 == 0.0).all() else numbers
