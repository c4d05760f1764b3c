"""The server's half of a private round: regressions, sizes and noise of the clusters, from noisy sums alone.

Regressions follow by a Kalman filter. In whitened coordinates, with G_k = e_k Σ_k, a round's noisy score is

    r_k = G_k (w*_k − w_k) + error,   error ~ N(0, τσ²G_k + s²I)

where w*_k is the regression that fits the cluster, s the noise that was added, and τ stands for labels that keep
changing. Between rounds w*_k moves by N(0, q I), less and less. What is computed here costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.federation.private.scores import EVENTS_PART, MOMENTS_PART, RoundQuery, unpack_symmetric
from fedhlcr.privacy.differential_privacy import RESIDUALS, SCORES, SIZES, PrivacyPlan

# Variance of the score that comes from labels that change, as a share of σ²G.
LABEL_NOISE = 0.05
# How far regressions move between rounds: variance in units of σ²/n_coef, and its decay in the second half of the run.
MOTION = 0.5
MOTION_DECAY = 0.75
# How far sizes move between rounds, in units of the mean size, and what is seen as no events, in standard deviations.
EVENT_MOTION = 0.3
EVENT_FLOOR = 0.7
# Second moments: prior standard deviation of an entry, and how far it moves between rounds.
MOMENT_PRIOR = 0.5
MOMENT_MOTION = 0.1
LEAST_MOMENT = 0.1
# Clusters merge between these shares of the rounds.
MERGE_FROM = 0.34
MERGE_UNTIL = 0.67
# σ² changes at most by these factors in a round, and stays between these multiples of the target's variance, 1.
SLOWEST = 0.3
LEAST_VARIANCE = 1e-6
MOST_VARIANCE = 2.0
# Norm of a regression in whitened coordinates, where the target's spread is 1: noise must not carry it farther.
LONGEST = 5.0


@dataclass(frozen=True)
class ClusterEstimates:
    """What the server knows of the clusters, in whitened coordinates and units of the run.

    Attributes
    ----------
    coef : (clusters, n_coef) w_k
    covariance : (clusters, n_coef, n_coef) of their errors
    events : (clusters,) estimated numbers of events
    event_variance : of their errors
    second_moments : (clusters, n_coef, n_coef) Σ_k
    moment_variance : (clusters,) of the errors of an entry of Σ_k
    variance : σ²
    """

    coef: FloatArray
    covariance: FloatArray
    events: FloatArray
    event_variance: float
    second_moments: FloatArray
    moment_variance: FloatArray
    variance: float

    @classmethod
    def start(cls, n_clusters: int, n_coef: int, n_events: float, rng: np.random.Generator) -> ClusterEstimates:
        """Different regressions of about the target's spread, which is 1, and equal sizes."""
        return cls(
            start_coef(n_clusters, n_coef, rng),
            np.tile(np.eye(n_coef) / n_coef, (n_clusters, 1, 1)),
            np.full(n_clusters, n_events / n_clusters),
            (n_events / n_clusters) ** 2,
            np.tile(np.eye(n_coef), (n_clusters, 1, 1)),
            np.full(n_clusters, MOMENT_PRIOR**2),
            1.0,
        )

    @property
    def n_clusters(self) -> int:
        return len(self.coef)

    @property
    def n_coef(self) -> int:
        return self.coef.shape[1]

    @property
    def log_weights(self) -> FloatArray:
        """(clusters,) log ψ."""
        sizes = self.likely_events
        return np.log(sizes / sizes.sum())

    @property
    def likely_events(self) -> FloatArray:
        """(clusters,) numbers of events that are not below what the noise can hide."""
        return np.maximum(self.events, EVENT_FLOOR * np.sqrt(self.event_variance) + 1.0)

    @property
    def information(self) -> FloatArray:
        """(clusters, n_coef, n_coef) G_k."""
        return self.likely_events[:, None, None] * self.second_moments


def start_coef(n_clusters: int, n_coef: int, rng: np.random.Generator) -> FloatArray:
    return rng.standard_normal((n_clusters, n_coef)) * 0.7 / np.sqrt(n_coef)


@dataclass(frozen=True)
class Noisy:
    """The noisy sums of a round, in natural units, with the standard deviations of their noise."""

    scores: FloatArray  # (clusters, n_coef) X'(y − Xw)
    score_noise: float
    events: FloatArray  # (clusters,)
    event_noise: float
    deviations: FloatArray  # (clusters, n_coef, n_coef) G_k − e_k Σ_k
    deviation_noise: float
    residuals: float  # RSS/σ² − events

    @classmethod
    def of(cls, sums: dict[str, FloatArray], query: RoundQuery, plan: PrivacyPlan) -> Noisy:
        n = query.n_coef
        sigma = query.noise_scale
        sizes = sums[SIZES].reshape(query.n_clusters, -1)
        scores = sums[SCORES].reshape(query.n_clusters, n) * (query.score_clip * sigma)
        event_unit = query.events_clip / EVENTS_PART
        deviation_unit = query.deviation_clip / MOMENTS_PART
        return cls(
            scores,
            query.score_clip * sigma / plan.mu_of(SCORES),
            sizes[:, 0] * event_unit,
            event_unit / plan.mu_of(SIZES),
            unpack_symmetric(sizes[:, 1:], n) * deviation_unit,
            deviation_unit / plan.mu_of(SIZES),
            float(sums[RESIDUALS][0]) * query.residual_clip,
        )


