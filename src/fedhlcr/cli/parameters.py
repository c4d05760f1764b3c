"""What the arguments and options of a command are, in words: for the manual and for the documentation.

Help, types and ranges are read where they are declared, in the annotations of a command's function: releases of typer
keep them in different places, and before 0.26 with click 8.4 or newer they lose the help of arguments.
"""

from __future__ import annotations

import inspect
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, get_args

# Placeholders of values in labels; those of other types are the parameter's name.
PLACEHOLDERS = {int: "N", float: "NUMBER", Path: "FILE"}


class Parameter(NamedTuple):
    """An argument or an option of a command.

    Attributes
    ----------
    label : how it is written: `DATA`, `[DATA]`, `--out FILE`, `--by-agent`
    other_names : other names of an option, such as `-o`
    words : its help
    default : what is taken without it; None if there is nothing to say about that
    least, most : the range of a number; None is no limit
    """

    label: str
    other_names: tuple[str, ...]
    is_argument: bool
    is_required: bool
    words: str
    default: str | None
    least: float | None
    most: float | None


def parameters_of(command: Any) -> list[Parameter]:
    """Return the arguments and options of a command, as typer made it, without those that are hidden."""
    hints = _hints(command)
    return [_described(parameter, hints.get(parameter.name)) for parameter in command.params if not parameter.hidden]


def restore_help(command: Any) -> None:
    """Give the arguments of a command, and of its own commands, the help that typer has lost."""
    for child in getattr(command, "commands", {}).values():
        restore_help(child)
    for parameter in command.params:
        if not parameter.help:
            parameter.help = _declared(parameter, _hints(command).get(parameter.name)).help


def _hints(command: Any) -> dict[str, Any]:
    signature = inspect.signature(command.callback, eval_str=True)
    return {name: one.annotation for name, one in signature.parameters.items()}


def _declared(parameter: Any, hint: Any) -> Any:
    """What `typer.Option` or `typer.Argument` returned. Completion of shells is an option of typer's own."""
    return hint.__metadata__[0] if hasattr(hint, "__metadata__") else parameter


def _described(parameter: Any, hint: Any) -> Parameter:
    declared = _declared(parameter, hint)
    words = " ".join((declared.help or "").split())
    is_argument = parameter.param_type_name == "argument"
    value = parameter.metavar or _placeholder(parameter.name, _value_type(hint))
    name = max(parameter.opts, key=len)
    return Parameter(
        label=_argument_label(value, parameter.required) if is_argument else _option_label(name, value, parameter),
        other_names=() if is_argument else tuple(n for n in (*parameter.opts, *parameter.secondary_opts) if n != name),
        is_argument=is_argument,
        is_required=parameter.required,
        words=words,
        default=None if "default" in words.lower() else _default_text(parameter.default),
        least=getattr(declared, "min", None),
        most=getattr(declared, "max", None),
    )


def _argument_label(value: str, is_required: bool) -> str:
    return value if is_required or value.startswith("[") else f"[{value}]"


def _option_label(name: str, value: str, parameter: Any) -> str:
    return name if parameter.is_flag else f"{name} {value}"


def _value_type(hint: Any) -> Any:
    """The type of one value: `int` for `Annotated[int | None, …]` and for `Annotated[list[int], …]`."""
    while inner := [part for part in get_args(hint) if part is not type(None)]:
        hint = inner[0]
    return hint


def _placeholder(name: str, kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(choice.value) for choice in kind)
    return PLACEHOLDERS.get(kind) or name.upper().replace("_", "-")


def _default_text(default: object) -> str | None:
    value = getattr(default, "value", default)  # a choice's value, as a user types it
    is_shown = isinstance(value, str | int | float | Path) and not isinstance(value, bool)
    return (str(value) or None) if is_shown else None
