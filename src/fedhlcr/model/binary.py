"""Yes-or-no targets: logistic regressions.

    P(y_ijn = 1) = 1 / (1 + exp(−β_ijᵀx_ijn)),     β_ij = w_z + a_i + b_ij

In the notation of `model.logits`, an event of frequency f has b = f and κ = f(y − ½).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data.events import EventStore
from fedhlcr.data.families import BINARY, Family
from fedhlcr.exceptions import ArgumentError
from fedhlcr.kernels.logits import EventTerms
from fedhlcr.kernels.responses import ProbabilityMixture
from fedhlcr.model.arguments import EventPoints, ProfileData
from fedhlcr.model.gram import Standardization
from fedhlcr.model.likelihood import register
from fedhlcr.model.logits import Logits
from fedhlcr.model.mixed_globals import MixedGlobals
from fedhlcr.model.schema import State


@register
class Logistic(Logits):
    """A target is 0 or 1, and its log odds are linear."""

    name: ClassVar[str] = "logistic"
    family: ClassVar[Family] = BINARY
    # log odds of standardised features: most probabilities lie between .5 % and 99.5 %
    linear_spread: ClassVar[float | None] = 2.5

    def events_in(self, events: EventStore, units: Standardization) -> EventStore:
        if not np.isin(events.y, (0.0, 1.0)).all():
            raise ArgumentError(
                "the likelihood 'logistic' needs targets that are 0 or 1, but some are not; encode the two classes as "
                "0 and 1, or choose another likelihood."
            )
        return super().events_in(events, units)

    def event_terms(self, events: EventStore, agent_state: State) -> EventTerms:
        del agent_state
        return EventTerms(events.weight, events.weight * (events.y - 0.5), events.offsets, np.zeros(events.n_events))

    def mixture(self, draws: MixedGlobals, weights: FloatArray, profiles: ProfileData) -> ProbabilityMixture:
        return ProbabilityMixture(self.own_mixture(draws, weights, profiles))

    def event_log_densities(self, current: MixedGlobals, points: EventPoints) -> FloatArray:
        del current
        return np.asarray(points.target * points.linear - np.logaddexp(0.0, points.linear))

    def draw_targets(self, current: MixedGlobals, points: EventPoints, rng: np.random.Generator) -> FloatArray:
        del current
        # p > u where the log odds exceed those of u
        uniform = rng.random(len(points.linear))
        with np.errstate(divide="ignore"):
            return (points.linear > np.log(uniform) - np.log1p(-uniform)).astype(np.float64)
