"""Collapsed Gibbs sampling: one entity after the other, with the coefficients integrated out.

It is slower per sweep than the blocked sampler and cannot run in parallel, but it mixes better where entities have few
events. A label is drawn with probability proportional to the entity's block likelihood times a prior weight of the
cluster: the paper's approximate one (`label_prior="paper"`) or the exact one, from table counts ("tables").
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.streams import Stream
from fedhlcr.kernels import labels as kernels
from fedhlcr.kernels.arguments import CollapsedLaw
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Globals
from fedhlcr.samplers.blocked import draw_globals, sums_of_labels
from fedhlcr.samplers.state import ChainState, EntityData
from fedhlcr.settings import LabelPrior


def step(
    entities: EntityData, spec: ModelSpec, state: ChainState, stream: Stream, label_prior: LabelPrior = "tables"
) -> ChainState:
    """One sweep: draw every label given all others, then the globals given the labels. Paper: Algorithm 2.

    Deviations from the paper's text:

     - an event is scored before it updates the regression, not after: all events of an entity are scored in one block;
     - the K matrices are factored again by Cholesky instead of downdated, which loses precision when xᵀHx/σ² → 1.
    """
    likelihood = entities.likelihood
    round_number = state.round + 1
    current = state.globals
    grams, prior_precision = likelihood.collapsed_terms(entities.grams, current)
    arrays = entities.arrays(stream)._replace(grams=grams)
    labels = state.labels.copy()
    law = collapsed_law(prior_precision, current, round_number, label_prior)
    kernels.collapsed_sweep(arrays, law, labels, likelihood.layout.n_coef)
    sums = sums_of_labels(entities, current, labels, round_number, stream)
    changed = float((labels != state.labels).sum())
    sums = replace(sums, scalars=sums.scalars | {"labels_changed": changed})
    labelled = ChainState.of(likelihood, round_number, labels, sums, current)
    drawn = draw_globals(likelihood, labelled, spec, stream.generator(round_number)).globals
    if label_prior == "paper":
        # the paper's weights in the place of ψ, which predictions then use: (N^(k) + α/K) / (N + α)
        alpha = drawn.global_concentration
        counts = sums.entity_counts
        weights = (counts + alpha / len(counts)) / (counts.sum() + alpha)
        drawn = replace(drawn, log_weights=np.log(weights))
    return ChainState.of(likelihood, round_number, labels, sums, drawn)


def collapsed_law(
    prior_precision: FloatArray, current: Globals, round_number: int, label_prior: LabelPrior
) -> CollapsedLaw:
    return CollapsedLaw(
        prior_precision,
        current.prior_weights(),
        float(current.agent_concentration),
        float(current.global_concentration) if label_prior == "paper" else 0.0,
        round_number,
    )
