"""Loops over vectors that many kernels need. Numba takes longer to compile its own: `values[:] = 0.0` and `.sum()`."""

from __future__ import annotations

from fedhlcr.kernels.compiling import kernel


@kernel
def clear(values):
    """Set a vector to 0."""
    for i in range(values.shape[0]):
        values[i] = 0.0


@kernel
def total_of(values):
    """Σ values, added up in their order."""
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
    return total
