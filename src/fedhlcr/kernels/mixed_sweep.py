"""The agents' half of a sweep with effects: labels, effects and noise of a few agents at a time.

Effective matrices and what draws need of them are several times as large as Gram matrices. Those of a few agents stay
in the cache of one core from where they are made to where they are summed, and those of all agents never exist.
"""

from __future__ import annotations

import numpy as np

from fedhlcr.kernels.arguments import AgentAnswers, EntityArrays
from fedhlcr.kernels.compiling import kernel
from fedhlcr.kernels.effective import effect_columns, effective_group, empty_roots, matrix_space, move_targets
from fedhlcr.kernels.effects import EffectState, EffectSums, draw_rooted, empty_space
from fedhlcr.kernels.labels import relabel_agents
from fedhlcr.kernels.lanes import SIDE_BY_SIDE

# Entities whose matrices exist at once, unless an agent has more.
AT_ONCE = 64


@kernel
def sweep_agents(entities, label_law, law, old_labels, labels, answers, remembered, state, sums):
    """Write new labels of all entities and the agents' counts, draw effects and noise, and add to the sums.

    Entities add to the rows of their labels. Each agent's result is that of `relabel_agents` and `draw_effects`, and
    entities are added in their order, so that no digit depends on AT_ONCE.
    """
    grams, agent_start, _, _ = entities
    n_agents = agent_start.shape[0] - 1
    packed = grams.shape[1]
    n_entities = most_at_once(agent_start)
    of = effect_columns(law)
    scoring = np.empty((n_entities, packed))
    has_steps = has_effects(state.agent_effects)
    places = ascending(max(n_entities, n_agents))
    owners = np.empty(n_entities, dtype=np.int64)
    roots = empty_roots(n_entities, of.columns.shape[0], of.table.shape[0])
    space = matrix_space(of, packed)
    work = of, empty_space(law, packed, sums.effects.shape[1]), roots
    first = 0
    while first < n_agents:
        last = end_of_run(agent_start, first)
        start = agent_start[first]
        end = agent_start[last]
        agents = places[: last - first]
        chosen = places[: end - start]
        rows = owners[: end - start]
        own = labels[start:end]
        part, own_state, own_answers, own_sums = cut(entities, state, answers, sums, first, last)
        for at in range(0, end - start, SIDE_BY_SIDE):
            root = roots, at // SIDE_BY_SIDE
            effective_group(part.grams, own_state.variance, chosen, (at, end - start), of, space, root, scoring)
        if has_steps:
            for agent in range(last - first):
                for e in range(part.agent_start[agent], part.agent_start[agent + 1]):
                    owners[e] = agent
            move_targets(scoring, chosen, owners, own_state.agent_effects, law.first)
        scored = EntityArrays(scoring[: end - start], part.agent_start, part.entity_keys, part.agent_streams)
        relabel_agents(scored, label_law, old_labels[start:end], own, agents, 0, last - first, own_answers, remembered)
        for e in range(end - start):
            rows[e] = own[e]
        draw_rooted(part, scoring, own, law, agents, 0, last - first, own_state, rows, own_sums, work)
        first = last


@kernel
def ascending(n):
    """0, 1, …, n − 1."""
    out = np.empty(n, dtype=np.int64)
    for i in range(n):
        out[i] = i
    return out


@kernel
def has_effects(agent_effects):
    """Whether any agent has an effect that is not 0."""
    for agent in range(agent_effects.shape[0]):
        for f in range(agent_effects.shape[1]):
            if agent_effects[agent, f] != 0.0:
                return True
    return False


@kernel
def end_of_run(agent_start, first):
    """The end of the agents from `first` on that have at most AT_ONCE entities together; at least one agent."""
    last = first + 1
    while last < agent_start.shape[0] - 1 and agent_start[last + 1] - agent_start[first] <= AT_ONCE:
        last += 1
    return last


@kernel
def most_at_once(agent_start):
    """The number of entities whose matrices need space."""
    most = AT_ONCE
    for agent in range(agent_start.shape[0] - 1):
        most = max(most, agent_start[agent + 1] - agent_start[agent])
    return most


@kernel
def cut(entities, state, answers, sums, first, last):
    """Entities, state, answers and sums of the agents [first, last) alone, in views of the arrays."""
    grams, agent_start, keys, streams = entities
    start = agent_start[first]
    end = agent_start[last]
    return (
        EntityArrays(grams[start:end], agent_start[first : last + 1] - start, keys[start:end], streams[first:last]),
        EffectState(state.variance[start:end], state.agent_effects[first:last], state.coef),
        AgentAnswers(answers.entities[first:last], answers.tables[first:last], answers.scalars[first:last]),
        EffectSums(sums.data, sums.effects, sums.scalars[first:last]),
    )
