"""Blocked Gibbs: exact, parallel over agents, and the sampler of the federation.

Given (w, ψ, σ, β) the agents are independent. A sweep is the server's draw of these from the sums
of the last sweep, then every agent's draw of its labels. Merging is not part of a sweep: a chain of
`step`s leaves the posterior of the model with K clusters invariant.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhlcr import kernels
from fedhlcr.gram import GramLayout
from fedhlcr.kernels import BlockSums, FloatArray, LabelArray, LabelLaw
from fedhlcr.priors import Hyperparameters, ModelSpec, initial_hyperparameters
from fedhlcr.regression import CoefPrior, coef_posterior, draw_coef, log_evidence
from fedhlcr.samplers import hyper
from fedhlcr.samplers.state import ChainState, ClusterSums, Entities, Globals
from fedhlcr.streams import Stream
from fedhlcr.threads import run_blocks


def step(entities: Entities, spec: ModelSpec, state: ChainState, stream: Stream) -> ChainState:
    """One sweep: the globals given the last sums, then the labels given the globals."""
    round_number = state.round + 1
    rng = stream.generator(round_number)
    drawn = draw_globals(entities.layout, state.sums, state.globals, spec, rng)
    return label_all(entities, drawn, state.labels, round_number, stream)


def initial_state(entities: Entities, spec: ModelSpec, n_clusters: int, stream: Stream) -> ChainState:
    """Labels drawn under coefficients from the prior, which break the symmetry of the clusters."""
    layout = entities.layout
    start = initial_hyperparameters(spec, layout.n_coef)
    coef = prior_coef(start.coef_prior, n_clusters, stream.generator(0))
    log_weights = np.full(n_clusters, -np.log(n_clusters))
    no_labels = np.full(len(entities), -1, dtype=np.int32)
    return label_all(entities, Globals(coef, log_weights, start), no_labels, 0, stream)


def state_from_labels(
    entities: Entities, spec: ModelSpec, labels: LabelArray, n_clusters: int, stream: Stream
) -> ChainState:
    """A chain started at given labels, with hyperparameters at their start and everything else drawn."""
    layout = entities.layout
    start = initial_hyperparameters(spec, layout.n_coef)
    log_weights = np.full(n_clusters, -np.log(n_clusters))
    labels = np.ascontiguousarray(labels, dtype=np.int32)
    coef = prior_coef(start.coef_prior, n_clusters, stream.generator(0))
    given = Globals(coef, log_weights, start)
    sums = sums_of_labels(entities, given, labels, 0, stream)
    drawn = draw_globals(layout, sums, given, spec, stream.generator(0))
    return ChainState(0, labels, sums, drawn, log_joint(layout, sums, drawn.hyper))


def draw_globals(
    layout: GramLayout, sums: ClusterSums, current: Globals, spec: ModelSpec, rng: np.random.Generator
) -> Globals:
    """The server's half: w | M, σ, δ; σ | w, M; (μ, δ) | w; α | m; ψ | m, α; β | m and auxiliaries."""
    hyperparameters = current.hyper
    normal = layout.normal_equations(sums.grams)
    coef = draw_coef(coef_posterior(normal, hyperparameters.noise_scale, hyperparameters.coef_prior), rng)
    priors, occupied = spec.hyperpriors, sums.occupied
    if spec.noise_scale is None:
        squares = layout.rss(sums.grams, coef).sum()
        variance = hyper.draw_variance(rng, priors.noise_variance, normal.n.sum(), squares)
        hyperparameters = replace(hyperparameters, noise_scale=float(np.sqrt(variance)))
    if spec.coef_scale is None:
        prior = (
            hyper.draw_common_mean_prior(rng, coef[occupied], hyperparameters.coef_prior, priors)
            if spec.coef_prior == "common_mean"
            else hyper.draw_zero_mean_prior(rng, coef[occupied], priors)
        )
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


def label_all(entities: Entities, given: Globals, labels: LabelArray, round_number: int, stream: Stream) -> ChainState:
    """The agents' half: new labels under the given globals, and their sums."""
    new_labels, sums = relabel(entities, given, labels, round_number, stream)
    return ChainState(round_number, new_labels, sums, given, log_joint(entities.layout, sums, given.hyper))


def relabel(
    entities: Entities, given: Globals, labels: LabelArray, round_number: int, stream: Stream
) -> tuple[LabelArray, ClusterSums]:
    """Draw every agent's labels; −1 stands for an entity that has none yet."""
    arrays, blocks = entities.arrays(stream), entities.blocks()
    law = label_law(entities.layout, given, round_number)
    new_labels = np.empty_like(labels)

    def run(block: int) -> BlockSums:
        sums = empty_sums(given.n_clusters, entities.layout)
        kernels.relabel_agents(arrays, law, labels, new_labels, *blocks.range(block), sums)
        return sums

    return new_labels, ClusterSums.from_blocks(run_blocks(run, len(blocks), entities.n_threads))


def sums_of_labels(
    entities: Entities, given: Globals, labels: LabelArray, round_number: int, stream: Stream
) -> ClusterSums:
    """Sums, table counts and auxiliaries of labels that were drawn elsewhere."""
    sums = empty_sums(given.n_clusters, entities.layout)
    kernels.sum_by_label(entities.arrays(stream), label_law(entities.layout, given, round_number), labels, sums)
    return ClusterSums.from_blocks([sums])


def label_law(layout: GramLayout, given: Globals, round_number: int) -> LabelLaw:
    return LabelLaw(
        given.score_rows(layout), given.prior_weights, float(given.hyper.agent_concentration), round_number
    )


def empty_sums(n_clusters: int, layout: GramLayout) -> BlockSums:
    return BlockSums(
        np.zeros((n_clusters, layout.packed_size)), np.zeros(n_clusters), np.zeros(n_clusters), np.zeros(4)
    )


def prior_coef(prior: CoefPrior, n_clusters: int, rng: np.random.Generator) -> FloatArray:
    return prior.mean + prior.scale * rng.standard_normal((n_clusters, len(prior.mean)))


def log_joint(layout: GramLayout, sums: ClusterSums, hyperparameters: Hyperparameters) -> float:
    """log p(y, labels | ψ, β, σ, μ, δ) with coefficients and agent weights integrated out."""
    normal = layout.normal_equations(sums.grams[sums.occupied])
    evidence = log_evidence(normal, hyperparameters.noise_scale, hyperparameters.coef_prior)
    return float(evidence.sum() + sums.log_label_prior)
