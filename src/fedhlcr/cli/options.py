"""Arguments and options that several commands take."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

COLUMNS, MODEL_OPTIONS, SPEECH = "Columns", "Model", "Output"
# What numpy's generators take.
LARGEST_SEED = 2**32 - 1


class Missing(StrEnum):
    """What to do about missing values."""

    refuse = "refuse"
    drop = "drop"
    impute = "impute"


def real(option: str, low: float, high: float, help: str, panel: str | None = None) -> Any:
    """An option that is a number from `low` to `high`."""
    return typer.Option(option, min=low, max=high, callback=_refuse_nan, help=help, rich_help_panel=panel)


def _refuse_nan(value: float | None) -> float | None:
    # it is neither below a range nor above it
    if value is not None and math.isnan(value):
        raise typer.BadParameter("must be a number, but is nan.")
    return value


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A table with a row per event: CSV, Parquet (a file or a folder), Arrow or Feather, compressed or not; "
        "- reads standard input.",
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
        help="Column with the agent each event belongs to; without it, all belong to one agent.",
        rich_help_panel=COLUMNS,
    ),
]
EntityOption = Annotated[
    str,
    typer.Option(
        "--entity",
        metavar="COLUMN",
        help="Column with the agent's entity each event belongs to.",
        rich_help_panel=COLUMNS,
    ),
]
FeaturesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        metavar="COLUMNS",
        help="Columns to predict from, separated by commas, or repeat the option; all other columns, if not given.",
        rich_help_panel=COLUMNS,
    ),
]
CategoricalOption = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical",
        metavar="COLUMNS",
        help="Features that are categories: each level becomes a feature of 0 and 1.",
        rich_help_panel=COLUMNS,
    ),
]
MissingOption = Annotated[
    Missing,
    typer.Option(
        "--missing",
        metavar="refuse|drop|impute",
        help="Missing values: refuse the table, drop their rows, or impute the median or most common level.",
        rich_help_panel=COLUMNS,
    ),
]
ModelMissingOption = Annotated[
    Missing | None,
    typer.Option(
        "--missing",
        metavar="refuse|drop|impute",
        help="Missing values: handled as in the fit, if not given.",
        rich_help_panel=COLUMNS,
        show_default=False,
    ),
]
# A model that was fitted from Python to ids without column names, or on Flower, does not store these.
NOT_STORED = "{} column, if the model does not store it."
KnownTarget = Annotated[
    str | None,
    typer.Option("--target", metavar="COLUMN", help=NOT_STORED.format("Target"), rich_help_panel=COLUMNS),
]
KnownAgent = Annotated[
    str | None,
    typer.Option("--agent", metavar="COLUMN", help=NOT_STORED.format("Agent"), rich_help_panel=COLUMNS),
]
KnownEntity = Annotated[
    str | None,
    typer.Option("--entity", metavar="COLUMN", help=NOT_STORED.format("Entity"), rich_help_panel=COLUMNS),
]
NewAgentsOption = Annotated[
    bool,
    typer.Option(
        "--new-agents",
        help="Also predict agents the model does not know, from how common the clusters are overall.",
        rich_help_panel=COLUMNS,
    ),
]
ClustersOption = Annotated[
    str,
    typer.Option(
        "--clusters", metavar="K|auto", help="Number of clusters; auto finds it.", rich_help_panel=MODEL_OPTIONS
    ),
]
MaxClustersOption = Annotated[
    int,
    typer.Option("--max-clusters", min=1, help="The most clusters that auto can find.", rich_help_panel=MODEL_OPTIONS),
]
SweepsOption = Annotated[
    int,
    typer.Option("--sweeps", min=1, help="Sweeps per chain; half of them are kept.", rich_help_panel=MODEL_OPTIONS),
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
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="Number of threads; all cores, if not given.", rich_help_panel=MODEL_OPTIONS),
]
LevelOption = Annotated[float, real("--level", 0.01, 0.999, "Probability of the intervals.")]
HoldOut = Annotated[
    float, real("--hold-out", 0.0, 0.9, "Share of each entity's events to hold out, and to evaluate on.")
]
PublicOption = Annotated[
    bool,
    typer.Option(
        "--public", help="Leave out everything that is private to agents: ids, Gram matrices, labels, counts."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Write one JSON object, for machines.", rich_help_panel=SPEECH)
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=SPEECH)]
ProgressOption = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show progress; only on a terminal, if not given.",
        rich_help_panel=SPEECH,
        show_default=False,
    ),
]


def require_apart(option: str, path: Path | None, other_option: str, other: Path | None) -> None:
    """Of two files to write, the second would replace the first."""
    if path is not None and other is not None and path.resolve() == other.resolve():
        raise typer.BadParameter(f"must not be the same file as {other_option}.", param_hint=option)


def require_for(needed: str, is_given: bool, **values: object) -> None:
    """Options that would do nothing without another."""
    for name, value in values.items():
        if value and not is_given:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(
                f"does nothing without {needed}; add it, or leave {option} out.", param_hint=option
            )


def split_names(values: list[str] | None, columns: tuple[str, ...]) -> list[str]:
    """Names given one by one or with commas between them; a column's own name may have commas."""
    names = []
    for value in values or []:
        names += [value] if value in columns else [name.strip() for name in value.split(",") if name.strip()]
    if values and not names:
        raise typer.BadParameter("names no column.", param_hint="--features or --categorical")
    return list(dict.fromkeys(names))


def cluster_number(clusters: str) -> int | str:
    if clusters == "auto":
        return clusters
    if not _is_count(clusters):
        raise typer.BadParameter("must be a whole number of at least 1, or auto.", param_hint="--clusters")
    return int(clusters)


def cluster_numbers(clusters: str) -> list[int]:
    numbers = [number.strip() for number in clusters.split(",") if number.strip()]
    if not numbers or not all(map(_is_count, numbers)):
        told = "must be whole numbers of at least 1, separated by commas; auto is compared in any case."
        raise typer.BadParameter(told, param_hint="--clusters")
    return [int(number) for number in numbers]


def _is_count(text: str) -> bool:
    # Python turns no text of thousands of digits into a number
    return text.isascii() and text.isdigit() and len(text) < 1000 and int(text) > 0
