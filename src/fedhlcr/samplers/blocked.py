"""Blocked Gibbs: exact, parallel over agents, and the sampler of the federation.

Given the globals, the agents are independent. One sweep has two halves: the server draws the globals from the sums
of the last sweep (`draw_globals`), then every agent draws its labels given the globals (`relabel`). Merging is not part
of a sweep, so a chain of `step`s leaves the posterior of the model with K clusters invariant.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import Blocks, run_blocks
from fedhlcr.kernels import labels as kernels
from fedhlcr.kernels.arguments import AgentAnswers, EntityArrays
from fedhlcr.kernels.grams import move_grams
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import LABEL_SCALARS, Globals
from fedhlcr.model.sums import ClusterSums
from fedhlcr.samplers import label_prior
from fedhlcr.samplers.state import ChainState, Entities, ServerState, label_law

REBUILD_EVERY = 64
SETTLING_PASSES = 30
# Round numbers from here on are not used by sweeps, so their random numbers are independent of any sweep's.
FIRST_SETTLING_ROUND = 1 << 31


def step(entities: Entities, spec: ModelSpec, state: ChainState, stream: Stream) -> ChainState:
    """One sweep: draw the globals given the last sums, then the labels given the globals."""
    round_number = state.round + 1
    drawn = draw_globals(entities.likelihood, state, spec, stream.generator(round_number))
    # sums are updated from the entities that move, and rebuilt now and then, because rounding errors add up
    previous = None if round_number % REBUILD_EVERY == 0 else state.sums.blocks
    labels, sums = relabel(entities, drawn, state.labels, round_number, stream, previous)
    return ChainState.of(entities.likelihood, round_number, labels, sums, drawn)


def initial_state(entities: Entities, spec: ModelSpec, n_clusters: int, stream: Stream) -> ChainState:
    """Start a chain: draw coefficients from the prior, so that the clusters differ, then labels given these."""
    given = initial_globals(entities.likelihood, spec, n_clusters, stream.generator(0))
    no_labels = np.full(len(entities), -1, dtype=np.int32)
    labels, sums = relabel(entities, given, no_labels, 0, stream)
    return ChainState.of(entities.likelihood, 0, labels, sums, given)


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
    return ChainState.of(likelihood, 0, labels, sums, draw_globals(likelihood, state, spec, rng))


def draw_globals(likelihood: AnyLikelihood, state: ServerState, spec: ModelSpec, rng: np.random.Generator) -> Globals:
    """The server's half of a sweep: the likelihood's quantities; then α | m; β | m, auxiliaries; ψ | m, α."""
    drawn: Globals = likelihood.draw(state.sums, state.regressions, state.globals, spec, rng)
    drawn = draw_concentrations(rng, state.sums, drawn, spec)
    log_weights = label_prior.draw_log_weights(rng, state.sums.table_counts, drawn.global_concentration)
    return replace(drawn, log_weights=log_weights)


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


def relabel(
    entities: Entities,
    given: Globals,
    labels: LabelArray,
    round_number: int,
    stream: Stream,
    previous: dict[str, FloatArray] | None = None,
) -> tuple[LabelArray, ClusterSums]:
    """The agents' half of a sweep: every agent's new labels given the globals, and their sums.

    Parameters
    ----------
    labels : (entities,) old labels; −1 for an entity without one
    previous : the clusters' blocks under the old labels; None sums them from scratch
    """
    new_labels, answers = draw_labels(entities, given, labels, round_number, stream)
    return new_labels, summed(entities, given, new_labels, answers, labels, previous)


def draw_labels(
    entities: Entities, given: Globals, labels: LabelArray, round_number: int, stream: Stream
) -> tuple[LabelArray, AgentAnswers]:
    """Draw new labels of all entities given the globals; return them and the agents' counts."""
    everyone = np.arange(entities.index.n_agents)
    arrays, blocks = entities.arrays(stream), entities.blocks
    return relabel_agents(
        entities.likelihood, arrays, given, labels, round_number, everyone, blocks, entities.n_threads
    )


def relabel_agents(
    likelihood: AnyLikelihood,
    entities: EntityArrays,
    given: Globals,
    labels: LabelArray,
    round_number: int,
    agents: IndexArray,
    blocks: Blocks | None = None,
    n_threads: int = 1,
) -> tuple[LabelArray, AgentAnswers]:
    """Draw new labels of the given agents' entities; return all labels and these agents' counts.

    Parameters
    ----------
    labels : (entities,) old labels of all entities; those of other agents stay
    agents : positions of the agents, ascending
    blocks : ranges of positions in `agents` to run on threads; None is a single range. Results do not depend on it.
    """
    law = label_law(likelihood, given, round_number)
    arrays = entities._replace(grams=likelihood.scoring_matrices(entities.grams, given))
    new_labels = labels.copy()
    answers = empty_answers(len(agents), given.n_clusters)
    if blocks is None:
        kernels.relabel_agents(arrays, law, labels, new_labels, agents, 0, len(agents), answers)
        return new_labels, answers

    def run(block: int) -> None:
        kernels.relabel_agents(arrays, law, labels, new_labels, agents, *blocks.range(block), answers)

    run_blocks(run, len(blocks), n_threads)
    return new_labels, answers


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
    entity_counts, table_counts, scalars = (part.sum(axis=0, dtype=np.float64) for part in answers)
    for block in blocks.values():
        # what subtracting leaves of a cluster that lost its last entity is rounding, and may outweigh the prior
        block[entity_counts == 0.0] = 0.0
    scalars = np.append(scalars, [summands.scalars[scalar.name].sum() for scalar in likelihood.own_scalars])
    return ClusterSums.of(likelihood.sum_schema, blocks, entity_counts, table_counts, scalars)


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
