"""Uniform random numbers that depend on their keys only, never on the order of execution."""

from __future__ import annotations

import numpy as np

from fedhlcr.kernels.compiling import kernel

MASK = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)
MULTIPLIER_0 = np.uint64(0xD2511F53)
MULTIPLIER_1 = np.uint64(0xCD9E8D57)
WEYL_0 = np.uint64(0x9E3779B9)
WEYL_1 = np.uint64(0xBB67AE85)
ROUNDS = 10


@kernel
def philox(c0, c1, c2, c3, k0, k1):
    """Philox4x32-10: ten rounds over a counter of four 32-bit words, held in uint64, under a key of two."""
    for _ in range(ROUNDS):
        product_0 = MULTIPLIER_0 * c0
        product_1 = MULTIPLIER_1 * c2
        c0 = (product_1 >> SHIFT) ^ c1 ^ k0
        c1 = product_1 & MASK
        c2 = (product_0 >> SHIFT) ^ c3 ^ k1
        c3 = product_0 & MASK
        k0 = (k0 + WEYL_0) & MASK
        k1 = (k1 + WEYL_1) & MASK
    return c0, c1, c2, c3


@kernel
def keyed_uniforms(stream, key, round_number, purpose):
    """Three uniform numbers on (0, 1), of 53, 32 and 32 bits, that depend on the arguments only."""
    a, b, c, d = philox(key & MASK, key >> SHIFT, np.uint64(round_number), purpose, stream & MASK, stream >> SHIFT)
    fine = (float(a >> np.uint64(5)) * 67108864.0 + float(b >> np.uint64(6)) + 0.5) / 9007199254740992.0
    return fine, (float(c) + 0.5) / 4294967296.0, (float(d) + 0.5) / 4294967296.0
