"""What the server computes in clusters of mixed models: which effects there are, and draws given the agents' sums.

See `model.mixed` for the model, and `model.covariance` for the variances of effects.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.kernels import effective
from fedhlcr.model import conjugate, covariance
from fedhlcr.model.arguments import EffectShift, Recentred
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.mixed_globals import EFFECTS, EVIDENCE, MixedGlobals
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import LOG_2PI
from fedhlcr.model.schema import GRAMS, Stage
from fedhlcr.model.sums import ClusterSums

# effects="auto" gives agents effects only if they have so many entities each on average.
ENTITIES_PER_AGENT = 1.5
# Beside several clusters, effects="auto" leaves out effects whose score statistic is below so many standard deviations.
# The bar is low, because effects that are not needed are learned to be small. A single cluster leaves out none: as long
# as entities have no intercepts of their own, these hide the evidence for their slopes.
ENOUGH_EVIDENCE = 1.0
# The same for slopes of agents, if there are fewer agents than so many: from a handful it is hard to learn that such
# effects are small.
CLEAR_EVIDENCE = 3.0
ENOUGH_AGENTS = 8
# Starting values when effects are switched on: variances of entities' effects relative to the target's, beside several
# clusters and beside a single one; variances of agents' effects relative to those; the shape of the noise.
START_VARIANCE = 0.01
START_VARIANCE_ALONE = 0.1
START_RATIO = 0.1
START_SHAPE = 25.0
# The least shape ν of the entities' noise, and the same where fewer than so many events are left to tell noise from
# effects. Below, the noise of an entity that happens to fit well could collapse to zero.
LEAST_SHAPE = 6.0
LEAST_SHAPE_OF_FEW = 20.0
ENOUGH_FREE_EVENTS = 50.0
# Below this, a variance counts as 0.
TINY = 1e-300
# The least noise scale, relative to the target's spread: without it, noise vanishes where a target has none.
LEAST_NOISE = 1e-4


def start_variances(layout: GramLayout, sums: ClusterSums, spec: ModelSpec) -> FloatArray:
    """(n_coef,) variances of the entities' effects when they are switched on."""
    alone = sums.occupied.sum() == 1
    # features that are not standardised may be so large that effects of this size would drown the target
    of_features = np.ones(layout.n_coef)
    of_features[layout.n_coef - layout.n_features :] = np.maximum(1.0, variances_within(layout, sums))
    return (START_VARIANCE_ALONE if alone else START_VARIANCE) * spec.target_spread**2 / of_features


def variances_within(layout: GramLayout, sums: ClusterSums) -> FloatArray:
    """(n_features,) variance of each feature within entities."""
    within = np.array([sums.scalars[f"within_{f}"] for f in range(layout.n_features)])
    return within / max(sums.scalars["events"], 1.0)


def evidence_scalars(layout: GramLayout, sums: ClusterSums) -> list[FloatArray]:
    """What agents have added up for score tests, (n_coef,) each, in the order of EVIDENCE."""
    return [np.array([sums.scalars[f"{kind}_{f}"] for f in range(layout.n_coef)]) for kind in EVIDENCE]


class EffectEvidence(NamedTuple):
    """Score statistics from the plain stage; each has mean 0 and standard deviation 1 if there is nothing to find."""

    of_entities: FloatArray  # (n_coef,)
    of_agents: FloatArray  # (n_coef,)
    of_noise: float  # that entities differ in their noise

    @classmethod
    def of(cls, layout: GramLayout, sums: ClusterSums) -> EffectEvidence:
        excess, squares, agent_excess, agent_variance = evidence_scalars(layout, sums)
        noise = sums.scalars["noise_excess"] / np.sqrt(max(sums.scalars["noise_squares"], TINY))
        of_agents = agent_excess / np.sqrt(np.maximum(agent_variance, TINY))
        return cls(excess / np.sqrt(np.maximum(2.0 * squares, TINY)), of_agents, float(noise))

    @property
    def is_clear(self) -> bool:
        return bool(max(self.of_entities.max(), self.of_agents.max(), self.of_noise) > CLEAR_EVIDENCE)

    def allows_effects(self, sums: ClusterSums, spec: ModelSpec) -> bool:
        """False if the clusters found explain everything, so that some evidence by chance means nothing."""
        return spec.effects != "auto" or sums.occupied.sum() == 1 or self.is_clear


