"""What commands do without, so that they start sooner."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


class _LeftOut(MetaPathFinder):
    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        del path, target
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is left out", name=fullname)


@contextmanager
def left_out(name: str) -> Iterator[None]:
    """Do without an optional module that a library would import only to see whether it is there.

    Arrow imports pandas for conversions that no command needs, and numba `scipy.linalg` for matrix products that no
    kernel has; either may take longer than the command, and neither library has a setting for it. Within this context
    the module cannot be imported; afterwards it can be.
    """
    finder = _LeftOut(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
