"""`fedhlcr help`: the manual of the commands, as text or as a man page, made from the commands themselves."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import typer

from fedhlcr._support.version import __version__
from fedhlcr.cli.parameters import Parameter, parameters_of
from fedhlcr.cli.shell import WRONG_USAGE

# Columns of text, and the indents of paragraphs and of what explains an option.
WIDTH = 80
INDENT = 7
EXPLAINED = 14
EXIT_CODES = (
    ("0", "done"),
    ("1", "failed"),
    ("2", "wrong usage"),
    ("3", "the data cannot be used"),
    ("4", "the model file cannot be used"),
    ("5", "the output cannot be written"),
    ("130", "interrupted"),
)
FILES = (
    (".csv, .csv.gz, .parquet, .feather, .arrow", "Tables of events: one row each, with a header."),
    (".fedhlcr", "Models. Any name will do; reports, predictions and Python read them."),
    (".html", "Reports: one file that any browser shows, without a network."),
)
ENVIRONMENT = (("FEDHLCR_DEBUG", "If it is set, an unexpected error shows where it happened."),)


class Entry(NamedTuple):
    """An option, a command or a file, and what it is."""

    name: str
    words: str


class Section(NamedTuple):
    """A part of a page: paragraphs, lines to be kept as they are, or entries."""

    title: str
    content: tuple[str | Entry, ...]


def show_help(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]…", help="A command, such as fit or flower node.")
    ] = None,
    man: Annotated[bool, typer.Option("--man", help="Print the source of a man page.")] = False,
) -> None:
    """Show the manual of fedhlcr or of one command: synopsis, description, examples, options, exit codes and files.

    \b
    fedhlcr help
    fedhlcr help fit
    fedhlcr help fit --man
    """
    root = context.find_root()
    found = root.command
    path = ["fedhlcr"]
    for name in command or []:
        children = getattr(found, "commands", {})
        if name not in children:
            known = ", ".join(children) or "none"
            raise typer.BadParameter(f"no command {' '.join([*path[1:], name])!r}; choose from: {known}.")
        found = children[name]
        path = [*path, name]
    sections = tuple(_sections(found, " ".join(path)))
    typer.echo(_as_man(path, sections) if man else _as_text(sections))


def show_help_if_alone(context: typer.Context) -> None:
    """Show the help of a group of commands, if it is called without any of them, which is wrong usage."""
    if context.invoked_subcommand is None:
        # with rich, typer prints it and returns no text
        if text := context.get_help():
            typer.echo(text)
        raise typer.Exit(WRONG_USAGE)


def examples_of(command: Any) -> list[str]:
    """The examples of a command's help, each a whole command line."""
    blocks = [part for part in _paragraphs(command) if part.startswith("\b")]
    lines = "\n".join(block.removeprefix("\b").strip("\n") for block in blocks).replace("\\\n", " ")
    return [" ".join(line.split()) for line in lines.splitlines() if line.strip()]


def _paragraphs(command: Any) -> list[str]:
    return inspect.cleandoc(command.help or "").split("\n\n")


def _sections(command: Any, path: str) -> Iterator[Section]:
    paragraphs = _paragraphs(command)
    words = [" ".join(part.split()) for part in paragraphs if not part.startswith("\b")]
    examples = [part.removeprefix("\b").strip("\n") for part in paragraphs if part.startswith("\b")]
    yield Section("NAME", (f"{path} - {_first_sentence(words[0])}",))
    yield Section("SYNOPSIS", (_usage(command, path),))
    yield Section("DESCRIPTION", tuple(words))
    if examples:
        yield Section("EXAMPLES", tuple("\b" + block for block in examples))
    children = getattr(command, "commands", {})
    shown = {name: child for name, child in children.items() if not child.hidden}
    if shown:
        yield Section("COMMANDS", tuple(Entry(name, _first_sentence(_summary(child))) for name, child in shown.items()))
    parameters = parameters_of(command)
    for title, is_argument in (("ARGUMENTS", True), ("OPTIONS", False)):
        if entries := [_entry(p) for p in parameters if p.is_argument == is_argument]:
            yield Section(title, tuple(entries))
    yield Section("EXIT CODES", tuple(Entry(*pair) for pair in EXIT_CODES))
    yield Section("FILES", tuple(Entry(*pair) for pair in FILES))
    yield Section("ENVIRONMENT", tuple(Entry(*pair) for pair in ENVIRONMENT))
    also = f"fedhlcr help COMMAND shows the manual of a command, {path} --help its options in short."
    yield Section("SEE ALSO", (also,))


def _summary(command: Any) -> str:
    return " ".join(_paragraphs(command)[0].split())


def _first_sentence(text: str) -> str:
    return text.split(". ")[0].rstrip(".")


def _usage(command: Any, path: str) -> str:
    if getattr(command, "commands", {}):
        return f"{path} COMMAND [OPTIONS] …"
    parts = [p.label for p in parameters_of(command) if p.is_argument or p.is_required]
    return " ".join([path, *parts, "[OPTIONS]"])


def _entry(parameter: Parameter) -> Entry:
    words = parameter.words
    if parameter.is_required and not parameter.is_argument:
        words += " Required."
    elif parameter.default is not None:
        words += f" Default: {parameter.default}."
    return Entry(", ".join([*parameter.other_names, parameter.label]), words)


def _as_text(sections: tuple[Section, ...]) -> str:
    parts = []
    for title, content in sections:
        wrapped = [_block(item) for item in content]
        # entries stand close together
        between = "\n" if all(isinstance(item, Entry) for item in content) else "\n\n"
        parts.append(f"{title}\n{between.join(wrapped)}")
    return "\n\n".join(parts)


def _block(item: str | Entry) -> str:
    if isinstance(item, Entry):
        return f"{' ' * INDENT}{item.name}\n{_wrapped(item.words, EXPLAINED)}"
    if item.startswith("\b"):
        return textwrap.indent(item.removeprefix("\b"), " " * INDENT)
    return _wrapped(item, INDENT)


def _wrapped(text: str, indent: int) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _as_man(path: list[str], sections: tuple[Section, ...]) -> str:
    """The page in the language of man(7)."""
    lines = [f'.TH "{"-".join(path).upper()}" 1 "" "fedhlcr {__version__}"']
    for title, content in sections:
        lines.append(f".SH {title}")
        for item in content:
            if isinstance(item, Entry):
                lines += [".TP", f"\\fB{_escaped(item.name)}\\fR", _escaped(item.words)]
            elif item.startswith("\b"):
                lines += [".PP", ".nf", *(_escaped(line) for line in item.removeprefix("\b").splitlines()), ".fi"]
            else:
                lines += [".PP", _escaped(item)]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Text in which roff sees no commands: backslashes, hyphens that are minus signs, and dots that begin a line."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
