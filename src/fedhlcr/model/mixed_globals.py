"""What clusters of mixed models declare: their globals, and the scalars that agents sum. See `model.mixed`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import positive, square_finite, square_positive
from fedhlcr.model import covariance
from fedhlcr.model.covariance import root
from fedhlcr.model.linear import LinearGlobals
from fedhlcr.model.schema import COEF, Stage, SummedScalar, quantity

EFFECTS = "effects"
# What agents add up for these tests, for each coefficient: `kernels.evidence.add_evidence`.
EVIDENCE = ("score_excess", "information_squares", "agent_excess", "agent_excess_variance")


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


def not_negative_value(values: FloatArray, n_entities: FloatArray) -> Any:  # noqa: ARG001
    return values >= 0


def any_value(values: FloatArray, n_entities: FloatArray) -> Any:  # noqa: ARG001
    return np.isfinite(values)


def _at_most_one(values: FloatArray, n_entities: FloatArray) -> Any:  # noqa: ARG001
    return (values == 0) | (values == 1)


def _some_entities(values: FloatArray, n_entities: FloatArray) -> Any:
    return (values >= 0) & (values <= n_entities)


NOISE_SCALARS = (
    SummedScalar("log_variances", any_value, limited_as="log_variances"),
    SummedScalar("precisions", not_negative_value, limited_as="precisions"),
    SummedScalar("noisy_entities", _some_entities),
    SummedScalar("log_volumes", any_value),
    SummedScalar("squares", not_negative_value, limited_as="squares"),
    SummedScalar("squared_events", not_negative_value),
    SummedScalar("events", not_negative_value),
    SummedScalar("agents", _at_most_one),
    SummedScalar("agents_with_effects", _at_most_one),
    SummedScalar("noise_excess", any_value),
    SummedScalar("noise_squares", not_negative_value),
    SummedScalar("log_density", any_value),
    SummedScalar("weighed_events", not_negative_value),
)
