"""When a run ends: it has converged, or it reached its maximum number of rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhlcr._support.wording import ROUND

# Standard errors by which the means of two windows of a stable chain may differ.
STANDARD_ERRORS = 2.0
# The reason of a run that ended at its maximum number of rounds begins so, in older files too.
AT_LIMIT = "reached "


def limit_reason(n_rounds: int) -> str:
    """Why a run ended that did as many rounds as it may."""
    return f"{AT_LIMIT}the maximum of {ROUND.count(n_rounds)}"


def ended_at_limit(stop_reason: str) -> bool:
    """Whether a run ended because of its maximum number of rounds."""
    return stop_reason.startswith(AT_LIMIT)


def has_settled(log_joints: Sequence[float], window: int) -> bool:
    """Whether the mean of the last `window` values equals that of the `window` values before them, up to noise.

    While a chain still climbs, the means differ by far more: on a straight slope by √(6·window) standard errors.
    """
    if len(log_joints) < 2 * window:
        return False
    before, last = np.array(log_joints[-2 * window :]).reshape(2, window)
    error = np.sqrt((before.var() + last.var()) / window)
    return bool(abs(last.mean() - before.mean()) <= STANDARD_ERRORS * error)
