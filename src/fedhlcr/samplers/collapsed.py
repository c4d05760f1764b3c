"""Collapsed Gibbs: entities one after the other, coefficients integrated out. Paper: Algorithm 2.

Slower per sweep than the blocked sampler and not to be parallelised, but it mixes better where
entities hold few events. The label of one entity is drawn as in the paper's Algorithm 1 with its
block likelihood; how common the clusters are either by the paper's approximate weights or exactly, by
table counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.streams import Stream
from fedhlcr.kernels import labels as kernels
from fedhlcr.kernels.arguments import CollapsedLaw
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPrior
from fedhlcr.samplers.blocked import draw_globals, sums_of_labels
from fedhlcr.samplers.state import ChainState, Entities, Globals, prior_weights

LabelPrior = Literal["tables", "paper"]


def step(
    entities: Entities, spec: ModelSpec, state: ChainState, stream: Stream, label_prior: LabelPrior = "tables"
) -> ChainState:
    """One sweep: every label given all others, then the globals given the labels. Paper: Algorithm 1, Algorithm 2.

    Deviations from the text: an event is scored before it updates the regression, never after; the
    likelihood of an entity is taken in one block; and K matrices are refactored by Cholesky instead
    of downdated, which loses precision when xᵀHx/σ² → 1.
    """
    layout, round_number = entities.layout, state.round + 1
    given = state.globals
    arrays = entities.arrays(stream)
    block = np.ascontiguousarray(entities.grams[:, layout.regression_block])
    block /= given.hyper.noise_scale**2
    labels = state.labels.copy()
    law = collapsed_law(layout, given, round_number, label_prior)
    kernels.collapsed_sweep(arrays._replace(grams=block), law, labels, layout.n_coef)
    sums = sums_of_labels(entities, given, labels, round_number, stream)
    sums = replace(sums, labels_changed=float((labels != state.labels).sum()))
    labelled = ChainState.of(layout, round_number, labels, sums, given)
    drawn = draw_globals(layout, labelled, spec, stream.generator(round_number))
    if label_prior == "paper":
        drawn = _with_paper_weights(drawn, sums.entity_counts)
    return ChainState.of(layout, round_number, labels, sums, drawn)


def collapsed_law(layout: GramLayout, given: Globals, round_number: int, label_prior: LabelPrior) -> CollapsedLaw:
    return CollapsedLaw(
        prior_precision(layout, given.hyper.coef_prior),
        prior_weights(given),
        float(given.hyper.agent_concentration),
        float(given.hyper.global_concentration) if label_prior == "paper" else 0.0,
        round_number,
    )


def prior_precision(layout: GramLayout, prior: CoefPrior) -> FloatArray:
    """Packed [[diag(1/δ²), μ/δ²], [·, Σμ²/δ²]]: an empty cluster as the kernel wants it."""
    precision = prior.scale**-2.0
    full = np.zeros((layout.n_coef + 1, layout.n_coef + 1))
    full[:-1, :-1] = np.diag(precision)
    full[-1, :-1] = prior.mean * precision
    full[-1, -1] = (prior.mean**2 * precision).sum()
    return full[np.tril_indices(layout.n_coef + 1)]


def _with_paper_weights(drawn: Globals, entity_counts: FloatArray) -> Globals:
    """ψ as the paper's weights have it, for predictions: (N^(k) + α/K) / (N + α)."""
    alpha = drawn.hyper.global_concentration
    weights = (entity_counts + alpha / len(entity_counts)) / (entity_counts.sum() + alpha)
    return Globals(drawn.coef, np.log(weights), drawn.hyper)
