"""All errors and warnings of fedhlcr.

Every error that a user can cause is a `FedHLCRError`. Where Python programs expect a built-in kind, the error is also
of that kind: `except ValueError` catches an `ArgumentError`.

Errors and warnings carry data, so that nobody has to read their text: the category, which the command line turns into
an exit code, and the advice, whose settings Python words as `n_chains=4` and the command line as `--chains 4`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, NamedTuple

# Words a setting: from its name, and its value or None, to a text.
NameSetting = Callable[[str, object], str]


def name_in_python(name: str, value: object) -> str:
    """Word a setting as an argument: `n_chains=4`, or `n_chains` if no value is meant."""
    return name if value is None else f"{name}={value!r}"


class Advice:
    """What to do, in one or more sentences.

    Parameters
    ----------
    text : the sentences, with the names of settings in braces: "Run longer chains ({n_sweeps})."
    python_only : more sentences, about what commands do not have
    settings : the value of each setting; None if only its name is meant
    """

    def __init__(self, text: str, python_only: str = "", /, **settings: object) -> None:
        self.text = text
        self.python_only = python_only
        self.settings = settings

    def worded(self, name_setting: NameSetting = name_in_python) -> str:
        """Return the text with every setting worded by `name_setting`."""
        return self.text.format_map({name: name_setting(name, value) for name, value in self.settings.items()})

    def __str__(self) -> str:
        return f"{self.worded()} {self.python_only}".strip()


class Setting(NamedTuple):
    """An option of a command, and its value."""

    name: str
    value: object


class Category(Enum):
    """What went wrong. The command line has an exit code for each."""

    FAILED = "failed"
    USAGE = "wrong usage"
    DATA = "the data cannot be used"
    MODEL = "the model file cannot be used"
    OUTPUT = "the output cannot be written"


class WithAdvice(Exception):  # noqa: N818
    """A message and, after it, advice.

    Attributes
    ----------
    message : what is wrong, without the advice
    advice : what to do, or None
    """

    def __init__(self, message: str = "", advice: Advice | None = None) -> None:
        super().__init__(message if advice is None else f"{message} {advice}")
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        # KeyError would show the text in quotes
        return str(self.args[0])

    def worded(self, name_setting: NameSetting) -> str:
        """Return the message and the advice, with every setting worded by `name_setting`."""
        return self.message if self.advice is None else f"{self.message} {self.advice.worded(name_setting)}"


class FedHLCRError(WithAdvice):
    """The base class of all errors of fedhlcr.

    Attributes
    ----------
    category : what went wrong
    options : options of a command, any of which cures the error; Python has no such arguments
    """

    category: ClassVar[Category] = Category.FAILED

    def __init__(self, message: str = "", advice: Advice | None = None, options: tuple[Setting, ...] = ()) -> None:
        super().__init__(message, advice)
        self.options = options


# Arguments and tables


class ArgumentError(FedHLCRError, ValueError):
    """An argument or a setting has a value that cannot be used."""

    category = Category.USAGE


class ArgumentTypeError(FedHLCRError, TypeError):
    """An argument is of a type that cannot be used."""

    category = Category.USAGE


class DataError(FedHLCRError, ValueError):
    """A table cannot be used as it is."""

    category = Category.DATA


class DataTypeError(DataError, TypeError):
    """A table holds objects that cannot be used."""


class MissingValuesError(DataError):
    """A table has missing values, and the user has not said what to do about them."""


class FileError(FedHLCRError, ValueError):
    """A file cannot be read as a table."""

    category = Category.DATA


class TextColumnError(FileError):
    """A column that must hold numbers holds texts.

    Attributes
    ----------
    column : its name
    """

    def __init__(self, message: str = "", column: str = "") -> None:
        super().__init__(message)
        self.column = column


# Files of fedhlcr


class CodecError(FedHLCRError, ValueError):
    """Bytes are not a fedhlcr record, or not the expected one."""

    category = Category.MODEL


class ModelFileError(FedHLCRError, ValueError):
    """A file does not hold a model that this release can use."""

    category = Category.MODEL


class StorageError(FedHLCRError, RuntimeError):
    """There is no intact checkpoint or agent state to resume from."""


class OutputError(FedHLCRError, OSError):
    """A file cannot be written."""

    category = Category.OUTPUT


class OutputExistsError(OutputError, FileExistsError):
    """A file exists already and is not replaced."""


class CertificateError(FedHLCRError, ValueError):
    """A folder of certificates lacks a key, or holds one that does not fit."""


class MissingDependencyError(FedHLCRError, ImportError):
    """An optional package is not installed."""


# Fits and federations


class FitError(FedHLCRError, ValueError):
    """A fit did not succeed."""


class FederationError(FedHLCRError, RuntimeError):
    """A federation cannot do what was asked: no agent answered, or a round is open."""


class UnknownAgentError(FedHLCRError, KeyError):
    """No agent has that name."""


class BroadcastError(FedHLCRError, ValueError):
    """An agent does not answer a broadcast that is malformed, outdated, or of another run."""


class DisclosureError(FedHLCRError, ValueError):
    """A mod withholds the answer of agents: nothing leaves them in this round."""


class FixedPointError(FedHLCRError, OverflowError):
    """Numbers do not fit into fixed point: they are not finite, or beyond the bound. Nothing is sent."""


class SecureSumError(FedHLCRError, ValueError):
    """A party of a secure sum does not answer a message that is malformed, out of order, or would reveal its values."""


class ReplyTooLargeError(FedHLCRError, ValueError):
    """A node's reply is larger than it may be. It has not been read."""


