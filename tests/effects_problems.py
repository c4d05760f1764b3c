"""Small problems with effects of entities and agents, and the dense covariances of their targets."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedhlcr.model.gram import GramLayout
from fedhlcr.model.mixed import Mixed, MixedCommonNoise, MixedEntityNoise
from fedhlcr.model.mixed_globals import MixedGlobals
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Stage
from fedhlcr.samplers.state import EntityData
from tests.problems import entities_from

LIKELIHOODS = {"entity": MixedEntityNoise, "common": MixedCommonNoise}


class Events(NamedTuple):
    """Equally many events for each entity: features (entities, events, n_features), and sizes of the agents."""

    X: np.ndarray
    sizes: tuple[int, ...]

    @property
    def owner(self) -> np.ndarray:
        """(entities,) the agent of each entity."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def design(self, layout: GramLayout) -> np.ndarray:
        """(entities, events, n_coef)"""
        ones = np.ones((*self.X.shape[:2], 1 - layout.first_regressor))
        return np.concatenate([ones, self.X], axis=2)

    def grams(self, layout: GramLayout, y: np.ndarray) -> np.ndarray:
        """(entities, packed) from targets (entities, events)."""
        rows = np.concatenate([np.ones((*y.shape, 1)), self.X, y[..., None]], axis=2)
        return layout.pack(np.einsum("eni,enj->eij", rows, rows))

    def entities(self, likelihood: type[Mixed], y: np.ndarray, *, fit_intercept=True, n_threads=1) -> EntityData:
        n_events, entity = y.shape[1], np.concatenate([np.arange(size) for size in self.sizes])
        entities = entities_from(
            self.X.reshape(y.size, -1),
            y.ravel(),
            np.repeat(self.owner, n_events),
            np.repeat(entity, n_events),
            fit_intercept=fit_intercept,
            n_threads=n_threads,
        )
        return replace(entities, likelihood=likelihood(entities.layout))


def random_events(rng, sizes, n_events, n_features) -> Events:
    return Events(rng.normal(size=(sum(sizes), n_events, n_features)), tuple(sizes))


def random_covariance(rng, n_coef: int, rank: int | None = None, scale: float = 0.5) -> np.ndarray:
    """A covariance with correlations. With a rank below n_coef, the last coefficients have no effect."""
    rank = n_coef if rank is None else rank
    root = rng.normal(size=(rank, rank)) * scale
    covariance = np.zeros((n_coef, n_coef))
    covariance[:rank, :rank] = root @ root.T + 0.02 * scale**2 * np.eye(rank)
    return covariance


def globals_with(likelihood: Mixed, n_clusters: int, **changes) -> MixedGlobals:
    """Globals at the last stage, with fixed concentrations; the unit of the noise is its scale unless given."""
    start = likelihood.start(ModelSpec(global_concentration=1.0, agent_concentration=0.7), n_clusters)
    unit = changes.get("noise_scale", start.noise_unit)
    return replace(start, **{"stage": float(Stage.EXACT), "noise_unit": unit, **changes})


def target_covariance(design, labels, owner, variance, covariance, agent_scale, coef_scale):
    """(events, events) covariance of all targets given the labels, with w, a and b integrated out."""
    n_entities, n_events, n_coef = design.shape
    rows = design.reshape(-1, n_coef)
    entity = np.repeat(np.arange(n_entities), n_events)
    same = lambda of: np.equal.outer(of[entity], of[entity])  # noqa: E731
    total = same(np.arange(n_entities)) * (rows @ covariance @ rows.T)
    total += same(owner) * (rows * agent_scale**2 @ rows.T)
    total += same(labels) * (rows * np.square(coef_scale) @ rows.T)
    return total + np.diag(np.repeat(variance, n_events))


def mean_in_errors(changes):
    """The mean of (starts, quantities) independent changes, in standard errors; 0 for what never changes."""
    error = changes.std(axis=0) / np.sqrt(len(changes))
    return np.divide(changes.mean(axis=0), error, out=np.zeros_like(error), where=error > 1e-12)
