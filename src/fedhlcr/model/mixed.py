"""Clusters of mixed models: entities of one cluster are alike, not equal.

    β_ij  = w_z + a_i + b_ij              b_ij ~ N(0, D) per entity,  a_i ~ N(0, diag(τ²)) per agent
    y_ijn ~ N(β_ijᵀx_ijn, σ_ij²)          σ_ij² ~ IG(ν/2, νs²/2) per entity, or s² for all

D = 0, τ = 0 and ν = ∞ is the paper's model; one cluster is the nested mixed model of lme4. Agents keep labels, a_i and
σ_ij. Nothing depends on the old b_ij, so these are drawn in every round and not kept.

A run has stages (`schema.Stage`). In the first, all is as in `model.gaussian`. When effects are switched on, the sums
hold effective Gram matrices, with b integrated out, by which clusters are still merged. While several clusters are
compared with one (`samplers.cluster_comparison`), agents also add up log densities, and effects may be off again for a
while. When all this is over, the sums hold the Gram matrices of (x, y − xᵀ(a + b)) given the effects drawn, and
Σ (1, b)(1, b)ᵀ. From these the server draws w twice: given b, and given β = w + b, which moves every entity's b by the
change of w (`recentre`). So sums of absent agents stay a valid part of the chain's state: the account applies the same
shift to them.

`model.mixed_agents` and `model.mixed_server` have the computations of the two halves of a round. A likelihood that
gives each event a weight (`model.student`, `model.logits`) sets `event_weight`: agents keep their events and the
weights, and all is as with common noise, from weighted Gram matrices. At the end of a round each weight is drawn given
its entity's coefficients, and the sums that leave the agent have the new weights: everything the server draws is
conditional on the state that the agents keep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr._support.checks import finite, not_negative
from fedhlcr.data.events import EventStore
from fedhlcr.kernels import mixed_sweep
from fedhlcr.kernels.arguments import LabelLaw
from fedhlcr.kernels.effective import EffectsLaw, effective_grams, move_targets
from fedhlcr.kernels.effects import EffectState, EffectSums
from fedhlcr.kernels.grams import add_chosen
from fedhlcr.kernels.profiles import DRAWS_AT_ONCE, OwnMixture
from fedhlcr.model import covariance, mixed_agents, mixed_server
from fedhlcr.model.arguments import (
    AgentsPart,
    Concluded,
    Differences,
    DrawnLabels,
    EffectShift,
    FittedEntities,
    ProfileData,
    Recentred,
)
from fedhlcr.model.likelihood import Likelihood, register
from fedhlcr.model.mixed_globals import EFFECTS, MixedGlobals, mixed_scalars
from fedhlcr.model.mixed_server import EffectEvidence
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import LOG_2PI, CoefPosterior, coef_posterior, draw_coef
from fedhlcr.model.schema import (
    GRAMS,
    LABEL_SCALARS,
    Block,
    Level,
    Stage,
    State,
    StateField,
    SummedScalar,
)
from fedhlcr.model.sums import ClusterSums

# The fractional parts of its multiples are spread evenly over (0, 1), in an order that looks random.
GOLDEN = 0.6180339887498949
# `EffectState.coef` where the coefficients of entities are not needed.
_NOT_KEPT = np.empty((0, 0))
# How far beyond its mean the precision of an entity may be, at most.
SLACK = 1e3
# Noise variances over which the density of an entity is averaged: quantiles of their law.
N_VARIANCES = 8


class Mixed(Likelihood[MixedGlobals]):
    """Clusters of mixed models. A subclass says which noise there is.

    Attributes
    ----------
    noise_of_entities : whether entities may differ in their noise
    event_weight : declares the weights of events, if events have weights
    """

    globals_type: type[MixedGlobals] = MixedGlobals
    has_fixed_summands: ClassVar[bool] = False
    has_stages: ClassVar[bool] = True
    noise_of_entities: ClassVar[bool] = False
    event_weight: ClassVar[StateField | None] = None
    # made of the globals that came last: all pages of a sweep, and all rows to predict, have the same
    _kept_law: tuple[MixedGlobals | None, Any] = (None, None)
    _kept_roots: tuple[MixedGlobals | None, Any, Any] = (None, None, None)

    @property
    def own_blocks(self) -> tuple[Block, ...]:
        size = self.layout.n_linear + 1
        return (Block(EFFECTS, size * (size + 1) // 2, is_moments=True),)

    @property
    def own_scalars(self) -> tuple[SummedScalar, ...]:
        return mixed_scalars(self.layout)

    @property
    def own_state(self) -> tuple[StateField, ...]:
        return (
            # over noise_unit²; 0 as long as it has not been drawn
            StateField("variance", Level.ENTITY, size=0, initial=0.0, possible=not_negative),
            StateField("agent_effects", Level.AGENT, size=self.layout.n_coef, initial=0.0, possible=finite),
            *(() if self.event_weight is None else (self.event_weight,)),
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

    def entity_shape(self, globals_: MixedGlobals) -> Any:
        """ν of the noise of entities, or of all draws; infinite where ν belongs to events."""
        shape = np.asarray(globals_.noise_shape)
        return np.full_like(shape, np.inf) if self.needs_events else shape

    # At the agents.

    def weighted_targets(self, events: EventStore, agent_state: State) -> tuple[FloatArray, FloatArray]:
        """Targets and weights of events, if they have weights; the state has a row for each entity.

        It may have an axis of draws behind; then so have targets and weights.
        """
        raise NotImplementedError

    def _weighted(self, part: AgentsPart) -> AgentsPart:
        """The part with weighted Gram matrices, if events have weights."""
        return part

    def _weighted_entities(self, grams: FloatArray, events: EventStore | None, agent_state: State) -> FloatArray:
        """The same for the matrices of single entities, each with a row of the agent state."""
        if not self.needs_events:
            return grams
        assert events is not None
        return mixed_agents.weighted_entities(grams, events, *self.weighted_targets(events, agent_state))

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
        if current.is_plain:
            return part.entities.grams
        out = np.empty_like(part.entities.grams)
        variance = self.variance(part.state, current)
        law = self.kernel_law(current, 0)
        mixed_agents.write_effective(self._weighted(part), law, variance, out, mixed_agents.NO_LOGS)
        return out

    def entity_matrices(
        self, grams: FloatArray, current: MixedGlobals, agent_state: State, events: EventStore | None = None
    ) -> FloatArray:
        """The same for single entities, each with a row of the agent state."""
        grams = self._weighted_entities(grams, events, agent_state)
        if current.is_plain:
            return grams
        law = self.kernel_law(current, 0)
        out = np.empty_like(grams)
        rows = np.arange(len(grams))
        steps = agent_state["agent_effects"]
        variance = self.variance(agent_state, current)
        effective_grams(grams, variance, rows, 0, len(rows), law, out, mixed_agents.NO_LOGS)
        if steps.any():
            move_targets(out, rows, rows, steps, law.first)
        return out

    def variance(self, state: State, current: MixedGlobals) -> FloatArray:
        """(entities,) the noise variances; s² for those that have not been drawn."""
        kept = state["variance"]
        return np.where(kept > 0.0, kept * current.noise_unit**2, current.noise_scale**2)

    def kernel_law(self, current: MixedGlobals, round_number: int) -> EffectsLaw:
        """The current globals, as the kernels take them."""
        kept, law = self._kept_law
        if kept is not current:
            # kernels are compiled for arrays that may be written to; those of a message may not
            law = EffectsLaw(
                current.coef.copy(),
                current.effect_root.copy(),
                current.effect_columns + self.layout.first_regressor,
                current.agent_effect_scale.copy(),
                float(current.noise_scale),
                float(self.entity_shape(current)),
                float(current.noise_unit),
                self.layout.first_regressor,
                self.layout.n_linear,
                current.stage == Stage.EXACT,
                0,
            )
            self._kept_law = current, law
        return law._replace(round=round_number)

    def conclude(
        self,
        part: AgentsPart,
        current: MixedGlobals,
        scoring: FloatArray,
        labels: LabelArray,
        rows: IndexArray,
        n_rows: int,
    ) -> Concluded:
        """Draw a, b and σ, and then the weights of events; in plain clusters there are none."""
        sums = self._empty_sums(n_rows, len(part.agents))
        law = self.kernel_law(current, part.round)
        self._add_scalars(part, current, labels, law, sums.scalars)
        if current.is_plain:
            if n_rows:
                add_chosen(part.entities.grams, part.chosen, rows, sums.data)
            # a run that goes back to plain clusters forgets effects and noise of entities
            state = self.fresh_state(part.state)
        else:
            drawn = self._draw_effects(self._weighted(part), current, scoring, labels, rows, sums)
            state = self.new_state(drawn, current)
            if self.needs_events:
                state |= self._draw_event_weights(part, current, labels, drawn.coef, rows, sums)
        return Concluded(state, {GRAMS: sums.data, EFFECTS: sums.effects}, sums.scalars)

    def _draw_effects(
        self,
        weighted: AgentsPart,
        current: MixedGlobals,
        scoring: FloatArray,
        labels: LabelArray,
        rows: IndexArray,
        sums: EffectSums,
    ) -> EffectState:
        """Draw effects and noise, and add to the sums; with the coefficients of entities, if events have weights."""
        drawn = self._old_effects(weighted, current)
        if self.needs_events:
            drawn = drawn._replace(coef=np.zeros((len(labels), self.layout.n_coef)))
        law = self.kernel_law(current, weighted.round)
        mixed_agents.draw_effects(weighted, scoring, labels, law, drawn, rows, sums)
        return drawn

    def _old_effects(self, part: AgentsPart, current: MixedGlobals) -> EffectState:
        """Noise and effects of agents before their draw, which changes them in place."""
        return EffectState(self.variance(part.state, current), part.state["agent_effects"].copy(), _NOT_KEPT)

    def _draw_event_weights(
        self,
        part: AgentsPart,
        current: MixedGlobals,
        labels: LabelArray,
        coef: FloatArray,
        rows: IndexArray,
        sums: EffectSums,
    ) -> State:
        """The new weights of events given coefficients (entities, n_coef); the sums get those of the new weights."""
        raise NotImplementedError

    def sweeps_at_once(self, current: MixedGlobals) -> bool:
        """With effects, unless events have weights, which are drawn in between."""
        return not current.is_plain and not self.needs_events

    def sweep(
        self, part: AgentsPart, current: MixedGlobals, law: LabelLaw, labels: LabelArray, drawn: DrawnLabels
    ) -> Concluded:
        sums = self._empty_sums(current.n_clusters, len(part.agents))
        effects_law = self.kernel_law(current, part.round)
        state = self._old_effects(part, current)
        mixed_sweep.sweep_agents(part.entities, law, effects_law, labels, *drawn, state, sums)
        self._add_scalars(part, current, drawn.labels, effects_law, sums.scalars)
        return Concluded(self.new_state(state, current), {GRAMS: sums.data, EFFECTS: sums.effects}, sums.scalars)

    def new_state(self, state: EffectState, current: MixedGlobals) -> State:
        """What agents keep of the state that the kernels have drawn."""
        return {"variance": state.variance / current.noise_unit**2, "agent_effects": state.agent_effects}

    def _add_scalars(
        self, part: AgentsPart, current: MixedGlobals, labels: LabelArray, law: EffectsLaw, scalars: FloatArray
    ) -> None:
        """Add what does not depend on the agents' draws, and what the server needs before it switches effects on."""
        mixed_agents.add_counts(self.layout, part, current, scalars)
        if current.stage == Stage.PLAIN:
            mixed_agents.add_evidence(self.layout, part, labels, law, scalars)
        if current.stage == Stage.WEIGHING:
            self._add_log_densities(part, current, labels, scalars)

    def _add_log_densities(
        self, part: AgentsPart, current: MixedGlobals, labels: LabelArray, scalars: FloatArray
    ) -> None:
        """Add the log density of each agent's entities, with their labels, effects and noise integrated out."""
        law = self.kernel_law(current, 0)
        variances = self.variance_quantiles(current, N_VARIANCES)
        mixed_agents.add_log_densities(self.layout, self._weighted(part), current, law, variances, labels, scalars)

    def variance_quantiles(self, current: MixedGlobals, n: int) -> FloatArray:
        """Quantiles of the law of an entity's noise variance, evenly spread; one if all entities have the same."""
        shape = self.entity_shape(current)
        if not np.isfinite(shape):
            return np.array([current.noise_scale**2])
        return current.noise_scale**2 * covariance.variance_ratios(shape, (np.arange(n) + 0.5) / n)

    def _empty_sums(self, n_rows: int, n_agents: int) -> EffectSums:
        blocks = self.sum_schema.zero_blocks(n_rows)
        n_scalars = len(self.sum_schema.scalars) - len(LABEL_SCALARS)
        return EffectSums(blocks[GRAMS], blocks[EFFECTS], np.zeros((n_agents, n_scalars)))

    # At the server.

    def start(self, spec: ModelSpec, n_clusters: int) -> MixedGlobals:
        return self.start_with(spec, n_clusters, **self._first_quantities(spec))

    def _first_quantities(self, spec: ModelSpec) -> dict[str, Any]:
        n_coef = self.layout.n_coef
        priors = spec.hyperpriors.for_spread(spec.target_spread)
        scale = spec.target_spread if spec.noise_scale is None else spec.noise_scale
        scale = max(scale, mixed_server.LEAST_NOISE * spec.target_spread)
        return {
            "noise_scale": scale,
            "noise_unit": scale,
            "noise_shape": float("inf"),
            "effect_covariance": np.zeros((n_coef, n_coef)),
            "agent_effect_scale": np.zeros(n_coef),
            "slope_scale": priors.entity_effects.typical,
            "agent_slope_scale": priors.agent_effects.typical,
            "stage": float(Stage.PLAIN),
        }

    def enter(self, stage: Stage, current: MixedGlobals, sums: ClusterSums, spec: ModelSpec) -> MixedGlobals:
        """Switch effects and noise of entities on, small at first, or off when a single cluster begins."""
        if stage == current.stage:
            return current
        if stage == Stage.PLAIN:
            # as at the start: what was learned with other clusters could keep these from their own
            kept = {
                name: getattr(current, name) for name in ("log_weights", "global_concentration", "agent_concentration")
            }
            return replace(self.start(spec, current.n_clusters), **kept)
        if current.stage != Stage.PLAIN:
            return replace(current, stage=float(stage))
        start = self._start_variances(sums, spec)
        evidence = self._evidence(sums)
        of_entities, of_agents = mixed_server.effect_coefficients(self.layout, sums, spec, evidence)
        changes: dict[str, Any] = {
            "effect_covariance": np.diag(np.where(of_entities, start, 0.0)),
            "agent_effect_scale": np.where(of_agents, np.sqrt(mixed_server.START_RATIO * start), 0.0),
        }
        some_noise = evidence.of_noise > mixed_server.ENOUGH_EVIDENCE
        if self.noise_of_entities and some_noise and evidence.allows_effects(sums, spec):
            changes["noise_shape"] = mixed_server.START_SHAPE
        return replace(current, stage=float(stage), **changes)

    def _start_variances(self, sums: ClusterSums, spec: ModelSpec) -> FloatArray:
        return mixed_server.start_variances(self.layout, sums, spec)

    def _evidence(self, sums: ClusterSums) -> EffectEvidence:
        return EffectEvidence.of(self.layout, sums)

    def has_clear_effects(self, sums: ClusterSums) -> bool:
        return self._evidence(sums).is_clear

    def regressions(self, blocks: dict[str, FloatArray], current: MixedGlobals) -> CoefPosterior:
        return coef_posterior(self.layout.normal_equations(blocks[GRAMS]), current.noise_unit, current.coef_prior)

    def draw(
        self,
        sums: ClusterSums,
        regressions: CoefPosterior,
        current: MixedGlobals,
        spec: ModelSpec,
        rng: np.random.Generator,
    ) -> MixedGlobals:
        """w | data; then the noise; then D, τ | effects; then (μ, δ) | w."""
        drawn = replace(current, coef=draw_coef(regressions, rng))
        drawn = self._with_noise(drawn, sums, spec, rng)
        if drawn.stage != Stage.PLAIN:
            drawn = self._with_effect_covariance(drawn, sums, spec, rng)
            drawn = self._with_agent_scales(drawn, sums, spec, rng)
        return self.with_coef_prior(drawn, sums, spec, rng)

    def _with_noise(
        self, drawn: MixedGlobals, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator
    ) -> MixedGlobals:
        has_entity_noise = bool(np.isfinite(self.entity_shape(drawn)))
        if spec.noise_scale is None:
            drawn = mixed_server.rescaled(self.layout, drawn, sums, spec, rng, has_entity_noise=has_entity_noise)
        return mixed_server.with_entity_noise(drawn, sums, spec, rng) if has_entity_noise else drawn

    def _with_effect_covariance(
        self, drawn: MixedGlobals, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator
    ) -> MixedGlobals:
        return mixed_server.with_effect_covariance(self.layout, drawn, sums, spec, rng)

    def _with_agent_scales(
        self, drawn: MixedGlobals, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator
    ) -> MixedGlobals:
        return mixed_server.with_agent_scales(self.layout, drawn, sums, spec, rng)

    def recentre(
        self, sums: ClusterSums, drawn: MixedGlobals, spec: ModelSpec, rng: np.random.Generator
    ) -> Recentred[MixedGlobals]:
        del spec
        return mixed_server.recentre(self.layout, sums, drawn, rng)

    def effect_shift(self, shift: FloatArray, current: MixedGlobals) -> EffectShift:
        """Before the last stage, the data matrices do not depend on b."""
        return EffectShift(shift, shift if current.stage == Stage.EXACT else np.zeros_like(shift))

    def shifted(self, blocks: dict[str, FloatArray], shift: EffectShift) -> dict[str, FloatArray]:
        return mixed_server.shifted(self.layout, blocks, shift)

    def log_joint(self, sums: ClusterSums, regressions: CoefPosterior, current: MixedGlobals) -> float:
        """The log density of targets, effects and labels, given the noise and the globals."""
        total = super().log_joint(sums, regressions, current)
        if current.is_plain:
            return total
        # the matrices count events by their precisions
        uncounted = sums.scalars["events"] - self.layout.n_events(sums.grams).sum()
        total -= 0.5 * (uncounted * (LOG_2PI + 2.0 * np.log(current.noise_unit)) + sums.scalars["log_volumes"])
        return float(total + mixed_server.log_effects(self.layout, sums, current))

    # For predictions.

    def has_plain_entities(self, draws: MixedGlobals) -> bool:
        """Whether there are neither effects nor noise of entities in any draw, nor weights of events."""
        own, of_agents, _, shape = self.differences(draws)
        return not (self.needs_events or own.any() or of_agents.any() or np.isfinite(shape).any())

    def mixture(self, draws: MixedGlobals, weights: FloatArray, profiles: ProfileData) -> Any:
        return self.own_mixture(draws, weights, profiles)

    def own_mixture(self, draws: MixedGlobals, weights: FloatArray, profiles: ProfileData) -> OwnMixture:
        """Coefficients that each profile has of its own; see `kernels.profiles`."""
        columns, roots = self._effect_roots(draws)
        known = self.known_variances(draws, profiles.agent_state["variance"])
        variance = np.where(profiles.is_known[:, None], known, self.new_variances(draws))
        return OwnMixture(
            weights / len(draws.coef),
            draws.coef,
            profiles.grams[:, None],
            variance,
            variance,
            profiles.agent_state["agent_effects"],
            roots,
            (~profiles.is_known_agent).astype(np.int64),
            columns + self.layout.first_regressor,
            self.layout.first_regressor,
        )

    def entity_coef(self, current: MixedGlobals, known: FittedEntities, normals: FloatArray) -> FloatArray:
        """w + a + b with b drawn given everything else: Λ(B⁻¹Λᵀ(g − G(w + a)) + L⁻ᵀε), in the notation of `kernels`."""
        base = current.coef[known.labels]
        if current.is_plain:
            return np.asarray(base)
        base = base + known.agent_state["agent_effects"]
        columns = current.effect_columns
        root = current.effect_root
        if not len(columns):
            return np.asarray(base)
        grams = self._weighted_entities(known.grams, known.events, known.agent_state)
        normal = self.layout.normal_equations(grams)
        precision = 1.0 / self.variance(known.agent_state, current)
        gap = normal.xy - np.einsum("efg,eg->ef", normal.xx, base)
        own = normal.xx[:, columns[:, None], columns] * precision[:, None, None]
        lower = np.linalg.cholesky(np.eye(len(columns)) + root.T @ own @ root)
        half = np.linalg.solve(lower, (gap[:, columns] * precision[:, None] @ root)[..., None])
        drawn = np.linalg.solve(np.swapaxes(lower, 1, 2), half + normals[:, : len(columns), None])[..., 0]
        base[:, columns] += drawn @ root.T
        return np.asarray(base)

    def _effect_roots(self, draws: MixedGlobals) -> tuple[IndexArray, FloatArray]:
        """Columns with effects in any draw, and Λ of known and of new agents; kept for all blocks of rows."""
        kept, columns, roots = self._kept_roots
        if kept is not draws:
            used = np.diagonal(draws.effect_covariance, axis1=1, axis2=2) > 0.0
            columns = np.flatnonzero((used | (draws.agent_effect_scale > 0.0)).any(axis=0))
            own, of_agents, *_ = self.differences(draws)
            roots = np.stack([_roots(of[:, columns][:, :, columns]) for of in (own, own + of_agents)])
            self._kept_roots = draws, columns, roots
        return columns, roots

    def known_variances(self, draws: MixedGlobals, kept: FloatArray) -> FloatArray:
        """(..., draws) noise variances of known entities, from what they keep of them."""
        unit, typical = (np.asarray(of) ** 2 for of in (draws.noise_unit, draws.noise_scale))
        return np.where(kept > 0.0, kept * unit, typical)

    def entity_noise(self, draws: MixedGlobals, agent_state: State) -> FloatArray:
        return np.sqrt(self.known_variances(draws, agent_state["variance"].T).T)

    def differences(self, draws: MixedGlobals) -> Differences:
        agents = np.eye(draws.coef.shape[2]) * draws.agent_effect_scale[:, None, :] ** 2
        return Differences(draws.effect_covariance, agents, np.asarray(draws.noise_scale), self.entity_shape(draws))

    def new_variances(self, draws: MixedGlobals) -> FloatArray:
        """(draws,) noise variances of a new entity: quantiles of their law, spread evenly over the draws."""
        scale = np.asarray(draws.noise_scale)
        shape = np.asarray(draws.noise_shape)
        levels = (np.arange(1, len(scale) + 1) * GOLDEN) % 1.0
        return scale**2 * covariance.variance_ratios(shape, levels)

    def noise_scales(self, draws: MixedGlobals) -> FloatArray:
        """s, the typical noise, the same for every cluster."""
        return np.repeat(draws.noise_scale, draws.n_clusters).reshape(-1, draws.n_clusters)


@register
class MixedEntityNoise(Mixed):
    """Every entity has its own noise."""

    name: ClassVar[str] = "mixed, entity noise"
    noise_of_entities: ClassVar[bool] = True


@register
class MixedCommonNoise(Mixed):
    """All entities have the same noise."""

    name: ClassVar[str] = "mixed, common noise"


def _roots(covariances: FloatArray) -> FloatArray:
    """(lane groups, q, q, lanes) Λ of (draws, q, q) covariances, which may be singular."""
    n_draws, size, _ = covariances.shape
    roots = np.array([covariance.root(own) for own in covariances])
    padding = -n_draws % DRAWS_AT_ONCE
    roots = np.concatenate([roots, np.zeros((padding, size, size))])
    grouped = roots.reshape(len(roots) // DRAWS_AT_ONCE, DRAWS_AT_ONCE, size, size)
    return np.ascontiguousarray(grouped.transpose(0, 2, 3, 1))
