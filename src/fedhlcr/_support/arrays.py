"""Names of array types that many modules share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
LabelArray = NDArray[np.int32]
CountArray = NDArray[np.int32]
KeyArray = NDArray[np.uint64]


def ranges(starts: IndexArray, sizes: IndexArray) -> IndexArray:
    """Concatenate start, start + 1, …, start + size − 1 for each pair of start and size."""
    ends = np.cumsum(sizes)
    return np.arange(sizes.sum()) + np.repeat(starts - (ends - sizes), sizes)
