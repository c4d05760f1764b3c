"""Quantiles of mixtures whose components may be so narrow that the distribution function is a staircase.

Without effects, the log odds of a row are nearly one number per draw and cluster. Quantiles then often lie between two
steps: with 100 draws, a twentieth of the weight is exactly that of five of them. There the distribution function is
flat, and rounding errors of its sum would decide where the quantile is. So weights are summed exactly, as whole numbers
of 2^−62, tails of components are added with their sign, and the level is taken to be reached if ROUNDING is missing.
"""

from __future__ import annotations

import numpy as np

from fedhlcr.kernels.compiling import finite_kernel, kernel
from fedhlcr.kernels.mixtures import CUBED_STEP, FAR, MOST_STEPS, QUANTILE_STEP, normal_tail, quantile_bracket
from fedhlcr.kernels.scores import small_exponential

# Weights are whole numbers of 1/UNIT. They sum to 1, so that sums do not overflow.
UNIT = 2.0**62
# What may be missing of a level: sums of weights have rounding errors of some 1e-16.
ROUNDING = 1e-15
# Distance, in scales, beyond which a component has no weight on the other side: less than 1e-18.
NEAR = 9.0
_INVERSE_ROOT_2PI = 0.3989422804014327


@kernel
def fix_weights(weights, fixed):
    """Weights as whole numbers of 1/UNIT."""
    for c in range(weights.shape[0]):
        fixed[c] = np.int64(weights[c] * UNIT)


@finite_kernel
def certain_mass(x, means, scales, fixed):
    """Weight of the components that lie below x for certain, and of those that may, as whole numbers."""
    surely = maybe = 0
    for c in range(means.shape[0]):
        apart = x - means[c]
        reach = NEAR * scales[c]
        surely += fixed[c] if apart > reach else 0
        maybe += fixed[c] if apart > -reach else 0
    return surely, maybe


@kernel
def narrow_bracket(means, scales, fixed, level, x, low, high):
    """A smaller bracket of a quantile, and a point in it, by bisection among components that are surely on one side.

    It ends where components near the point matter. `level` is a whole number.
    """
    for _ in range(MOST_STEPS):
        surely, maybe = certain_mass(x, means, scales, fixed)
        if surely >= level:
            high = x
        elif maybe < level:
            low = x
        else:
            break
        x = 0.5 * (low + high)
    return x, low, high


@kernel
def probe(means, scales, fixed, level, x, low, high):
    """The bracket after a look at x, which may be outside of it or tell nothing."""
    if low < x < high:
        surely, maybe = certain_mass(x, means, scales, fixed)
        if surely >= level:
            high = x
        elif maybe < level:
            low = x
    return low, high


@kernel
def keep_near(means, scales, weights, fixed, low, high, near, near_fixed):
    """Copy the components that matter between `low` and `high`: means, 1/scales and weights to `near`.

    Return their number and the weight of those below.
    """
    n = below = 0
    for c in range(means.shape[0]):
        reach = FAR * scales[c]
        if means[c] + reach < low:
            below += fixed[c]
        elif means[c] - reach <= high:
            near[0, n] = means[c]
            near[1, n] = 1.0 / scales[c]
            near[2, n] = weights[c]
            near_fixed[n] = fixed[c]
            n += 1
    return n, below


@finite_kernel
def signed_mass(x, means, inverses, weights, fixed):
    """Whole weight of the components below x, what their and the others' tails add, density, slope of the density."""
    below = 0
    tails = 0.0
    density = 0.0
    slope = 0.0
    for c in range(means.shape[0]):
        z = (x - means[c]) * inverses[c]
        t = abs(z)
        t = FAR if t > FAR else t
        e = small_exponential(-0.5 * t * t)
        tail = weights[c] * normal_tail(t, e)
        height = weights[c] * inverses[c] * e
        below += fixed[c] if z >= 0.0 else 0
        tails += tail if z < 0.0 else -tail
        density += height
        slope -= height * z * inverses[c]
    return below, tails, density * _INVERSE_ROOT_2PI, slope * _INVERSE_ROOT_2PI


@kernel
def search_near(near, n, near_fixed, missing, x, low, high, least, spread):
    """The quantile between `low` and `high`, as `mixtures.search_quantile`; `missing` is the level less those below."""
    means = near[0, :n]
    inverses = near[1, :n]
    weights = near[2, :n]
    fixed = near_fixed[:n]
    last_step = np.inf
    enough = CUBED_STEP * least * least * spread
    for _ in range(MOST_STEPS):
        below, tails, density, slope = signed_mass(x, means, inverses, weights, fixed)
        excess = (below - missing) / UNIT + tails
        if excess < 0.0:
            low = x
        else:
            high = x
        proposal = np.inf
        bend = 1.0
        if density > 0.0:
            newton = excess / density
            bend = 0.5 * newton * slope / density
            proposal = x - newton / (1.0 - bend) if abs(bend) < 0.5 else x - newton
        is_good = low <= proposal <= high and abs(proposal - x) <= 0.5 * last_step
        if not is_good:
            proposal = 0.5 * (low + high)
        step = abs(proposal - x)
        x = proposal
        last_step = step
        if step <= QUANTILE_STEP * least + 4e-16 * abs(x) or (is_good and abs(bend) < 0.1 and step**3 <= enough):
            break
    return x


@kernel
def step_quantiles(means, scales, weights, fixed, levels, starts, spread, near, near_fixed, out, row):
    """Write quantiles of a mixture with standard deviation `spread`, near `starts`, to a row of `out`.

    `near` (3, components) and `near_fixed` (components,) are scratch space.
    """
    lowest, highest, least = quantile_bracket(means, scales)
    widest = 0.0
    for c in range(scales.shape[0]):
        widest = max(widest, 2.0 * NEAR * scales[c])
    for q in range(levels.shape[0]):
        level = np.int64((levels[q] - ROUNDING) * UNIT)
        start = min(max(starts[q], lowest), highest)
        x, low, high = narrow_bracket(means, scales, fixed, level, start, lowest, highest)
        low, high = probe(means, scales, fixed, level, x - widest, low, high)
        low, high = probe(means, scales, fixed, level, x + widest, low, high)
        n, below = keep_near(means, scales, weights, fixed, low, high, near, near_fixed)
        x = min(max(x, low), high)
        out[row, q] = search_near(near, n, near_fixed, level - below, x, low, high, least, spread)
