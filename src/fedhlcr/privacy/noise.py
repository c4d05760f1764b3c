"""Exact noise: discrete Gaussians from the operating system's entropy.

Sums are released in fixed point, so the noise is a whole number of lattice units. OpenDP's sampler draws it exactly,
without floating-point rounding (Canonne, Kamath, Steinke 2020). It never uses the seed of a run: who knows the seed
could subtract the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.extras import missing_extra
from fedhlcr.exceptions import ArgumentError

# A source of noise: (scale, size) → (size,) whole numbers.
NoiseSource = Callable[[float, int], NDArray[np.int64]]
# The sampler cuts draws off at 64 bits. A draw that is cut off is no secret, so larger noise would be no noise at all.
MOST_SCALE = 2.0**56


def discrete_gaussian(scale: float, size: int) -> NDArray[np.int64]:
    """(size,) independent draws with probability ∝ exp(−x²/(2·scale²)) on the whole numbers."""
    if not 0.0 < scale <= MOST_SCALE:
        raise ArgumentError(
            f"`scale` must be above 0 and at most {MOST_SCALE:.3g}, but is {scale:.3g}; use a larger budget."
        )
    return np.array(_mechanism(scale)([0] * size), dtype=np.int64)


def noise_share(scale: float, size: int, n_shares: int, source: NoiseSource = discrete_gaussian) -> NDArray[np.int64]:
    """One agent's share of the noise, if at least `n_shares` agents add one each.

    The sum of n ≥ n_shares shares has at least the variance scale². It is not exactly a discrete Gaussian, but the log
    probabilities differ by at most 10 Σ_{k<n} exp(−2π² s² k/(k+1)) with s the scale of one share (Kairouz, Liu, Steinke
    2021, Theorem 1). In lattice units s is in the millions, so the difference is zero to hundreds of digits. If c of
    the agents give their shares away, what protects the others is the noise of the rest: variance scale²·(n − c)/n.
    """
    return source(scale / math.sqrt(n_shares), size)


@cache
def _mechanism(scale: float) -> Any:
    """OpenDP's measurement that adds the noise to a vector of whole numbers."""
    try:
        import opendp.prelude as opendp
    except ImportError:
        raise missing_extra("differential privacy needs OpenDP", "privacy") from None
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T=opendp.i64)), opendp.l2_distance(T=opendp.f64)
    return opendp.m.make_gaussian(*space, scale=scale)
