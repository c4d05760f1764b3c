"""The command `fedhlcr`.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the data cannot be used, 4 the model file cannot be used, 5 the output
cannot be written, 130 interrupted.
"""

from __future__ import annotations

import errno
import inspect
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated

import typer
import typer.main

from fedhlcr._support.console import make_printable
from fedhlcr._support.version import __version__
from fedhlcr.cli import auditing, fitting, flower, inspecting, manual, models, simulating, tables
from fedhlcr.cli.options import UsageError, with_groups
from fedhlcr.cli.parameters import restore_help
from fedhlcr.cli.shell import EXIT_CODES, FAILED, INTERRUPTED, NO_OUTPUT, WRONG_USAGE, error_line, error_text
from fedhlcr.cli.start_up import without_pandas
from fedhlcr.exceptions import FedHLCRError

HELP = """Regression on hierarchical data: agent → entity → event (store → product → week, hospital → patient → visit).

Every entity belongs to one of a few clusters, and each cluster has its own linear regression. From a table to a report:

\b
fedhlcr split sales.csv --agent store --entity product \\
    --train train.csv --test test.csv
fedhlcr fit train.csv --target sales --agent store --entity product \\
    --out sales.fedhlcr
fedhlcr evaluate sales.fedhlcr test.csv
fedhlcr predict sales.fedhlcr test.csv --interval 0.9 --out predictions.csv
fedhlcr report sales.fedhlcr test.csv --out report.html
"""
WITHOUT_PANDAS = ("split", "predict", "inspect")
EPILOG = f"Exit codes: {' · '.join(f'{code} {words}' for code, words in manual.EXIT_CODES)}."


def _flowing(text: str) -> str:
    """Return help text whose paragraphs fit the terminal's width. Examples, which begin with \\b, stay as they are."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(part if part.startswith("\b") else " ".join(part.split()) for part in paragraphs)


app = typer.Typer(
    name="fedhlcr",
    help=HELP,
    epilog=EPILOG,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
FROM_TABLES = "From a table to a model"
WITH_MODELS = "With a model"
TO_TRY = "To try it out, and to read about it"
PRIVACY = "Privacy"
for panel, commands in {
    FROM_TABLES: (tables.split, fitting.fit, fitting.select, simulating.simulate),
    WITH_MODELS: (inspecting.inspect, models.predict, models.evaluate, models.adapt, models.report),
    TO_TRY: (tables.demo, tables.synth, tables.run_compiler, manual.show_help),
    PRIVACY: (auditing.audit,),
}.items():
    for command in commands:
        name = {tables.run_compiler: "compile", manual.show_help: "help"}.get(command, command.__name__)
        app.command(name, rich_help_panel=panel, help=_flowing(command.__doc__ or ""))(with_groups(command))
app.add_typer(flower.app, name="flower", rich_help_panel="Over a network")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedhlcr {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of `fedhlcr` itself."""
    del version
    manual.show_help_if_alone(context)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and end the process with its exit code."""
    # if the shell has closed a stream, Python has none: writing results must fail, writing notes need not
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    make_printable()
    command = next(iter(sys.argv[1:] if arguments is None else arguments), None)
    with without_pandas() if command in WITHOUT_PANDAS else nullcontext():
        code = run(arguments)
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Errors are reported in one line, never as a traceback."""
    try:
        command = typer.main.get_command(app)
        restore_help(command)
        code = int(command.main(args=arguments, prog_name="fedhlcr", standalone_mode=False) or 0)
        sys.stdout.flush()
        # typer handles Ctrl-C and returns a code
        return _failed("interrupted.", INTERRUPTED) if code == INTERRUPTED else code
    except UsageError as error:
        reason = error.format_message()
        where = "fedhlcr" if error.ctx is None else error.ctx.command_path
        error_line(f"{reason if reason.endswith(('.', '?')) else f'{reason}.'} See {where} --help.")
        return WRONG_USAGE
    except (typer.Abort, KeyboardInterrupt):
        return _failed("interrupted.", INTERRUPTED)
    except (BrokenPipeError, SystemExit):
        # the reader of a pipe has closed it, which is no error; rich raises SystemExit then
        _forget_output()
        return 0
    except MemoryError:
        return _failed("not enough memory for this table; use fewer columns, levels or clusters.", FAILED)
    except Exception as error:
        if os.environ.get("FEDHLCR_DEBUG"):
            raise
        return _failed(*_explained(error))


def _forget_output() -> None:
    """Discard buffered output: Python would try to write it again at exit, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explained(error: Exception) -> tuple[str, int]:
    """Return a line on an error and the exit code. The text of a library's error is left out: it may quote a table."""
    if isinstance(error, FedHLCRError):
        return error_text(error), EXIT_CODES[error.category]
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF):
        _forget_output()
        return f"cannot write to standard output: {error.strerror}.", NO_OUTPUT
    return f"unexpected error ({type(error).__name__}); FEDHLCR_DEBUG=1 shows where.", FAILED


def _failed(reason: object, code: int) -> int:
    error_line(str(reason))
    return code
