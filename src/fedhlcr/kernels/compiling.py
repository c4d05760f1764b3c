"""How kernels are compiled. After a change here, delete the compiled kernels (`__pycache__/*.nb?`).

Compiled kernels are kept beside the sources or, where nobody may write there, in the user's cache folder
(NUMBA_CACHE_DIR names another). So an installation compiles each kernel once. A note says so while it happens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event

logger = logging.getLogger(__name__)


def _compiler(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """The decorator that compiles a function when it is first called."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:
            # there is no folder to keep it in: each process compiles for itself
            return njit(nogil=True, **options)(function)

    return compiled


kernel = _compiler()
# Allows vectorised sums and fused multiply-add. NaN and infinity are still handled correctly.
vector_kernel = _compiler(fastmath={"reassoc", "contract", "nsz"})
# Also allows vectorised maxima. Correct for finite numbers only.
finite_kernel = _compiler(fastmath={"reassoc", "contract", "nsz", "nnan"})


class CompilationNote(event.Listener):
    """Says that kernels are being compiled, when the first of them is, and no more than once in a process."""

    def __init__(self) -> None:
        self._is_said = threading.Lock()

    def on_start(self, event: Any) -> None:
        module = str(event.data["dispatcher"].py_func.__module__)
        if module.startswith(f"{__package__}.") and self._is_said.acquire(blocking=False):
            logger.warning("fedhlcr: note: compiling, once per installation; this may take a minute or two.")

    def on_end(self, event: Any) -> None:
        """Nothing to do."""


event.register("numba:compile", CompilationNote())
