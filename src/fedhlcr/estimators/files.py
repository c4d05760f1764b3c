"""From the files of a table larger than memory to events that a model can be fitted to."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.memory import give_back
from fedhlcr._support.progress import Bar
from fedhlcr._support.wording import ROW, Noun
from fedhlcr.data.hold_out import held_out, nothing_held_out
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.streaming.event_sorter import EventSorter
from fedhlcr.data.streaming.stream_reader import StreamReader
from fedhlcr.data.streaming.work_folder import WorkFolder, identity_of
from fedhlcr.data.table_files import TableFile
from fedhlcr.estimators.streamed import Origin, StreamedEvents
from fedhlcr.exceptions import FileError

MEGABYTE = Noun("MB", "MB")


class HeldOutShare(NamedTuple):
    """Which events are held out: a share of each entity's, chosen by a seed."""

    share: float = 0.0
    seed: int = 0


NO_HOLD_OUT = HeldOutShare()


class StreamedTable(NamedTuple):
    """A table in a work folder.

    Attributes
    ----------
    events : to fit a model to
    notes : on missing values, for the user
    """

    events: StreamedEvents
    notes: tuple[str, ...]


def open_work(
    path: Path, file: TableFile, plan: Recipe, settings: Mapping[str, Any], hold_out: HeldOutShare = NO_HOLD_OUT
) -> WorkFolder:
    """Open the work folder of a table; it goes on with what an earlier process has done for the same fit.

    `settings` are those that matrices depend on besides the table; values that JSON can hold.
    """
    # what is in memory cannot be recognised again
    files = _identity(file) or secrets.token_hex()
    identity = {"files": files, "recipe": plan.to_json(), "hold_out": list(hold_out), "settings": dict(settings)}
    return WorkFolder(path, identity)


def read_table(
    file: TableFile, plan: Recipe, work: WorkFolder, hold_out: HeldOutShare = NO_HOLD_OUT, *, shows_progress: bool
) -> StreamedTable:
    """Read a table into the work folder, and learn its recipe."""
    before = _identity(file)
    reader = StreamReader(work, file, plan)
    is_counted = file.pieces is None or file.pieces.n_rows is not None
    unit, step = (ROW, 1) if is_counted else (MEGABYTE, 1_000_000)
    total = None if file.size is None else file.size // step
    with Bar(total, "pass 1 of 2, reading", unit, shows_progress) as bar, work.disk_errors():
        if is_counted:
            bar.skip_to(reader.n_rows)
        reader.read(_stepwise(bar.reach, step))
        if _identity(file) != before:
            raise FileError(f"{file.name!r} has changed while it was read; fit it again when nothing writes to it.")
        bar.tell("finding medians")
        recipe, notes = reader.learn()
    index, places = reader.index()
    chosen = None
    if hold_out.share and not work.state.get("sorting", {}).get("done"):
        chosen = _choose(reader, places, index.n_entities, hold_out)
    sorter = EventSorter(work, reader.spool, reader.learner.encoder(recipe), places, index.n_entities, chosen)
    origin = Origin(file.pieces, reader.block_rows)
    # the tables of ids
    del reader
    give_back()
    return StreamedTable(StreamedEvents(work, sorter, index, origin, shows_progress=shows_progress), notes)


def _identity(file: TableFile) -> list[list[Any]] | None:
    """What shows that the table's files have not changed; None if it is in memory, or if files are gone."""
    try:
        return None if file.pieces is None else identity_of(file.pieces.files)
    except OSError:
        return None


def _stepwise(reach: Callable[[int], None], step: int) -> Callable[[int], None]:
    return lambda position: reach(position // step)


def _choose(reader: StreamReader, places: IndexArray, n_entities: int, hold_out: HeldOutShare) -> NDArray[np.bool_]:
    entity = np.concatenate([places[codes].astype(np.int32) for codes in reader.spool.codes()])
    chosen = held_out(entity, n_entities, hold_out.share, hold_out.seed)
    if not chosen.any():
        raise nothing_held_out()
    return chosen