class ReplyLostError(FedHLCRError, RuntimeError):
    """SuperLink no longer waits for the rest of a node's reply."""


class ReplyGivenUpError(FedHLCRError, TimeoutError):
    """The deadline of a node's reply has passed, or nobody waits for it any more."""


class NotEnoughNodesError(FedHLCRError, RuntimeError):
    """Too few nodes are ready to start or to continue."""


class LoopbackError(FedHLCRError, RuntimeError):
    """A federation on this machine could not be started, or failed."""


class RecordError(FedHLCRError, ValueError):
    """A Flower message does not hold what it should."""


class Refusal(FedHLCRError):  # noqa: N818
    """A node cannot do what it was asked.

    Attributes
    ----------
    kind : the reason in one word; the server sees it
    cure : what to do about it, without anything of the node's data; the server sees it
    detail : more, for the node's own log only
    """

    def __init__(self, kind: str, cure: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {cure}")
        self.kind = kind
        self.cure = cure
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, self.cure, self.detail)


# Warnings


class FedHLCRWarning(WithAdvice, UserWarning):
    """The base class of all warnings of fedhlcr."""


class ConvergenceWarning(FedHLCRWarning):
    """The chains disagree, so the draws do not represent the posterior yet."""


class DataWarning(FedHLCRWarning):
    """A table is too small or too plain for what the model does: some results mean little."""


class CategoriesWarning(FedHLCRWarning):
    """Columns of texts are taken as categories, although nobody said so."""


class MissingValuesWarning(FedHLCRWarning):
    """Rows with missing values are left out."""


class ForgottenIdsWarning(FedHLCRWarning):
    """A model was fitted with ids, but a table came without them: its rows count as those of somebody new."""


class SimplerModelWarning(FedHLCRWarning):
    """A simpler model predicts the fitted events better, each event from all others."""


class DeprecationNotice(FedHLCRWarning, FutureWarning):
    """A setting has another name now, or does nothing any more; a later release will refuse it."""


class FitInterruptedWarning(FedHLCRWarning):
    """The user ended a fit early; the model uses the draws made so far."""


def warn_user(message: str, category: type[FedHLCRWarning] = FedHLCRWarning, advice: Advice | None = None) -> None:
    """Warn at the line of the user's own code, past this package and scikit-learn's wrappers."""
    give_warning(category(message, advice))


def give_warning(warning: FedHLCRWarning) -> None:
    """Give a warning as `warn_user` does."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("fedhlcr", "sklearn"):
        level = level + 1
        frame = frame.f_back
    warnings.warn(warning, stacklevel=level)
