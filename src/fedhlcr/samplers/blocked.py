"""Blocked Gibbs: exact, parallel over agents, and the sampler of the federation.

Given the globals, the agents are independent. One sweep has two halves: the server draws the globals from the sums
of the last sweep (`draw_globals`), then every agent draws its labels given the globals (`relabel`). Merging is not part
of a sweep, so a chain of `step`s leaves the posterior of the model with K clusters invariant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedhlcr._support.arrays import FloatArray, LabelArray
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import Blocks, stream_results
from fedhlcr.kernels import labels as kernels
from fedhlcr.kernels.arguments import AgentAnswers
from fedhlcr.kernels.grams import move_grams, sum_rows
from fedhlcr.model.arguments import AgentsPart, Concluded, DrawnLabels, Recentred
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import GRAMS, LABEL_SCALARS, Globals, State
from fedhlcr.model.sums import ClusterSums
from fedhlcr.samplers import label_prior
from fedhlcr.samplers.skipping import CertainLabels, everyone
from fedhlcr.samplers.state import ChainState, EntityData, ServerState, label_law

REBUILD_EVERY = 64
# Size of the matrices that are made and used at once: they should stay in the cache of one core.
PAGE_BYTES = 1 << 22
SETTLING_PASSES = 30
# Round numbers from here on are not used by sweeps, so their random numbers are independent of any sweep's.
FIRST_SETTLING_ROUND = 1 << 31


def step(
    entities: EntityData,
    spec: ModelSpec,
    state: ChainState,
    stream: Stream,
    drawn: Globals | None = None,
    shortcuts: Shortcuts | None = None,
) -> ChainState:
    """One sweep: draw the globals given the last sums, unless they are given; then the labels given the globals.

    If the given globals have other clusters, agents begin without labels. A chain that makes many sweeps passes the
    same shortcuts to all of them.
    """
    round_number = state.round + 1
    agents = AgentStates(state.labels, state.agent_state)
    if drawn is None:
        drawn = draw_globals(entities.likelihood, state, spec, stream.generator(round_number)).globals
    elif drawn.n_clusters != state.globals.n_clusters:
        agents = AgentStates.unlabelled(entities)
    # sums are updated from the entities that move, and rebuilt now and then, because rounding errors add up
    summed_before = shortcuts is not None and shortcuts.summed_labels is state.labels
    is_known = entities.likelihood.has_fixed_summands or summed_before
    previous = state.sums.blocks if is_known and round_number % REBUILD_EVERY else None
    agents, sums = relabel(entities, drawn, agents, round_number, stream, previous, shortcuts)
    return ChainState.of(entities.likelihood, round_number, agents.labels, sums, drawn, agents.agent_state)


def initial_state(entities: EntityData, spec: ModelSpec, n_clusters: int, stream: Stream) -> ChainState:
    """Start a chain: draw coefficients from the prior, so that the clusters differ, then labels given these."""
    current = initial_globals(entities.likelihood, spec, n_clusters, stream.generator(0))
    agents, sums = relabel(entities, current, AgentStates.unlabelled(entities), 0, stream)
    return ChainState.of(entities.likelihood, 0, agents.labels, sums, current, agents.agent_state)


def initial_globals(likelihood: AnyLikelihood, spec: ModelSpec, n_clusters: int, rng: np.random.Generator) -> Globals:
    """Coefficients drawn from the prior, equal cluster weights, hyperparameters at their starting values."""
    start: Globals = likelihood.start(spec, n_clusters)
    return replace(start, coef=likelihood.prior_coef(start, n_clusters, rng))


def state_from_labels(
    entities: EntityData, spec: ModelSpec, labels: LabelArray, n_clusters: int, stream: Stream
) -> ChainState:
    """Start a chain at given labels: hyperparameters at their starting values, everything else drawn."""
    likelihood = entities.likelihood
    current: Globals = likelihood.start(spec, n_clusters)
    labels = np.ascontiguousarray(labels, dtype=np.int32)
    rng = stream.generator(0)
    for pass_number in range(SETTLING_PASSES):
        # table counts and weights depend on each other: draw them in turn until the equal start no longer matters
        sums = sums_of_labels(entities, current, labels, FIRST_SETTLING_ROUND + pass_number, stream)
        log_weights = label_prior.draw_log_weights(rng, sums.table_counts, current.global_concentration)
        current = replace(current, log_weights=log_weights)
    state = ChainState.of(likelihood, 0, labels, sums, current)
    return ChainState.of(likelihood, 0, labels, sums, draw_globals(likelihood, state, spec, rng).globals)


def draw_globals(
    likelihood: AnyLikelihood, state: ServerState, spec: ModelSpec, rng: np.random.Generator
) -> Recentred[Globals]:
    """The server's half of a sweep: the likelihood's quantities; then α | m; β | m, auxiliaries; ψ | m, α."""
    drawn: Globals = likelihood.draw(state.sums, state.regressions, state.globals, spec, rng)
    drawn, shift = likelihood.recentre(state.sums, drawn, spec, rng)
    drawn = draw_concentrations(rng, state.sums, drawn, spec)
    log_weights = label_prior.draw_log_weights(rng, state.sums.table_counts, drawn.global_concentration)
    return Recentred(replace(drawn, log_weights=log_weights), shift)


def draw_concentrations(rng: np.random.Generator, sums: ClusterSums, current: Globals, spec: ModelSpec) -> Globals:
    """α | m and β | m, auxiliaries, each unless the user fixed it."""
    priors = spec.hyperpriors
    scalars = sums.scalars
    if spec.global_concentration is None:
        alpha = label_prior.draw_global_concentration(
            rng, current.global_concentration, sums.table_counts, priors.global_concentration
        )
        current = replace(current, global_concentration=alpha)
    if spec.agent_concentration is None:
        auxiliaries = scalars["log_beta_draws"], scalars["bernoulli_draws"]
        beta = label_prior.draw_agent_concentration(
            rng, sums.table_counts.sum(), *auxiliaries, priors.agent_concentration
        )
        current = replace(current, agent_concentration=beta)
    return current


@dataclass(frozen=True)
class AgentStates:
    """What agents keep from round to round: labels (entities,), −1 for none, and the likelihood's agent state."""

    labels: LabelArray
    agent_state: State

    @classmethod
    def unlabelled(cls, entities: EntityData) -> AgentStates:
        return cls(np.full(len(entities), -1, dtype=np.int32), entities.start_state())


