"""When a run has nothing more to learn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Standard errors by which two windows of a chain at rest may differ.
STANDARD_ERRORS = 2.0


def has_settled(log_joints: Sequence[float], window: int) -> bool:
    """Whether the last `window` values are no other on average than as many before them.

    A chain that still climbs differs by far more than its scatter: over a straight slope, by √(6·window) standard
    errors.
    """
    if len(log_joints) < 2 * window:
        return False
    before, last = np.array(log_joints[-2 * window :]).reshape(2, window)
    error = np.sqrt((before.var() + last.var()) / window)
    return bool(abs(last.mean() - before.mean()) <= STANDARD_ERRORS * error)
