"""Arguments and options that several commands share."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

if TYPE_CHECKING:
    from fedhlcr.data.recipe import Recipe

COLUMNS, MODEL_OPTIONS, SPEECH = "Columns", "Model", "Output"
# The largest seed that numpy accepts.
LARGEST_SEED = 2**32 - 1


class Missing(StrEnum):
    """What to do about missing values."""

    refuse = "refuse"
    drop = "drop"
    impute = "impute"


class Effects(StrEnum):
    """How entities of one cluster may differ."""

    auto = "auto"
    none = "none"
    entity = "entity"
    entity_and_agent = "entity+agent"


class Family(StrEnum):
    """What the target is."""

    auto = "auto"
    real = "real"
    binary = "binary"
    counts = "count"


class Aggregation(StrEnum):
    """What the server of a federation sees."""

    plain = "plain"
    secure = "secure"


class Precision(StrEnum):
    """How entities are scored first."""

    double = "double"
    single = "single"


class Noise(StrEnum):
    """Who has noise of its own."""

    entity = "entity"
    common = "common"
    student = "student"


def real(option: str, low: float, high: float, help: str, panel: str | None = None) -> Any:
    """Return an option whose value is a number from `low` to `high`."""
    return typer.Option(option, min=low, max=high, callback=_refuse_nan, help=help, rich_help_panel=panel)


def _refuse_nan(value: float | None) -> float | None:
    # range checks do not catch nan
    if value is not None and math.isnan(value):
        raise typer.BadParameter("must be a number, but is nan.")
    return value


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A table with one row per event: CSV, Parquet (a file or a folder), Arrow or Feather, compressed or not. "
        "A dash (-) reads standard input.",
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, as written by `fedhlcr fit`.")]
TargetOption = Annotated[
    str, typer.Option("--target", metavar="COLUMN", help="Column to predict.", rich_help_panel=COLUMNS)
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="COLUMN",
        help="Column with the agent of each event. Without it, all events belong to one agent.",
        rich_help_panel=COLUMNS,
    ),
]
EntityOption = Annotated[
    str,
    typer.Option(
        "--entity",
        metavar="COLUMN",
        help="Column with the entity of each event.",
        rich_help_panel=COLUMNS,
    ),
]
# The same where a formula may name the columns.
OR_FORMULA = "Needed without --formula."
FitTargetOption = Annotated[
    str | None,
    typer.Option("--target", metavar="COLUMN", help=f"Column to predict. {OR_FORMULA}", rich_help_panel=COLUMNS),
]
FitEntityOption = Annotated[
    str | None,
    typer.Option(
        "--entity",
        metavar="COLUMN",
        help=f"Column with the entity of each event. {OR_FORMULA}",
        rich_help_panel=COLUMNS,
    ),
]
FormulaOption = Annotated[
    str | None,
    typer.Option(
        "--formula",
        metavar="FORMULA",
        help="Target, features and ids in one: 'sales ~ log(price) + C(brand) | store/product'. It replaces --target, "
        "--agent, --entity, --features and --categorical, and needs the extra formula.",
        rich_help_panel=COLUMNS,
    ),
]
FeaturesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        metavar="COLUMNS",
        help="Columns to predict from, separated by commas. Default: all other columns.",
        rich_help_panel=COLUMNS,
    ),
]
CategoricalOption = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical",
        metavar="COLUMNS",
        help="Features that are categories, separated by commas. Each level becomes a feature of 0 and 1.",
        rich_help_panel=COLUMNS,
    ),
]
MissingOption = Annotated[
    Missing,
    typer.Option(
        "--missing",
        metavar="refuse|drop|impute",
        help="What to do about missing and infinite values: refuse the table, drop the rows, or impute the median or "
        "most common level.",
        rich_help_panel=COLUMNS,
    ),
]
ModelMissingOption = Annotated[
    Missing | None,
    typer.Option(
        "--missing",
        metavar="refuse|drop|impute",
        help="What to do about missing and infinite values. Default: as in the fit.",
        rich_help_panel=COLUMNS,
        show_default=False,
    ),
]
FamilyOption = Annotated[
    Family,
    typer.Option(
        "--family",
        metavar="|".join(Family),
        help="What the target is: a real number, one of two classes such as yes and no (binary), or a count. auto "
        "tells it from the column, with a note.",
        rich_help_panel=MODEL_OPTIONS,
    ),
]
ExposureOption = Annotated[
    str | None,
    typer.Option(
        "--exposure",
        metavar="COLUMN",
        help="Column with the exposure of each event, for counts: days of observation, persons at risk. Mean counts "
        "are proportional to it. It is no feature.",
        rich_help_panel=COLUMNS,
    ),
]
# A model that was fitted on Flower, or in Python to ids without column names, does not store these names.
NOT_STORED = "{} column. Needed only if the model file does not name it."
KnownTarget = Annotated[
    str | None,
    typer.Option("--target", metavar="COLUMN", help=NOT_STORED.format("Target"), rich_help_panel=COLUMNS),
]
KnownAgent = Annotated[
    str | None,
    typer.Option("--agent", metavar="COLUMN", help=NOT_STORED.format("Agent"), rich_help_panel=COLUMNS),
]
KnownExposure = Annotated[
    str | None,
    typer.Option("--exposure", metavar="COLUMN", help=NOT_STORED.format("Exposure"), rich_help_panel=COLUMNS),
]
KnownEntity = Annotated[
    str | None,
    typer.Option("--entity", metavar="COLUMN", help=NOT_STORED.format("Entity"), rich_help_panel=COLUMNS),
]
NewAgentsOption = Annotated[
    bool,
    typer.Option(
        "--new-agents",
        help="Also predict agents that the model does not know.",
        rich_help_panel=COLUMNS,
    ),
]
ClustersOption = Annotated[
    str,
    typer.Option(
        "--clusters",
        metavar="K|auto",
        help="Number of clusters; auto finds it from the data.",
        rich_help_panel=MODEL_OPTIONS,
    ),
]
MaxClustersOption = Annotated[
    int,
    typer.Option("--max-clusters", min=1, help="Maximum number of clusters for auto.", rich_help_panel=MODEL_OPTIONS),
]
EffectsOption = Annotated[
    Effects,
    typer.Option(
        "--effects",
        metavar="|".join(Effects),
        help="How entities of one cluster may differ: not at all (none), each by itself (entity), or entities and "
        "agents (entity+agent). auto keeps the effects that the data ask for.",
        rich_help_panel=MODEL_OPTIONS,
    ),
]
NoiseOption = Annotated[
    Noise,
    typer.Option(
        "--noise",
        metavar="|".join(Noise),
        help="For real targets: whether every entity has its own noise (entity), or all have the same, normal (common) "
        "or with single events that may be far off (student). With --effects none and --noise common the model is that "
        "of the paper.",
        rich_help_panel=MODEL_OPTIONS,
    ),
]
PrecisionOption = Annotated[
    Precision,
    typer.Option(
        "--precision",
        metavar="|".join(Precision),
        help="For real targets: precision in which entities are scored first. Results are the same; only the time "
        "differs.",
        rich_help_panel=MODEL_OPTIONS,
    ),
]
CurvesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--curves",
        metavar="none|auto|COLUMNS",
        help="Features whose effect may bend: none, auto for all with enough distinct values, or columns separated by "
        "commas. Default: none.",
        rich_help_panel=MODEL_OPTIONS,
        show_default=False,
    ),
]
SweepsOption = Annotated[
    int | None,
    typer.Option(
        "--sweeps",
        min=1,
        help="Sweeps of the sampler per chain. The first half is discarded. Default: 200, or 300 for classes and "
        "counts.",
        rich_help_panel=MODEL_OPTIONS,
        show_default=False,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,
        max=LARGEST_SEED,
        help="The same seed gives the same result.",
        rich_help_panel=MODEL_OPTIONS,
    ),
]
SplitSeedOption = Annotated[
    int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="The same seed gives the same split.")
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Number of threads. Default: all cores.", rich_help_panel=MODEL_OPTIONS),
]
LevelOption = Annotated[float, real("--level", 0.01, 0.999, "Probability of the intervals.")]
HoldOut = Annotated[float, real("--hold-out", 0.0, 0.9, "Share of each entity's events to hold out for an evaluation.")]
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
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, for programs.", rich_help_panel=SPEECH)
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=SPEECH)]
ProgressOption = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show progress. Default: only on a terminal.",
        rich_help_panel=SPEECH,
        show_default=False,
    ),
]


def require_apart(option: str, path: Path | None, other_option: str, other: Path | None) -> None:
    """Refuse two outputs to the same file: the second would replace the first."""
    if path is not None and other is not None and path.resolve() == other.resolve():
        raise typer.BadParameter(f"must not be the same file as {other_option}.", param_hint=option)


def require_for(needed: str, is_given: bool, **values: object) -> None:
    """Refuse options that have no effect without another one."""
    for name, value in values.items():
        if value and not is_given:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(
                f"has no effect without {needed}; add {needed}, or leave {option} out.", param_hint=option
            )


def require_columns(formula: str | None, **given: object) -> None:
    """Refuse a command that names neither columns nor a formula, or that names both."""
    for name, value in given.items():
        if formula is not None and value:
            reason = "is for tables without --formula, which names all columns; leave it out."
            raise typer.BadParameter(reason, param_hint=f"--{name}")
        if formula is None and value is None and name in ("target", "entity"):
            raise click.MissingParameter(param_type="option", param_hint=f"'--{name}'")


def split_names(option: str, values: list[str] | None, columns: tuple[str, ...]) -> list[str]:
    """Return names that an option got one by one or separated by commas. A column's own name may contain commas."""
    names = []
    for value in values or []:
        names += [value] if value in columns else [name.strip() for name in value.split(",") if name.strip()]
    if values and not names:
        raise typer.BadParameter("names no column; name at least one.", param_hint=option)
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


def cluster_number(clusters: str) -> int | str:
    if clusters == "auto":
        return clusters
    if not _is_count(clusters):
        raise typer.BadParameter("must be a whole number of at least 1, or auto.", param_hint="--clusters")
    return int(clusters)


def cluster_numbers(clusters: str) -> list[int]:
    numbers = [number.strip() for number in clusters.split(",") if number.strip()]
    if not numbers or not all(map(_is_count, numbers)):
        reason = "must be whole numbers of at least 1, separated by commas; auto is always compared too."
        raise typer.BadParameter(reason, param_hint="--clusters")
    return [int(number) for number in numbers]


def _is_count(text: str) -> bool:
    # Python refuses to convert texts of thousands of digits
    return text.isascii() and text.isdigit() and len(text) < 1000 and int(text) > 0
