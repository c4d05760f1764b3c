"""Arguments and results of the label kernels, as named tuples of arrays.

Three kernels draw labels, each under terms of its own, so there are three laws:

    `LabelLaw`       coefficients are drawn              blocked Gibbs, and agents under the delta rule
    `CollapsedLaw`   coefficients are integrated out,    collapsed Gibbs, Algorithm 2
                     given all other entities
    `BlendedLaw`     coefficients are integrated out,    agents under the blend rule, Algorithm 3
                     given blended statistics

They hold precomputed arrays for compiled code. The laws that travel in a broadcast are in `federation.laws`.
"""

from __future__ import annotations

from typing import NamedTuple

from fedhlcr._support.arrays import CountArray, FloatArray, IndexArray, KeyArray


class EntityArrays(NamedTuple):
    """What a block of agents keeps: Gram matrices, who owns them, and the keys of their random draws."""

    grams: FloatArray  # (entities, packed)
    agent_start: IndexArray  # (agents + 1,)
    entity_keys: KeyArray  # (entities,)
    agent_streams: KeyArray  # (agents,)


class LabelLaw(NamedTuple):
    """How to score an entity, and how common the clusters are."""

    score_rows: FloatArray  # (clusters padded to LANES, packed): packed gram · row = log likelihood + constant
    prior_weights: FloatArray  # (clusters,) agent_concentration · cluster_weights
    agent_concentration: float
    round: int


class AgentAnswers(NamedTuple):
    """What agents answer besides their labels, a row each."""

    entities: CountArray  # (agents, clusters) N_ik
    tables: CountArray  # (agents, clusters) m_ik
    scalars: FloatArray  # (agents, 4) named, in this order, by `model.schema.LABEL_SCALARS`


class CollapsedLaw(NamedTuple):
    """What the collapsed sweep holds fixed. Grams are already divided by σ² and cut to the (x, y) block."""

    prior_precision: FloatArray  # (packed,) the augmented precision of an empty cluster
    prior_weights: FloatArray  # (clusters,) βψ_k; ignored under the paper's weights
    agent_concentration: float
    global_concentration: float  # > 0: the paper's weights; 0: prior_weights
    round: int


class BlendedLaw(NamedTuple):
    """What `blend_agents` holds fixed. Grams are already divided by σ² and cut to the (x, y) block."""

    clusters: FloatArray  # (packed, clusters) augmented precisions [[A, b], [bᵀ, ·]]
    entity_counts: FloatArray  # (clusters,) N^(k)
    agent_concentration: float
    global_concentration: float
    round: int
