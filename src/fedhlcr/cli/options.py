"""Arguments and options of commands: each is declared once, alone or in a group that commands take as one argument.

An option that is a setting of a model takes its meaning, range and default from `fedhlcr.settings`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fedhlcr.cli.shell import Shell, option_name
from fedhlcr.settings import LARGEST_SEED, SETTINGS, DeclaredSetting

if TYPE_CHECKING:
    from fedhlcr.data.recipe import Recipe

COLUMNS = "Columns"
MODEL = "Model"
FEDERATION = "Federation"
CLUSTER = "Cluster"
OUTPUT = "Output"
# What typer raises where a command line is wrong: `BadParameter`, and others that have no public name in all releases.
UsageError: Any = typer.BadParameter.__base__
NEEDED = inspect.Parameter.empty
# Names that options had before, and what they are called now; None for those that do nothing any more.
OLD_OPTIONS = {"categorical": "categories", "precision": None}
# The same for words: of which option, the old word and the new one.
OLD_WORDS = {("engine", "here"): "in_process"}


class OptionGroup(NamedTuple):
    """Options that a command takes as one argument, which `make` makes of their values.

    A command's argument is annotated with it: `shell: Annotated[Shell, OptionGroup(…)]`.
    """

    options: tuple[inspect.Parameter, ...]
    make: Callable[..., Any]


def with_groups(function: Callable[..., None]) -> Callable[..., None]:
    """A command as typer reads it: in the place of each group, its options."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, OptionGroup] = {}
    for own in inspect.signature(function, eval_str=True).parameters.values():
        group = next((one for one in getattr(own.annotation, "__metadata__", ()) if isinstance(one, OptionGroup)), None)
        if group is None:
            parameters.append(own)
        else:
            groups[own.name] = group
            parameters += group.options

    @functools.wraps(function)
    def command(**values: Any) -> None:
        values = {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}
        notes = _replace_old(values)
        made = {
            name: group.make(**{one.name: values.pop(one.name) for one in group.options if one.name in values})
            for name, group in groups.items()
        }
        for note in notes:
            made["shell"].note(note)
        function(**values, **made)

    order = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    command.__signature__ = inspect.Signature(order)  # type: ignore[attr-defined]
    command.__annotations__ = {}
    return command


def _replace_old(values: dict[str, Any]) -> list[str]:
    """Turn old options and words into the new ones; return a note on each."""
    notes = []
    for old, new in OLD_OPTIONS.items():
        if not (value := values.pop(old, None)):
            continue
        if new is None:
            notes.append(f"--{old} does nothing any more. {SETTINGS[old].deprecated}")
        else:
            notes.append(f"--{old} is now called --{new}")
            values[new] = [*(values[new] or []), *value]
    for (name, old), new in OLD_WORDS.items():
        if values.get(name) == old:
            notes.append(f"--{name} {old} is now --{name} {new}")
            values[name] = new
    return notes


def option(
    name: str, kind: Any, default: Any, help: str, *flags: str, panel: str | None = None, **more: Any
) -> inspect.Parameter:
    """Declare an option; without `flags` it is called like its argument."""
    if kind is float:
        more["callback"] = _refuse_nan
    declared = typer.Option(*(flags or (f"--{name.replace('_', '-')}",)), help=help, rich_help_panel=panel, **more)
    kind = kind | None if default is None else kind
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, declared]
    )


def setting(name: str, **changed: Any) -> inspect.Parameter:
    """The option of a setting of models; `changed` replaces what the table says, for one command."""
    own = SETTINGS[name]
    known = {"help": _help(own), "default": own.default, "panel": FEDERATION if own.fits == "federated" else MODEL}
    kind: Any = own.kind
    if own.words:
        kind = str
        known |= {"metavar": f"K|{'|'.join(own.words)}", "parser": number_or_word}
    elif own.kind in (int, float):
        known |= {"min": own.least, "max": own.most}
    elif own.others:
        kind = list[str]
        known |= {"metavar": "|".join([*own.choices, "COLUMNS"]), "default": None}
    elif own.choices:
        kind = choice_of(name, own.choices)
        known |= {"metavar": "|".join(own.choices), "default": kind(own.default)}
    if own.default_of_others is not None:
        known["default"] = None
    known |= changed
    known |= {} if known["default"] is not None else {"show_default": False}
    return option(name, kind, known.pop("default"), known.pop("help"), f"--{own.option}", **known)


def _help(own: DeclaredSetting) -> str:
    text = own.worded(option_name)
    if own.default_of_others is not None:
        return f"{text} Default: {own.default}, or {own.default_of_others} for classes and counts."
    if own.kind is None and own.others:
        return f"{text} Columns are separated by commas. Default: {own.default}."
    return text


