"""Imports that commands put off or do without, so that they start sooner."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

BLAS = "scipy.linalg.cython_blas"


class _LazyBlas(ModuleType):
    """SciPy's module of that name, imported when an attribute of it is used first."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(BLAS) is self:
            del sys.modules[BLAS]
        from scipy.linalg import cython_blas

        return getattr(cython_blas, name)


def import_blas_lazily() -> None:
    """Import SciPy's linear algebra when it is used, not already when numba asks for it.

    numba imports the module when it loads its first kernel, and with it all of `scipy.linalg`, but uses it for matrix
    products only. `importlib.util.LazyLoader` cannot help: finding a module imports its package.
    """
    sys.modules.setdefault(BLAS, _LazyBlas(BLAS))


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("this command does without pandas", name=fullname)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Use Arrow as on a machine that has no pandas. Afterwards pandas can be imported.

    Arrow imports pandas with its first array or scalar, to see whether the values are of pandas, which may take longer
    than the command. Arrow has no setting for that. Because it uses pandas at once, a lazy import would not help, and
    None in `sys.modules` is not understood.
    """
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
