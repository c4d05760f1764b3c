"""How kernels are compiled. After a change here, remove the cached ones (`__pycache__/*.nb?`)."""

from __future__ import annotations

from numba import njit

kernel = njit(nogil=True, cache=True)
# Lets sums run in vector lanes and use fused multiply-add; NaN and infinity keep their meaning.
vector_kernel = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
# The same for finite numbers only, where a maximum may run in lanes too.
finite_kernel = njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz", "nnan"})
