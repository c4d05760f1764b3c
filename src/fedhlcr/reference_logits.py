"""Slow, readable versions of `kernels.logits`, as `reference` has them for the other kernels; for the tests.

here               fast code
log_density        kernels.logits.event_log_likelihoods
log_likelihoods    kernels.logits.write_log_likelihoods
working_grams      kernels.weights.weighted_grams, with working targets
integrated_density kernels.logits.integrated_densities
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data.events import EventStore
from fedhlcr.kernels.logits import WIDER, EventTerms
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.mixed_globals import MixedGlobals


def linear_parts(events: EventStore, coef: FloatArray) -> FloatArray:
    """(events,) η = xᵀβ, with an intercept and the coefficients (entities, n_coef) of each entity."""
    own = np.repeat(coef, np.diff(events.event_start), axis=0)
    return np.asarray(own[:, 0] + (own[:, 1:] * events.X).sum(axis=1))


def log_density(terms: EventTerms, eta: FloatArray) -> FloatArray:
    """(events,) κψ − b log(2 cosh(ψ/2)) + c with ψ = η + d."""
    psi = eta + terms.fixed
    return np.asarray(terms.kappa * psi - terms.shape * np.logaddexp(0.5 * psi, -0.5 * psi) + terms.constant)


def log_likelihoods(events: EventStore, terms: EventTerms, coef: FloatArray) -> FloatArray:
    """(entities, clusters) log p(events | cluster), with the coefficients (clusters, n_coef)."""
    by_event = [log_density(terms, linear_parts(events, np.tile(own, (events.n_entities, 1)))) for own in coef]
    return np.column_stack([np.add.reduceat(values, events.event_start[:-1]) for values in by_event])


def working_grams(layout: GramLayout, events: EventStore, terms: EventTerms, weights: FloatArray) -> FloatArray:
    """(entities, packed) Σ ω (1, x, t)(1, x, t)ᵀ with t = κ/ω − d."""
    targets = terms.kappa / weights - terms.fixed
    rows = np.column_stack([np.ones(len(targets)), events.X, targets])
    pairs = zip(events.event_start[:-1], events.event_start[1:], strict=True)
    return np.array([layout.pack((rows[i:j] * weights[i:j, None]).T @ rows[i:j]) for i, j in pairs])


def integrated_density(
    events: EventStore, terms: EventTerms, entity: int, coef: FloatArray, current: MixedGlobals, points: FloatArray
) -> float:
    """log ∫ p(events | coef + b) N(b; 0, D) db, by importance sampling around the mode.

    With b = Λc and f(c) the log density of the events less ½c², the points are those of a normal law around the maximum
    c*, whose precision is −f″(c*), a little wider.
    """
    own = slice(events.event_start[entity], events.event_start[entity + 1])
    design = np.column_stack([np.ones(own.stop - own.start), events.X[own]])
    effects = design[:, current.effect_columns] @ current.effect_root
    part = EventTerms(*(of[own] for of in terms))

    def log_joint(c: FloatArray) -> float:
        return float(log_density(part, design @ coef + effects @ c).sum() - 0.5 * c @ c)

    size = effects.shape[1]
    mode = minimize(lambda c: -log_joint(c), np.zeros(size), method="BFGS", options={"gtol": 1e-7}).x
    psi = design @ coef + effects @ mode + part.fixed
    # the second derivative of log(2 cosh(ψ/2)) is 1/(4 cosh²(ψ/2))
    curvature = part.shape / (4.0 * np.cosh(0.5 * psi) ** 2)
    root = np.linalg.cholesky(np.eye(size) + effects.T @ (effects * curvature[:, None]))
    wider = 1.0 + WIDER / size
    proposals = mode + wider * np.linalg.solve(root.T, points.T).T
    log_ratios = [log_joint(c) + 0.5 * z @ z for c, z in zip(proposals, points, strict=True)]
    log_volume = size * np.log(wider) - np.log(np.diag(root)).sum()
    return float(logsumexp(log_ratios) - np.log(len(points)) + log_volume)
