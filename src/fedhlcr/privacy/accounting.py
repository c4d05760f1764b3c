"""What a sequence of noisy sums costs: exact conversions between μ-GDP and (ε, δ).

A sum to which one agent can add a vector of norm at most c, released with Gaussian noise of standard deviation s, is
μ-GDP with μ = c/s (Dong, Roth, Su 2022). Releases compose exactly, also if later ones depend on earlier ones:

    μ² = Σ (c/s)²   over all releases

and a μ-GDP mechanism is (ε, δ)-differentially private if and only if

    δ ≥ Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

Here every agent takes part in every release. Nothing is gained from asking a random part of the agents: the server's
state holds what absent agents contributed earlier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from fedhlcr._support.special import log_ndtr

# Values of μ between which a budget is searched; a μ of 60 gives no protection at all.
SMALLEST_MU = 1e-9
LARGEST_MU = 60.0
# Least μ of one release: the noise of a smaller one does not fit into 64 bits.
LEAST_RELEASE_MU = 2.0**-26


def delta_of(epsilon: float, mu: float) -> float:
    """The smallest δ for which a μ-GDP mechanism is (ε, δ)-differentially private."""
    upper = log_ndtr(-epsilon / mu + mu / 2.0)
    lower = epsilon + log_ndtr(-epsilon / mu - mu / 2.0)
    # a difference of two numbers that may be nearly equal
    return float(-math.exp(upper) * math.expm1(min(lower - upper, 0.0)))


def mu_of(epsilon: float, delta: float) -> float:
    """The largest μ for which a μ-GDP mechanism is (ε, δ)-differentially private."""
    return float(_root(lambda mu: delta_of(epsilon, mu) - delta, SMALLEST_MU, LARGEST_MU, xtol=1e-14, rtol=1e-14))


def epsilon_of(mu: float, delta: float) -> float:
    """The smallest ε ≥ 0 for which a μ-GDP mechanism is (ε, δ)-differentially private."""
    if delta_of(0.0, mu) <= delta:
        return 0.0
    # the tail of the privacy loss, N(μ²/2, μ²), bounds ε from above
    most = mu**2 / 2.0 + mu * math.sqrt(2.0 * math.log(1.0 / delta))
    return float(_root(lambda epsilon: delta_of(epsilon, mu) - delta, 0.0, most, xtol=1e-13, rtol=1e-14))


def composed(mus: Iterable[float]) -> float:
    """μ of several releases together."""
    return math.sqrt(math.fsum(mu**2 for mu in mus))


def _root(function: Callable[[float], float], low: float, high: float, **tolerances: float) -> float:
    # imported here, because it takes a third of a second to import
    from scipy.optimize import brentq

    return float(brentq(function, low, high, **tolerances))
