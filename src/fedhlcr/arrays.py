"""Names for the arrays that go from module to module."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
LabelArray = NDArray[np.int32]
CountArray = NDArray[np.int32]
KeyArray = NDArray[np.uint64]
