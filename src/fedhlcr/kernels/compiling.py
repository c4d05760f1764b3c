"""How kernels are compiled. After a change here, delete the compiled kernels (`__pycache__/*.nb?`)."""

from __future__ import annotations

from numba import njit

kernel = njit(nogil=True, cache=True)
# Allows vectorised sums and fused multiply-add. NaN and infinity are still handled correctly.
vector_kernel = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
# Also allows vectorised maxima. Correct for finite numbers only.
finite_kernel = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "nnan"})
