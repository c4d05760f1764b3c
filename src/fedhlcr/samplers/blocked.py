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
from fedhlcr._support.threads import run_blocks
from fedhlcr.kernels import labels as kernels
from fedhlcr.kernels.arguments import AgentAnswers
from fedhlcr.kernels.grams import move_grams
from fedhlcr.model.arguments import AgentsPart, Recentred
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import LABEL_SCALARS, Globals, State
from fedhlcr.model.sums import ClusterSums
from fedhlcr.samplers import label_prior
from fedhlcr.samplers.state import ChainState, Entities, ServerState, label_law

REBUILD_EVERY = 64
SETTLING_PASSES = 30
# Round numbers from here on are not used by sweeps, so their random numbers are independent of any sweep's.
FIRST_SETTLING_ROUND = 1 << 31


def step(
    entities: Entities, spec: ModelSpec, state: ChainState, stream: Stream, drawn: Globals | None = None
) -> ChainState:
    """One sweep: draw the globals given the last sums, unless they are given; then the labels given the globals.

    If the given globals have other clusters, agents begin without labels.
    """
    round_number = state.round + 1
    agents = Agents(state.labels, state.private)
    if drawn is None:
        drawn = draw_globals(entities.likelihood, state, spec, stream.generator(round_number)).globals
    elif drawn.n_clusters != state.globals.n_clusters:
        agents = Agents.unlabelled(entities)
    # sums are updated from the entities that move, and rebuilt now and then, because rounding errors add up
    previous = None if round_number % REBUILD_EVERY == 0 else state.sums.blocks
    agents, sums = relabel(entities, drawn, agents, round_number, stream, previous)
    return ChainState.of(entities.likelihood, round_number, agents.labels, sums, drawn, agents.private)


def initial_state(entities: Entities, spec: ModelSpec, n_clusters: int, stream: Stream) -> ChainState:
    """Start a chain: draw coefficients from the prior, so that the clusters differ, then labels given these."""
    given = initial_globals(entities.likelihood, spec, n_clusters, stream.generator(0))
    agents, sums = relabel(entities, given, Agents.unlabelled(entities), 0, stream)
    return ChainState.of(entities.likelihood, 0, agents.labels, sums, given, agents.private)


def initial_globals(likelihood: AnyLikelihood, spec: ModelSpec, n_clusters: int, rng: np.random.Generator) -> Globals:
    """Coefficients drawn from the prior, equal cluster weights, hyperparameters at their starting values."""
    start: Globals = likelihood.start(spec, n_clusters)
    return replace(start, coef=likelihood.prior_coef(start, n_clusters, rng))


def state_from_labels(
    entities: Entities, spec: ModelSpec, labels: LabelArray, n_clusters: int, stream: Stream
) -> ChainState:
    """Start a chain at given labels: hyperparameters at their starting values, everything else drawn."""
    likelihood = entities.likelihood
    given: Globals = likelihood.start(spec, n_clusters)
    labels = np.ascontiguousarray(labels, dtype=np.int32)
    rng = stream.generator(0)
    for pass_number in range(SETTLING_PASSES):
        # table counts and weights depend on each other: draw them in turn until the equal start no longer matters
        sums = sums_of_labels(entities, given, labels, FIRST_SETTLING_ROUND + pass_number, stream)
        log_weights = label_prior.draw_log_weights(rng, sums.table_counts, given.global_concentration)
        given = replace(given, log_weights=log_weights)
    state = ChainState.of(likelihood, 0, labels, sums, given)
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
    priors, scalars = spec.hyperpriors, sums.scalars
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
class Agents:
    """What agents keep from round to round: labels (entities,), −1 for none, and the likelihood's private state."""

    labels: LabelArray
    private: State

    @classmethod
    def unlabelled(cls, entities: Entities) -> Agents:
        return cls(np.full(len(entities), -1, dtype=np.int32), entities.start_state())


