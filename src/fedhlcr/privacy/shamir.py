"""Shamir's secret sharing of 32-byte secrets: any `threshold` shares give the secret, fewer tell nothing about it.

A secret is cut into nine limbs of 30 bits. Each limb is the constant term of its own polynomial of degree
threshold − 1 over the integers modulo p = 2³¹ − 1, with uniform coefficients; the share at point x ≥ 1 is the value
there. Secrecy is perfect in a field of any size, and products of two numbers below 2³¹ fit into 64 bits, so that all
shares are computed by numpy. A wrong share gives a wrong secret: whoever combines shares must be able to check it.

A. Shamir, "How to share a secret", Communications of the ACM 22 (1979).
"""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedhlcr.exceptions import ArgumentError

PRIME = 2**31 - 1
SECRET_BYTES = 32
LIMB_BITS = 30
N_LIMBS = -(-8 * SECRET_BYTES // LIMB_BITS)
SHARE_BYTES = 4 * N_LIMBS

Shares = NDArray[np.uint32]
FieldArray = NDArray[np.uint64]


def split(secret: bytes, threshold: int, n_shares: int) -> Shares:
    """Return the shares of a secret at the points 1, …, n_shares: an array of shape (n_shares, 9)."""
    if len(secret) != SECRET_BYTES:
        raise ArgumentError(f"`secret` must have {SECRET_BYTES} bytes, but has {len(secret)}.")
    if not 1 <= threshold <= n_shares < PRIME:
        raise ArgumentError(
            f"`threshold` must be between 1 and the number of shares, but is {threshold} of {n_shares}."
        )
    coefficients = np.concatenate([_limbs(secret)[None], _random(threshold - 1)])
    return _product(_powers(n_shares, threshold), coefficients).astype(np.uint32)


def combine(shares: Shares, points: NDArray[np.int64]) -> list[bytes | None]:
    """Return the secrets behind shares (n_secrets, threshold, 9) at these points; None for one that cannot be right."""
    limbs = interpolate(shares, points, 0)
    return [_secret(row) for row in limbs.tolist()]


def interpolate(shares: Shares, points: NDArray[np.int64], at: int) -> FieldArray:
    """Return the values at another point of the polynomials through shares (n_secrets, threshold, 9)."""
    weights = _lagrange(tuple(points.tolist()), at)
    terms = shares.astype(np.uint64) * weights[None, :, None] % PRIME
    # at most 2³³ terms of 31 bits
    values: FieldArray = terms.sum(axis=1) % PRIME
    return values


@lru_cache(maxsize=256)
def _lagrange(points: tuple[int, ...], at: int) -> FieldArray:
    """The weight of each point's value in the value at `at`: the product of (at − x_j) / (x_i − x_j) over j ≠ i."""
    x = np.array(points, dtype=np.int64)
    above = np.ones(len(x), np.int64)
    below = np.ones(len(x), np.int64)
    for other in range(len(x)):
        apart = x - x[other]
        apart[other] = 1
        factor = np.full(len(x), at - x[other])
        factor[other] = 1
        below = below * apart % PRIME
        above = above * factor % PRIME
    inverse = [pow(value, -1, PRIME) for value in below.tolist()]
    weights = (above * np.array(inverse, dtype=np.int64) % PRIME).astype(np.uint64)
    weights.flags.writeable = False
    return weights


@lru_cache(maxsize=16)
def _powers(n_points: int, n_powers: int) -> FieldArray:
    """The powers 0, …, n_powers − 1 of the points 1, …, n_points."""
    points = np.arange(1, n_points + 1, dtype=np.uint64)
    powers = np.ones((n_points, n_powers), np.uint64)
    for power in range(1, n_powers):
        powers[:, power] = powers[:, power - 1] * points % PRIME
    powers.flags.writeable = False
    return powers


def _product(a: FieldArray, b: FieldArray) -> FieldArray:
    """The matrix product modulo p, by products of 16-bit halves: float64 holds their sums exactly up to 2²⁰ terms."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    high = _modulo(a_high @ b_high)
    middle = _modulo(a_high @ b_low + a_low @ b_high)
    low = _modulo(a_low @ b_low)
    return (((high << np.uint64(16)) % PRIME + middle << np.uint64(16)) + low) % PRIME


def _halves(a: FieldArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return (a >> np.uint64(16)).astype(np.float64), (a & np.uint64(0xFFFF)).astype(np.float64)


def _modulo(a: NDArray[np.float64]) -> FieldArray:
    return a.astype(np.uint64) % np.uint64(PRIME)


def _random(n_rows: int) -> FieldArray:
    """Uniform numbers modulo p from the operating system, of shape (n_rows, 9)."""
    numbers = np.frombuffer(os.urandom(4 * n_rows * N_LIMBS), dtype="<u4") & np.uint32(PRIME)
    while len(wrong := np.flatnonzero(numbers == PRIME)):
        numbers[wrong] = np.frombuffer(os.urandom(4 * len(wrong)), dtype="<u4") & np.uint32(PRIME)
    return numbers.astype(np.uint64).reshape(n_rows, N_LIMBS)


def _limbs(secret: bytes) -> FieldArray:
    number = int.from_bytes(secret, "little")
    return np.array([number >> LIMB_BITS * limb & (1 << LIMB_BITS) - 1 for limb in range(N_LIMBS)], dtype=np.uint64)


def _secret(limbs: list[int]) -> bytes | None:
    if max(limbs) >> LIMB_BITS:
        return None
    number = sum(value << LIMB_BITS * limb for limb, value in enumerate(limbs))
    return None if number >> 8 * SECRET_BYTES else number.to_bytes(SECRET_BYTES, "little")
