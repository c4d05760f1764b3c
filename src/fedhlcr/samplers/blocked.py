"""Blocked Gibbs: exact, parallel over agents, and the sampler of the federation.

Given (w, ψ, σ, β) the agents are independent. A sweep is the server's draw of these from the sums
of the last sweep, then every agent's draw of its labels. Merging is not part of a sweep: a chain of
`step`s leaves the posterior of the model with K clusters invariant.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhlcr._support.arrays import FloatArray, LabelArray
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import run_blocks
from fedhlcr.kernels import labels as kernels
from fedhlcr.kernels.arguments import N_SCALARS, AgentAnswers
from fedhlcr.kernels.grams import move_grams
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import Hyperparameters, ModelSpec, initial_hyperparameters
from fedhlcr.model.regression import CoefPrior, draw_coef
from fedhlcr.samplers import hyper
from fedhlcr.samplers.state import ChainState, ClusterSums, Entities, Globals, ServerState, label_law

REBUILD_EVERY = 64
SETTLING_PASSES = 30
# Rounds whose keys no sweep uses.
FIRST_SETTLING_ROUND = 1 << 31


def step(entities: Entities, spec: ModelSpec, state: ChainState, stream: Stream) -> ChainState:
    """One sweep: the globals given the last sums, then the labels given the globals."""
    round_number = state.round + 1
    drawn = draw_globals(entities.layout, state, spec, stream.generator(round_number))
    # updated by the entities that move; every so often summed anew, to shed rounding errors
    grams = None if round_number % REBUILD_EVERY == 0 else state.sums.grams
    labels, sums = relabel(entities, drawn, state.labels, round_number, stream, grams)
    return ChainState.of(entities.layout, round_number, labels, sums, drawn)


def initial_state(entities: Entities, spec: ModelSpec, n_clusters: int, stream: Stream) -> ChainState:
    """Labels drawn under coefficients from the prior, which break the symmetry of the clusters."""
    given = initial_globals(entities.layout, spec, n_clusters, stream.generator(0))
    no_labels = np.full(len(entities), -1, dtype=np.int32)
    labels, sums = relabel(entities, given, no_labels, 0, stream)
    return ChainState.of(entities.layout, 0, labels, sums, given)


def initial_globals(layout: GramLayout, spec: ModelSpec, n_clusters: int, rng: np.random.Generator) -> Globals:
    """Coefficients from the prior, even weights, hyperparameters at their start."""
    start = initial_hyperparameters(spec, layout.n_coef)
    return Globals(prior_coef(start.coef_prior, n_clusters, rng), _even_log_weights(n_clusters), start)


def state_from_labels(
    entities: Entities, spec: ModelSpec, labels: LabelArray, n_clusters: int, stream: Stream
) -> ChainState:
    """A chain started at given labels, with hyperparameters at their start and everything else drawn."""
    layout = entities.layout
    start = initial_hyperparameters(spec, layout.n_coef)
    given = Globals(np.zeros((n_clusters, layout.n_coef)), _even_log_weights(n_clusters), start)
    labels = np.ascontiguousarray(labels, dtype=np.int32)
    rng = stream.generator(0)
    for pass_number in range(SETTLING_PASSES):
        # tables and weights depend on each other: draw them in turn until the even start is forgotten
        sums = sums_of_labels(entities, given, labels, FIRST_SETTLING_ROUND + pass_number, stream)
        log_weights = hyper.draw_log_weights(rng, sums.table_counts, start.global_concentration)
        given = replace(given, log_weights=log_weights)
    state = ChainState.of(layout, 0, labels, sums, given)
    return ChainState.of(layout, 0, labels, sums, draw_globals(layout, state, spec, rng))


def draw_globals(layout: GramLayout, state: ServerState, spec: ModelSpec, rng: np.random.Generator) -> Globals:
    """The server's half: w | M, σ, δ; σ | w, M; (μ, δ) | w; α | m; ψ | m, α; β | m and auxiliaries."""
    sums, hyperparameters = state.sums, state.globals.hyper
    priors = spec.hyperpriors.for_spread(spec.target_spread)
    occupied = sums.occupied
    coef = draw_coef(state.regressions, rng)
    if spec.noise_scale is None:
        n_events, squares = layout.n_events(sums.grams).sum(), layout.rss(sums.grams, coef).sum()
        variance = hyper.draw_variance(rng, priors.noise_variance, n_events, squares)
        hyperparameters = replace(hyperparameters, noise_scale=float(np.sqrt(variance)))
    if spec.coef_scale is None:
        prior = hyper.draw_coef_prior(rng, coef[occupied], spec.coef_prior, priors)
        hyperparameters = replace(hyperparameters, coef_prior=prior)
        coef = np.where(occupied[:, None], coef, prior_coef(prior, len(coef), rng))
    hyperparameters = draw_concentrations(rng, sums, hyperparameters, spec)
    log_weights = hyper.draw_log_weights(rng, sums.table_counts, hyperparameters.global_concentration)
    return Globals(coef, log_weights, hyperparameters)


