"""After a fit: is a simpler model better? Each event of a sample is predicted from all other fitted events."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.leave_one_out import (
    EventLaws,
    FittedEvents,
    cluster_laws,
    log_density_left_out,
    log_density_left_out_of_entities,
)
from fedhlcr.analysis.regressions import predict_by_entity, predict_by_one
from fedhlcr.analysis.simpler import MIXED_MODEL, ONE_RIDGE, SimplerModels
from fedhlcr.analysis.verdict import FitComparison, compare_densities
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.data.scarcity import FEWEST_ENTITIES
from fedhlcr.posterior.prediction import Posterior

# Most events to compare, and most of one entity, so that a fit takes hardly longer.
MOST_EVENTS = 2000
MOST_PER_ENTITY = 20
# Numbers in the matrices of the entities that the mixed model is fitted to: fewer than in `analysis.simpler`.
NUMBERS_AFTER_A_FIT = 1 << 15
MakeLaws = Callable[[Posterior, FittedEvents], EventLaws]


class Sample(NamedTuple):
    """Some of the fitted events, in the user's units."""

    X: FloatArray
    y: FloatArray
    entities: IndexArray  # (events,) positions of their entities


def sample_rows(event_start: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Positions of some events and of their entities: evenly spaced entities, evenly spaced events of each.

    `event_start` is that of a `Hierarchy`.
    """
    sizes = np.minimum(np.diff(event_start), MOST_PER_ENTITY)
    n_chosen = max(1, int(len(sizes) * min(1.0, MOST_EVENTS / sizes.sum())))
    chosen = np.linspace(0, len(sizes) - 1, n_chosen).astype(np.int64)
    rows = [np.linspace(event_start[e], event_start[e + 1] - 1, sizes[e]).astype(np.int64) for e in np.unique(chosen)]
    return np.concatenate(rows), np.repeat(np.unique(chosen), sizes[np.unique(chosen)])


def take_sample(events: Hierarchy) -> Sample | None:
    """A sample to compare models on; None if that makes no sense: few entities, a constant target, weighted events."""
    if (events.weight != 1.0).any() or events.n_entities < FEWEST_ENTITIES or np.ptp(events.y) == 0.0:
        return None
    rows, entities = sample_rows(events.event_start)
    return Sample(events.X[rows], events.y[rows], entities)


def compare_with_simpler(
    posterior: Posterior, sample: Sample | None, make_laws: MakeLaws = cluster_laws
) -> FitComparison | None:
    """Compare a fitted model with one ridge and a mixed model on a sample of its events.

    None without a sample, and if the likelihood weights the events itself.

    Parameters
    ----------
    sample : of those that the model was fitted to; columns that curves append may be there or not
    make_laws : how the likelihood predicts an event from the others of its entity, under each draw and label
    """
    if sample is None or posterior.likelihood.needs_events:
        return None
    X = sample.X[:, : posterior.layout.n_inputs]
    units = posterior.standardization
    features = units.apply(X)
    target = units.apply_target(sample.y)
    design = np.column_stack([np.ones(len(features)), features])
    if posterior.likelihood.has_state:
        own = log_density_left_out_of_entities(posterior, X, target, sample.entities)
    else:
        fitted = FittedEvents(design[:, posterior.layout.first_regressor :], target, sample.entities)
        own = log_density_left_out(posterior, fitted, make_laws(posterior, fitted))
    try:
        rivals = _simpler_densities(posterior, design[:, : posterior.layout.n_inputs + 1], target, sample.entities)
    except np.linalg.LinAlgError:
        # columns of very different size that were not standardised; the fit itself is sound
        return None
    if not all(np.isfinite(density).all() for density in (own, *rivals.values())):
        return None
    return compare_densities(own, rivals, sample.entities)


def _simpler_densities(
    posterior: Posterior, design: FloatArray, target: FloatArray, entities: IndexArray
) -> dict[str, FloatArray]:
    """(events,) log densities of events left out, by name of the simpler model."""
    models = SimplerModels.of(posterior, NUMBERS_AFTER_A_FIT)
    one = predict_by_one(models.law_of_all(), models.one_ridge.noise_variance, design)
    densities = {ONE_RIDGE: one.log_density_left_out(target)}
    if models.can_be_mixed:
        mixed = predict_by_entity(models.mixed_model, models.known, design, entities, one)
        densities[MIXED_MODEL] = mixed.log_density_left_out(target)
    return densities
