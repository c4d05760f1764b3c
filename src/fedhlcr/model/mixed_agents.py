"""The agents' half of clusters of mixed models: labels from effective Gram matrices, then effects and noise.

See `model.mixed` for the model and `kernels.effective` for the mathematics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr._support.checks import finite, not_negative
from fedhlcr._support.special import logsumexp
from fedhlcr.data.events import EventStore
from fedhlcr.kernels import effective, effects, evidence, mixed_sweep
from fedhlcr.kernels.arguments import LabelLaw
from fedhlcr.kernels.effective import EffectsLaw
from fedhlcr.kernels.effects import EffectState, EffectSums
from fedhlcr.kernels.grams import add_chosen
from fedhlcr.model.arguments import AgentsPart, Concluded, DrawnLabels, agent_figures
from fedhlcr.model.covariance import variance_ratios
from fedhlcr.model.linear import LinearLikelihood
from fedhlcr.model.mixed_globals import EFFECTS, EVIDENCE, NOISE_SCALARS, MixedGlobals
from fedhlcr.model.schema import (
    GRAMS,
    LABEL_SCALARS,
    Block,
    Level,
    Stage,
    State,
    StateField,
    SummedScalar,
    at_least_zero,
)

# `EffectState.coef` where the coefficients of entities are not needed.
_NOT_KEPT = np.empty((0, 0))
# `log_dets` of `effective_grams` where they are not needed.
_NO_LOGS = np.empty(0)
# How far beyond its mean the precision of an entity may be, at most.
SLACK = 1e3
# Noise variances over which the density of an entity is averaged: quantiles of their law.
N_VARIANCES = 8


class MixedAgents(LinearLikelihood[MixedGlobals]):
    """What agents sum and keep, and how they draw it."""

    globals_type = MixedGlobals
    has_fixed_summands: ClassVar[bool] = False
    has_stages: ClassVar[bool] = True
    noise_of_entities: ClassVar[bool]
    _kept_law: tuple[MixedGlobals | None, Any] = (None, None)

    @property
    def own_blocks(self) -> tuple[Block, ...]:
        size = self.layout.n_linear + 1
        return (Block(EFFECTS, size * (size + 1) // 2, is_moments=True),)

    @property
    def own_scalars(self) -> tuple[SummedScalar, ...]:
        """In the order in which `kernels.evidence` lists them."""
        squares = tuple(
            SummedScalar(f"agent_effect_{f}", at_least_zero, "agent_effects") for f in range(self.layout.n_coef)
        )
        within = tuple(SummedScalar(f"within_{f}", at_least_zero) for f in range(self.layout.n_features))
        n_coef = self.layout.n_coef
        evidence = tuple(
            SummedScalar(f"{kind}_{f}", range_of) for kind, range_of in EVIDENCE.items() for f in range(n_coef)
        )
        return (*NOISE_SCALARS, *squares, *within, *evidence)

    @property
    def own_state(self) -> tuple[StateField, ...]:
        return (
            # over noise_unit²; 0 as long as it has not been drawn
            StateField("variance", Level.ENTITY, size=0, initial=0.0, possible=not_negative),
            StateField("agent_effects", Level.AGENT, size=self.layout.n_coef, initial=0.0, possible=finite),
        )

    def sums_events(self, current: Any) -> bool:
        """In plain clusters, unless the target is not in the units of the linear part."""
        return bool(current.is_plain) and self.linear_spread is None

    def most_weight(self, current: Any) -> Callable[[FloatArray], FloatArray] | None:
        """The precision of an entity of n events is a Gamma((ν + n)/2) draw over at least νs²/2.

        The matrices have it over 1/noise_unit². SLACK allows for the tails of the draw, and for a law that has moved
        since it was drawn.
        """
        if self.linear_spread is not None:
            return None
        unit = SLACK * (current.noise_unit / current.noise_scale) ** 2
        return lambda n_events: unit * n_events * (1.0 + (n_events + 1.0) / current.noise_shape)

    def score_rows(self, current: MixedGlobals) -> FloatArray:
        """M·r_k = −RSS(w_k)/(2σ²); effective matrices are divided by the noise variance already."""
        scale = current.noise_scale if current.is_plain else 1.0
        return self.layout.rss_vectors(current.coef) / (-2.0 * scale**2)

    def common_scale(self, current: MixedGlobals) -> float | None:
        """In plain clusters, unless scores come from events."""
        return float(current.noise_scale) if self.sums_events(current) else None

    def scores_squares(self, current: MixedGlobals) -> bool:
        """Always, unless scores come from events: effective matrices are scored as the others are."""
        return not current.is_plain or self.sums_events(current)

    def scoring_matrices(self, part: AgentsPart, current: MixedGlobals) -> FloatArray:
        """Effective matrices around the agents' effects."""
        grams = part.entities.grams
        if current.is_plain:
            return grams
        out = np.empty_like(grams)
        self._write_effective(part, current, self.variance(part.state, current), out, _NO_LOGS)
        return out

    def _write_effective(
        self, part: AgentsPart, current: MixedGlobals, variance: FloatArray, out: FloatArray, log_dets: FloatArray
    ) -> None:
        grams = part.entities.grams
        law = self.kernel_law(current, 0)
        chosen = part.chosen
        bounds = part.entity_blocks
        owner = part.owner
        steps = part.state["agent_effects"]
        has_steps = bool(steps.any())

        def run(block: int) -> None:
            first, last = bounds[block]
            effective.effective_grams(grams, variance, chosen, first, last, law, out, log_dets)
            if has_steps:
                effective.move_targets(out, chosen[first:last], owner, steps, law.first)

        part.run(run)

    def entity_matrices(
        self, grams: FloatArray, current: MixedGlobals, agent_state: State, events: EventStore | None = None
    ) -> FloatArray:
        """The same for single entities, each with a row of the agent state."""
        del events
        if current.is_plain:
            return grams
        law = self.kernel_law(current, 0)
        out = np.empty_like(grams)
        rows = np.arange(len(grams))
        steps = agent_state["agent_effects"]
        effective.effective_grams(grams, self.variance(agent_state, current), rows, 0, len(rows), law, out, _NO_LOGS)
        if steps.any():
            effective.move_targets(out, rows, rows, steps, law.first)
        return out

    def variance(self, state: State, current: MixedGlobals) -> FloatArray:
        """(entities,) the noise variances; s² for those that have not been drawn."""
        kept = state["variance"]
        return np.where(kept > 0.0, kept * current.noise_unit**2, current.noise_scale**2)

    def kernel_law(self, current: MixedGlobals, round_number: int) -> EffectsLaw:
        """What is given, as the kernels take it. The last one is kept: the pages of a sweep have the same globals."""
        kept, law = self._kept_law
        if kept is not current:
            law = self._make_law(current)
            self._kept_law = current, law
        return law._replace(round=round_number)

    def _make_law(self, current: MixedGlobals) -> EffectsLaw:
        # kernels are compiled for arrays that may be written to; those of a message may not
        return EffectsLaw(
            current.coef.copy(),
            current.effect_root.copy(),
            current.effect_columns + self.layout.first_regressor,
            current.agent_effect_scale.copy(),
            float(current.noise_scale),
            float(current.noise_shape),
            float(current.noise_unit),
            self.layout.first_regressor,
            self.layout.n_linear,
            current.stage == Stage.EXACT,
            0,
        )

    def conclude(
        self,
        part: AgentsPart,
        current: MixedGlobals,
        scoring: FloatArray,
        labels: LabelArray,
        rows: IndexArray,
        n_rows: int,
    ) -> Concluded:
        """Draw a, b and σ; in plain clusters there are none."""
        sums = self._empty_sums(n_rows, len(part.agents))
        law = self.kernel_law(current, part.round)
        self._add_scalars(part, current, labels, law, sums.scalars)
        if current.stage == Stage.WEIGHING:
            self._add_log_densities(part, current, labels, sums.scalars)
        if current.is_plain:
            if n_rows:
                add_chosen(part.entities.grams, part.chosen, rows, sums.data)
            # a run that goes back to plain clusters forgets effects and noise of entities
            fresh = self.fresh_state(part.state)
            return Concluded(fresh, {GRAMS: sums.data, EFFECTS: sums.effects}, sums.scalars)
        state = EffectState(self.variance(part.state, current), part.state["agent_effects"].copy(), _NOT_KEPT)
        self._draw_effects(part, scoring, labels, law, state, rows, sums)
        return Concluded(self.new_state(state, current), {GRAMS: sums.data, EFFECTS: sums.effects}, sums.scalars)

    def sweeps_at_once(self, current: MixedGlobals) -> bool:
        """With effects, unless events have weights, which are drawn in between."""
        return not current.is_plain and not self.needs_events

    def sweep(
        self, part: AgentsPart, current: MixedGlobals, law: LabelLaw, labels: LabelArray, drawn: DrawnLabels
    ) -> Concluded:
        sums = self._empty_sums(current.n_clusters, len(part.agents))
        effects_law = self.kernel_law(current, part.round)
        state = EffectState(self.variance(part.state, current), part.state["agent_effects"].copy(), _NOT_KEPT)
        mixed_sweep.sweep_agents(part.entities, law, effects_law, labels, *drawn, state, sums)
        self._add_scalars(part, current, drawn.labels, effects_law, sums.scalars)
        if current.stage == Stage.WEIGHING:
            self._add_log_densities(part, current, drawn.labels, sums.scalars)
        return Concluded(self.new_state(state, current), {GRAMS: sums.data, EFFECTS: sums.effects}, sums.scalars)

    def new_state(self, state: EffectState, current: MixedGlobals) -> State:
        """What agents keep of the state that the kernels have drawn."""
        return {"variance": state.variance / current.noise_unit**2, "agent_effects": state.agent_effects}

    def _draw_effects(
        self,
        part: AgentsPart,
        scoring: FloatArray,
        labels: LabelArray,
        law: EffectsLaw,
        state: EffectState,
        rows: IndexArray,
        sums: EffectSums,
    ) -> None:
        """Draw effects and noise of a part's agents; `state` and `sums` are changed in place."""

        def run(block: int) -> EffectSums:
            own = EffectSums(np.zeros_like(sums.data), np.zeros_like(sums.effects), sums.scalars)
            effects.draw_effects(
                part.entities, scoring, labels, law, part.agents, *part.blocks.range(block), state, rows, own
            )
            return own

        for own in part.run(run):
            sums.data[:] += own.data
            sums.effects[:] += own.effects

    def _add_scalars(
        self, part: AgentsPart, current: MixedGlobals, labels: LabelArray, law: EffectsLaw, scalars: FloatArray
    ) -> None:
        """Add what does not depend on the agents' draws, and what the server needs before it switches effects on."""
        self._add_counts(part, current, scalars)
        if current.stage == Stage.PLAIN:
            self._add_evidence(part, labels, law, scalars)

    def _add_counts(self, part: AgentsPart, current: MixedGlobals, scalars: FloatArray) -> None:
        """Count agents and events, and in the plain stage add up how features vary within entities."""
        grams = part.entities.grams
        agent_start = part.entities.agent_start
        first = self._first_within
        figures = part.figures
        if figures is None:
            figures = agent_figures(grams, agent_start, self.layout.n_features, part.n_threads)
        scalars[:, evidence.AGENTS] = np.diff(agent_start)[part.agents] > 0
        scalars[:, evidence.EVENTS] = figures.events[part.agents]
        if current.stage == Stage.PLAIN:
            scalars[:, first : first + self.layout.n_features] = figures.within[part.agents]

    def _add_evidence(self, part: AgentsPart, labels: LabelArray, law: EffectsLaw, scalars: FloatArray) -> None:
        """Add what score tests of the effects need."""
        scores = np.zeros((len(scalars), len(EVIDENCE), self.layout.n_coef))
        grams = part.entities.grams
        agent_start = part.entities.agent_start

        def run(block: int) -> None:
            asked = part.agents, *part.blocks.range(block)
            evidence.add_evidence(grams, agent_start, *asked, labels, law, scalars, scores)

        part.run(run)
        first = self._first_evidence
        scalars[:, first : first + scores[0].size] = scores.reshape(len(scalars), -1)

    @property
    def _first_within(self) -> int:
        """Position of the first of the scalars `within_…`."""
        return len(NOISE_SCALARS) + self.layout.n_coef

    @property
    def _first_evidence(self) -> int:
        """Position of the first of the scalars that score tests need."""
        return self._first_within + self.layout.n_features

    def _add_log_densities(
        self, part: AgentsPart, current: MixedGlobals, labels: LabelArray, scalars: FloatArray
    ) -> None:
        """Add the log density of each agent's entities, with their labels, effects and noise integrated out."""
        grams = part.entities.grams
        chosen = part.chosen
        variances = self.variance_quantiles(current, N_VARIANCES)
        densities = np.zeros((len(variances), len(grams)))
        log_dets = np.zeros(len(grams))
        # effective matrices are divided by the noise variance
        scoring = np.empty_like(grams)
        prior = current.prior_weights()
        rows = np.ascontiguousarray(-0.5 * self.layout.rss_vectors(current.coef))
        for own, variance in zip(densities, variances, strict=True):
            self._write_effective(part, current, np.full(len(grams), variance), scoring, log_dets)

            def run(block: int, own: FloatArray = own) -> None:
                asked = part.agents, *part.blocks.range(block)
                evidence.add_log_densities(scoring, rows, prior, labels, part.entities.agent_start, *asked, own)

            part.run(run)
            own -= 0.5 * (grams[:, 0] * np.log(2.0 * np.pi * variance) + log_dets)
        average = logsumexp(densities[:, chosen], axis=0) - np.log(len(variances))
        position = np.searchsorted(part.agents, part.owner[chosen])
        for column, values in ((evidence.LOG_DENSITY, average), (evidence.WEIGHED_EVENTS, grams[chosen, 0])):
            scalars[:, column] = np.bincount(position, weights=values, minlength=len(scalars))

    def variance_quantiles(self, current: MixedGlobals, n: int) -> FloatArray:
        """Quantiles of the law of an entity's noise variance, evenly spread; one if all entities have the same."""
        if not np.isfinite(current.noise_shape):
            return np.array([current.noise_scale**2])
        return current.noise_scale**2 * variance_ratios(current.noise_shape, (np.arange(n) + 0.5) / n)

    def _empty_sums(self, n_rows: int, n_agents: int) -> EffectSums:
        blocks = self.sum_schema.zero_blocks(n_rows)
        n_scalars = len(self.sum_schema.scalars) - len(LABEL_SCALARS)
        return EffectSums(blocks[GRAMS], blocks[EFFECTS], np.zeros((n_agents, n_scalars)))
