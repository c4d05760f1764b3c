"""The reference of the command line, generated from the commands, so that it is never out of date.

It uses only attributes that commands have in every release of typer: newer releases bring their own click.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_type_hints

import typer

from fedhlcr.cli import app

# Placeholders of values in labels, by typer's names of types.
PLACEHOLDERS = {"integer": "N", "float": "NUMBER", "path": "FILE", "file": "FILE", "directory": "DIR"}


def describe_commands() -> str:
    """Markdown: a section for each command, with its arguments and options."""
    return "\n\n".join(_sections(typer.main.get_command(app), "fedhlcr"))


def _sections(command: Any, path: str) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if not children:
        yield _describe(command, path)
    for name, child in children.items():
        if not child.hidden:
            yield from _sections(child, f"{path} {name}")


def _describe(command: Any, path: str) -> str:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in shown if parameter.param_type_name == "argument"]
    options = [parameter for parameter in shown if parameter.param_type_name == "option"]
    needed = [_label(option) for option in options if option.required]
    usage = " ".join([path, *map(_label, arguments), *needed, *(["[OPTIONS]"] if len(options) > len(needed) else [])])
    rows = [_row(parameter, _words(parameter, command)) for parameter in (*arguments, *options)]
    table = ["| | |", "|---|---|", *rows] if rows else []
    words = _paragraphs(inspect.cleandoc(command.help or ""))
    return "\n".join([f"## {path}", "", words, "", "```text", usage, "```", "", *table])


def _label(parameter: Any) -> str:
    """How it is written: `DATA`, `[DATA]`, `--out FILE`, `--by-agent`."""
    metavar = parameter.metavar or _value(parameter)
    if parameter.param_type_name == "argument":
        return metavar if parameter.required or metavar.startswith("[") else f"[{metavar}]"
    return max(parameter.opts, key=len) if parameter.is_flag else f"{max(parameter.opts, key=len)} {metavar}"


def _value(parameter: Any) -> str:
    """The placeholder of a value: its choices, or its type."""
    if choices := getattr(parameter.type, "choices", None):
        return "|".join(map(str, choices))
    type_name = str(parameter.type.name).removesuffix(" range")
    return PLACEHOLDERS.get(type_name) or str(parameter.name).upper().replace("_", "-")


def _range(parameter: Any) -> str:
    """Which numbers are allowed, in words; empty if all are."""
    least, most = getattr(parameter.type, "min", None), getattr(parameter.type, "max", None)
    if least is not None and most is not None:
        return f"From {least:g} to {most:g}."
    return f"At least {least:g}." if least is not None else f"At most {most:g}." if most is not None else ""


def _words(parameter: Any, command: Any) -> str:
    """Its help. typer 0.20 with click 8.5 loses the help of arguments; the function's annotations still have it."""
    words = parameter.help
    if not words:
        hint = get_type_hints(inspect.unwrap(command.callback), include_extras=True).get(parameter.name)
        words = next((info.help for info in getattr(hint, "__metadata__", ()) if getattr(info, "help", None)), None)
    return " ".join((words or "").split())


def _row(parameter: Any, words: str) -> str:
    label = _label(parameter)
    if parameter.param_type_name == "option" and parameter.secondary_opts:
        label += ", " + ", ".join(parameter.secondary_opts)
    notes = [note for note in (_escaped(words), _range(parameter)) if note]
    default = getattr(parameter.default, "value", parameter.default)  # a choice's value, as a user types it
    if parameter.required and parameter.param_type_name == "option":
        notes.append("Required.")
    elif isinstance(default, str | int | float) and not isinstance(default, bool) and "default" not in words.lower():
        notes.append(f"Default: `{default}`.")
    return f"| `{label}` | {' '.join(notes)} |"


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
