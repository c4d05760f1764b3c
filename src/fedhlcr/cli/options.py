"""Arguments and options that several commands share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from fedhlcr.cli.choices import Effects, FamilyChoice, Missing, Noise, Precision

COLUMNS = "Columns"
MODEL_OPTIONS = "Model"
SPEECH = "Output"
# The largest seed that numpy accepts.
LARGEST_SEED = 2**32 - 1


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
    FamilyChoice,
    typer.Option(
        "--family",
        metavar="|".join(FamilyChoice),
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
