"""How kernels are compiled.

Compiled kernels are kept beside the sources or, where nobody may write there, in the user's cache folder
(NUMBA_CACHE_DIR names another). Those that `fedhlcr compile` has kept beside the sources are used by everybody. So an
installation compiles each kernel once, and again after any kernel's source has changed, because a kernel holds a copy
of those that it calls. `kernels.ahead` compiles them before they are needed.
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
from llvmlite import binding
from numba import njit, types
from numba.core import caching, config

SOURCES = Path(__file__).parent
# Beside the sources, where Python keeps its own compiled files.
BESIDE = SOURCES / "__pycache__"


def _stamp() -> str:
    """Changes with any kernel's source. Times of files would change when an image is copied."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*.py"), *SOURCES.glob("*.json")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


STAMP = _stamp()


def marker(what: str) -> str:
    """The name of the file that says that kernels are kept; another for other sources, versions and processors."""
    machine = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    made_of = what, STAMP, numba.__version__, llvmlite.__version__, sys.version, machine
    return f"ahead-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]}.nbx"


# What `marker` calls all kernels.
EVERYTHING = "everything"


class AheadLocator:
    """Finds kernels that were compiled ahead beside the sources, for those who may only read there.

    One of numba's locators of kept kernels; its own do not look into a folder that they cannot write to.
    """

    def __init__(self, line: int) -> None:
        self._line = line

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> AheadLocator | None:
        """The locator of a function in a file; None leaves it to the other locators."""
        is_ours = Path(file).parent == SOURCES and not config.CACHE_DIR  # type: ignore[attr-defined]
        return cls(function.__code__.co_firstlineno) if is_ours and IS_COMPLETE else None

    def ensure_cache_path(self) -> None:
        """Nothing is written there."""

    def get_cache_path(self) -> str:
        return str(BESIDE)

    def get_source_stamp(self) -> str:
        return STAMP

    def get_disambiguator(self) -> str:
        """What tells functions of one name apart, as numba does where it keeps them."""
        return str(self._line)


# Whether all kernels are beside the sources and nobody can add to them.
IS_COMPLETE = (BESIDE / marker(EVERYTHING)).exists() and not os.access(BESIDE, os.W_OK)
caching.FunctionCache._impl_class._locator_classes.insert(0, AheadLocator)  # type: ignore[arg-type]


def _prepare_nothing(_: Callable[..., Any]) -> None:
    """What happens before a kernel's first call until `kernels.ahead` is imported."""


class FirstCall:
    """What happens before a kernel is compiled for its first call; `kernels.ahead` has its whole group compiled."""

    def __init__(self) -> None:
        self.prepare: Callable[[Callable[..., Any]], None] = _prepare_nothing


first_call = FirstCall()


class Waiting(threading.local):
    """The seconds that this thread has waited until kernels were compiled and loaded."""

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
        if IS_COMPLETE and kernel.stats.cache_path == str(BESIDE):
            # a kernel that is not there is compiled by each process
            kept.save = lambda *_: None
    return kernel


kernel = _compiler()
# Allows vectorised sums and fused multiply-add. NaN and infinity are still handled correctly.
vector_kernel = _compiler(fastmath={"reassoc", "contract", "nsz"})
# Also allows vectorised maxima. Correct for finite numbers only.
finite_kernel = _compiler(fastmath={"reassoc", "contract", "nsz", "nnan"})
