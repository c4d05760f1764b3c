"""Tidy tables of a fitted model: its clusters, coefficients, agents and entities, with intervals.

All are columns by name (`analysis.frames` makes dataframes of them). Their numbers are those of the fitted attributes,
of the summary and of the report, which compute them by the same functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import free_name
from fedhlcr.analysis.effects import (
    change_intervals,
    entity_shares,
    feature_names,
    interval_over_draws,
    regressions_by_draw,
    step_ratios,
    step_sizes,
    typical_levels,
    unit_changes,
)
from fedhlcr.analysis.frames import Columns
from fedhlcr.analysis.links import Link, link_of
from fedhlcr.analysis.memberships import MAX_EXACT, memberships

INTERCEPT = "intercept"


def coef_columns(model: Any, level: float) -> Columns:
    """One row for each cluster and coefficient, clusters in order, the intercept first."""
    names = feature_names(model)
    drawn = regressions_by_draw(model)
    link = link_of(model)
    values = drawn.slopes
    mean = model.coef_
    has_intercept = model.posterior_.layout.fit_intercept
    if has_intercept:
        names = [free_name(INTERCEPT, names), *names]
        values = np.concatenate([drawn.intercepts[..., None], values], axis=2)
        mean = np.column_stack([model.intercept_, mean])
    lower, upper = interval_over_draws(values, drawn.mass, level)
    extra = _change_columns(model, level) if link is None else _ratio_columns(model, level, link)
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


def _change_columns(model: Any, level: float) -> dict[str, FloatArray]:
    lower, upper = change_intervals(model, level)
    return {"change": unit_changes(model), "change_lower": lower, "change_upper": upper}


def _ratio_columns(model: Any, level: float, link: Link) -> dict[str, FloatArray]:
    drawn = regressions_by_draw(model)
    name = link.ratio.replace(" ", "_")
    with np.errstate(over="ignore"):
        ends = [np.exp(end) for end in interval_over_draws(drawn.slopes, drawn.mass, level)]
        ratio = np.exp(model.coef_)
    figures = step_ratios(model, level)
    steps = np.broadcast_to(step_sizes(model), ratio.shape)
    endings = ("", "_lower", "_upper")
    per_unit = {f"{name}{end}": of for end, of in zip(endings, (ratio, *ends), strict=True)}
    per_step = {f"step_ratio{end}": of for end, of in zip(endings, figures, strict=True)}
    return {**per_unit, "step": steps, **per_step}


def cluster_columns(model: Any, level: float) -> Columns:
    """One row for each cluster."""
    draws = model.posterior_.draws
    aligned = model.alignment_
    link = link_of(model)
    counts = aligned.by_draw(draws.entity_counts)
    weights = aligned.by_draw(np.exp(draws.log_weights))
    n_entities = counts.sum(axis=1, keepdims=True)
    shares = np.divide(counts, n_entities, out=weights.copy(), where=n_entities > 0.0)
    drawn = regressions_by_draw(model)
    everyone = np.ones_like(counts)
    figures: dict[str, tuple[FloatArray, ...]] = {
        "share": (entity_shares(model), *interval_over_draws(shares, everyone, level)),
        "weight": (model.cluster_weights_, *interval_over_draws(weights, everyone, level)),
        "level": (typical_levels(model), *interval_over_draws(drawn.levels, drawn.mass, level)),
    }
    if link is not None:
        # medians and ends of intervals move along with a link
        figures["level"] = tuple(link.to_response(values) for values in figures["level"])
    n_own, certainty = (np.full(model.n_clusters_, np.nan) for _ in range(2))
    if len(model.posterior_.memory.entities):
        found = memberships(model, MAX_EXACT)
        n_own = np.bincount(found.label, minlength=model.n_clusters_)
        with np.errstate(invalid="ignore"):
            certainty = np.bincount(found.label, weights=found.certainty, minlength=model.n_clusters_) / n_own
    columns: dict[str, NDArray[Any]] = {"cluster": np.arange(model.n_clusters_)}
    for name, values in figures.items():
        columns |= {f"{name}{end}": of for end, of in zip(("", "_lower", "_upper"), values, strict=True)}
    return {**columns, "n_entities": n_own, "certainty": certainty}
