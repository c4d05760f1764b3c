"""Replicated targets: draws from the predictive distribution of whole tables, for posterior predictive checks.

One replicate comes from one kept draw, as one fitted world would make the table again: every entity draws its label
from its label weights, then its coefficients given the label and its events, and every event its own noise. So the
events of an entity share what the model says they share, and so do all entities of a replicate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.kernels.mixtures import Mixture
from fedhlcr.kernels.profiles import DRAWS_AT_ONCE, OwnMixture
from fedhlcr.kernels.responses import CountMixture, ProbabilityMixture
from fedhlcr.model.gram import GramLayout
from fedhlcr.posterior.prediction import Posterior, Profiles
from fedhlcr.posterior.responses import CountLaws, MixtureRows

# Exponents are at most this, so that a count of any size can be drawn.
MOST_LOG_MEAN = 40.0


class EntityRows(NamedTuple):
    """Who shares a label and coefficients in a block of rows: an entity, known or new.

    Attributes
    ----------
    profile : (units,) position of each unit's mixture in the block
    is_known : (units,) whether the entity was fitted
    of_row : (rows,) the unit of each row
    """

    profile: IndexArray
    is_known: NDArray[np.bool_]
    of_row: IndexArray


def replicate(
    posterior: Posterior,
    X: FloatArray,
    profiles: Profiles,
    n_replicates: int,
    seed: int,
    *,
    newcomer: IndexArray | None = None,
    offset: FloatArray | None = None,
) -> FloatArray:
    """(n_replicates, rows) targets drawn from the predictive distribution of some events, in the user's units.

    Parameters
    ----------
    posterior, X, profiles, offset : as in `Posterior.predict`
    n_replicates : how many tables to draw; their kept draws are spread evenly over all of them
    seed : of the random numbers, which depend on it and on the number of the replicate
    newcomer : (rows,) a number for each new entity; None takes every event of a new entity as that of another one
    """
    out = np.empty((n_replicates, len(X)))
    stream = Stream(seed, ReservedChain.REPLICATION)
    draws = ((np.arange(n_replicates) + 0.5) / n_replicates * len(posterior.draws)).astype(np.int64)
    newcomer = np.arange(len(X)) if newcomer is None else newcomer
    for block, part in enumerate(posterior.mixtures(X, profiles, offset)):
        units = _units(part, profiles.entities[profiles.of_row[part.rows]] != UNKNOWN, newcomer[part.rows])
        for number, draw in enumerate(draws):
            rng = stream.generator(number, f"replicate, block {block}")
            out[number, part.rows] = _draw_rows(part, posterior, units, int(draw), rng)
    return posterior.standardization.restore_target(out)


def _units(part: MixtureRows, is_known: NDArray[np.bool_], newcomer: IndexArray) -> EntityRows:
    """One unit for each known entity, and one for each newcomer of a profile."""
    keys = np.column_stack([part.profile, np.where(is_known, -1, newcomer)])
    distinct, first, of_row = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return EntityRows(distinct[:, 0], is_known[first], of_row.reshape(-1))


def _draw_rows(
    part: MixtureRows, posterior: Posterior, units: EntityRows, draw: int, rng: np.random.Generator
) -> FloatArray:
    """(rows,) targets of one replicate, in standardised units."""
    mixture = part.mixture
    if isinstance(mixture, Mixture):
        return _draw_plain(mixture, part, len(posterior.draws), units, draw, rng)
    own = mixture.own if isinstance(mixture, ProbabilityMixture | CountMixture) else mixture
    coef = _draw_coef(own, posterior.layout, units, draw, rng)
    linear = (part.design * coef[units.of_row]).sum(axis=1) + part.offset
    if isinstance(mixture, ProbabilityMixture):
        return np.asarray(rng.random(len(linear)) < expit(linear), dtype=np.float64)
    if isinstance(mixture, CountMixture):
        return _draw_counts(mixture, linear, units, draw, rng)
    return np.asarray(linear + np.sqrt(_noise(own, units, draw, rng)) * rng.standard_normal(len(linear)))


def draw_labels(weights: FloatArray, rng: np.random.Generator) -> IndexArray:
    """(units,) a cluster for each row of weights (units, clusters)."""
    below = np.cumsum(weights, axis=1)
    reached = rng.random(len(weights))[:, None] * below[:, -1:]
    return np.asarray(np.minimum((below <= reached).sum(axis=1), weights.shape[1] - 1), dtype=np.int64)


def _draw_plain(
    mixture: Mixture, part: MixtureRows, n_draws: int, units: EntityRows, draw: int, rng: np.random.Generator
) -> FloatArray:
    """Targets around the regressions of the clusters themselves."""
    weights = mixture.weights.reshape(len(mixture.weights), n_draws, -1)[units.profile, draw]
    component = draw * weights.shape[1] + draw_labels(weights, rng)[units.of_row]
    mean = (part.design * mixture.coef[component]).sum(axis=1)
    return np.asarray(mean + mixture.scales[component] * rng.standard_normal(len(mean)))


def _draw_coef(
    own: OwnMixture, layout: GramLayout, units: EntityRows, draw: int, rng: np.random.Generator
) -> FloatArray:
    """(units, n_coef) coefficients w + a + b, with b from its posterior given the label; see `kernels.profiles`."""
    of = units.profile
    columns = own.columns - own.first
    labels = draw_labels(own.weights[of, draw], rng)
    coef = own.coef[draw, labels] + own.agent_effects[of, draw]
    group, lane = divmod(draw, DRAWS_AT_ONCE)
    root = own.roots[own.is_new_agent[of], group, :, :, lane]
    grams = layout.unpack(own.grams[of, draw if own.grams.shape[1] > 1 else 0]) / own.variance[of, draw, None, None]
    regressors = slice(own.first, own.first + coef.shape[1])
    own_rows = grams[:, own.columns]
    left = own_rows[:, :, -1] - np.einsum("uqc,uc->uq", own_rows[:, :, regressors], coef)
    inner = np.swapaxes(root, 1, 2) @ own_rows[:, :, own.columns] @ root + np.eye(len(columns))
    # b = Λu with u ~ N(B⁻¹Λᵀleft, B⁻¹) and B = LLᵀ: u = L⁻ᵀ(L⁻¹Λᵀleft + ε)
    lower = np.linalg.cholesky(inner)
    half = np.linalg.solve(lower, np.einsum("uqr,uq->ur", root, left)[..., None])
    half += rng.standard_normal(half.shape)
    steps = root @ np.linalg.solve(np.swapaxes(lower, 1, 2), half)
    coef[:, columns] += steps[..., 0]
    return coef


def _noise(own: OwnMixture, units: EntityRows, draw: int, rng: np.random.Generator) -> FloatArray:
    """(rows,) noise variances of the events.

    Where noise differs between new entities, or between events, the mixture has one value of its law in each draw.
    Each of them then takes that of any draw.
    """
    n_draws = own.noise.shape[1]
    if own.noise is not own.variance:
        own_draw = rng.integers(n_draws, size=len(units.of_row))
        return np.asarray(own.noise[units.profile[units.of_row], own_draw])
    own_draw = np.where(units.is_known, draw, rng.integers(n_draws, size=len(units.profile)))
    return np.asarray(own.noise[units.profile, own_draw][units.of_row])


def _draw_counts(
    mixture: CountMixture, linear: FloatArray, units: EntityRows, draw: int, rng: np.random.Generator
) -> FloatArray:
    """Negative binomial counts, as Poisson counts with Gamma means. A new agent takes the size of any draw."""
    is_new = mixture.own.is_new_agent[units.profile] == 1
    own_draw = np.where(is_new, rng.integers(mixture.log_size.shape[1], size=len(is_new)), draw)
    log_size = mixture.log_size[units.profile, own_draw][units.of_row]
    laws = CountLaws.of(np.minimum(linear, MOST_LOG_MEAN)[:, None], log_size[:, None])
    means = laws.means[:, 0]
    sizes = laws.sizes[:, 0]
    return np.asarray(rng.poisson(rng.gamma(sizes, means / sizes)), dtype=np.float64)
