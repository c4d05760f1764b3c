"""Names for the arrays that go from module to module, and how to address parts of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
LabelArray = NDArray[np.int32]
CountArray = NDArray[np.int32]
KeyArray = NDArray[np.uint64]


def ranges(starts: IndexArray, sizes: IndexArray) -> IndexArray:
    """start, start + 1, …, size of them, for each pair of start and size, one after the other."""
    ends = np.cumsum(sizes)
    return np.arange(sizes.sum()) + np.repeat(starts - (ends - sizes), sizes)
