"""Pólya–Gamma random numbers that depend on their keys only (Polson, Scott and Windle 2013).

    ω = Σ_k λ_k g_k,   λ_k = 2 / ((2k − 1)²π² + c²),   g_k ~ Gamma(b, 1),   k = 1, 2, …

has the distribution PG(b, c) with shape b > 0 and tilt c. With z = |c|/2, the density of x = 4ω is

    (1 + e^{−2z})^b · IG(x) · ρ_b(x),   ρ_b(x) = Σ_n (−1)^n (Γ(n + b) / Γ(b) n!) ((2n + b)/b) e^{−2n(n + b)/x},

where IG is the inverse Gaussian density of mean b/z and shape b². ρ_b falls from 1 at x = 0 to 0 at infinity. So:

b = 1, small tilt     Devroye's method, exact. It refuses fewer numbers than the next one.
b ≤ 1, or large tilt  An inverse Gaussian number is kept with probability ρ_b. This is exact, too.
b > 1, small tilt     Three terms of ω, and a shifted Gamma number with the mean, the variance and the third cumulant of
                      all others. So these are exact for ω. Its distribution function is wrong by less than 2e-5, and
                      by less than 2e-6 from b = 2 on.

Decisions use numbers of 32 bits: each probability is right to 2e-10.
"""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.kernels.compiling import kernel
from fedhlcr.kernels.keyed import gamma_or_zero, normal_pair
from fedhlcr.kernels.uniforms import keyed_uniforms

# A draw has the purposes from `purpose` to `purpose + 63`, and never leaves them: nearly all need fewer than ten.
_STEPS = 64
# b = 1: the methods change at this z. Devroye's envelope of the density changes its form at x = _CUT.
_SMALL_TILT = 1.5
_CUT = 0.64
# The left part of that envelope, in n = x^{−½} > _EDGE: 2 √(2/π) e^{−n²/2} ≤ 2 √(2/π) e^{_RATE²/2 − _RATE n}.
_EDGE = 1.0 / math.sqrt(_CUT)
_RATE = 0.5 * (_EDGE + math.sqrt(_EDGE**2 + 4.0))
_LEFT = 2.0 * math.sqrt(2.0 / math.pi) * math.exp(0.5 * _RATE**2 - _RATE * _EDGE) / _RATE
# Below ρ_1(_CUT) = 0.9942.
_SURE = 0.994
# Terms of ω that are drawn one by one.
_TERMS = 3
# Shapes above 1 use inverse Gaussian numbers up to this value of b·e^{−|c|}, where 19 of 20 are kept.
_RARELY_REFUSED = 0.05
# ρ is below 1e-12 where x is above this multiple of max(b, 1).
_LONG = 30.0
# Larger tilts count as _MOST, and the least number returned is _LEAST: nothing becomes zero or infinite.
_MOST = 1e100
_LEAST = 1e-300
# (sinh z − z)/z³ = Σ_n z^{2n}/(2n + 3)!
_SINH = np.array([1.0 / math.factorial(2 * n + 3) for n in range(10)])
# Σ_k 2λ_k³ = Σ_n _CUBES[n] c^{2n}
# the higher the power, the fewer terms count
_POWERS = [math.fsum(((2 * k - 1) * math.pi) ** (-2 * n - 6) for k in range(1, 2000 >> min(n, 5))) for n in range(16)]
_CUBES = np.array([16.0 * (-1) ** n * math.comb(n + 2, 2) * power for n, power in enumerate(_POWERS)])


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

    `purpose` is an np.uint64; the 63 purposes after it belong to this draw too.
    """
    c = min(abs(tilt), _MOST)
    if shape == 1.0 and c < 2.0 * _SMALL_TILT:
        number = 0.25 * _unit(stream, key, round_number, purpose, 0.5 * c)
    elif shape <= 1.0 or shape * math.exp(-c) < _RARELY_REFUSED:
        number = 0.25 * _tilted(stream, key, round_number, purpose, shape, 0.5 * c)
    else:
        number = _sum_of_gammas(stream, key, round_number, purpose, shape, c)
    return max(number, _LEAST)


@kernel
def _unit(stream, key, round_number, purpose, z):
    """4ω for b = 1 (Devroye 2009). An attempt uses up one step; the envelope's weights need no normal probability."""
    x = 0.0
    rate = 0.125 * math.pi**2 + 0.5 * z * z
    right = 0.5 * math.pi / rate * math.exp(-rate * _CUT)
    for step in range(_STEPS):
        u, v, w = keyed_uniforms(stream, key, round_number, purpose + np.uint64(step))
        if w * (right + _LEFT) < right:
            x = _CUT - math.log(u) / rate
            # ρ_1 has the same form in 4/π²x as in x
            if v < _SURE or _keeps(v, 4.0 / (math.pi**2 * x), 1.0):
                break
        else:
            n = _EDGE - math.log(u) / _RATE
            x = 1.0 / (n * n)
            share = math.exp(-0.5 * ((n - _RATE) ** 2 + z * z * x))
            # v < share leaves v/share uniform
            if v < _SURE * share or (v < share and _keeps(v / share, x, 1.0)):
                break
    return x


