"""Means of columns that depend on no order: sums without rounding, divided once.

A table that is read in pieces, from files in any order, so has the same means as in memory. The mean of a constant
column is exactly the constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import Blocks, run_blocks
from fedhlcr.kernels.exact_sums import DIGIT_BITS, N_DIGITS, add_events, add_totals


@dataclass(frozen=True)
class ExactSums:
    """Sums of w·x, w·y and w over events.

    Attributes
    ----------
    totals : (n_features + 2, N_DIGITS) digits of whole numbers, in units of 2⁻¹⁰⁷⁴
    """

    totals: NDArray[np.int64]

    @classmethod
    def empty(cls, n_features: int) -> ExactSums:
        return cls(np.zeros((n_features + 2, N_DIGITS), dtype=np.int64))

    def add(self, X: FloatArray, y: FloatArray, weight: FloatArray, n_threads: int = 1) -> None:
        """Add events: X (events, n_features), y and weight (events,)."""
        blocks = Blocks.even(len(y))

        def add(block: int) -> NDArray[np.int64]:
            rows = slice(*blocks.range(block))
            own = np.zeros_like(self.totals)
            number = np.zeros(1)
            add_events(X[rows], y[rows], weight[rows], number, number.view(np.int64), own)
            return own

        for own in run_blocks(add, len(blocks), n_threads):
            add_totals(own, self.totals)

    def means(self) -> FloatArray:
        """(n_features + 1,) weighted means of (x, y), each the float nearest to the exact one."""
        *sums, weight = (_whole(digits) for digits in self.totals.tolist())
        # Python divides whole numbers of any size with a single rounding
        return np.array([total / weight for total in sums])


def _whole(digits: list[int]) -> int:
    """Σ digits[i]·2^(32·i)."""
    return sum(digit << (DIGIT_BITS * place) for place, digit in enumerate(digits))
