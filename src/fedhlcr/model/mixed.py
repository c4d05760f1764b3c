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

The two halves of a round are `model.mixed_agents` and `model.mixed_server`; this module adds predictions, and the
likelihoods that users choose.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.kernels.profiles import DRAWS_AT_ONCE, OwnMixture
from fedhlcr.model import covariance
from fedhlcr.model.arguments import FittedEntities, ProfileData
from fedhlcr.model.differences import Differences
from fedhlcr.model.likelihood import register
from fedhlcr.model.mixed_globals import MixedGlobals
from fedhlcr.model.mixed_server import MixedServer
from fedhlcr.model.schema import State

# The fractional parts of its multiples are spread evenly over (0, 1), in an order that looks random.
GOLDEN = 0.6180339887498949


class Mixed(MixedServer):
    """What all noise models share; a subclass says whether the noise differs between entities."""

    _kept_roots: tuple[MixedGlobals | None, Any, Any] = (None, None, None)

    def has_plain_entities(self, draws: MixedGlobals) -> bool:
        """Whether there are neither effects nor noise of entities in any draw."""
        own, of_agents, _, shape = self.differences(draws)
        return not (own.any() or of_agents.any() or np.isfinite(shape).any())

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
        normal = self.layout.normal_equations(self.data_matrices(known))
        precision = 1.0 / self.variance(known.agent_state, current)
        gap = normal.xy - np.einsum("efg,eg->ef", normal.xx, base)
        own = normal.xx[:, columns[:, None], columns] * precision[:, None, None]
        lower = np.linalg.cholesky(np.eye(len(columns)) + root.T @ own @ root)
        half = np.linalg.solve(lower, (gap[:, columns] * precision[:, None] @ root)[..., None])
        drawn = np.linalg.solve(np.swapaxes(lower, 1, 2), half + normals[:, : len(columns), None])[..., 0]
        base[:, columns] += drawn @ root.T
        return np.asarray(base)

    def data_matrices(self, known: FittedEntities) -> FloatArray:
        """(entities, packed) the Gram matrices of which effects are drawn; those of weighted events differ."""
        return known.grams

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
        return Differences(
            draws.effect_covariance, agents, np.asarray(draws.noise_scale), np.asarray(draws.noise_shape)
        )

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
    noise_of_entities = True


@register
class MixedCommonNoise(Mixed):
    """All entities have the same noise."""

    name: ClassVar[str] = "mixed, common noise"
    noise_of_entities = False


def _roots(covariances: FloatArray) -> FloatArray:
    """(lane groups, q, q, lanes) Λ of (draws, q, q) covariances, which may be singular."""
    n_draws, size, _ = covariances.shape
    roots = np.array([covariance.root(own) for own in covariances])
    padding = -n_draws % DRAWS_AT_ONCE
    roots = np.concatenate([roots, np.zeros((padding, size, size))])
    grouped = roots.reshape(len(roots) // DRAWS_AT_ONCE, DRAWS_AT_ONCE, size, size)
    return np.ascontiguousarray(grouped.transpose(0, 2, 3, 1))
