"""What clusters of mixed models declare: their globals, and the scalars that agents sum. See `model.mixed`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import positive, square_finite, square_positive
from fedhlcr.kernels.effects import LEAST_VARIANCE
from fedhlcr.model import covariance
from fedhlcr.model.covariance import root
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.regression import LinearGlobals
from fedhlcr.model.schema import (
    COEF,
    Bound,
    Known,
    Stage,
    SummedScalar,
    anything,
    at_least_zero,
    quantity,
    up_to_entities,
    up_to_events,
    up_to_one,
)

EFFECTS = "effects"
EVENT_WEIGHTS = "event_weights"
# What agents add up for these tests, for each coefficient: `kernels.evidence.add_evidence`.
EVIDENCE = {
    "score_excess": anything,
    "information_squares": at_least_zero,
    "agent_excess": anything,
    "agent_excess_variance": at_least_zero,
}


def positive_or_infinite(values: Any) -> Any:
    """A shape of noise variances; infinite if all entities have the same noise."""
    return np.asarray(values) > 0


def _some_scale(values: Any) -> Any:
    """A scale of effects, 0 if there are none."""
    return (values >= 0) & square_finite(values**2)


def _a_stage(values: Any) -> Any:
    return np.isin(values, list(Stage))


@dataclass(frozen=True, kw_only=True)
class MixedGlobals(LinearGlobals):
    """The globals of linear regressions; s and ν of the noise; D, τ, and the learned scales of both; the stage.

    Without effects, D and τ are 0. `noise_shape` is infinite if all entities have the same noise. Noise variances are
    kept and summed over `noise_unit`², so that the server can rescale those of all entities, absent ones too.
    """

    noise_scale: float = quantity(possible=square_positive, broadcast=True, traced=True, in_target_units=True)
    noise_shape: float = quantity(possible=positive_or_infinite, broadcast=True)
    noise_unit: float = quantity(possible=square_positive, broadcast=True, attribute=False)
    # estimators report D and τ in the user's units
    effect_covariance: FloatArray = quantity(
        COEF, COEF, possible=covariance.is_covariance, broadcast=True, attribute=False
    )
    agent_effect_scale: FloatArray = quantity(COEF, possible=_some_scale, broadcast=True, attribute=False)
    slope_scale: float = quantity(possible=positive, attribute=False)
    agent_slope_scale: float = quantity(possible=positive, attribute=False)
    stage: float = quantity(possible=_a_stage, broadcast=True, attribute=False)

    def at_stage(self, stage: Stage) -> MixedGlobals:
        return replace(self, stage=float(stage))

    @cached_property
    def is_plain(self) -> bool:
        """Whether there are neither effects nor noise of entities, so that agents draw labels only."""
        some = self.effect_columns.size or self.agent_effect_scale.any() or np.isfinite(self.noise_shape)
        return self.stage == Stage.PLAIN or not some

    @cached_property
    def effect_root(self) -> FloatArray:
        """Λ with D = ΛΛᵀ over the columns that have an effect. Predictions ask for it in every block of rows."""
        used = self.effect_columns
        return root(self.effect_covariance[np.ix_(used, used)])

    @cached_property
    def effect_columns(self) -> IndexArray:
        """Coefficients that have an effect of the entity."""
        return np.flatnonzero(np.diagonal(self.effect_covariance) > 0.0)


def _log_least_variance(known: Known) -> float:
    """Log of the least noise variance of an entity, over noise_unit²; 0 if that is larger, for entities without one."""
    return min(float(np.log(LEAST_VARIANCE * (known.law.noise_scale / known.law.noise_unit) ** 2)), 0.0)


def _log_variances(known: Known) -> tuple[Bound, Bound]:
    return known.n_entities * _log_least_variance(known), np.inf


def _log_volumes(known: Known) -> tuple[Bound, Bound]:
    """Σ n log σ² over entities of n events."""
    return known.n_events * _log_least_variance(known), np.inf


def _precisions(known: Known) -> tuple[Bound, Bound]:
    return 0.0, known.n_entities * (known.law.noise_unit / known.law.noise_scale) ** 2 / LEAST_VARIANCE


def _noise_excess(known: Known) -> tuple[Bound, Bound]:
    """Σ ((q − n)² − 2n) over entities of n events; 0 outside the plain stage."""
    return -2.0 * known.n_events, np.inf


def _noise_squares(known: Known) -> tuple[Bound, Bound]:
    """Σ (8n² + 48n): least if all entities have as many events, largest if one has nearly all."""
    squares = 8.0 * known.n_events**2
    linear = 48.0 * known.n_events
    least = squares / np.maximum(known.n_entities, 1.0) + linear
    return (least if known.law.stage == Stage.PLAIN else 0.0), squares + linear


NOISE_SCALARS = (
    SummedScalar("log_variances", _log_variances, limited_as="log_variances"),
    SummedScalar("precisions", _precisions, limited_as="precisions"),
    SummedScalar("noisy_entities", up_to_entities, is_whole=True),
    SummedScalar("log_volumes", _log_volumes),
    SummedScalar("squares", at_least_zero, limited_as="squares"),
    SummedScalar("squared_events", up_to_events),
    SummedScalar("events", at_least_zero),
    SummedScalar("agents", up_to_one, is_whole=True),
    SummedScalar("agents_with_effects", up_to_one, is_whole=True),
    SummedScalar("noise_excess", _noise_excess),
    SummedScalar("noise_squares", _noise_squares),
    SummedScalar("log_density", anything),
    SummedScalar("weighed_events", up_to_events),
)


def mixed_scalars(layout: GramLayout) -> tuple[SummedScalar, ...]:
    """What agents sum, in the order in which `kernels.evidence` lists it."""
    n_coef = layout.n_coef
    return (
        *NOISE_SCALARS,
        *(SummedScalar(f"agent_effect_{f}", at_least_zero, "agent_effects") for f in range(n_coef)),
        *(SummedScalar(f"within_{f}", at_least_zero) for f in range(layout.n_features)),
        *(SummedScalar(f"{kind}_{f}", range_of) for kind, range_of in EVIDENCE.items() for f in range(n_coef)),
    )


def first_within(layout: GramLayout) -> int:
    """Position of the first of the scalars `within_…`."""
    return len(NOISE_SCALARS) + layout.n_coef


def first_evidence(layout: GramLayout) -> int:
    """Position of the first of the scalars that score tests need."""
    return first_within(layout) + layout.n_features