class Shortcuts:
    """What a chain remembers from sweep to sweep to save time; no draw depends on it.

    Attributes
    ----------
    certainty : of which entities the labels are certain
    summed_labels : the labels under which the matrices of entities were summed; None if something else was summed
    """

    def __init__(self, entities: EntityData) -> None:
        self.certainty = CertainLabels(len(entities))
        self.summed_labels: LabelArray | None = None


def relabel(
    entities: EntityData,
    current: Globals,
    agents: AgentStates,
    round_number: int,
    stream: Stream,
    previous: dict[str, FloatArray] | None = None,
    shortcuts: Shortcuts | None = None,
) -> tuple[AgentStates, ClusterSums]:
    """The agents' half of a sweep: every agent's new labels and agent state given the globals, and their sums.

    Parameters
    ----------
    previous : the clusters' blocks under the old labels; None sums them from scratch
    """
    likelihood = entities.likelihood
    part = entities.part(agents.agent_state, round_number, stream)
    if shortcuts is not None:
        shortcuts.summed_labels = None
    if likelihood.has_state and not likelihood.sums_events(current):
        return relabel_pages(likelihood, part, current, agents.labels)
    certainty = None if shortcuts is None else shortcuts.certainty
    labels, answers, scoring = relabel_agents(likelihood, part, current, agents.labels, certainty)
    if not likelihood.has_state:
        return AgentStates(labels, {}), summed(entities, current, labels, answers, agents.labels, previous)
    if shortcuts is not None:
        shortcuts.summed_labels = labels
    counts = added_up(answers)
    # they have a number for each agent and cluster, and the conclusion needs as many
    del answers
    concluded = likelihood.conclude(part, current, scoring, labels, labels.astype(np.int64), 0)
    blocks = likelihood.sum_schema.zero_blocks(current.n_clusters)
    blocks[GRAMS] = summed_grams(part, current.n_clusters, labels, agents.labels, previous)
    sums = total_sums(likelihood, blocks, counts, sum_rows(concluded.scalars))
    return AgentStates(labels, concluded.state), sums