def update(clusters: ClusterEstimates, noisy: Noisy, number: int, n_rounds: int) -> ClusterEstimates:
    """The clusters after round `number`, counted from 0."""
    clusters = _with_sizes(clusters, noisy, number, n_rounds)
    clusters = _with_moments(clusters, noisy)
    clusters = _with_coef(clusters, noisy, number, n_rounds)
    change = noisy.residuals / max(clusters.events.sum(), 1.0)
    variance = clusters.variance * float(np.clip(1.0 + change, SLOWEST, 1.0 / SLOWEST))
    return replace(clusters, variance=min(max(variance, LEAST_VARIANCE), MOST_VARIANCE))


def _with_sizes(clusters: ClusterEstimates, noisy: Noisy, number: int, n_rounds: int) -> ClusterEstimates:
    mean = max(clusters.events.mean(), 1.0)
    motion = EVENT_MOTION * mean * MOTION_DECAY ** max(0, number - n_rounds // 2)
    prior = clusters.event_variance + motion**2
    gain = prior / (prior + noisy.event_noise**2)
    events = clusters.events + gain * (noisy.events - clusters.events)
    return replace(clusters, events=events, event_variance=(1.0 - gain) * prior)


def _with_moments(clusters: ClusterEstimates, noisy: Noisy) -> ClusterEstimates:
    """A filter for each entry of Σ_k, whose observation is the deviation for each event."""
    events = clusters.likely_events
    error = (noisy.deviation_noise / events) ** 2
    prior = clusters.moment_variance + MOMENT_MOTION**2
    gain = prior / (prior + error)
    moments = clusters.second_moments + (gain / events)[:, None, None] * noisy.deviations
    values, vectors = np.linalg.eigh(moments)
    sound = (vectors * np.maximum(values, LEAST_MOMENT)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return replace(clusters, second_moments=sound, moment_variance=(1.0 - gain) * prior)


def _with_coef(clusters: ClusterEstimates, noisy: Noisy, number: int, n_rounds: int) -> ClusterEstimates:
    eye = np.eye(clusters.n_coef)
    information = clusters.information
    motion = MOTION * clusters.variance / clusters.n_coef * MOTION_DECAY ** max(0, number - n_rounds // 2)
    error = LABEL_NOISE * clusters.variance * information + noisy.score_noise**2 * eye
    weighted = np.linalg.solve(error, information).transpose(0, 2, 1)
    precision = np.linalg.inv(clusters.covariance + motion * eye) + weighted @ information
    covariance: FloatArray = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    step = covariance @ weighted @ noisy.scores[:, :, None]
    coef = clusters.coef + step[..., 0]
    length = np.maximum(np.linalg.norm(coef, axis=1, keepdims=True) / LONGEST, 1.0)
    return replace(clusters, coef=coef / length, covariance=covariance)


def merge(clusters: ClusterEstimates, n_wanted: int | None) -> tuple[ClusterEstimates, IndexArray]:
    """Merge clusters whose regressions do not differ, and go on down to `n_wanted`; return also the new numbers.

    Two clusters are merged if the data are more likely under one regression than under two, whose difference has the
    variance of the regressions' prior: a Bayes factor from the estimates and their covariances.
    """
    target = np.arange(clusters.n_clusters)
    errors = clusters.covariance + clusters.variance * np.linalg.inv(clusters.information)
    while clusters.n_clusters > 1:
        spread = max(float((clusters.coef**2).mean()), 1e-6)
        factors = _log_factors(clusters.coef, errors, spread)
        first, second = np.unravel_index(factors.argmin(), factors.shape)
        over = n_wanted is not None and clusters.n_clusters > n_wanted
        if factors[first, second] >= 0.0 and not over:
            break
        clusters, errors = _merge_pair(clusters, errors, int(first), int(second))
        target = np.where(target == second, first, target)
        target = np.where(target > second, target - 1, target)
    return clusters, target


def _log_factors(coef: FloatArray, errors: FloatArray, spread: float) -> FloatArray:
    """(clusters, clusters) log of p(difference | two regressions) / p(difference | one); inf below the diagonal."""
    n_clusters, n_coef = coef.shape
    out = np.full((n_clusters, n_clusters), np.inf)
    first, second = np.triu_indices(n_clusters, 1)
    difference = coef[first] - coef[second]
    error = errors[first] + errors[second]
    both = error + 2.0 * spread * np.eye(n_coef)
    quadratic = [
        np.einsum("pf,pf->p", difference, np.linalg.solve(m, difference[..., None])[..., 0]) for m in (both, error)
    ]
    log_det = [np.linalg.slogdet(m)[1] for m in (both, error)]
    out[first, second] = 0.5 * (quadratic[1] - quadratic[0] + log_det[1] - log_det[0])
    return out


def _merge_pair(
    clusters: ClusterEstimates, errors: FloatArray, first: int, second: int
) -> tuple[ClusterEstimates, FloatArray]:
    sizes = np.maximum(clusters.events[[first, second]], 1.0)
    share = sizes / sizes.sum()

    def mixed(values: FloatArray) -> FloatArray:
        values = values.copy()
        values[first] = np.tensordot(share, values[[first, second]], axes=1)
        return np.delete(values, second, axis=0)

    def pooled(matrices: FloatArray) -> FloatArray:
        matrices = matrices.copy()
        matrices[first] = np.linalg.inv(np.linalg.inv(matrices[first]) + np.linalg.inv(matrices[second]))
        return np.delete(matrices, second, axis=0)

    events = clusters.events.copy()
    events[first] += events[second]
    merged = replace(
        clusters,
        coef=mixed(clusters.coef),
        covariance=pooled(clusters.covariance),
        events=np.delete(events, second),
        second_moments=mixed(clusters.second_moments),
        moment_variance=mixed(clusters.moment_variance),
    )
    return merged, pooled(errors)
