"""`fedhlcr inspect`: what is in a model file. If only the file's own facts are wanted, no model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedhlcr.cli import options
from fedhlcr.cli.descriptions import model_facts, show_description, show_facts, tell_model
from fedhlcr.cli.shell import Shell
from fedhlcr.exceptions import ModelFileError


def inspect(
    model: options.ModelArgument,
    entities: Annotated[
        Path | None,
        typer.Option(
            "--entities",
            metavar="FILE",
            help="Write the coefficients of each entity to this .csv, .csv.gz, .parquet, .feather or .arrow file. "
            "A dash (-) writes CSV to standard output, and nothing else.",
        ),
    ] = None,
    *,
    shell: options.QuickOutput,
) -> None:
    """Show the contents of a model file: data, clusters, settings and origin.

    With --entities it also writes a table with a row for each entity of each agent: the ids, the cluster and its
    probability, the second most probable cluster, the number of events, the intercept and the coefficient of each
    feature, their standard deviations (with the ending _std), the ends of their 90 % intervals (_lower and _upper), and
    the noise. It is the table of `entity_table()` in Python. With curves, coefficients are those of the straight lines.
    A public model has no entities. Coefficients of two classes are log odds ratios, those of counts are logs of rate
    ratios; such models have no noise.

    \b
    fedhlcr inspect sales.fedhlcr --entities entities.csv
    """
    from fedhlcr.storage.model_facts import read_facts

    if entities is None and (known := read_facts(model)) is not None:
        show_description(shell, known["description"])
        show_facts(shell, known["facts"])
        return
    _inspect_loaded(shell, model, entities)


def _inspect_loaded(shell: Shell, model: Path, entities: Path | None) -> None:
    """Load the model, because its entities are wanted or because its file says too little of it."""
    import fedhlcr
    from fedhlcr.cli.output import STDOUT, check_table_output, write_table

    check_table_output(entities, model, stdout=True)
    if shell.json and str(entities) == STDOUT:
        raise typer.BadParameter("must be a file with --json; name a file.", param_hint="--entities")
    with shell.warnings_as_notes():
        fitted = fedhlcr.load(model)
        if entities is not None:
            _require_entities(fitted, model)
            with shell.stage("computing the coefficients of entities"):
                table = fitted.entity_table(library="pyarrow")
            write_table(entities, table)
            if str(entities) == STDOUT:
                return
        tell_model(shell, fitted)
    show_facts(shell, model_facts(fitted))
    if entities is not None:
        shell.wrote(entities)


def _require_entities(model: Any, path: Path) -> None:
    if not len(model.posterior_.memory.entities):
        raise ModelFileError(
            f"{path.name!r} is public, so it has no entities; use the model that was written without --public, or "
            "adapt this one to events first."
        )
