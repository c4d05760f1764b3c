"""What commands do without, so that they start sooner.

Libraries import others to find out whether they are installed. That may take longer than the command itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


class Absent(MetaPathFinder):
    """Lets libraries believe that a module is not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        del path, target
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is left out", name=fullname)


def leave_out_pandas() -> None:
    """Arrow would import pandas, which takes half a second, for conversions that the command does not need."""
    sys.meta_path.insert(0, Absent("pandas"))


def import_numba() -> None:
    """numba would import `scipy.linalg`, for matrix products in compiled code. No kernel has any.

    Whoever imports `scipy.linalg` later gets it.
    """
    with _absent("scipy.linalg"):
        import numba.np.arraymath  # noqa: F401


@contextmanager
def _absent(name: str) -> Iterator[None]:
    finder = Absent(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
