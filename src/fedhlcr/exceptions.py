"""Warnings and errors of fedhlcr, and how they are told."""

from __future__ import annotations

import sys
import warnings


class ConvergenceWarning(UserWarning):
    """Chains disagree: what they found is not yet the posterior."""


class FitInterruptedWarning(UserWarning):
    """The user ended a fit early; the model uses the draws made so far."""


class FileError(ValueError):
    """A file that cannot be read as the table it should be."""


class DataError(ValueError):
    """A table that cannot be used as it is."""


class MissingValuesError(DataError):
    """Values are missing where a table with gaps is refused; to drop its rows would do, or to impute, if `can_fill`."""

    def __init__(self, message: str, can_fill: bool = True) -> None:
        super().__init__(message)
        self.can_fill = can_fill


class ModelFileError(ValueError):
    """A file that holds no model this release can use."""


class StorageError(RuntimeError):
    """There is no whole checkpoint, nor a state of an agent, to go on from."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's own code, past this package and scikit-learn's wrappers."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("fedhlcr", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
