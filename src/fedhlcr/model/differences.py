"""How entities of one cluster differ, as a likelihood reports it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.model.covariance import variance_ratios


class Differences(NamedTuple):
    """The laws of effects and noise in each draw, in standardised units.

    Attributes
    ----------
    entity_covariance : (draws, n_coef, n_coef) D of the entities' effects, b ~ N(0, D)
    agent_covariance : (draws, n_coef, n_coef) the same of the agents' effects
    noise_scale : (draws,) s, the typical noise
    noise_shape : (draws,) ν in σ² ~ IG(ν/2, νs²/2); infinite if all entities have the same noise
    """

    entity_covariance: FloatArray
    agent_covariance: FloatArray
    noise_scale: FloatArray
    noise_shape: FloatArray

    @property
    def noise_differs(self) -> bool:
        return bool(np.isfinite(self.noise_shape).any())

    def noise_quantile(self, level: float) -> float:
        """The noise below which this share of the entities lies, mean over the draws."""
        return float((self.noise_scale * np.sqrt(variance_ratios(self.noise_shape, 1.0 - level))).mean())
