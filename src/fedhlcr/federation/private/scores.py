"""The agents' half of a private round: three blocks for each agent, around what the server broadcast.

For agent i and cluster k let G, e and X'(y − Xw) be the matrix, the number of events and the score of its entities in
the cluster, x in whitened coordinates, and a_i ≤ 1 the weight of the agent. It sends, each block clipped as one vector,

    scores      a_i X'(y − X w_k)/σ  for all clusters
    sizes       a_i e_k, and a_i (G_k − e_k Σ_k), with the broadcast's guess Σ_k of the cluster's second moments
    residuals   a_i (RSS/σ² − events), over all clusters

All are near zero on average if the broadcast is right, so the clips can be small, and with them the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import positive, square_finite
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.differential_privacy import RESIDUALS, SCORES, SIZES, PrivacyPlan
from fedhlcr.privacy.release import ClippedBlock, clip_rows
from fedhlcr.storage.records import stored

# The norm at which scores are clipped, in multiples of its root mean square if the broadcast is right.
SCORE_CLIP = 1.25
# How the clip of the sizes is divided between events and second moments; the squares add up to 1.
EVENTS_PART = 0.8
MOMENTS_PART = 0.6
# Norm of an agent's events by cluster at which they are clipped, in multiples of its events.
EVENTS_CLIP = 0.75
# Norm of deviating second moments at which they are clipped, in multiples of its root mean square for normal x.
DEVIATION_CLIP = 1.5
# RSS/σ² − events at which it is clipped, as a share of a typical agent's events.
RESIDUAL_CLIP = 0.5


@dataclass(frozen=True)
class RoundQuery:
    """What agents need to know of a round besides the law under which they draw labels. All of it is public.

    Attributes
    ----------
    coef : (clusters, n_coef) w_k in the units of the run
    noise_scale : σ
    whitening : (n_coef, n_coef) symmetric W, so that Wx has about unit second moments
    second_moments : (clusters, n_coef, n_coef) Σ_k of Wx
    typical_events, most_events : of an agent
    """

    coef: FloatArray
    noise_scale: float
    whitening: FloatArray = stored("f8", "coef", "coef", possible=square_finite)
    second_moments: FloatArray = stored("f8", "clusters", "coef", "coef", possible=square_finite)
    typical_events: float = stored(float, possible=positive)
    most_events: float = stored(float, possible=positive)

    @property
    def n_clusters(self) -> int:
        return len(self.coef)

    @property
    def n_coef(self) -> int:
        return self.coef.shape[1]

    @property
    def score_clip(self) -> float:
        return SCORE_CLIP * float(np.sqrt(self.typical_events * self.n_coef))

    @property
    def events_clip(self) -> float:
        return EVENTS_CLIP * self.most_events

    @property
    def deviation_clip(self) -> float:
        return DEVIATION_CLIP * float(np.sqrt(self.typical_events * self.n_coef * (self.n_coef + 1)))

    @property
    def residual_clip(self) -> float:
        return RESIDUAL_CLIP * self.typical_events

    def blocks(self, plan: PrivacyPlan) -> tuple[ClippedBlock, ClippedBlock, ClippedBlock]:
        """The three blocks of the round."""
        packed = self.n_coef * (self.n_coef + 1) // 2
        sizes = {SCORES: self.n_coef, SIZES: 1 + packed}
        return (
            *(ClippedBlock(name, self.n_clusters * size, plan.mu_of(name)) for name, size in sizes.items()),
            ClippedBlock(RESIDUALS, 1, plan.mu_of(RESIDUALS)),
        )  # type: ignore[return-value]


@dataclass(frozen=True)
class ClusterRows:
    """Gram matrices of agents by cluster, without the clusters in which an agent has no entity.

    Attributes
    ----------
    grams : (rows, packed) in the units of the run
    agents : (rows,) positions of the agents
    clusters : (rows,)
    n_agents : number of agents, with or without rows
    """

    grams: FloatArray
    agents: IndexArray
    clusters: IndexArray
    n_agents: int


def agent_blocks(rows: ClusterRows, layout: GramLayout, query: RoundQuery) -> tuple[FloatArray, FloatArray, FloatArray]:
    """For each block, (agents, size) in units of its clip, before `release.clip_rows`."""
    x = slice(layout.first_regressor, layout.width - 1)
    whitening = query.whitening
    full = layout.unpack(rows.grams)
    events = full[:, 0, 0]
    weight = _weights(rows, events, query.most_events)
    residual = np.concatenate([-query.coef, np.ones((query.n_clusters, 1))], axis=1)[rows.clusters]
    applied = np.einsum("rfg,rg->rf", full[:, layout.first_regressor :, layout.first_regressor :], residual)
    scores = applied[:, :-1] @ whitening * (weight / (query.noise_scale * query.score_clip))[:, None]
    moments = whitening @ full[:, x, x] @ whitening - events[:, None, None] * query.second_moments[rows.clusters]
    deviations = pack_symmetric(moments) * (weight / query.deviation_clip)[:, None]
    shape = (rows.n_agents, query.n_clusters)
    counted = clip_rows(_dense(rows, (events * weight / query.events_clip)[:, None], shape)[..., 0])[..., None]
    moved = clip_rows(_dense(rows, deviations, shape).reshape(rows.n_agents, -1)).reshape(*shape, -1)
    sizes = np.concatenate([EVENTS_PART * counted, MOMENTS_PART * moved], axis=2)
    excess = (np.einsum("rf,rf->r", applied, residual) / query.noise_scale**2 - events) * weight / query.residual_clip
    excesses: FloatArray = np.bincount(rows.agents, excess, minlength=rows.n_agents)[:, None].astype(np.float64)
    by_cluster = _dense(rows, scores, shape)
    return by_cluster.reshape(rows.n_agents, -1), sizes.reshape(rows.n_agents, -1), excesses


def _weights(rows: ClusterRows, events: FloatArray, most_events: float) -> FloatArray:
    """(rows,) the weight of each row's agent: one with more events than `most_events` counts as if it had so many."""
    totals = np.bincount(rows.agents, events, minlength=rows.n_agents)
    return np.minimum(1.0, most_events / np.maximum(totals, 1e-300))[rows.agents]


def _dense(rows: ClusterRows, values: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """(agents, clusters, size) the values of the rows at their places."""
    whole = np.zeros((*shape, values.shape[1]))
    whole[rows.agents, rows.clusters] = values
    return whole


def pack_symmetric(full: FloatArray) -> FloatArray:
    """(..., n(n + 1)/2) the lower triangle, √2 times off the diagonal: the norm is that of the full matrix."""
    lower, columns = np.tril_indices(full.shape[-1])
    return full[..., lower, columns] * np.where(lower == columns, 1.0, np.sqrt(2.0))


def unpack_symmetric(packed: FloatArray, n: int) -> FloatArray:
    """Undo `pack_symmetric`."""
    lower, columns = np.tril_indices(n)
    full = np.empty((*packed.shape[:-1], n, n))
    full[..., lower, columns] = full[..., columns, lower] = packed / np.where(lower == columns, 1.0, np.sqrt(2.0))
    return full