def relabel_pages(
    likelihood: AnyLikelihood, part: AgentsPart, current: Globals, labels: LabelArray
) -> tuple[AgentStates, ClusterSums]:
    """The same page by page, where agents score matrices of their own, such as effective ones.

    The matrices of a page stay in the processor's cache from where they are made to where they are summed, and there
    are never those of all entities. How agents are cut into pages depends on the data only.
    """
    start = part.entities.agent_start
    fields = likelihood.state_fields
    pages = Blocks.of_size(start, max(1, PAGE_BYTES // (8 * part.entities.grams.shape[1])))
    new_labels = np.empty_like(labels)
    state = {name: np.empty_like(of) for name, of in part.state.items()}

    def run(number: int) -> tuple[FloatArray, ...]:
        first, last = pages.range(number)
        page = part.page(first, last, fields)
        own = slice(start[first], start[last])
        new_labels[own], answers, concluded = relabel_page(likelihood, page, current, labels[own])
        kept = part._replace(state=state).page(first, last, fields).state
        for name, values in concluded.state.items():
            kept[name][:] = values
        counts = (of.sum(axis=0, dtype=np.float64) for of in answers)
        return *counts, concluded.scalars.sum(axis=0), *concluded.blocks.values()

    results = stream_results(run, len(pages), part.n_threads)
    total = list(next(results))
    for result in results:
        for of, own in zip(total, result, strict=True):
            of += own
    *counts, own_scalars = total[:4]
    blocks = dict(zip((block.name for block in likelihood.sum_schema.blocks), total[4:], strict=True))
    return AgentStates(new_labels, state), total_sums(likelihood, blocks, tuple(counts), own_scalars)


def relabel_page(
    likelihood: AnyLikelihood, page: AgentsPart, current: Globals, labels: LabelArray
) -> tuple[LabelArray, AgentAnswers, Concluded]:
    """Draw new labels and the agent state of a page's agents; return the labels, counts, and the conclusion."""
    if likelihood.sweeps_at_once(current):
        law = label_law(likelihood, current, page.round, single=page.single)
        drawn = DrawnLabels(np.empty_like(labels), empty_answers(len(page.agents), current.n_clusters), everyone())
        [concluded] = page.run(lambda _: likelihood.sweep(page, current, law, labels, drawn))
        return drawn.labels, drawn.answers, concluded
    new_labels, answers, scoring = relabel_agents(likelihood, page, current, labels)
    rows = new_labels.astype(np.int64)
    return new_labels, answers, likelihood.conclude(page, current, scoring, new_labels, rows, current.n_clusters)


def relabel_agents(
    likelihood: AnyLikelihood,
    part: AgentsPart,
    current: Globals,
    labels: LabelArray,
    certainty: CertainLabels | None = None,
) -> tuple[LabelArray, AgentAnswers, FloatArray]:
    """Draw new labels of a part's entities; return all labels, these agents' counts, and the scoring matrices.

    `labels` (entities,) are the old labels of all entities; those of agents that take no part stay. With a certainty,
    all agents take part.
    """
    law = label_law(likelihood, current, part.round, single=part.single)
    scoring = likelihood.scoring_matrices(part, current)
    arrays = part.entities._replace(grams=scoring)
    new_labels = labels.copy()
    answers = empty_answers(len(part.agents), current.n_clusters)
    remembered = everyone() if certainty is None else certainty.before(likelihood, current, labels)

    def run(block: int) -> int:
        asked = part.agents, *part.blocks.range(block)
        return int(kernels.relabel_agents(arrays, law, labels, new_labels, *asked, answers, remembered))

    n_scored = sum(part.run(run))
    if certainty is not None:
        certainty.after(remembered, new_labels, n_scored)
    return new_labels, answers, scoring


def summed_grams(
    part: AgentsPart,
    n_clusters: int,
    labels: LabelArray,
    old_labels: LabelArray,
    previous: dict[str, FloatArray] | None,
) -> FloatArray:
    """(clusters, packed) sums of the Gram matrices by label: updated from the previous ones, or from scratch."""
    grams = part.entities.grams
    bounds = part.entity_blocks
    if previous is None:
        old_labels = np.full_like(labels, -1)

    def run(block: int) -> FloatArray:
        first, last = bounds[block]
        own = np.zeros((n_clusters, grams.shape[1]))
        move_grams(grams[first:last], old_labels[first:last], labels[first:last], own)
        return own

    moved = part.run(run)
    return sum(moved, start=np.zeros((n_clusters, grams.shape[1])) if previous is None else previous[GRAMS])


def summed(
    entities: EntityData,
    current: Globals,
    labels: LabelArray,
    answers: AgentAnswers,
    old_labels: LabelArray | None = None,
    old_blocks: dict[str, FloatArray] | None = None,
) -> ClusterSums:
    """Sums of blocks, counts and scalars under `labels`.

    Blocks are updated from `old_blocks`, the sums under `old_labels`, if the likelihood allows it; otherwise they
    are summed from scratch. `answers` are summed in the order of the agents.
    """
    likelihood = entities.likelihood
    summands = likelihood.summands(entities.grams, current, labels)
    if old_blocks is None or old_labels is None or not likelihood.has_fixed_summands:
        old_labels = np.full_like(labels, -1)
        old_blocks = likelihood.sum_schema.zero_blocks(current.n_clusters)
    blocks = {name: block.copy() for name, block in old_blocks.items()}
    for name, block in blocks.items():
        move_grams(summands.blocks[name], old_labels, labels, block)
    own_scalars = np.array([summands.scalars[scalar.name].sum() for scalar in likelihood.own_scalars])
    return total_sums(likelihood, blocks, added_up(answers), own_scalars)


def added_up(answers: AgentAnswers) -> tuple[FloatArray, ...]:
    """Entity counts, table counts and scalars, added up over the agents in their order."""
    # counts are whole numbers, of which every order has the same sum
    entities, tables = (counts.sum(axis=0, dtype=np.float64) for counts in (answers.entities, answers.tables))
    return entities, tables, sum_rows(answers.scalars)


def total_sums(
    likelihood: AnyLikelihood, blocks: dict[str, FloatArray], counts: tuple[FloatArray, ...], own_scalars: FloatArray
) -> ClusterSums:
    """Put the agents' counts, as `added_up` has them, beside the clusters' blocks."""
    entity_counts, table_counts, scalars = counts
    whole = np.append(scalars, own_scalars)
    return ClusterSums.of(likelihood.sum_schema, blocks, entity_counts, table_counts, whole)


def sums_of_labels(
    entities: EntityData, current: Globals, labels: LabelArray, round_number: int, stream: Stream
) -> ClusterSums:
    """Sums, table counts and auxiliaries of given labels, which stay as they are."""
    answers = empty_answers(entities.index.n_agents, current.n_clusters)
    law = label_law(entities.likelihood, current, round_number)
    kernels.count_agents(entities.arrays(stream), law, labels, answers)
    return summed(entities, current, labels, answers)


def empty_answers(n_agents: int, n_clusters: int) -> AgentAnswers:
    """Uninitialised arrays for the kernels to write into."""
    entities, tables = (np.empty((n_agents, n_clusters), dtype=np.int32) for _ in range(2))
    return AgentAnswers(entities, tables, np.empty((n_agents, len(LABEL_SCALARS))))
