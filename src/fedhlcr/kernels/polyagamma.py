"""Pólya–Gamma random numbers that depend on their keys only (Polson, Scott and Windle 2013).

    ω = Σ_k λ_k g_k,   λ_k = 2 / ((2k − 1)²π² + c²),   g_k ~ Gamma(b, 1),   k = 1, 2, …

has the distribution PG(b, c) with shape b > 0 and tilt c. With z = |c|/2, the density of x = 4ω is

    (1 + e^{−2z})^b · IG(x) · ρ(x),   ρ(x) = Σ_n (−1)^n (Γ(n + b) / Γ(b) n!) ((2n + b)/b) e^{−2n(n + b)/x},

where IG is the inverse Gaussian density of mean b/z and shape b². ρ falls from 1 at x = 0 to 0 at infinity. So an
inverse Gaussian number that is kept with probability ρ is exact, and a share (1 + e^{−2z})^{−b} of them is kept. The
first terms of the alternating series decide, as in Devroye's method for b = 1. That one keeps more numbers, but it
needs normal probabilities, which take longer.

Where this would keep too few, with a shape above 1 and a small tilt, the first four terms of ω are drawn, and a shifted
Gamma number stands for the rest. It has the mean, the variance and the third cumulant of the rest. The distribution
function is then wrong by at most 4e-6, and by less than 1e-6 for shapes above 2.
"""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.kernels.compiling import kernel
from fedhlcr.kernels.keyed import keyed_gamma, normal_pair
from fedhlcr.kernels.labels import keyed_uniforms

# A draw has the purposes from `purpose` to `purpose + 63`, and never leaves them. If it needs several Gamma numbers,
# the i-th one is that of round `round_number + i·2²⁴`: there are fewer rounds, and Philox takes 32 bits of them.
_STEPS, _ROUNDS = 64, 1 << 24
# Terms of ω that are drawn one by one.
_TERMS = 4
# Shapes above 1 use inverse Gaussian numbers up to this value of b·e^{−|c|}, where 19 of 20 are kept.
_RARELY_REFUSED = 0.05
# ρ is below 1e-12 where x is above this multiple of max(b, 1).
_LONG = 30.0
# Least number returned. With a huge tilt, or a shape below 1e-150, ω may be too small for a float.
_LEAST = 1e-300
# (sinh z − z)/z³ = Σ_n z^{2n}/(2n + 3)!
_SINH = np.array([1.0 / math.factorial(2 * n + 3) for n in range(10)])
# Taylor series of Σ_k 2λ_k³ in c²
_CUBES = np.array(
    [
        16.0
        * (-1) ** n
        * math.comb(n + 2, 2)
        * math.fsum(((2 * k - 1) * math.pi) ** (-2 * n - 6) for k in range(1, 2000))
        for n in range(16)
    ]
)


@kernel
def polya_gamma_mean(shape, tilt):
    """Mean of PG(b, c): b tanh(c/2) / 2c."""
    c = abs(tilt)
    if c < 1e-4:
        return 0.25 * shape * (1.0 - c * c / 12.0)
    return 0.5 * shape * math.tanh(0.5 * c) / c


@kernel
def polya_gamma_variance(shape, tilt):
    """Variance of PG(b, c): b (sinh c − c) / (4c³ cosh²(c/2))."""
    c = abs(tilt)
    if c < 1.0:
        return 0.25 * shape * _polynomial(_SINH, c * c) / math.cosh(0.5 * c) ** 2
    return 0.25 * shape * (2.0 * math.tanh(0.5 * c) - c * _squared_sech(c)) / c / c / c


@kernel
def _third_cumulant(shape, tilt):
    """Third cumulant of PG(b, c): b (3 sinh c − 3c − c² tanh(c/2)) / (4c⁵ cosh²(c/2))."""
    c = abs(tilt)
    if c < 1.0:
        return shape * _polynomial(_CUBES, c * c)
    tanh = math.tanh(0.5 * c)
    return 0.25 * shape * (6.0 * tanh - c * (3.0 + c * tanh) * _squared_sech(c)) / c**5


