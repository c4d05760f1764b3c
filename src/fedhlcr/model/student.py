"""Student-t noise: single events may be far off, and then count little.

    y_ijn ~ t_ν(β_ijᵀx_ijn, s)     that is, N(β_ijᵀx_ijn, s²/λ_ijn) with a weight λ_ijn ~ Gamma(ν/2, ν/2) per event

Given the weights all is as with common noise, with weighted Gram matrices Σ λx̃x̃ᵀ (`model.event_weights`). In the plain
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
from fedhlcr.kernels.effective import EffectsLaw
from fedhlcr.kernels.grams import add_chosen
from fedhlcr.kernels.profiles import OwnMixture
from fedhlcr.kernels.weights import WEIGHT_SCALARS
from fedhlcr.model import covariance
from fedhlcr.model.arguments import AgentsPart, Concluded, EventPoints, FittedEntities, ProfileData
from fedhlcr.model.differences import Differences
from fedhlcr.model.event_weights import EVENT_WEIGHTS, EventWeighted
from fedhlcr.model.gram import Standardization
from fedhlcr.model.likelihood import register
from fedhlcr.model.mixed_globals import EFFECTS, MixedGlobals
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPosterior
from fedhlcr.model.schema import (
    GRAMS,
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
class MixedStudentNoise(EventWeighted):
    """Every event has its own weight; ν is `noise_shape`, and s is `noise_scale`."""

    name: ClassVar[str] = "mixed, student noise"
    has_heavy_tails: ClassVar[bool] = True

    @property
    def own_scalars(self) -> tuple[SummedScalar, ...]:
        ranges = (anything, at_least_zero, up_to_events)
        own = (SummedScalar(name, range_of) for name, range_of in zip(WEIGHT_SCALARS, ranges, strict=True))
        return (*super().own_scalars, *own)

    @property
    def own_state(self) -> tuple[StateField, ...]:
        return (*super().own_state, StateField(EVENT_WEIGHTS, Level.EVENT, size=0, initial=1.0, possible=positive))

    # At the agents.

    def events_in(self, events: EventStore, units: Standardization) -> EventStore:
        if (events.weight != 1.0).any():
            raise ArgumentError(
                "noise='student' gives each event a weight of its own and does not support `sample_weight` other than "
                "0 and 1; repeat the rows of events that occurred several times, or use noise='entity'."
            )
        return super().events_in(events, units)

    def scoring_matrices(self, part: AgentsPart, current: MixedGlobals) -> FloatArray:
        """As with common noise, from weighted matrices."""
        if current.is_plain:
            return part.entities.grams
        return super().scoring_matrices(self._with_weights(part, part.state[EVENT_WEIGHTS]), current)

    def entity_matrices(
        self, grams: FloatArray, current: MixedGlobals, agent_state: State, events: EventStore | None = None
    ) -> FloatArray:
        assert events is not None
        weighted = self._weighted_entities(grams, events, events.y, agent_state[EVENT_WEIGHTS])
        return super().entity_matrices(weighted, current, agent_state)

    def conclude(
        self,
        part: AgentsPart,
        current: MixedGlobals,
        scoring: FloatArray,
        labels: LabelArray,
        rows: IndexArray,
        n_rows: int,
    ) -> Concluded:
        """Draw a and b given the old weights, then the weights; in the plain stage nothing is drawn."""
        if current.is_plain:
            return super().conclude(part, current, scoring, labels, rows, n_rows)
        sums = self._empty_sums(n_rows, len(part.agents))
        law = self.kernel_law(current, part.round)
        self._add_scalars(part, current, labels, law, sums.scalars)
        if current.stage == Stage.WEIGHING:
            self._add_log_densities(part, current, labels, sums.scalars)
        weighted = self._with_weights(part, part.state[EVENT_WEIGHTS])
        state = self._coef_drawn(weighted, current, scoring, labels, rows, sums)
        if current.stage == Stage.WEIGHING:
            self._add_price_of_weights(part, current, state.coef, sums.scalars)
        new_weights = self._draw_weights(part, current, law, state.coef, sums.scalars)
        if law.given_effects:
            # those of the kernel have the old weights
            sums.data[:] = 0.0
            self._add_data(self._with_weights(part, new_weights), state.coef - current.coef[labels], rows, sums.data)
        new_state = {**self.new_state(state, current), EVENT_WEIGHTS: new_weights}
        return Concluded(new_state, {GRAMS: sums.data, EFFECTS: sums.effects}, sums.scalars)

    def _add_log_densities(
        self, part: AgentsPart, current: MixedGlobals, labels: LabelArray, scalars: FloatArray
    ) -> None:
        """Those given the weights of the events; what the weights cost is added by `_add_price_of_weights`."""
        event_weights = part.state[EVENT_WEIGHTS]
        events = part.events
        assert events is not None
        super()._add_log_densities(self._with_weights(part, event_weights), current, labels, scalars)
        # the weighted matrices count events by their weights
        n, logs = (self._by_agent(part, of) for of in (np.ones(len(event_weights)), np.log(event_weights)))
        uncounted = n - scalars[:, evidence.WEIGHED_EVENTS]
        scalars[:, evidence.LOG_DENSITY] += 0.5 * (logs - uncounted * np.log(2.0 * np.pi * current.noise_scale**2))
        scalars[:, evidence.WEIGHED_EVENTS] = n

    def _add_price_of_weights(
        self, part: AgentsPart, current: MixedGlobals, coef: FloatArray, scalars: FloatArray
    ) -> None:
        """Subtract the divergence of the weights' posterior from their prior, given coefficients (entities, n_coef).

        The mean of log p(y | λ) over the posterior of λ, less this divergence, is log p(y).
        """
        events = part.events
        assert events is not None
        of_event = np.repeat(np.arange(len(coef)), np.diff(events.event_start))
        slopes = coef[of_event, coef.shape[1] - events.X.shape[1] :]
        level = coef[of_event, 0] if self.layout.fit_intercept else 0.0
        squares = (events.y - level - (events.X * slopes).sum(axis=1)) ** 2 / current.noise_scale**2
        prior = 0.5 * current.noise_shape
        shape = 0.5 * (current.noise_shape + 1.0)
        rate = 0.5 * (current.noise_shape + squares)
        price = 0.5 * digamma(shape) - gammaln(shape) + gammaln(prior) + prior * np.log(rate / prior)
        price += shape * (prior - rate) / rate
        scalars[:, evidence.LOG_DENSITY] -= self._by_agent(part, price)

    def _with_weights(self, part: AgentsPart, event_weights: FloatArray) -> AgentsPart:
        assert part.events is not None
        return self._weighted(part, part.events.y, event_weights)

    def _draw_weights(
        self, part: AgentsPart, current: MixedGlobals, law: EffectsLaw, coef: FloatArray, scalars: FloatArray
    ) -> FloatArray:
        """(events,) new weights of the events of agents that take part; those of others stay."""
        assert part.events is not None
        arrays = part.events.X, part.events.y, part.events.event_start
        drawn = part.state[EVENT_WEIGHTS].copy()
        totals = np.zeros((len(scalars), len(WEIGHT_SCALARS)))

        def run(block: int) -> None:
            asked = part.agents, *part.blocks.range(block)
            shape = float(current.noise_shape)
            weights.draw_weights(arrays, part.entities, coef, law, shape, *asked, drawn, scalars, totals)

        part.run(run)
        scalars[:, -len(WEIGHT_SCALARS) :] = totals
        return drawn

    def _add_data(self, weighted: AgentsPart, steps: FloatArray, rows: IndexArray, data: FloatArray) -> None:
        """Add the Gram matrices of (x, y − xᵀstep), with a step for each entity, to their rows of `data`."""
        grams = weighted.entities.grams
        chosen = weighted.chosen
        effective.move_targets(grams, chosen, np.arange(len(grams)), steps, self.layout.first_regressor)
        add_chosen(grams, chosen, rows, data)

    # At the server.

    def enter(self, stage: Stage, current: MixedGlobals, sums: ClusterSums, spec: ModelSpec) -> MixedGlobals:
        """Switch effects and weights of events on."""
        entered = super().enter(stage, current, sums, spec)
        switched_on = current.stage == Stage.PLAIN != stage
        return replace(entered, noise_shape=START_EVENT_SHAPE) if switched_on else entered

    def _has_entity_noise(self, current: MixedGlobals) -> bool:
        del current
        return False

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
        assert profiles.events is not None
        targets = np.repeat(profiles.events.y[:, None], weights.shape[1], axis=1)
        grams = self._weighted_by_draw(profiles, targets)
        return common._replace(grams=grams, variance=variance, noise=noise)

    def data_matrices(self, known: FittedEntities) -> FloatArray:
        assert known.events is not None
        return self._weighted_entities(known.grams, known.events, known.events.y, known.agent_state[EVENT_WEIGHTS])

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

    def differences(self, draws: MixedGlobals) -> Differences:
        """The noise differs between events, not between entities."""
        found = super().differences(draws)
        return found._replace(noise_shape=np.full_like(found.noise_shape, np.inf))

    def noise_scales(self, draws: MixedGlobals) -> FloatArray:
        """s √(ν/(ν − 2)), the standard deviation of an event, the same for every cluster."""
        shape = np.asarray(draws.noise_shape)
        inflation = np.sqrt(np.divide(shape, shape - 2.0, out=np.ones_like(shape), where=np.isfinite(shape)))
        return super().noise_scales(draws) * inflation[:, None]