def choice_of(name: str, choices: Collection[str]) -> Any:
    """The choices of an option, as typer wants them."""
    return StrEnum(name, {word: word for word in choices})


def settings(*parameters: str | inspect.Parameter) -> OptionGroup:
    """Settings of models by their names in Python, as one dict for an estimator."""
    made = tuple(setting(one) if isinstance(one, str) else one for one in parameters)
    return OptionGroup(made, dict)


def real(flag: str, low: float, high: float, help: str, panel: str | None = None) -> Any:
    """An option whose value is a number from `low` to `high`."""
    return typer.Option(flag, min=low, max=high, callback=_refuse_nan, help=help, rich_help_panel=panel)


def _refuse_nan(value: float | None) -> float | None:
    # range checks do not catch nan
    if value is not None and math.isnan(value):
        raise typer.BadParameter("must be a number, but is nan.")
    return value


def number_or_word(text: str) -> int | str:
    """A number of clusters: "auto", or a whole number of at least 1."""
    if text == "auto":
        return text
    if not _is_count(text):
        raise typer.BadParameter("must be a whole number of at least 1, or auto.", param_hint="--clusters")
    return int(text)


def cluster_numbers(clusters: str) -> list[int]:
    numbers = [number.strip() for number in clusters.split(",") if number.strip()]
    if not numbers or not all(map(_is_count, numbers)):
        reason = "must be whole numbers of at least 1, separated by commas; auto is always compared too."
        raise typer.BadParameter(reason, param_hint="--clusters")
    return [int(number) for number in numbers]


def _is_count(text: str) -> bool:
    # Python refuses to convert texts of thousands of digits
    return text.isascii() and text.isdigit() and len(text) < 1000 and int(text) > 0


# Output

_OUTPUT = {
    "json": option("json", bool, False, "Print one JSON object, for programs.", panel=OUTPUT),
    "quiet": option("quiet", bool, False, "Print nothing but errors.", "--quiet", "-q", panel=OUTPUT),
    "progress": option(
        "progress",
        bool,
        None,
        "Show progress. Default: only on a terminal.",
        "--progress/--no-progress",
        panel=OUTPUT,
        show_default=False,
    ),
}
Output = Annotated[Shell, OptionGroup(tuple(_OUTPUT.values()), Shell)]
QuickOutput = Annotated[Shell, OptionGroup((_OUTPUT["json"], _OUTPUT["quiet"]), Shell)]
TextOutput = Annotated[Shell, OptionGroup((_OUTPUT["quiet"], _OUTPUT["progress"]), Shell)]


# Tables and their columns


@dataclass(frozen=True)
class Roles:
    """Names of columns; None if the user gave none."""

    target: str | None = None
    agent: str | None = None
    entity: str | None = None
    exposure: str | None = None


ROLES = {
    "target": "Column to predict.",
    "entity": "Column with the entity of each event.",
    "agent": "Column with the agent of each event.",
    "exposure": "Column with the exposure of each event, for counts: days of observation, persons at risk. Mean counts "
    "are proportional to it. It is no feature.",
}


def roles(*names: str, needed: Collection[str] = (), hints: Mapping[str, str] | None = None) -> OptionGroup:
    """The options that name columns; `hints` are added to their help."""
    return OptionGroup(
        tuple(role(name, needed=name in needed, hint=(hints or {}).get(name, "")) for name in names), Roles
    )


def role(name: str, *, needed: bool = False, hint: str = "") -> inspect.Parameter:
    words = f"{ROLES[name]} {hint}".strip()
    return option(name, str, NEEDED if needed else None, words, metavar="COLUMN", panel=COLUMNS)


ONE_AGENT = "Without it, all events belong to one agent."
_OR_FORMULA = "Needed without --formula."
RolesToFit = Annotated[Roles, roles(*ROLES, hints={"target": _OR_FORMULA, "entity": _OR_FORMULA, "agent": ONE_AGENT})]
# A model that was fitted on Flower, or in Python to ids without column names, does not store these names.
_KNOWN = OptionGroup(
    tuple(
        option(
            name,
            str,
            None,
            f"{name.capitalize()} column. Needed only if the model file does not name it.",
            metavar="COLUMN",
            panel=COLUMNS,
        )
        for name in ROLES
    ),
    Roles,
)
KnownRoles = Annotated[Roles, _KNOWN]
KnownRolesToPredict = Annotated[Roles, OptionGroup(_KNOWN.options[1:], Roles)]