def draw_concentrations(
    rng: np.random.Generator, sums: ClusterSums, current: Hyperparameters, spec: ModelSpec
) -> Hyperparameters:
    priors = spec.hyperpriors
    if spec.global_concentration is None:
        alpha = hyper.draw_global_concentration(
            rng, current.global_concentration, sums.table_counts, priors.global_concentration
        )
        current = replace(current, global_concentration=alpha)
    if spec.agent_concentration is None:
        beta = hyper.draw_agent_concentration(
            rng, sums.table_counts.sum(), sums.log_beta_draws, sums.bernoulli_draws, priors.agent_concentration
        )
        current = replace(current, agent_concentration=beta)
    return current


def relabel(
    entities: Entities,
    given: Globals,
    labels: LabelArray,
    round_number: int,
    stream: Stream,
    previous_grams: FloatArray | None = None,
) -> tuple[LabelArray, ClusterSums]:
    """The agents' half: every agent's new labels given the globals, and their sums.

    An entity whose old label is −1 has none yet. `previous_grams` are the clusters' matrices under the old
    labels; without them they are summed anew.
    """
    new_labels, answers = draw_labels(entities, given, labels, round_number, stream)
    grams = cluster_grams(entities, given.n_clusters, new_labels, labels, previous_grams)
    return new_labels, ClusterSums.of(grams, answers)


def draw_labels(
    entities: Entities, given: Globals, labels: LabelArray, round_number: int, stream: Stream
) -> tuple[LabelArray, AgentAnswers]:
    """New labels given the globals, and the agents' counts."""
    arrays, blocks = entities.arrays(stream), entities.blocks
    law = label_law(entities.layout, given, round_number)
    new_labels = np.empty_like(labels)
    everyone = np.arange(entities.index.n_agents)
    answers = empty_answers(len(everyone), given.n_clusters)

    def run(block: int) -> None:
        kernels.relabel_agents(arrays, law, labels, new_labels, everyone, *blocks.range(block), answers)

    run_blocks(run, len(blocks), entities.n_threads)
    return new_labels, answers


def cluster_grams(
    entities: Entities,
    n_clusters: int,
    labels: LabelArray,
    old_labels: LabelArray | None = None,
    old_grams: FloatArray | None = None,
) -> FloatArray:
    """(clusters, packed): sums of the entities' matrices by label, from those under old labels if there are any."""
    if old_grams is None or old_labels is None:
        old_labels = np.full_like(labels, -1)
        old_grams = np.zeros((n_clusters, entities.layout.packed_size))
    grams = old_grams.copy()
    move_grams(entities.grams, old_labels, labels, grams)
    return grams


def sums_of_labels(
    entities: Entities, given: Globals, labels: LabelArray, round_number: int, stream: Stream
) -> ClusterSums:
    """Sums, table counts and auxiliaries of labels that were drawn elsewhere."""
    answers = empty_answers(entities.index.n_agents, given.n_clusters)
    kernels.count_agents(entities.arrays(stream), label_law(entities.layout, given, round_number), labels, answers)
    return ClusterSums.of(cluster_grams(entities, given.n_clusters, labels), answers)


def empty_answers(n_agents: int, n_clusters: int) -> AgentAnswers:
    """Room for the kernels to write into."""
    entities, tables = (np.empty((n_agents, n_clusters), dtype=np.int32) for _ in range(2))
    return AgentAnswers(entities, tables, np.empty((n_agents, N_SCALARS)))


def prior_coef(prior: CoefPrior, n_clusters: int, rng: np.random.Generator) -> FloatArray:
    return prior.mean + prior.scale * rng.standard_normal((n_clusters, len(prior.mean)))


def _even_log_weights(n_clusters: int) -> FloatArray:
    return np.full(n_clusters, -np.log(n_clusters))
