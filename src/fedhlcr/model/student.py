"""Student-t noise: single events may be far off, and then count little.

    y_ijn ~ t_ν(β_ijᵀx_ijn, s)     that is, N(β_ijᵀx_ijn, s²/λ_ijn) with a weight λ_ijn ~ Gamma(ν/2, ν/2) per event

Given the weights all is as with common noise, with weighted Gram matrices Σ λx̃x̃ᵀ (`model.mixed`). In the plain
stage all weights are 1. Afterwards a round has one step more: given its entity's coefficients β = w + a + b, each
event's weight is drawn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr._support.checks import positive
from fedhlcr._support.special import digamma, gammaln
from fedhlcr.data.events import EventStore
from fedhlcr.exceptions import ArgumentError
from fedhlcr.kernels import effective, evidence, weights
from fedhlcr.kernels.effects import EffectSums
from fedhlcr.kernels.grams import add_chosen
from fedhlcr.kernels.profiles import OwnMixture
from fedhlcr.kernels.weights import WEIGHT_SCALARS
from fedhlcr.model import covariance
from fedhlcr.model.arguments import AgentsPart, EventPoints, ProfileData, events_of
from fedhlcr.model.gram import Standardization
from fedhlcr.model.likelihood import register
from fedhlcr.model.mixed import Mixed
from fedhlcr.model.mixed_agents import by_agent, weighted_by_draw, weighted_part
from fedhlcr.model.mixed_globals import EVENT_WEIGHTS, MixedGlobals
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPosterior
from fedhlcr.model.schema import (
    Level,
    Stage,
    State,
    StateField,
    SummedScalar,
    anything,
    at_least_zero,
    up_to_events,
)
from fedhlcr.model.sums import ClusterSums

# The least ν. Above 2 the noise has a variance, which standard deviations of predictions need.
LEAST_EVENT_SHAPE = 2.1
# ν when weights are switched on.
START_EVENT_SHAPE = 8.0


@register
class MixedStudentNoise(Mixed):
    """Every event has its own weight; ν is `noise_shape`, and s is `noise_scale`."""

    name: ClassVar[str] = "mixed, student noise"
    has_heavy_tails: ClassVar[bool] = True
    needs_events: ClassVar[bool] = True
    event_weight = StateField(EVENT_WEIGHTS, Level.EVENT, size=0, initial=1.0, possible=positive)

    @property
    def own_scalars(self) -> tuple[SummedScalar, ...]:
        ranges = (anything, at_least_zero, up_to_events)
        own = (SummedScalar(name, range_of) for name, range_of in zip(WEIGHT_SCALARS, ranges, strict=True))
        return (*super().own_scalars, *own)

    # At the agents.

    def events_in(self, events: EventStore, units: Standardization) -> EventStore:
        if (events.weight != 1.0).any():
            raise ArgumentError(
                "noise='student' gives each event a weight of its own and does not support `sample_weight` other than "
                "0 and 1; repeat the rows of events that occurred several times, or use noise='entity'."
            )
        return super().events_in(events, units)

    def weighted_targets(self, events: EventStore, agent_state: State) -> tuple[FloatArray, FloatArray]:
        event_weights = agent_state[EVENT_WEIGHTS]
        targets = events.y if event_weights.ndim == 1 else np.repeat(events.y[:, None], event_weights.shape[1], axis=1)
        return targets, event_weights

    def _weighted(self, part: AgentsPart) -> AgentsPart:
        return weighted_part(part, *self.weighted_targets(events_of(part), part.state))

    def _draw_event_weights(
        self,
        part: AgentsPart,
        current: MixedGlobals,
        labels: LabelArray,
        coef: FloatArray,
        rows: IndexArray,
        sums: EffectSums,
    ) -> State:
        law = self.kernel_law(current, part.round)
        if current.stage == Stage.WEIGHING:
            self._add_price_of_weights(part, current, coef, sums.scalars)
        drawn = {EVENT_WEIGHTS: self._draw_weights(part, current, coef, sums.scalars)}
        if law.given_effects:
            # those of the kernel have the old weights
            sums.data[:] = 0.0
            weighted = self._weighted(part._replace(state=drawn))
            grams = weighted.entities.grams
            steps = coef - current.coef[labels]
            effective.move_targets(grams, part.chosen, np.arange(len(grams)), steps, self.layout.first_regressor)
            add_chosen(grams, part.chosen, rows, sums.data)
        return drawn

    def _add_log_densities(
        self, part: AgentsPart, current: MixedGlobals, labels: LabelArray, scalars: FloatArray
    ) -> None:
        """Those given the weights of the events; what the weights cost is added by `_add_price_of_weights`."""
        event_weights = part.state[EVENT_WEIGHTS]
        super()._add_log_densities(part, current, labels, scalars)
        # the weighted matrices count events by their weights
        n, logs = (by_agent(part, of) for of in (np.ones(len(event_weights)), np.log(event_weights)))
        uncounted = n - scalars[:, evidence.WEIGHED_EVENTS]
        scalars[:, evidence.LOG_DENSITY] += 0.5 * (logs - uncounted * np.log(2.0 * np.pi * current.noise_scale**2))
        scalars[:, evidence.WEIGHED_EVENTS] = n

    def _add_price_of_weights(
        self, part: AgentsPart, current: MixedGlobals, coef: FloatArray, scalars: FloatArray
    ) -> None:
        """Subtract the divergence of the weights' posterior from their prior, given coefficients (entities, n_coef).

        The mean of log p(y | λ) over the posterior of λ, less this divergence, is log p(y).
        """
        events = events_of(part)
        of_event = np.repeat(np.arange(len(coef)), np.diff(events.event_start))
        slopes = coef[of_event, coef.shape[1] - events.X.shape[1] :]
        level = coef[of_event, 0] if self.layout.fit_intercept else 0.0
        squares = (events.y - level - (events.X * slopes).sum(axis=1)) ** 2 / current.noise_scale**2
        prior = 0.5 * current.noise_shape
        shape = 0.5 * (current.noise_shape + 1.0)
        rate = 0.5 * (current.noise_shape + squares)
        price = 0.5 * digamma(shape) - gammaln(shape) + gammaln(prior) + prior * np.log(rate / prior)
        price += shape * (prior - rate) / rate
        scalars[:, evidence.LOG_DENSITY] -= by_agent(part, price)

    def _draw_weights(
        self, part: AgentsPart, current: MixedGlobals, coef: FloatArray, scalars: FloatArray
    ) -> FloatArray:
        """(events,) new weights of the events of agents that take part; those of others stay."""
        events = events_of(part)
        arrays = events.X, events.y, events.event_start
        law = self.kernel_law(current, part.round)
        shape = float(current.noise_shape)
        drawn = part.state[EVENT_WEIGHTS].copy()
        totals = np.zeros((len(scalars), len(WEIGHT_SCALARS)))
        part.run_on_agents(
            lambda *block: weights.draw_weights(arrays, part.entities, coef, law, shape, *block, drawn, scalars, totals)
        )
        scalars[:, -len(WEIGHT_SCALARS) :] = totals
        return drawn

    # At the server.

    def enter(self, stage: Stage, current: MixedGlobals, sums: ClusterSums, spec: ModelSpec) -> MixedGlobals:
        """Switch effects and weights of events on."""
        entered = super().enter(stage, current, sums, spec)
        switched_on = current.stage == Stage.PLAIN != stage
        return replace(entered, noise_shape=START_EVENT_SHAPE) if switched_on else entered

    def _with_noise(
        self, drawn: MixedGlobals, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator
    ) -> MixedGlobals:
        """s² | λ as with common noise, and ν | λ on its grid, with prior ∝ 1/ν."""
        drawn = super()._with_noise(drawn, sums, spec, rng)
        logs, total, n = (sums.scalars[name] for name in WEIGHT_SCALARS)
        if drawn.is_plain or n == 0.0:
            return drawn
        return replace(drawn, noise_shape=covariance.draw_shape(rng, n, -logs, total, LEAST_EVENT_SHAPE))

    def log_joint(self, sums: ClusterSums, regressions: CoefPosterior, current: MixedGlobals) -> float:
        """The log density of targets, effects and labels, given the weights and the globals."""
        return super().log_joint(sums, regressions, current) + 0.5 * sums.scalars[WEIGHT_SCALARS[0]]

    # For predictions.

    def own_mixture(self, draws: MixedGlobals, weights: FloatArray, profiles: ProfileData) -> OwnMixture:
        """As with common noise, from the weighted matrices of each draw, and with Student-t noise.

        In each draw, the noise of the event to predict is normal with variance s²/λ. These λ are quantiles of
        Gamma(ν/2, ν/2), spread evenly over the draws. So beyond the largest of these variances, tails fall as those of
        a normal distribution: extreme quantiles and densities far off are those of a finite mixture.
        """
        common = super().own_mixture(draws, weights, profiles)
        variance, noise = (
            np.repeat(of[None], len(weights), axis=0)
            for of in (np.asarray(draws.noise_scale) ** 2, self.new_variances(draws))
        )
        events = events_of(profiles)
        grams = weighted_by_draw(profiles.grams, events, *self.weighted_targets(events, profiles.agent_state))
        return common._replace(grams=grams, variance=variance, noise=noise)

    def event_log_densities(self, current: MixedGlobals, points: EventPoints) -> FloatArray:
        """Student-t, without the weights of the events."""
        shape = float(current.noise_shape)
        if current.is_plain or not np.isfinite(shape):
            return super().event_log_densities(current, points)
        z = (points.target - points.linear) / points.scale
        constant = gammaln(0.5 * (shape + 1.0)) - gammaln(0.5 * shape) - 0.5 * np.log(shape * np.pi)
        return np.asarray(constant - np.log(points.scale) - 0.5 * (shape + 1.0) * np.log1p(z**2 / shape))

    def draw_targets(self, current: MixedGlobals, points: EventPoints, rng: np.random.Generator) -> FloatArray:
        shape = float(current.noise_shape)
        if current.is_plain or not np.isfinite(shape):
            return super().draw_targets(current, points, rng)
        return points.linear + points.scale * rng.standard_t(shape, len(points.linear))

    def noise_scales(self, draws: MixedGlobals) -> FloatArray:
        """s √(ν/(ν − 2)), the standard deviation of an event, the same for every cluster."""
        shape = np.asarray(draws.noise_shape)
        inflation = np.sqrt(np.divide(shape, shape - 2.0, out=np.ones_like(shape), where=np.isfinite(shape)))
        return super().noise_scales(draws) * inflation[:, None]
