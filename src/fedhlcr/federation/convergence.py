"""When a run ends: its log joint is stable, or it reached its maximum number of rounds.

A stable log joint alone does not prove convergence. The reason says "converged" only if R-hat agrees. A server does not
know R-hat of predictions, because it has no entities to predict; its own reason is "stopped".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhlcr._support.wording import ROUND
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT, Diagnostic, all_agree

# Standard errors by which the means of two windows of a stable chain may differ.
STANDARD_ERRORS = 2.0
# The reason of a run that ended at its maximum number of rounds begins so, in older files too.
AT_LIMIT = "reached "
# The reason of a run whose log joint was stable begins so: with the second word if R-hat agrees, in older files always.
STOPPED = "stopped: "
CONVERGED = "converged: "


def limit_reason(n_rounds: int) -> str:
    """Why a run ended that did as many rounds as it may."""
    return f"{AT_LIMIT}the maximum of {ROUND.count(n_rounds)}"


def ended_at_limit(stop_reason: str) -> bool:
    """Whether a run ended because of its maximum number of rounds."""
    return stop_reason.startswith(AT_LIMIT)


def stable_reason(n_rounds: int) -> str:
    """Why a run ended whose log joint was stable, as long as nothing is known about R-hat."""
    return f"{STOPPED}the log joint has been stable for {ROUND.count(n_rounds)}"


def ended_stable(stop_reason: str) -> bool:
    """Whether a run ended because its log joint was stable."""
    return stop_reason.startswith((STOPPED, CONVERGED))


def in_view_of(stop_reason: str, diagnostics: Sequence[Diagnostic]) -> str:
    """The reason of a run, "converged" only if R-hat of every watched quantity is known and within its limit.

    >>> from fedhlcr.posterior.diagnostics import Diagnostic
    >>> in_view_of(stable_reason(34), [Diagnostic("predictions", 1.02, 50.0)])
    'converged: the log joint has been stable for 34 rounds, and R-hat is at most 1.1'
    >>> in_view_of(stable_reason(34), [Diagnostic("predictions", 1.65, 5.0)])
    'stopped: the log joint has been stable for 34 rounds'
    """
    if not ended_stable(stop_reason):
        return stop_reason
    agreed = f", and R-hat is at most {R_HAT_LIMIT}"
    what = stop_reason.removeprefix(STOPPED).removeprefix(CONVERGED).removesuffix(agreed)
    return f"{CONVERGED}{what}{agreed}" if all_agree(diagnostics) else f"{STOPPED}{what}"


def has_settled(log_joints: Sequence[float], window: int) -> bool:
    """Whether the mean of the last `window` values equals that of the `window` values before them, up to noise.

    While a chain still climbs, the means differ by far more: on a straight slope by √(6·window) standard errors.
    """
    if len(log_joints) < 2 * window:
        return False
    before, last = np.array(log_joints[-2 * window :]).reshape(2, window)
    error = np.sqrt((before.var() + last.var()) / window)
    return bool(abs(last.mean() - before.mean()) <= STANDARD_ERRORS * error)
