"""When a run has converged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Standard errors by which the means of two windows of a stable chain may differ.
STANDARD_ERRORS = 2.0


def has_settled(log_joints: Sequence[float], window: int) -> bool:
    """Whether the mean of the last `window` values equals that of the `window` values before them, up to noise.

    While a chain still climbs, the means differ by far more: on a straight slope by √(6·window) standard errors.
    """
    if len(log_joints) < 2 * window:
        return False
    before, last = np.array(log_joints[-2 * window :]).reshape(2, window)
    error = np.sqrt((before.var() + last.var()) / window)
    return bool(abs(last.mean() - before.mean()) <= STANDARD_ERRORS * error)
