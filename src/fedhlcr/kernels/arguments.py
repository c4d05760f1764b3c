"""Arguments and results of the label kernels: named tuples of arrays.

A *law* is the distribution from which a kernel draws labels. There are three, one for each kernel that draws labels:

    LabelLaw        relabel_agents    coefficients given (blocked sampler, delta rule)
    CollapsedLaw    collapsed_sweep   coefficients integrated out, given all other entities (Algorithm 2)
    BlendedLaw      blend_agents      coefficients integrated out, given blended statistics (blend rule, Algorithm 3)

They hold precomputed arrays for compiled code. The laws that travel in a broadcast are in `federation.laws`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import CountArray, FloatArray, IndexArray, KeyArray


class EntityArrays(NamedTuple):
    """Entities of some agents: their Gram matrices, which agent each belongs to, and the keys of their random draws."""

    grams: FloatArray  # (entities, packed)
    agent_start: IndexArray  # (agents + 1,) entities [agent_start[i], agent_start[i + 1]) belong to agent i
    entity_keys: KeyArray  # (entities,)
    agent_streams: KeyArray  # (agents,)


class LabelLaw(NamedTuple):
    """p(z = k) ∝ (N_ik + prior_weights_k) · exp(gram · score_rows_k), with N_ik the agent's other entities."""

    score_rows: FloatArray  # (clusters padded to LANES, packed): packed gram · row = log likelihood + constant
    prior_weights: FloatArray  # (clusters,) agent_concentration · cluster_weights
    agent_concentration: float
    round: int
    single_rows: NDArray[np.float32]  # the score rows in single precision; without rows if it is not used


class Remembered(NamedTuple):
    """What is remembered of an earlier sweep, so that entities whose labels are certain need no scores.

    A score is −RSS(w)/(2s²), and √RSS moves by at most reach · |change of w|: see `kernels.skipping`.
    """

    mode: int  # EVERYONE, REMEMBER or SKIP of `kernels.skipping`
    half_precision: float  # 1/(2s²)
    size: float  # largest |(−w, 1)|², which bounds rounding errors of scores
    moved: FloatArray  # (clusters,) how far coefficients are from those of the sweep that is remembered
    farthest: float  # the largest of these
    own_root: NDArray[np.float32]  # (entities,) √RSS at the label; infinite if it is not that of the remembered sweep
    other_root: NDArray[np.float32]  # (entities,) the least √RSS at another cluster
    reach: NDArray[np.float32]  # (entities,) √ of the trace of the Gram matrix


class AgentAnswers(NamedTuple):
    """What agents return besides their labels, one row for each agent."""

    entities: CountArray  # (agents, clusters) N_ik
    tables: CountArray  # (agents, clusters) m_ik
    scalars: FloatArray  # (agents, 4) named, in this order, by `model.schema.LABEL_SCALARS`


class CollapsedLaw(NamedTuple):
    """What is fixed during a collapsed sweep. Grams are divided by σ² beforehand, and hold the (x, y) block only."""

    prior_precision: FloatArray  # (packed,) the augmented precision of an empty cluster
    prior_weights: FloatArray  # (clusters,) βψ_k; not used with the paper's weights
    agent_concentration: float
    global_concentration: float  # α of the paper's weights; 0 uses prior_weights instead
    round: int


class BlendedLaw(NamedTuple):
    """What is fixed while blended agents draw. Grams are divided by σ² beforehand, and hold the (x, y) block only."""

    clusters: FloatArray  # (packed, clusters) augmented precisions [[A, b], [bᵀ, ·]]
    entity_counts: FloatArray  # (clusters,) N^(k)
    agent_concentration: float
    global_concentration: float
    round: int
