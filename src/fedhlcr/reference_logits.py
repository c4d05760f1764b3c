"""Slow, readable versions of `kernels.logits`, as `reference` has them for the other kernels; for the tests.

here               fast code
log_density        kernels.logits.event_log_likelihoods
log_likelihoods    kernels.logits.add_log_likelihoods
working_grams      kernels.weights.weighted_grams, with working targets
laplace_density    kernels.logits.laplace_densities
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data.events import EventStore
from fedhlcr.kernels.logits import EventTerms
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


def log_likelihoods(events: EventStore, terms: EventTerms, coef: FloatArray, steps: FloatArray) -> FloatArray:
    """(entities, clusters) log p(events | cluster); `steps` (entities, n_coef) are added to the coefficients."""
    by_event = [log_density(terms, linear_parts(events, own + steps)) for own in coef]
    return np.column_stack([np.add.reduceat(values, events.event_start[:-1]) for values in by_event])


def working_grams(layout: GramLayout, events: EventStore, terms: EventTerms, weights: FloatArray) -> FloatArray:
    """(entities, packed) Σ ω (1, x, t)(1, x, t)ᵀ with t = κ/ω − d."""
    targets = terms.kappa / weights - terms.fixed
    rows = np.column_stack([np.ones(len(targets)), events.X, targets])
    pairs = zip(events.event_start[:-1], events.event_start[1:], strict=True)
    return np.array([layout.pack((rows[i:j] * weights[i:j, None]).T @ rows[i:j]) for i, j in pairs])


def laplace_density(events: EventStore, terms: EventTerms, entity: int, coef: FloatArray, given: MixedGlobals) -> float:
    """log ∫ p(events | coef + b) N(b; 0, D) db, with a parabola through its logarithm at its maximum.

    With b = Λc the integral is exp(f(c*)) |−f″(c*)|^−½, where f is the log density of the events less ½c².
    """
    own = slice(events.event_start[entity], events.event_start[entity + 1])
    design = np.column_stack([np.ones(own.stop - own.start), events.X[own]])
    effects = design[:, given.effect_columns] @ given.effect_root
    part = EventTerms(*(of[own] for of in terms))

    def minus_log_joint(c: FloatArray) -> float:
        return float(0.5 * c @ c - log_density(part, design @ coef + effects @ c).sum())

    found = minimize(minus_log_joint, np.zeros(effects.shape[1]), method="BFGS", options={"gtol": 1e-7})
    psi = design @ coef + effects @ found.x + part.fixed
    # the second derivative of log(2 cosh(ψ/2)) is 1/(4 cosh²(ψ/2))
    curvature = part.shape / (4.0 * np.cosh(0.5 * psi) ** 2)
    precision = np.eye(effects.shape[1]) + effects.T @ (effects * curvature[:, None])
    return float(-found.fun - 0.5 * np.linalg.slogdet(precision)[1])
