"""Names of array types that many modules share, and arrays of the one type that kernels are compiled for."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
LabelArray = NDArray[np.int32]
CountArray = NDArray[np.int32]
KeyArray = NDArray[np.uint64]
Number = TypeVar("Number", bound=np.generic)


def for_kernels(array: NDArray[Number]) -> NDArray[Number]:
    """The array as kernels take it: in one piece, row by row, and writable; copied only if it is not.

    Numba would compile a kernel once more for arrays that are read-only, such as those of bytes, of a table that is
    mapped from a file, or of Ray's object store.
    """
    return array if array.flags.carray else np.array(array, order="C")


def ranges(starts: IndexArray, sizes: IndexArray) -> IndexArray:
    """Concatenate start, start + 1, …, start + size − 1 for each pair of start and size."""
    ends = np.cumsum(sizes)
    return np.arange(sizes.sum()) + np.repeat(starts - (ends - sizes), sizes)