def effect_coefficients(
    layout: GramLayout, sums: ClusterSums, spec: ModelSpec, evidence: EffectEvidence
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which coefficients have effects of entities, and which of agents, (n_coef,) each.

    The intercept has effects, and so has a feature that varies within entities. With `effects="auto"`,
    effects of agents, and beside several clusters those of entities, need some evidence by a score test, each
    coefficient for itself. Agents must be several, with several entities each, and slopes of a few agents need
    clear evidence.
    """
    within = variances_within(layout, sums)
    varies = np.concatenate([np.ones(layout.n_coef - len(within), dtype=bool), within > 1e-9])
    # curves belong to clusters, not to entities
    varies[layout.n_linear :] = False
    of_entities = varies & (spec.effects != "none")
    of_agents = varies & (spec.effects == "entity+agent") & (sums.scalars["agents"] >= 2)
    if spec.effects == "auto":
        of_entities &= (evidence.of_entities > ENOUGH_EVIDENCE) | (sums.occupied.sum() == 1)
        n_agents = sums.scalars["agents"]
        n_entities = sums.entity_counts.sum()
        weak = (n_agents >= ENOUGH_AGENTS) | _is_intercept(layout, np.arange(len(varies)))
        bar = np.where(weak, ENOUGH_EVIDENCE, CLEAR_EVIDENCE)
        of_agents = varies & (n_agents >= 2) & (n_entities >= ENTITIES_PER_AGENT * n_agents)
        of_agents &= evidence.of_agents > bar
        if not evidence.allows_effects(sums, spec):
            of_entities = of_agents = np.zeros_like(varies)
    return of_entities, of_agents


def _is_intercept(layout: GramLayout, coefficients: IndexArray) -> NDArray[np.bool_]:
    return (coefficients == 0) & layout.fit_intercept


def rescaled(
    layout: GramLayout,
    drawn: MixedGlobals,
    sums: ClusterSums,
    spec: ModelSpec,
    rng: np.random.Generator,
    *,
    has_entity_noise: bool,
) -> MixedGlobals:
    """s² | residuals, where the noise of all entities is scaled along with s.

    Where entities have few events, their σ² depend so much on s² that s² | σ² alone would hardly move.
    """
    if drawn.stage != Stage.EXACT and not drawn.is_plain:
        # the data matrices are effective ones, from which residuals cannot be computed
        n_events = sums.scalars["squared_events"]
        squares = np.asarray(sums.scalars["squares"])
    else:
        # matrices of the stage before, effective ones, do not count events, so these are counted on their own
        n_events = sums.scalars["events"]
        squares = layout.rss(sums.grams, drawn.coef).sum()
    if not has_entity_noise:
        prior = spec.hyperpriors.for_spread(spec.target_spread).noise_variance
        scale = float(np.sqrt(conjugate.draw_variance(rng, prior, n_events, squares))) if n_events else None
        return drawn if scale is None else replace(drawn, noise_scale=scale, noise_unit=scale)
    if n_events < 2.0 or squares <= 0.0:
        return drawn
    # s² ~ Gamma(½, rate) a priori: a proposal without the prior's exp(−rate·s²), which then decides about it
    old = drawn.noise_scale**2
    rate = 0.5 / spec.target_spread**2
    new = 0.5 * squares * old / drawn.noise_unit**2 / rng.standard_gamma(0.5 * (n_events - 1.0))
    if new < (LEAST_NOISE * spec.target_spread) ** 2 or np.log(rng.random()) >= rate * (old - new):
        return drawn
    unit = drawn.noise_unit * float(np.sqrt(new / old))
    return replace(drawn, noise_scale=float(np.sqrt(new)), noise_unit=unit)


def with_entity_noise(
    drawn: MixedGlobals, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator
) -> MixedGlobals:
    """s² | ν, σ and ν | s², σ."""
    n = sums.scalars["noisy_entities"]
    unit = drawn.noise_unit**2
    if n == 0.0:
        return drawn
    precisions = sums.scalars["precisions"] / unit
    if spec.noise_scale is None:
        # a weak Gamma(½, ½/spread²) prior of s²
        shape = 0.5 + 0.5 * n * drawn.noise_shape
        rate = 0.5 / spec.target_spread**2 + 0.5 * drawn.noise_shape * precisions
        drawn_scale = np.sqrt(rng.standard_gamma(shape) / rate)
        drawn = replace(drawn, noise_scale=max(float(drawn_scale), LEAST_NOISE * spec.target_spread))
    log_ratios = sums.scalars["log_variances"] + n * np.log(unit / drawn.noise_scale**2)
    # the least ν is high where few events are left after an effect for each coefficient of each entity
    free = sums.scalars["events"] - len(drawn.effect_columns) * sums.entity_counts.sum()
    least = LEAST_SHAPE if free >= ENOUGH_FREE_EVENTS else LEAST_SHAPE_OF_FEW
    shape = covariance.draw_shape(rng, n, log_ratios, precisions * drawn.noise_scale**2, least)
    return replace(drawn, noise_shape=shape)


def with_effect_covariance(
    layout: GramLayout, drawn: MixedGlobals, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator
) -> MixedGlobals:
    used = drawn.effect_columns
    moments = effect_moments(layout, sums.blocks[EFFECTS].sum(axis=0))
    if not len(used) or moments[0, 0] == 0.0:
        return drawn
    squares = moments[1:, 1:][np.ix_(used, used)]
    prior = spec.hyperpriors.for_spread(spec.target_spread).entity_effects
    is_intercept = _is_intercept(layout, used)
    scales = np.where(is_intercept, prior.intercept, drawn.slope_scale)
    current = drawn.effect_covariance[np.ix_(used, used)]
    own, auxiliary = covariance.draw_covariance(rng, current, squares, moments[0, 0], scales)
    whole = np.zeros_like(drawn.effect_covariance)
    whole[np.ix_(used, used)] = own
    slope_scale = covariance.draw_scale(rng, auxiliary[~is_intercept], prior)
    return replace(drawn, effect_covariance=whole, slope_scale=slope_scale)


def with_agent_scales(
    layout: GramLayout, drawn: MixedGlobals, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator
) -> MixedGlobals:
    """τ | a, each for itself: the agents are too few for correlations."""
    used = np.flatnonzero(drawn.agent_effect_scale > 0.0)
    n = sums.scalars["agents_with_effects"]
    if not len(used) or n == 0.0:
        return drawn
    squares = np.array([sums.scalars[f"agent_effect_{f}"] for f in used])
    prior = spec.hyperpriors.for_spread(spec.target_spread).agent_effects
    is_intercept = _is_intercept(layout, used)
    scales = np.where(is_intercept, prior.intercept, drawn.agent_slope_scale)
    auxiliary = rng.standard_gamma(1.5, len(used)) / (2.0 / drawn.agent_effect_scale[used] ** 2 + scales**-2.0)
    variance = (2.0 * auxiliary + 0.5 * squares) / rng.standard_gamma(1.0 + 0.5 * n, len(used))
    scale = np.zeros_like(drawn.agent_effect_scale)
    scale[used] = np.sqrt(variance)
    slope_scale = covariance.draw_scale(rng, auxiliary[~is_intercept], prior)
    return replace(drawn, agent_effect_scale=scale, agent_slope_scale=slope_scale)


def recentre(
    layout: GramLayout, sums: ClusterSums, drawn: MixedGlobals, rng: np.random.Generator
) -> Recentred[MixedGlobals]:
    """w | β: precision N D⁻¹ + diag(δ⁻²), right side D⁻¹ Σβ + μ/δ². Then b = β − w changes for every entity."""
    used = drawn.effect_columns
    if drawn.stage != Stage.EXACT or not len(used):
        return Recentred(drawn, None)
    moments = effect_moments(layout, sums.blocks[EFFECTS])
    n = moments[:, 0, 0]
    coef = drawn.coef[:, used]
    total = moments[:, 0, 1:][:, used] + n[:, None] * coef
    inverse = covariance.inverse(drawn.effect_covariance[np.ix_(used, used)])
    prior = drawn.coef_scale[used] ** -2.0
    precision = n[:, None, None] * inverse + np.diag(prior)
    linear = total @ inverse + drawn.coef_mean[used] * prior
    lower = np.linalg.cholesky(precision)
    half = np.linalg.solve(lower, linear[..., None])[..., 0] + rng.standard_normal(linear.shape)
    new = np.linalg.solve(np.swapaxes(lower, 1, 2), half[..., None])[..., 0]
    shift = np.zeros_like(drawn.coef)
    shift[:, used] = np.where(n[:, None] > 0.0, coef - new, 0.0)
    return Recentred(replace(drawn, coef=drawn.coef - shift), shift)


def shifted(layout: GramLayout, blocks: dict[str, FloatArray], shift: EffectShift) -> dict[str, FloatArray]:
    """b grows by the shift, so y − xᵀ(a + b) falls by xᵀshift: a congruence of both matrices."""
    data = blocks[GRAMS]
    if shift.targets.any():
        rows = np.arange(len(data))
        data = data.copy()
        effective.move_targets(data, rows, rows, shift.targets, layout.first_regressor)
    moments = effect_moments(layout, blocks[EFFECTS])
    n = moments[:, :1, :1]
    totals = moments[:, 1:, :1]
    column = shift.effects[:, : layout.n_linear, None]
    moments[:, 1:, 1:] += totals @ np.swapaxes(column, 1, 2) + column @ np.swapaxes(totals + n * column, 1, 2)
    moments[:, 1:, :1] = totals + n * column
    rows, columns = _lower(layout.n_linear + 1)
    return {**blocks, GRAMS: data, EFFECTS: moments[:, rows, columns]}


def effect_moments(layout: GramLayout, packed: FloatArray) -> FloatArray:
    """(..., 1 + n_linear, 1 + n_linear) Σ (1, b)(1, b)ᵀ."""
    size = layout.n_linear + 1
    rows, columns = _lower(size)
    full = np.zeros((*packed.shape[:-1], size, size))
    full[..., rows, columns] = full[..., columns, rows] = packed
    return full


@cache
def _lower(size: int) -> tuple[IndexArray, IndexArray]:
    """Rows and columns of the packed entries of moments of effects."""
    return np.tril_indices(size)


def log_effects(layout: GramLayout, sums: ClusterSums, current: MixedGlobals) -> float:
    """The log density of the entities' effects."""
    used = current.effect_columns
    if not len(used):
        return 0.0
    own = current.effect_covariance[np.ix_(used, used)]
    moments = effect_moments(layout, sums.blocks[EFFECTS].sum(axis=0))
    squares = (covariance.inverse(own) * moments[1:, 1:][np.ix_(used, used)]).sum()
    return float(-0.5 * (moments[0, 0] * (len(used) * LOG_2PI + np.linalg.slogdet(own)[1]) + squares))
