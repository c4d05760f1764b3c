"""How well a model predicts each of its own events from all others, without a second fit.

Let p_k be the probability of label k of the event's entity, given all events, in one draw. Removing the event gives

    1 / p(y_n | other events of the entity) = Σ_k p_k / N(y_n; m_nk, v_nk),

where m and v are the mean and the variance of the event under label k. In plain clusters they are wᵀx and σ². With
effects of entities they are conditional on the entity's other events. The draws too have seen the event. The same
identity over draws is a harmonic mean, which single draws can dominate. So the draws are weighted by 1/p as in
truncated importance sampling (Ionides 2008): no weight exceeds √S times the mean weight of the S draws.

The same for linear models is `Predicted.log_density_left_out` in `analysis.regressions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.special import logsumexp
from fedhlcr.model.regression import LOG_2PI
from fedhlcr.posterior.prediction import Posterior, Profiles
from fedhlcr.posterior.responses import left_out_densities

# Most draws to average over, evenly spaced.
MOST_DRAWS = 50
# From the number of a draw to mean and variance of each event under each label, (events, clusters) each. An axis of
# length 1 stands for equal values.
EventLaws = Callable[[int], tuple[FloatArray, FloatArray]]


class FittedEvents(NamedTuple):
    """Some of the events that a model was fitted to, in standardised units.

    Attributes
    ----------
    design : (events, n_coef)
    target : (events,)
    entities : (events,) positions of their entities in the posterior's memory
    """

    design: FloatArray
    target: FloatArray
    entities: IndexArray


def cluster_laws(posterior: Posterior, events: FittedEvents) -> EventLaws:
    """The laws in plain clusters: mean wᵀx and the variance of the noise."""
    draws = posterior.draws
    variances = posterior.likelihood.noise_scales(draws.stacked) ** 2

    def laws(draw: int) -> tuple[FloatArray, FloatArray]:
        return events.design @ draws.coef[draw].T, variances[draw][None]

    return laws


def log_density_left_out(posterior: Posterior, events: FittedEvents, laws: EventLaws) -> FloatArray:
    """(events,) log density of each event given all other fitted events, in standardised units.

    `laws` are those of the events, without themselves, under each draw and label.
    """
    distinct, of_event = np.unique(events.entities, return_inverse=True)
    n_draws = min(len(posterior.draws), MOST_DRAWS)
    draws = np.linspace(0, len(posterior.draws) - 1, n_draws).astype(np.int64)
    log_ratios = np.empty((n_draws, len(events.target)))
    for draw, out in zip(draws.tolist(), log_ratios, strict=True):
        mean, variance = laws(draw)
        terms = 0.5 * (LOG_2PI + np.log(variance) + (events.target[:, None] - mean) ** 2 / variance)
        terms += log_label_weights(posterior, draw, distinct)[of_event]
        out[:] = _log_sum_exp(terms)
    return average_over_draws(log_ratios)


def log_density_left_out_of_entities(
    posterior: Posterior, X: FloatArray, target: FloatArray, entities: IndexArray
) -> FloatArray:
    """The same for a likelihood with effects, of which the entity's other events tell something too.

    `X` (events, n_features) is in the user's units.
    """
    profiles = Profiles.of(posterior.memory.entities.index.agent_of[entities], entities)
    out = np.empty(len(target))
    for part in posterior.mixtures(X, profiles):
        out[part.rows] = average_over_draws(-left_out_densities(part, target[part.rows]).T)
    return out


def log_label_weights(posterior: Posterior, draw: int, entities: IndexArray) -> FloatArray:
    """(entities, clusters) log p(z = k) in a draw, for entities in ascending order.

    The same as `Posterior.label_weights`, but in logs: a label that an event excludes may be the right one without it.
    """
    draws = posterior.draws
    memory = posterior.memory
    agents, of_entity = np.unique(memory.entities.index.agent_of[entities], return_inverse=True)
    others = memory.counts(draw, agents, draws.n_clusters)[of_entity]
    others[np.arange(len(entities)), memory.labels[draw, entities]] -= 1.0
    current = draws.globals(draw)
    matrices = memory.entities.grams[entities]
    # a cluster of weight zero pads a chain with fewer clusters
    with np.errstate(divide="ignore"):
        log_weights = np.log(others + current.prior_weights()) + matrices @ posterior.likelihood.score_rows(current).T
    return log_weights - _log_sum_exp(log_weights)[:, None]


def _log_sum_exp(terms: FloatArray) -> FloatArray:
    """Over the last axis; quicker than scipy's, which checks more."""
    largest = terms.max(axis=-1, keepdims=True)
    return np.asarray((largest + np.log(np.exp(terms - largest).sum(axis=-1, keepdims=True)))[..., 0])


def average_over_draws(log_ratios: FloatArray) -> FloatArray:
    """(events,) log density from log 1/p(y_n | other events of the entity), (draws, events), in each draw."""
    n_draws = len(log_ratios)
    largest = logsumexp(log_ratios, axis=0) - 0.5 * np.log(n_draws)
    log_weights = np.minimum(log_ratios, largest)
    return np.asarray(logsumexp(log_weights - log_ratios, axis=0) - logsumexp(log_weights, axis=0))