def relabel(
    entities: Entities,
    given: Globals,
    agents: Agents,
    round_number: int,
    stream: Stream,
    previous: dict[str, FloatArray] | None = None,
) -> tuple[Agents, ClusterSums]:
    """The agents' half of a sweep: every agent's new labels and private state given the globals, and their sums.

    Parameters
    ----------
    previous : the clusters' blocks under the old labels; None sums them from scratch
    """
    part = entities.part(agents.private, round_number, stream)
    labels, answers, scoring = relabel_agents(entities.likelihood, part, given, agents.labels)
    if not entities.likelihood.has_state:
        return Agents(labels, {}), summed(entities, given, labels, answers, agents.labels, previous)
    rows = labels.astype(np.int64)
    concluded = entities.likelihood.conclude(part, given, scoring, labels, rows, given.n_clusters)
    sums = total_sums(entities.likelihood, concluded.blocks, answers, concluded.scalars.sum(axis=0))
    return Agents(labels, concluded.state), sums


def redraw(entities: Entities, given: Globals, agents: Agents, round_number: int, stream: Stream) -> Agents:
    """The agents' half of a sweep without its sums."""
    return relabel(entities, given, agents, round_number, stream)[0]


def relabel_agents(
    likelihood: AnyLikelihood, part: AgentsPart, given: Globals, labels: LabelArray
) -> tuple[LabelArray, AgentAnswers, FloatArray]:
    """Draw new labels of a part's entities; return all labels, these agents' counts, and the scoring matrices.

    `labels` (entities,) are the old labels of all entities; those of agents that take no part stay.
    """
    law = label_law(likelihood, given, part.round)
    scoring = likelihood.scoring_matrices(part, given)
    arrays = part.entities._replace(grams=scoring)
    new_labels = labels.copy()
    answers = empty_answers(len(part.agents), given.n_clusters)

    def run(block: int) -> None:
        kernels.relabel_agents(arrays, law, labels, new_labels, part.agents, *part.blocks.range(block), answers)

    run_blocks(run, len(part.blocks), part.n_threads)
    return new_labels, answers, scoring


def summed(
    entities: Entities,
    given: Globals,
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
    summands = likelihood.summands(entities.grams, given, labels)
    if old_blocks is None or old_labels is None or not likelihood.has_fixed_summands:
        old_labels = np.full_like(labels, -1)
        old_blocks = likelihood.sum_schema.zero_blocks(given.n_clusters)
    blocks = {name: block.copy() for name, block in old_blocks.items()}
    for name, block in blocks.items():
        move_grams(summands.blocks[name], old_labels, labels, block)
    own_scalars = np.array([summands.scalars[scalar.name].sum() for scalar in likelihood.own_scalars])
    return total_sums(likelihood, blocks, answers, own_scalars)


def total_sums(
    likelihood: AnyLikelihood, blocks: dict[str, FloatArray], answers: AgentAnswers, own_scalars: FloatArray
) -> ClusterSums:
    """Add the agents' answers up, in their order, and put them beside the clusters' blocks."""
    entity_counts, table_counts, scalars = (part.sum(axis=0, dtype=np.float64) for part in answers)
    for block in blocks.values():
        # what subtracting leaves of a cluster that lost its last entity is rounding, and may outweigh the prior
        block[entity_counts == 0.0] = 0.0
    whole = np.append(scalars, own_scalars)
    return ClusterSums.of(likelihood.sum_schema, blocks, entity_counts, table_counts, whole)


def sums_of_labels(
    entities: Entities, given: Globals, labels: LabelArray, round_number: int, stream: Stream
) -> ClusterSums:
    """Sums, table counts and auxiliaries of given labels, which stay as they are."""
    answers = empty_answers(entities.index.n_agents, given.n_clusters)
    law = label_law(entities.likelihood, given, round_number)
    kernels.count_agents(entities.arrays(stream), law, labels, answers)
    return summed(entities, given, labels, answers)


def empty_answers(n_agents: int, n_clusters: int) -> AgentAnswers:
    """Uninitialised arrays for the kernels to write into."""
    entities, tables = (np.empty((n_agents, n_clusters), dtype=np.int32) for _ in range(2))
    return AgentAnswers(entities, tables, np.empty((n_agents, len(LABEL_SCALARS))))