_COLUMN_LISTS = (
    option(
        "features",
        list[str],
        None,
        "Columns to predict from, separated by commas. Default: all other columns.",
        metavar="COLUMNS",
        panel=COLUMNS,
    ),
    setting(
        "categories",
        help="Features that are categories, separated by commas; each level becomes a feature of 0 and 1.",
        metavar="COLUMNS",
        panel=COLUMNS,
    ),
    option("categorical", list[str], None, "", hidden=True),
    setting("missing", panel=COLUMNS),
)
FAMILIES = ("auto", "real", "binary", "count")
_FAMILY = option(
    "family",
    choice_of("family", FAMILIES),
    "auto",
    "What the target is: a real number, one of two classes such as yes and no (binary), or a count. auto tells it from "
    "the column, with a note.",
    metavar="|".join(FAMILIES),
    panel=MODEL,
)
_FORMULA = setting(
    "formula",
    help=f"{SETTINGS['formula'].meaning} It replaces --target, --agent, --entity, --features and --categories, and "
    "needs the extra formula.",
    metavar="FORMULA",
    panel=COLUMNS,
)
# How a table to fit a model to is read: arguments of `events.open_training`.
Reading = Annotated[dict[str, Any], OptionGroup((*_COLUMN_LISTS, _FAMILY), dict)]
ReadingOrFormula = Annotated[dict[str, Any], OptionGroup((*_COLUMN_LISTS, _FORMULA, _FAMILY), dict)]
ReadingReal = Annotated[dict[str, Any], OptionGroup(_COLUMN_LISTS, dict)]
# How a table for a model is read: arguments of `events.events_to_predict`.
_MISSING = setting(
    "missing", default=None, help="What to do about missing and infinite values. Default: as in the fit.", panel=COLUMNS
)
_NEW_AGENTS = option("new_agents", bool, False, "Also predict agents that the model does not know.", panel=COLUMNS)
ReadingToPredict = Annotated[dict[str, Any], OptionGroup((_NEW_AGENTS, _MISSING), dict)]
ReadingToAdapt = Annotated[dict[str, Any], OptionGroup((_MISSING,), dict)]

DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A table with one row per event: CSV, Parquet (a file or a folder), Arrow or Feather, compressed or not. "
        "A dash (-) reads standard input.",
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, as written by `fedhlcr fit`.")]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="The same seed gives the same result.")
]
HoldOutOption = Annotated[
    float, real("--hold-out", 0.0, 0.9, "Share of each entity's events to hold out for an evaluation.")
]
PublicOption = Annotated[
    bool,
    typer.Option("--public", help="Leave out what is private to agents: ids, Gram matrices, labels and counts."),
]
StreamOption = Annotated[
    bool | None,
    typer.Option(
        "--stream/--in-memory",
        help="Read DATA in batches, or at once. Default: in batches if it would take more than 256 MB.",
        show_default=False,
    ),
]


# What commands refuse about their options, and what the texts of options mean


def require_apart(flag: str, path: Path | None, other_flag: str, other: Path | None) -> None:
    """Refuse two outputs to the same file: the second would replace the first."""
    if path is not None and other is not None and path.resolve() == other.resolve():
        raise typer.BadParameter(f"must not be the same file as {other_flag}.", param_hint=flag)


def require_for(needed: str, is_given: bool, values: Mapping[str, object]) -> None:
    """Refuse options that have no effect without another one."""
    for name, value in values.items():
        if value and not is_given:
            flag = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(
                f"has no effect without {needed}; add {needed}, or leave {flag} out.", param_hint=flag
            )


def require_columns(formula: str | None, given: Mapping[str, object]) -> None:
    """Refuse a command that names neither columns nor a formula, or that names both."""
    for name, value in given.items():
        if formula is not None and value:
            reason = "is for tables without --formula, which names all columns; leave it out."
            raise typer.BadParameter(reason, param_hint=f"--{name}")
        if formula is None and value is None and name in ("target", "entity"):
            raise UsageError(f"Missing option '--{name}': name a column, or pass --formula.")


def split_names(flag: str, values: list[str] | None, columns: tuple[str, ...]) -> list[str]:
    """Return names that an option got one by one or separated by commas. A column's own name may contain commas."""
    names = []
    for value in values or []:
        names += [value] if value in columns else [name.strip() for name in value.split(",") if name.strip()]
    if values and not names:
        raise typer.BadParameter("names no column; name at least one.", param_hint=flag)
    return list(dict.fromkeys(names))


def curve_names(values: list[str] | None, recipe: Recipe) -> str | list[str]:
    """Return the parameter `curves` of an estimator: a word, or names of features."""
    if not values:
        return "none"
    if values in (["none"], ["auto"]):
        return values[0]
    names = split_names("--curves", values, recipe.encoded_features)
    if categories := [name for name in names if name in recipe.categorical]:
        raise typer.BadParameter(
            f"names {categories[0]!r}, which is a category; the effect of a category cannot bend. Leave it out.",
            param_hint="--curves",
        )
    return names
