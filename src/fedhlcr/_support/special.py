"""Functions of `scipy.special`, which is imported when one of them is first called.

The import takes a quarter of a second: longer than to predict a small table, which seldom needs any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray


class _Late:
    """A function of `scipy.special`."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _function(self) -> Callable[..., Any]:
        from scipy import special

        function: Callable[..., Any] = getattr(special, self._name)
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


betainc = _Late("betainc")
betaincinv = _Late("betaincinv")
digamma = _Late("digamma")
expit = _Late("expit")
stdtrit = _Late("stdtrit")
gammainc, gammaincc, gammainccinv, gammaincinv = (
    _Late(name) for name in ("gammainc", "gammaincc", "gammainccinv", "gammaincinv")
)
gammaln = _Late("gammaln")
multigammaln = _Late("multigammaln")
logsumexp = _Late("logsumexp")
log_ndtr = _Late("log_ndtr")
ndtri = _Late("ndtri")
xlogy = _Late("xlogy")


def normal_quantiles(levels: Sequence[float]) -> FloatArray:
    """Quantiles of the standard normal distribution at a few levels, as those of `ndtri`, without that import."""
    return np.array([NormalDist().inv_cdf(level) for level in levels], dtype=np.float64)
