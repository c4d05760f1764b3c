"""Normal and Gamma random numbers that depend on their keys only, never on the order of execution."""

from __future__ import annotations

import math

import numpy as np

from fedhlcr.kernels.compiling import kernel
from fedhlcr.kernels.lanes import SIDE_BY_SIDE
from fedhlcr.kernels.uniform_lanes import uniform_lanes
from fedhlcr.kernels.uniforms import keyed_uniforms

# ±1/n! for odd and for even n
_S3, _S5, _S7, _S9, _S11, _S13, _S15 = ((-1) ** (n // 2) / math.factorial(n) for n in range(3, 16, 2))
_C2, _C4, _C6, _C8, _C10, _C12, _C14, _C16 = ((-1) ** (n // 2) / math.factorial(n) for n in range(2, 17, 2))


@kernel
def unit_circle(v):
    """cos(2πv) and sin(2πv) for v in (0, 1), to rounding errors: Taylor polynomials around the nearest quarter turn.

    The library's functions choose between formulas, and a processor cannot guess which one a random number needs. This
    takes a third of their time, and loops over it are vectorised.
    """
    quarter = math.floor(4.0 * v + 0.5)
    x = (4.0 * v - quarter) * (0.5 * math.pi)
    z = x * x
    s = x + x * z * (_S3 + z * (_S5 + z * (_S7 + z * (_S9 + z * (_S11 + z * (_S13 + z * _S15))))))
    c = 1.0 + z * (_C2 + z * (_C4 + z * (_C6 + z * (_C8 + z * (_C10 + z * (_C12 + z * (_C14 + z * _C16)))))))
    is_odd = quarter == 1.0 or quarter == 3.0
    cosine, sine = (s, c) if is_odd else (c, s)
    return (
        -cosine if quarter == 1.0 or quarter == 2.0 else cosine,
        -sine if quarter == 2.0 or quarter == 3.0 else sine,
    )


@kernel
def normal_pair(u, v):
    """Two independent standard normal numbers from two uniform ones (Box–Muller)."""
    radius = math.sqrt(-2.0 * math.log(u))
    cosine, sine = unit_circle(v)
    return radius * cosine, radius * sine


@kernel
def keyed_normals(stream, key, round_number, purpose, out):
    """Fill `out` with independent standard normal numbers that depend on the other arguments only."""
    for i in range(0, out.shape[0], 2):
        u, v, _ = keyed_uniforms(stream, key, round_number, purpose + np.uint64(i // 2))
        out[i], other = normal_pair(u, v)
        if i + 1 < out.shape[0]:
            out[i + 1] = other


@kernel
def keyed_normal_lanes(streams, keys, round_number, purpose, out):
    """The same in each lane of `out` (an even number, lanes), which has a stream and a key of its own."""
    n_pairs = out.shape[0] // 2
    pairs = np.empty((2, n_pairs, SIDE_BY_SIDE))
    for i in range(n_pairs):
        uniform_lanes(streams, keys, round_number, purpose + np.uint64(i), pairs, i)
    write_normals(pairs[0].reshape(n_pairs * SIDE_BY_SIDE), pairs[1].reshape(n_pairs * SIDE_BY_SIDE))
    for i in range(n_pairs):
        for lane in range(SIDE_BY_SIDE):
            out[2 * i, lane] = pairs[0, i, lane]
            out[2 * i + 1, lane] = pairs[1, i, lane]


@kernel
def write_normals(u, v):
    """`normal_pair` of each element, in place.

    All of one sort after the other: a processor computes many of one sort at once, but not of several sorts in turn.
    """
    for i in range(u.shape[0]):
        u[i] = math.log(u[i])
    for i in range(u.shape[0]):
        u[i] = math.sqrt(-2.0 * u[i])
    for i in range(u.shape[0]):
        radius = u[i]
        cosine, sine = unit_circle(v[i])
        u[i] = radius * cosine
        v[i] = radius * sine


@kernel
def keyed_gamma(stream, key, round_number, purpose, shape):
    """A Gamma(shape, 1) number for shape ≥ 1 that depends on the arguments only."""
    attempt = 0
    while True:
        step = np.uint64(2 * attempt)
        u, v, _ = keyed_uniforms(stream, key, round_number, purpose + step)
        normal, _ = normal_pair(u, v)
        u, _, _ = keyed_uniforms(stream, key, round_number, purpose + step + np.uint64(1))
        gamma = gamma_or_zero(normal, u, shape)
        if gamma > 0.0:
            return gamma
        attempt += 1


@kernel
def gamma_or_zero(normal, uniform, shape):
    """One attempt at a Gamma(shape, 1) number for shape ≥ 1 (Marsaglia and Tsang 2000); zero if it is refused."""
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    v = (1.0 + c * normal) ** 3
    # the first bound implies the second one, and mostly saves the logarithms
    if v > 0.0 and (
        uniform < 1.0 - 0.0331 * normal**4 or math.log(uniform) < 0.5 * normal**2 + d - d * v + d * math.log(v)
    ):
        return d * v
    return 0.0


@kernel
def keyed_steps(streams, agents, round_number, purpose, normals, uniforms):
    """Fill a row of `normals` and of `uniforms`, (agents, steps) each, for each of the given agents."""
    for position in range(agents.shape[0]):
        for step in range(normals.shape[1]):
            u, v, w = keyed_uniforms(streams[agents[position]], np.uint64(0), round_number, purpose + np.uint64(step))
            normals[position, step], _ = normal_pair(u, v)
            uniforms[position, step] = w
