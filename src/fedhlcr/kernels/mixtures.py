"""Kernels for mixtures of normals: mean, standard deviation, quantiles and log density."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.kernels.compiling import kernel


class Mixture(NamedTuple):
    """One mixture of normals for each profile, with the same components (draw, cluster) in all of them."""

    weights: FloatArray  # (profiles, components)
    coef: FloatArray  # (components, n_coef)
    scales: FloatArray  # (components,)


# Components with less weight than this are skipped: they change no result visibly.
NEGLIGIBLE = 1e-12
# A term that is smaller than another by this much, in logs, does not change their sum: e^−45 is 3e−20.
NOTHING = 45.0
# Largest distance, in scales, between a target and a component: the square of a larger one could overflow.
FARTHEST = 1e150
# A quantile is searched for between the components' means, and up to this many scales beyond them. The search ends with
# a step of at most this share of that range, so its error is no larger.
REACH = 40.0
QUANTILE_STEP = 1e-10


@kernel
def mixture_rows(mixture, design, profile, levels, normal_levels, mean_out, std_out, quantiles_out, first, last):
    """Mean, standard deviation and quantiles of rows [first, last) of `design`, row r under profile[r]."""
    n_components, n_coef = mixture.coef.shape
    means, weights, scales = np.empty(n_components), np.empty(n_components), np.empty(n_components)
    for r in range(first, last):
        n_kept = 0
        mean = second = 0.0
        for c in range(n_components):
            weight = mixture.weights[profile[r], c]
            if weight > NEGLIGIBLE:
                centre = 0.0
                for f in range(n_coef):
                    centre += mixture.coef[c, f] * design[r, f]
                means[n_kept], weights[n_kept], scales[n_kept] = centre, weight, mixture.scales[c]
                mean += weight * centre
                n_kept += 1
        for c in range(n_kept):
            second += weights[c] * (scales[c] ** 2 + (means[c] - mean) ** 2)
        mean_out[r], std_out[r] = mean, math.sqrt(second)
        for q in range(levels.shape[0]):
            start = mean + normal_levels[q] * std_out[r]
            quantiles_out[r, q] = mixture_quantile(means[:n_kept], weights[:n_kept], scales[:n_kept], levels[q], start)


@kernel
def log_density_rows(log_weights, coef, scales, design, profile, target, out, first, last):
    """Log density of rows [first, last) at their targets, row r under profile[r].

    `log_weights` (profiles, components) holds log(weight / scale) − ½ log 2π, the upper bound of a component's term. A
    component is skipped if this bound is negligible beside the largest term so far. A small weight alone is no reason:
    far from all other components, one with a tiny weight may be the only one that matters.
    """
    n_components, n_coef = coef.shape
    terms = np.empty(n_components)
    for r in range(first, last):
        best, n_terms = -np.inf, 0
        for c in range(n_components):
            term = log_weights[profile[r], c]
            if term > best - NOTHING:
                z = target[r]
                for f in range(n_coef):
                    z -= coef[c, f] * design[r, f]
                z = min(abs(z) / scales[c], FARTHEST)
                term -= 0.5 * z * z
                best = max(best, term)
                terms[n_terms] = term
                n_terms += 1
        total = 0.0
        for t in range(n_terms):
            # ≥, so that the best term counts even if best − NOTHING rounds to best
            if terms[t] >= best - NOTHING:
                total += math.exp(terms[t] - best)
        out[r] = best + math.log(total)


@kernel
def mixture_quantile(means, weights, scales, level, start):
    """Quantile of a mixture of normals: Newton's method, with bisection where it leaves the bracket."""
    low, high = np.inf, -np.inf
    for c in range(means.shape[0]):
        low, high = min(low, means[c] - REACH * scales[c]), max(high, means[c] + REACH * scales[c])
    tolerance = QUANTILE_STEP * (high - low)
    x = start
    for _ in range(200):
        mass = density = 0.0
        for c in range(means.shape[0]):
            z = (x - means[c]) / scales[c]
            # most components are far away, and beyond nine standard deviations there is less than 1e-18
            if z > 9.0:
                mass += weights[c]
            elif z > -9.0:
                mass += weights[c] * 0.5 * math.erfc(-z * 0.7071067811865476)
                density += weights[c] * math.exp(-0.5 * z * z) * 0.3989422804014327 / scales[c]
        if mass < level:
            low = x
        else:
            high = x
        proposal = x - (mass - level) / density if density > 0.0 else low
        if not low < proposal < high:
            proposal = 0.5 * (low + high)
        moved = abs(proposal - x)
        x = proposal
        if moved <= tolerance:
            break
    return x
