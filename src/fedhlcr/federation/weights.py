"""The weight of an agent's contribution in the server's sums: 1, or less if the agent would count for too much.

The server cannot tell a lie from odd data, but it can bound what a lie does. Each agent has *sizes*: its entities, its
events, the sum of squares of its target, and further sums of the likelihood. If a size is beyond a limit, everything
that the agent has contributed is multiplied by limit / size, as if its events had a weight below 1. Otherwise the
weight is exactly 1, and the sums are those without this module.

Why it suffices to bound the target: let H and L be the honest and the hostile agent's XᵀX in a cluster, and r the
hostile residuals around the honest coefficients. The least-squares coefficients move by d = (H + L)⁻¹L½u with
|u|² ≤ |r|², and the squared error of all honest events together grows by dᵀHd ≤ |r|²/4, since the eigenvalues of
L½(H + L)⁻¹H(H + L)⁻¹L½ are of the form hl/(h + l)² ≤ ¼. So the features may be anything.
"""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.federation.sums import AgentSums

# How many times the median agent any agent may count, by default.
MAX_WEIGHT = 5.0
# With fewer agents there is no telling what is usual.
FEWEST_AGENTS = 10
# Sizes within this many robust standard deviations of their logarithms are usual. Where agents are unequal (flights:
# the largest has 12 times the median number of events) the largest are at about 2.2.
USUAL_DEVIATIONS = 2.5
# An agent is never scaled down if it has less than this share of what all agents would have if they had the median.
SMALL_SHARE = 0.03
# Squares of the target differ more between honest agents than events and entities do. They differ still more if they
# are over noise variances, and so do the other sums. With these factors hardly any agent of the tables of RESULTS.md
# is scaled down: two or three airlines of the flights, in some runs with effects.
OF_TARGET = 3.0
OF_WEIGHTED_TARGET = 20.0
OF_OTHERS = 30.0
# The standard deviation of a normal law over its median absolute deviation.
NORMAL_RATIO = 1.4826


def agent_sizes(sums: AgentSums) -> FloatArray:
    """(agents, sizes): entities, events, squares of the target, and what else the likelihood limits."""
    grams = sums.grams
    schema = sums.schema
    entities = sums.by_agent(sums.entity_counts)
    events = sums.by_agent(grams[:, 0]) if schema.counts_events else sums.scalar("events")
    sizes = [entities, events, sums.by_agent(grams[:, -1])]
    groups: dict[str, FloatArray] = {}
    for scalar in schema.scalars:
        if scalar.limited_as:
            # the number of entities is added because a sum of logarithms may be near zero
            groups[scalar.limited_as] = groups.get(scalar.limited_as, entities) + np.abs(sums.scalar(scalar.name))
    sizes += groups.values()
    for block in schema.blocks:
        if block.is_moments:
            # of all coefficients together: some hardly vary, and then single agents differ much
            squares = sums.blocks[block.name][:, block.diagonal[1:]].sum(axis=1)
            sizes.append(sums.by_agent(squares))
    return np.column_stack(sizes)


def agent_weights(sizes: FloatArray, max_weight: float, *, counts_events: bool = True) -> FloatArray:
    """(agents,) the weight of each agent, from the sizes (agents, sizes) of all.

    `max_weight` is how many times the median the number of events and entities may be in any case. `counts_events` says
    whether matrices count events as they are, `model.schema`.
    """
    weights = np.ones(len(sizes))
    factors = np.full(sizes.shape[1], OF_OTHERS)
    factors[:3] = 1.0, 1.0, OF_TARGET if counts_events else OF_WEIGHTED_TARGET
    for size, factor in zip(sizes.T, factors, strict=True):
        limit = usual_limit(size, factor * max_weight)
        beyond = size > limit
        weights[beyond] = np.minimum(weights[beyond], limit / size[beyond])
    return weights


def usual_limit(sizes: FloatArray, factor: float) -> float:
    """The largest usual size, from the median and the median absolute deviation of the logarithms.

    Neither moves far as long as fewer than half of the agents are odd. Agents of size 0 do not count.
    """
    present = sizes[sizes > 0.0]
    if len(present) < FEWEST_AGENTS:
        return float("inf")
    logs = np.log(present)
    middle = np.median(logs)
    deviation = NORMAL_RATIO * np.median(np.abs(logs - middle))
    multiple = max(np.log(max(factor, SMALL_SHARE * len(present))), USUAL_DEVIATIONS * deviation)
    # no overflow where the largest numbers are usual
    return float(np.exp(min(middle + multiple, 700.0)))
