"""What the label kernels take and give, in named tuples of arrays."""

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
    """What the agents are told: how to score an entity, and how common the clusters are."""

    score_rows: FloatArray  # (clusters padded to LANES, packed): packed gram · row = log likelihood + constant
    prior_weights: FloatArray  # (clusters,) agent_concentration · cluster_weights
    agent_concentration: float
    round: int


class AgentAnswers(NamedTuple):
    """What agents answer besides their labels, a row each."""

    entities: CountArray  # (agents, clusters) N_ik
    tables: CountArray  # (agents, clusters) m_ik
    scalars: FloatArray  # (agents, N_SCALARS), see below


# Columns of AgentAnswers.scalars.
LOG_BETA_DRAWS, BERNOULLI_DRAWS, LOG_LABEL_PRIOR, LABELS_CHANGED = range(4)
N_SCALARS = 4


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