@kernel
def _squared_sech(c):
    """1/cosh²(c/2) for c ≥ 0."""
    power = math.exp(-c)
    return 4.0 * power / (1.0 + power) ** 2


@kernel
def _polynomial(coefficients, x):
    value = 0.0
    for i in range(coefficients.shape[0] - 1, -1, -1):
        value = value * x + coefficients[i]
    return value


@kernel
def keyed_polya_gamma(stream, key, round_number, purpose, shape, tilt):
    """A PG(shape, tilt) number that depends on the arguments only. It is at least 1e-300.

    `purpose` is an np.uint64, and the 63 numbers after it must not be used otherwise. round_number is below 2²⁴.
    """
    c = abs(tilt)
    if shape <= 1.0 or shape * math.exp(-c) < _RARELY_REFUSED:
        number = 0.25 * _tilted(stream, key, round_number, purpose, shape, 0.5 * c)
    else:
        number = _sum_of_gammas(stream, key, round_number, purpose, shape, c)
    return max(number, _LEAST)


@kernel
def _tilted(stream, key, round_number, purpose, b, z):
    """4ω by inverse Gaussian numbers (Michael, Schucany and Haas 1976) that are kept with probability ρ.

    At the least accepting arguments, b = 1 and z = 0, half of them are kept. So the last of 64 is taken as it is.
    """
    x = 0.0
    for step in range(_STEPS):
        u, v, w = keyed_uniforms(stream, key, round_number, purpose + np.uint64(step))
        normal, _ = normal_pair(u, v)
        square = max(normal * normal, 1e-30)
        # the smaller root of (x − b/z)² = square · x/z², in a form that holds for z = 0
        x = 2.0 * b * b / (2.0 * b * z + square + math.sqrt(square * (square + 4.0 * b * z)))
        larger = x * z / (b + x * z)
        # w decides twice: given that it chose a root, its place in that root's interval is uniform again
        if w < larger:
            w /= larger
            x = (b / z) * (b / z) / x
        else:
            w = (w - larger) / (1.0 - larger)
        if _keeps(w, x, b):
            break
    return x


@kernel
def _keeps(uniform, x, b):
    """Whether uniform < ρ(x): once a term of the series is smaller than the one before, ρ is between partial sums."""
    if x > _LONG * max(b, 1.0):
        return False
    power = math.exp(-2.0 * (1.0 + b) / x)
    last, term = 1.0, (2.0 + b) * power
    total = 1.0 - term
    if term < 1.0 and uniform < total:
        return True
    weight, factor, shrink = b, power, math.exp(-4.0 / x)
    n = 1
    while True:
        n += 1
        factor *= shrink
        power *= factor
        weight *= (n - 1.0 + b) / n
        last, term = term, weight * (2.0 * n + b) / b * power
        if n % 2 == 0:
            total += term
            if term <= last and uniform >= total:
                return False
        else:
            total -= term
            if term <= last and uniform < total:
                return True


@kernel
def _sum_of_gammas(stream, key, round_number, purpose, b, c):
    """ω for b ≥ 1: four terms, and a shifted Gamma number with the first three cumulants of all others."""
    mean, variance, third = polya_gamma_mean(b, c), polya_gamma_variance(b, c), _third_cumulant(b, c)
    total = 0.0
    for i in range(_TERMS):
        scale = 2.0 / (((2 * i + 1) * math.pi) ** 2 + c * c)
        own_round = np.uint64(round_number) + np.uint64(i * _ROUNDS)
        total += scale * keyed_gamma(stream, key, own_round, purpose, b)
        mean -= b * scale
        variance -= b * scale**2
        third -= 2.0 * b * scale**3
    scale = 0.5 * third / variance
    shape = variance / scale**2
    own_round = np.uint64(round_number) + np.uint64(_TERMS * _ROUNDS)
    rest = scale * keyed_gamma(stream, key, own_round, purpose, shape)
    return total + rest + (mean - shape * scale)
