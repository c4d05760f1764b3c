"""What agents compute in clusters of mixed models: weighted and effective matrices, effects, and sums for the server.

See `model.mixed` for the model and `kernels.effective` for the mathematics. Given weights of events, all is as with
common noise, from Gram matrices that the agents weight.
"""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr._support.special import logsumexp
from fedhlcr.data.events import EventStore
from fedhlcr.kernels import effective, effects, evidence, weights
from fedhlcr.kernels.effective import EffectsLaw
from fedhlcr.kernels.effects import EffectState, EffectSums
from fedhlcr.model.arguments import AgentsPart, agent_figures, events_of
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.mixed_globals import EVIDENCE, MixedGlobals, first_evidence, first_within
from fedhlcr.model.schema import Stage

# `log_dets` of `effective_grams` where they are not needed.
NO_LOGS = np.empty(0)


def weighted_part(part: AgentsPart, targets: FloatArray, event_weights: FloatArray) -> AgentsPart:
    """The part with weighted Gram matrices; those of agents that take no part are 0."""
    events = events_of(part)
    # those of agents that take no part are not used, but must not be read as numbers
    everyone = len(part.chosen) == len(part.entities.grams)
    grams = (np.empty_like if everyone else np.zeros_like)(part.entities.grams)
    part.run_on_entities(
        lambda *block: weights.weighted_grams(events.X, targets, events.event_start, event_weights, *block, grams)
    )
    return part._replace(entities=part.entities._replace(grams=grams))


def weighted_entities(
    grams: FloatArray, events: EventStore, targets: FloatArray, event_weights: FloatArray
) -> FloatArray:
    """Weighted Gram matrices of single entities; `grams` are those without weights."""
    weighted = np.empty_like(grams)
    everyone = np.arange(len(grams))
    weights.weighted_grams(events.X, targets, events.event_start, event_weights, everyone, 0, len(everyone), weighted)
    return weighted


def weighted_by_draw(
    grams: FloatArray, events: EventStore, targets: FloatArray, event_weights: FloatArray
) -> FloatArray:
    """(profiles, draws, packed) weighted matrices; 0 for a new entity. Targets and weights are (events, draws)."""
    out = np.zeros((len(grams), event_weights.shape[1], grams.shape[1]))
    weights.weighted_grams_by_draw(events.X, targets, events.event_start, event_weights, out)
    return out


def by_agent(part: AgentsPart, values: FloatArray) -> FloatArray:
    """(agents asked,) sums over their events."""
    owner = np.repeat(part.owner, np.diff(events_of(part).event_start))
    return np.asarray(np.bincount(owner, weights=values, minlength=part.n_agents)[part.agents], dtype=np.float64)


def write_effective(
    part: AgentsPart, law: EffectsLaw, variance: FloatArray, out: FloatArray, log_dets: FloatArray
) -> None:
    """Write the effective matrices of entities around their agents' effects."""
    grams = part.entities.grams
    owner = part.owner
    steps = part.state["agent_effects"]
    has_steps = bool(steps.any())

    def write(chosen: IndexArray, first: int, last: int) -> None:
        effective.effective_grams(grams, variance, chosen, first, last, law, out, log_dets)
        if has_steps:
            effective.move_targets(out, chosen[first:last], owner, steps, law.first)

    part.run_on_entities(write)


def draw_effects(
    part: AgentsPart,
    scoring: FloatArray,
    labels: LabelArray,
    law: EffectsLaw,
    state: EffectState,
    rows: IndexArray,
    sums: EffectSums,
) -> None:
    """Draw effects and noise of a part's agents; `state` and `sums` are changed in place."""

    def draw(agents: IndexArray, first: int, last: int) -> EffectSums:
        own = EffectSums(np.zeros_like(sums.data), np.zeros_like(sums.effects), sums.scalars)
        effects.draw_effects(part.entities, scoring, labels, law, agents, first, last, state, rows, own)
        return own

    for own in part.run_on_agents(draw):
        sums.data[:] += own.data
        sums.effects[:] += own.effects


def add_counts(layout: GramLayout, part: AgentsPart, current: MixedGlobals, scalars: FloatArray) -> None:
    """Count agents and events, and in the plain stage add up how features vary within entities."""
    agent_start = part.entities.agent_start
    figures = part.figures
    if figures is None:
        figures = agent_figures(part.entities.grams, agent_start, layout.n_features, part.n_threads)
    scalars[:, evidence.AGENTS] = np.diff(agent_start)[part.agents] > 0
    scalars[:, evidence.EVENTS] = figures.events[part.agents]
    if current.stage == Stage.PLAIN:
        first = first_within(layout)
        scalars[:, first : first + layout.n_features] = figures.within[part.agents]


def add_evidence(
    layout: GramLayout, part: AgentsPart, labels: LabelArray, law: EffectsLaw, scalars: FloatArray
) -> None:
    """Add what score tests of the effects need."""
    scores = np.zeros((len(scalars), len(EVIDENCE), layout.n_coef))
    grams = part.entities.grams
    agent_start = part.entities.agent_start
    part.run_on_agents(lambda *block: evidence.add_evidence(grams, agent_start, *block, labels, law, scalars, scores))
    first = first_evidence(layout)
    scalars[:, first : first + scores[0].size] = scores.reshape(len(scalars), -1)


def add_log_densities(
    layout: GramLayout,
    part: AgentsPart,
    current: MixedGlobals,
    law: EffectsLaw,
    variances: FloatArray,
    labels: LabelArray,
    scalars: FloatArray,
) -> None:
    """Add the log density of each agent's entities, with their labels, effects and noise integrated out.

    `variances` are quantiles of the law of an entity's noise.
    """
    grams = part.entities.grams
    agent_start = part.entities.agent_start
    densities = np.zeros((len(variances), len(grams)))
    log_dets = np.zeros(len(grams))
    # effective matrices are divided by the noise variance
    scoring = np.empty_like(grams)
    prior = current.prior_weights()
    rows = np.ascontiguousarray(-0.5 * layout.rss_vectors(current.coef))

    for own, variance in zip(densities, variances, strict=True):
        write_effective(part, law, np.full(len(grams), variance), scoring, log_dets)

        def add(agents: IndexArray, first: int, last: int, own: FloatArray = own) -> None:
            evidence.add_log_densities(scoring, rows, prior, labels, agent_start, agents, first, last, own)

        part.run_on_agents(add)
        own -= 0.5 * (grams[:, 0] * np.log(2.0 * np.pi * variance) + log_dets)
    add_weighed(part, logsumexp(densities, axis=0) - np.log(len(variances)), scalars)


def add_weighed(part: AgentsPart, densities: FloatArray, scalars: FloatArray) -> None:
    """Add the log densities (entities,) of each agent's entities, and the number of their events."""
    chosen = part.chosen
    position = np.searchsorted(part.agents, part.owner[chosen])
    counts = part.entities.grams[chosen, 0]
    for column, values in ((evidence.LOG_DENSITY, densities[chosen]), (evidence.WEIGHED_EVENTS, counts)):
        scalars[:, column] = np.bincount(position, weights=values, minlength=len(scalars))