@kernel
def _tilted(stream, key, round_number, purpose, b, z):
    """4ω by inverse Gaussian numbers (Michael, Schucany and Haas 1976) that are kept with probability ρ.

    At least half of them are kept where this is used, so the last of 64 is taken as it is.
    """
    x = 0.0
    for step in range(_STEPS):
        u, v, w = keyed_uniforms(stream, key, round_number, purpose + np.uint64(step))
        normal, _ = normal_pair(u, v)
        square = max(normal * normal, 1e-30)
        # the smaller root of (x − b/z)² = square · x/z², in a form that holds for z = 0
        x = max(2.0 * b * b / (2.0 * b * z + square + math.sqrt(square * (square + 4.0 * b * z))), _LEAST)
        larger = x * z / (b + x * z)
        # w decides twice: given that it chose a root, its place in that root's interval is uniform again
        if w < larger:
            w /= larger
            x = max(x, (b / z) * (b / z / x))
        else:
            w = (w - larger) / (1.0 - larger)
        if _keeps(w, x, b):
            break
    return x


@kernel
def _keeps(uniform, x, b):
    """Whether uniform < ρ(x): once a term of the series is smaller than the one before, ρ is between partial sums."""
    if not x <= _LONG * max(b, 1.0):  # also if x is NaN
        return False
    power = math.exp(-2.0 * (1.0 + b) / x)
    last = 1.0
    term = (2.0 + b) * power
    total = 1.0 - term
    if term < 1.0 and uniform < total:
        return True
    weight = b
    factor = power
    shrink = math.exp(-4.0 / x)
    n = 1
    while True:
        n += 1
        factor *= shrink
        power *= factor
        weight *= (n - 1.0 + b) / n
        last = term
        term = weight * (2.0 * n + b) / b * power
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
    """ω for b ≥ 1: three terms, and a shifted Gamma number with the first three cumulants of all others."""
    mean = polya_gamma_mean(b, c)
    variance = polya_gamma_variance(b, c)
    third = _third_cumulant(b, c)
    total = 0.0
    step = 0
    for k in range(1, _TERMS + 1):
        scale = 2.0 / (((2 * k - 1) * math.pi) ** 2 + c * c)
        gamma, step = _gamma(stream, key, round_number, purpose, step, b)
        total += scale * gamma
        mean -= b * scale
        variance -= b * scale**2
        third -= 2.0 * b * scale**3
    scale = 0.5 * third / variance
    shape = variance / scale**2
    gamma, step = _gamma(stream, key, round_number, purpose, step, shape)
    return total + mean + scale * (gamma - shape)


@kernel
def _gamma(stream, key, round_number, purpose, step, shape):
    """A Gamma(shape, 1) number for shape ≥ 1 and the next free step. At most one attempt in 20 is refused."""
    gamma = 0.0
    while gamma == 0.0 and step < _STEPS:
        u, v, w = keyed_uniforms(stream, key, round_number, purpose + np.uint64(step))
        normal, _ = normal_pair(u, v)
        gamma = gamma_or_zero(normal, w, shape)
        step += 1
    return gamma, step
