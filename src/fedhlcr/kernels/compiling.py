"""How kernels are compiled.

Compiled kernels are kept beside the sources or, where nobody may write there, in the user's cache folder
(NUMBA_CACHE_DIR names another). So an installation compiles each kernel once, and again after any kernel's source has
changed, because a kernel holds a copy of those that it calls. `kernels.ahead` compiles them before they are needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba import njit, types


def _stamp() -> tuple[float, int]:
    """The time of the latest change of any kernel's source, and the size of all."""
    sources = [path.stat() for path in Path(__file__).parent.glob("*.py")]
    return max(source.st_mtime for source in sources), sum(source.st_size for source in sources)


STAMP = _stamp()


def _prepare_nothing(_: Callable[..., Any]) -> None:
    """What happens before a kernel's first call until `kernels.ahead` is imported."""


class FirstCall:
    """What happens before a kernel is compiled for its first call; `kernels.ahead` has its whole group compiled."""

    def __init__(self) -> None:
        self.prepare: Callable[[Callable[..., Any]], None] = _prepare_nothing


first_call = FirstCall()


class Waiting:
    """The seconds that this process has waited until kernels were compiled and loaded."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what happens inside, also if that asks for further kernels."""
        begun = time.perf_counter()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - begun


waiting = Waiting()


def _compiler(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """The decorator that compiles a function when it is first called."""

    # nobody calls kernels from C
    options = {"nogil": True, "no_cfunc_wrapper": True, **options}

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return _adapted(njit(cache=True, **options)(function))
        except RuntimeError:
            # there is no folder to keep it in: each process compiles for itself
            return _adapted(njit(**options)(function))

    return compiled


def _adapted(kernel: Any) -> Any:
    """The same kernel, compiled no more often than necessary; without the compiler (NUMBA_DISABLE_JIT) as it is.

    Kernels of a group are compiled together. Numbers that are written out, such as 0, are numbers like any other:
    numba would compile the kernel once more for each. And numba would use a kernel that it has kept although one that
    it calls has changed in another file.
    """
    compile_one = getattr(kernel, "compile", None)
    find_template = getattr(kernel, "get_call_template", None)
    if compile_one is None or find_template is None:
        return kernel

    def compile_group(signature: Any) -> Any:
        with waiting.counted():
            first_call.prepare(kernel.py_func)
            return compile_one(signature)

    kernel.compile = compile_group
    kernel.get_call_template = lambda args, kws: find_template(tuple(types.unliteral(of) for of in args), kws)
    if (kept := getattr(getattr(kernel, "_cache", None), "_cache_file", None)) is not None:
        kept._source_stamp = STAMP
    return kernel


kernel = _compiler()
# Allows vectorised sums and fused multiply-add. NaN and infinity are still handled correctly.
vector_kernel = _compiler(fastmath={"reassoc", "contract", "nsz"})
# Also allows vectorised maxima. Correct for finite numbers only.
finite_kernel = _compiler(fastmath={"reassoc", "contract", "nsz", "nnan"})
