"""Arguments and options that several commands take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

COLUMNS, MODEL_OPTIONS, SPEECH = "Columns", "Model", "Output"


class Missing(StrEnum):
    """What to do about missing values."""

    refuse = "refuse"
    drop = "drop"
    impute = "impute"


DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A table with a row per event: CSV, Parquet (a file or a folder), Arrow or Feather, compressed or not; "
        "- reads CSV from a pipe.",
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, as `fedhlcr fit` writes it.")]
TargetOption = Annotated[
    str, typer.Option("--target", metavar="COLUMN", help="What to predict.", rich_help_panel=COLUMNS)
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="COLUMN",
        help="Whose the event is; without it, all are one agent's.",
        rich_help_panel=COLUMNS,
    ),
]
EntityOption = Annotated[
    str,
    typer.Option("--entity", metavar="COLUMN", help="What of the agent's the event is about.", rich_help_panel=COLUMNS),
]
FeaturesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--features",
        metavar="COLUMNS",
        help="What to predict from: names with commas between, or the option again. All other columns, if not given.",
        rich_help_panel=COLUMNS,
    ),
]
CategoricalOption = Annotated[
    list[str] | None,
    typer.Option(
        "--categorical",
        metavar="COLUMNS",
        help="Those of the features that are categories: each level becomes a feature of 0 and 1.",
        rich_help_panel=COLUMNS,
    ),
]
MissingOption = Annotated[
    Missing,
    typer.Option(
        "--missing",
        metavar="refuse|drop|impute",
        help="Missing values: refuse the table, drop their rows, or impute what is usual (median, commonest level).",
        rich_help_panel=COLUMNS,
    ),
]
ModelMissingOption = Annotated[
    Missing | None,
    typer.Option(
        "--missing",
        metavar="refuse|drop|impute",
        help="Missing values; as when the model was fitted, if not given.",
        rich_help_panel=COLUMNS,
        show_default=False,
    ),
]
# A model that was fitted from Python to a table without names of the ids, or on Flower, has to be told.
KnownTarget = Annotated[
    str | None,
    typer.Option("--target", metavar="COLUMN", help="If the model does not know its name.", rich_help_panel=COLUMNS),
]
KnownAgent = Annotated[
    str | None,
    typer.Option("--agent", metavar="COLUMN", help="If the model does not know its name.", rich_help_panel=COLUMNS),
]
KnownEntity = Annotated[
    str | None,
    typer.Option("--entity", metavar="COLUMN", help="If the model does not know its name.", rich_help_panel=COLUMNS),
]
NewAgentsOption = Annotated[
    bool,
    typer.Option(
        "--new-agents",
        help="Let agents in that the model does not know: they are predicted by how common the clusters are overall.",
        rich_help_panel=COLUMNS,
    ),
]
ClustersOption = Annotated[
    str,
    typer.Option("--clusters", metavar="K|auto", help="How many; auto finds it.", rich_help_panel=MODEL_OPTIONS),
]
MaxClustersOption = Annotated[
    int,
    typer.Option("--max-clusters", min=1, help="The most clusters that auto can find.", rich_help_panel=MODEL_OPTIONS),
]
SweepsOption = Annotated[
    int,
    typer.Option("--sweeps", min=1, help="Length of a chain; half of it is kept.", rich_help_panel=MODEL_OPTIONS),
]
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="The same seed gives the same result.", rich_help_panel=MODEL_OPTIONS)
]
ThreadsOption = Annotated[
    int | None,
    typer.Option("--threads", min=1, help="All cores, if not given.", rich_help_panel=MODEL_OPTIONS),
]
LevelOption = Annotated[
    float, typer.Option("--level", min=0.01, max=0.999, help="Probability that an interval is to hold its target.")
]
HoldOut = Annotated[
    float,
    typer.Option("--hold-out", min=0.0, max=0.9, help="Share of each entity's events to hold out, and to judge by."),
]
PublicOption = Annotated[
    bool,
    typer.Option("--public", help="Leave out all that is private to agents: ids, Gram matrices, labels, counts."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Write one JSON object, for machines.", rich_help_panel=SPEECH)
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Write nothing but errors.", rich_help_panel=SPEECH)]
ProgressOption = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress", help="On a terminal, if not given.", rich_help_panel=SPEECH, show_default=False
    ),
]


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
    if not clusters.isascii() or not clusters.isdigit() or int(clusters) < 1:
        raise typer.BadParameter("must be a whole number of at least 1, or auto.", param_hint="--clusters")
    return int(clusters)


def cluster_numbers(clusters: str) -> list[int]:
    numbers = [number.strip() for number in clusters.split(",") if number.strip()]
    if not numbers or not all(number.isascii() and number.isdigit() and int(number) > 0 for number in numbers):
        told = "must be whole numbers of at least 1 with commas between; auto is compared in any case."
        raise typer.BadParameter(told, param_hint="--clusters")
    return [int(number) for number in numbers]
