"""What to draw: clusters, features and axes as given or the most important ones, and checks of models and levels."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from numbers import Integral
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import FEATURE, listed
from fedhlcr.analysis.axes import Axis, axis_of
from fedhlcr.analysis.effects import feature_names, target_name
from fedhlcr.analysis.links import NO_TARGET
from fedhlcr.analysis.summary import MAX_FEATURES
from fedhlcr.estimators.base import HierarchicalPredictor, check_probability
from fedhlcr.exceptions import ArgumentError
from fedhlcr.posterior.fitted_model import FittedModel, check_model

# Of more clusters, the largest are drawn.
MAX_CLUSTERS = 16
# Most names in an error.
MAX_NAMES = 12


def chosen_clusters(model: HierarchicalPredictor, clusters: Sequence[int] | None) -> list[int]:
    """The clusters to draw: those given, or the largest."""
    if clusters is None:
        return list(range(min(model.n_clusters_, MAX_CLUSTERS)))
    chosen = list(clusters) if np.ndim(clusters) == 1 else []
    if not chosen or len(set(chosen)) < len(chosen) or any(k not in range(model.n_clusters_) for k in chosen):
        raise ArgumentError(
            f"`clusters` must be a list of different numbers from 0 to {model.n_clusters_ - 1}, but is {clusters!r}."
        )
    return [int(k) for k in chosen]


def chosen_features(model: Any, features: Sequence[str | int] | None, spreads: FloatArray) -> list[int]:
    """Positions of the features to draw: those given, or those with the strongest effects."""
    if features is None:
        effects = model.coef_ * spreads
        return sorted(np.argsort(-(effects**2).sum(axis=0), kind="stable")[:MAX_FEATURES].tolist())
    names = feature_names(model)
    position = {name: f for f, name in enumerate(names)} | {f: f for f in range(len(names))}
    unknown = [feature for feature in features if feature not in position]
    if unknown or isinstance(features, str) or not len(features):
        given = f"is {features!r}."
        if unknown and not isinstance(features, str):
            given = f"{unknown[0]!r} is not a feature{_closest(unknown[0], names) or '.'}"
        raise ArgumentError(
            f"`features` must be a list of names or positions of the {len(names)} features, but {given}"
        )
    return [position[feature] for feature in features]


def chosen_axis(model: HierarchicalPredictor, axes: tuple[Axis, ...], feature: Any) -> Axis:
    """The axis that is meant by its name, or by the name or the position of one of its features."""
    names = feature_names(model)
    if isinstance(feature, Integral) and not isinstance(feature, bool) and 0 <= int(feature) < len(names):
        return axis_of(axes, int(feature))
    if isinstance(feature, str):
        # a column is what its name says, even if an axis has the same name
        if feature in names:
            return axis_of(axes, names.index(feature))
        found = [axis for axis in axes if axis.name == feature]
        if len(found) == 1:
            return found[0]
    known = [*names, *(axis.name for axis in axes if axis.name not in names)]
    shown = (
        listed([repr(name) for name in known], "or")
        if len(known) <= MAX_NAMES
        else f"one of the {FEATURE.count(len(names))}"
    )
    given = repr(feature) if isinstance(feature, str | int) else f"of type {type(feature).__name__}"
    given += _closest(feature, known) or "."
    raise ArgumentError(f"`feature` must be {shown}, or a position from 0 to {len(names) - 1}, but is {given}")


def _closest(given: Any, known: list[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(str(given).lower(), list(by_lower), n=1) if isinstance(given, str) else []
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def check_agents(model: Any) -> FittedModel:
    """What a fitted estimator found that knows agents; anything else is refused."""
    found = check_model(model)
    if not len(found.posterior_.memory.entities):
        raise ArgumentError("`model` is public and knows no agents; use the private model, or `adapt` it to some.")
    return found


def check_level(level: float | None, model: HierarchicalPredictor) -> None:
    """Refuse a level outside (0, 1), and intervals if there is only one draw."""
    if level is None:
        return
    check_probability(level)
    n_draws = len(model.posterior_.draws)
    if n_draws < 2:
        raise ArgumentError(
            f"intervals need at least 2 kept draws, but the model has {n_draws}; fit with a larger n_draws and for "
            "longer, or pass level=None to leave the intervals out."
        )


def label_of_target(model: HierarchicalPredictor, name: str | None) -> str:
    """The given name of the target, or that of its column, for values in the units of `fit`."""
    own = target_name(model) if name is None else name
    return "y" if own == NO_TARGET else own
