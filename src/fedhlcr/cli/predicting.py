"""Predictions and scores of large tables, batch by batch; `cli.models` has the commands."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from fedhlcr._support.wording import free_name
from fedhlcr.analysis.evaluation import SeenEvents
from fedhlcr.cli.batches import EventBatches
from fedhlcr.cli.events import Events, UnknownIds, recipe_of
from fedhlcr.cli.options import Roles
from fedhlcr.cli.output import TableWriter, table_kind, write_output
from fedhlcr.cli.scoring import predict_quietly
from fedhlcr.cli.shell import Shell
from fedhlcr.data.table_files import TableFile
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.posterior.responses import Moments
from fedhlcr.settings import MissingPolicy
from fedhlcr.storage.scratch import spooled


def open_batches(
    model: Any,
    file: TableFile,
    roles: Roles,
    *,
    target: bool,
    missing: MissingPolicy | None,
    new_agents: bool,
    shell: Shell,
) -> EventBatches:
    """The events of a large table, as `events_to_predict` reads those of a small one."""
    recipe = recipe_of(model, roles, target=target, shell=shell)
    return EventBatches(recipe, file, missing, target, UnknownIds(model, new_agents=new_agents))


def prediction_table(model: Any, events: Events, predicted: Moments, *, with_interval: bool) -> pa.Table:
    """The table that `fedhlcr predict` writes: row numbers, ids and predictions."""
    id_columns = events.prepared.id_columns
    ids = dict(zip(id_columns.column_names, id_columns.columns, strict=True))
    figures = {"prediction": predicted.mean, "std": predicted.std}
    if model.family.has_classes:
        classes = model.classes_[(predicted.mean > 0.5).astype(int)]
        figures = {"probability": predicted.mean, "prediction": classes}
    if with_interval:
        figures |= {"lower": predicted.quantiles[:, 0], "upper": predicted.quantiles[:, 1]}
    return pa.table(
        {
            free_name("row", ids): events.prepared.rows + 1,
            **ids,
            **{free_name(name, ids): values for name, values in figures.items()},
        }
    )


def write_predictions(
    model: Any, batches: EventBatches, interval: float | None, out: Path | None, shell: Shell
) -> None:
    """Predict batch after batch and write the table, completely or not at all; None is standard output."""

    def tables() -> Iterator[pa.Table]:
        for events in batches.read(shell, "predicting"):
            predicted = predict_quietly(model, events, interval)
            yield prediction_table(model, events, predicted, with_interval=interval is not None)

    if out is not None:
        write_output(out, partial(_write_tables, tables(), table_kind(out)))
        return
    # nothing is printed if a later batch is refused
    with spooled(partial(_write_tables, tables(), "csv")) as spool:
        sys.stdout.flush()
        shutil.copyfileobj(spool, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _write_tables(tables: Iterator[pa.Table], kind: str | None, file: BinaryIO) -> None:
    with TableWriter(file, kind) as writer:
        for table in tables:
            writer.write(table)


def predict_batches(
    model: Any, batches: EventBatches, level: float, seen: SeenEvents, shell: Shell
) -> Iterator[tuple[Events, Moments]]:
    """Predict batch after batch, and find out whether the model has seen the events."""
    for events in batches.read(shell, "evaluating"):
        seen.add(events.table, check_model(model).numeric_target(events.y, len(events)), events.agents, events.entities)
        yield events, predict_quietly(model, events, level)
