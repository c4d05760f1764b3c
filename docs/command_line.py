"""The reference of the command line, generated from the commands, so that it is never out of date."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer.main

from fedhlcr.cli import app
from fedhlcr.cli.parameters import Parameter, parameters_of


def describe_commands() -> str:
    """Markdown: a section for each command, with its arguments and options.

    An option that an earlier command has in the same words is named only, with a link.
    """
    shown: dict[str, str] = {}
    return "\n\n".join(_describe(one, path, shown) for path, one in _commands(typer.main.get_command(app), "fedhlcr"))


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        if not child.hidden:
            yield from _commands(child, f"{path} {name}")


def _describe(command: Any, path: str, shown: dict[str, str]) -> str:
    parameters = sorted(parameters_of(command), key=lambda parameter: not parameter.is_argument)
    needed = [parameter.label for parameter in parameters if parameter.is_argument or parameter.is_required]
    usage = " ".join([path, *needed, *(["[OPTIONS]"] if len(parameters) > len(needed) else [])])
    new, known = [], {}
    for parameter in parameters:
        row = _row(parameter)
        first = shown.setdefault(row, path)
        if first == path:
            new.append(row)
        else:
            known.setdefault(first, []).append(f"`{parameter.label}`")
    table = ["| | |", "|---|---|", *new, ""] if new else []
    same = [f"As in [{one}](#{one.replace(' ', '-')}): {', '.join(labels)}." for one, labels in known.items()]
    words = _paragraphs(inspect.cleandoc(command.help or ""))
    return "\n".join([f"## {path}", "", words, "", "```text", usage, "```", "", *table, " ".join(same)])


def _range(parameter: Parameter) -> str:
    """Which numbers are allowed, in words; empty if all are."""
    least, most = parameter.least, parameter.most
    if least is not None and most is not None:
        return f"From {least:g} to {most:g}."
    return f"At least {least:g}." if least is not None else f"At most {most:g}." if most is not None else ""


def _row(parameter: Parameter) -> str:
    notes = [note for note in (_escaped(parameter.words), _range(parameter)) if note]
    if parameter.is_required and not parameter.is_argument:
        notes.append("Required.")
    elif parameter.default is not None:
        notes.append(f"Default: `{parameter.default}`.")
    return f"| `{', '.join([parameter.label, *parameter.other_names])}` | {' '.join(notes)} |"


def _paragraphs(text: str) -> str:
    """Paragraphs of a help text; those after a \\b keep their lines, as in the terminal."""
    shown = []
    for paragraph in text.split("\n\n"):
        verbatim = paragraph.removeprefix("\b\n")
        shown.append(_escaped(paragraph) if verbatim == paragraph else f"```text\n{verbatim}\n```")
    return "\n\n".join(shown)


def _escaped(text: str) -> str:
    """Text without characters that Markdown would interpret."""
    for mark in "\\*_<>[]|":
        text = text.replace(mark, "\\" + mark)
    return text
