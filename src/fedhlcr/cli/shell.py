"""What commands print: results on standard output, notes and progress on standard error.

On a terminal there are colours and progress; in a pipe there is neither, except for a line now and then while kernels
are compiled. With `--json` a command prints one object and nothing else. Control characters in names and ids are
replaced, because they could control the terminal.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

from fedhlcr._support.plain import plain
from fedhlcr._support.progress import Bar
from fedhlcr._support.wording import Noun
from fedhlcr.exceptions import Advice, Category, FedHLCRError, FedHLCRWarning, FitInterruptedWarning
from fedhlcr.settings import SETTINGS

# Exit codes; 0 is done.
FAILED = 1
WRONG_USAGE = 2
BAD_DATA = 3
BAD_MODEL = 4
NO_OUTPUT = 5
INTERRUPTED = 130
EXIT_CODES = {
    Category.FAILED: FAILED,
    Category.USAGE: WRONG_USAGE,
    Category.DATA: BAD_DATA,
    Category.MODEL: BAD_MODEL,
    Category.OUTPUT: NO_OUTPUT,
}
# What an attribute is called in Python, and by which option a command shows it.
SHOWN_BY = {"coef_": "--json"}


@dataclass
class Shell:
    """The output of one command.

    Attributes
    ----------
    json, quiet, progress : the options of these names; None shows progress only on a terminal
    interrupted : whether the user ended a fit early
    """

    json: bool = False
    quiet: bool = False
    progress: bool | None = None
    interrupted: bool = False
    _notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # kernels may be compiled by whatever a command calls first
        is_silent = self.quiet or self.progress is False
        logging.getLogger("fedhlcr.kernels").setLevel(logging.ERROR if is_silent else logging.NOTSET)

    @property
    def shows_progress(self) -> bool:
        return sys.stderr.isatty() and not self.quiet if self.progress is None else self.progress

    def note(self, text: str) -> None:
        """Print a note on standard error, unless it was printed before."""
        if text in self._notes:
            return
        self._notes.append(text)
        if not self.json and not self.quiet:
            error_line(f"note: {text}")

    def wrote(self, path: object) -> None:
        if not self.json and not self.quiet:
            print(without_controls(f"wrote {path}"), file=sys.stderr)

    def say(self, text: str = "") -> None:
        """Print a line of the result."""
        if not self.json and not self.quiet:
            print(without_controls(text))

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> None:
        """Print a table. The columns at `left` hold texts, the others numbers."""
        if self.json or self.quiet:
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
        for place, name in enumerate(header):
            table.add_column(Text(without_controls(name)), justify="left" if place in left else "right")
        for row in rows:
            table.add_row(*(Text(without_controls(cell)) for cell in row))
        # a pipe has no width: cut nothing off
        width = None if sys.stdout.isatty() else 10_000
        Console(highlight=False, width=width).print(table)

    def result(self, value: Mapping[str, Any]) -> None:
        """Print the result as JSON, if `--json` was given."""
        if self.json:
            notes = {"notes": self._notes} if self._notes else {}
            print(json.dumps(plain({**value, **notes}), allow_nan=False, indent=2))

    def bar(self, total: int | None, what: str, unit: Noun) -> Bar:
        return Bar(total, what, unit, self.shows_progress)

    @contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Show that something is going on whose progress cannot be counted."""
        if not self.shows_progress:
            yield
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True, highlight=False)
        if console.is_terminal:
            with console.status(Text(without_controls(f"{what} …"))):
                yield
        else:
            error_line(f"{what} …")
            yield

    @contextmanager
    def silence(self) -> Iterator[None]:
        """With `--quiet`, print nothing of what others print; errors are shown afterwards."""
        with open(os.devnull, "w", encoding="utf-8") as nowhere, ExitStack() as stack:
            if self.quiet:
                stack.enter_context(redirect_stdout(nowhere))
                stack.enter_context(redirect_stderr(nowhere))
            yield

    @contextmanager
    def warnings_as_notes(self) -> Iterator[None]:
        """Show the warnings of fedhlcr as notes, and none of other libraries: those speak of Python."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", FedHLCRWarning)
            warnings.showwarning = self._show_warning
            yield

    def _show_warning(self, message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        self.interrupted |= issubclass(category, FitInterruptedWarning)
        assert isinstance(message, FedHLCRWarning)
        self.note(message.worded(option_text))


def option_text(name: str, value: object) -> str:
    """Word a setting as an option: `--chains 4`, or `--chains` if no value is meant."""
    return option_name(name) if value is None else f"{option_name(name)} {value}"


def option_name(name: str) -> str:
    """The option of a setting: `--clusters` for n_clusters."""
    declared = SETTINGS.get(name)
    own = name.replace("_", "-") if declared is None or declared.option is None else declared.option
    return SHOWN_BY.get(name, f"--{own}")


def in_shell_words(text: str | Advice) -> str:
    """Return a text of the library; if it is advice, with settings worded as options."""
    return text.worded(option_text) if isinstance(text, Advice) else text


def error_text(error: FedHLCRError) -> str:
    """Return what an error says, with settings worded as options, and the options that cure it."""
    options = " or ".join(option_text(*setting) for setting in error.options)
    return f"{error.worded(option_text)} Use {options}." if options else error.worded(option_text)


def error_line(text: str) -> None:
    """Print one line on standard error."""
    print(without_controls(f"fedhlcr: {' '.join(text.split())}"), file=sys.stderr)


def without_controls(text: str) -> str:
    """Return a text with control characters replaced."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def plural(number: int, singular: str, plural: str | None = None) -> str:
    """1 agent, 1,204 agents."""
    return Noun(singular, plural or f"{singular}s").count(number)
