"""Split a table into training and test events: at once or, if it is large, in batches, with the same rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.cli.batches import batched, unit_of
from fedhlcr.cli.output import TableWriter, table_kind, write_outputs, write_tables
from fedhlcr.cli.shell import Shell
from fedhlcr.data.columns import rows_missing
from fedhlcr.data.hold_out import held_out, hold_out_events, nothing_held_out
from fedhlcr.data.table_files import TableFile
from fedhlcr.exceptions import DataError, FileError
from fedhlcr.storage.scratch import spooled


@dataclass(frozen=True)
class Split:
    """How to split a table; arguments as in `fedhlcr split`."""

    file: TableFile
    agent: str | None
    entity: str
    fraction: float
    seed: int

    def __post_init__(self) -> None:
        self.file.require(self.ids, settings={"agent": self.agent, "entity": self.entity})

    @property
    def ids(self) -> list[str]:
        """Names of the id columns."""
        return [name for name in (self.agent, self.entity) if name is not None]

    def write_at_once(self, train: Path, test: Path) -> tuple[int, int]:
        """Write both tables, and return their numbers of rows."""
        raw = self.file.read_as_is(self.ids)
        _refuse_missing({name: int(rows_missing(raw[name], is_id=True).sum()) for name in self.ids})
        own = None if self.agent is None else raw[self.agent]
        rows = hold_out_rows(own, raw[self.entity], self.fraction, self.seed)
        write_tables({path: raw.take(pa.array(part)) for path, part in zip((train, test), rows, strict=True)})
        return len(rows[0]), len(rows[1])

    def write_in_batches(self, train: Path, test: Path, shell: Shell) -> tuple[int, int]:
        """Do the same with little memory: read the ids, choose the rows, and read and write all columns."""
        is_test = self._choose(shell)
        n_test = int(is_test.sum())
        if not n_test:
            raise nothing_held_out()
        spool: list[BinaryIO] = []

        def write_train(file: BinaryIO) -> None:
            # test events wait in a temporary file, so that the table is read only once
            spool.append(spooled(partial(self._write_both, file, table_kind(train), table_kind(test), is_test, shell)))

        def write_test(file: BinaryIO) -> None:
            with spool[0] as waiting:
                shutil.copyfileobj(waiting, file)

        write_outputs({train: write_train, test: write_test})
        return len(is_test) - n_test, n_test

    def _choose(self, shell: Shell) -> NDArray[np.bool_]:
        """(rows,) whether to hold out each row, as `hold_out_events` chooses."""
        from fedhlcr.data.streaming.id_tables import PAIR_FACTOR, IdTable, NumberTable, is_whole

        tables: dict[str, IdTable] = {}
        pairs = NumberTable()
        missing = dict.fromkeys(self.ids, 0)
        codes: list[NDArray[np.int32]] = []
        for raw in self._batches(self.ids, "reading ids", shell):
            gaps = {name: rows_missing(raw[name], is_id=True) for name in self.ids}
            missing = {name: missing[name] + int(gap.sum()) for name, gap in gaps.items()}
            if any(missing.values()):
                continue
            tables = tables or {n: IdTable(n, is_whole=is_whole(raw.schema.field(n).type)) for n in self.ids}
            own = {name: table.codes(raw[name]) for name, table in tables.items()}
            agents = np.zeros(len(raw), dtype=np.int64) if self.agent is None else own[self.agent]
            codes.append(pairs.codes(agents * PAIR_FACTOR + own[self.entity]).astype(np.int32))
        _refuse_missing(missing)
        if not codes:
            raise nothing_held_out()
        place = {name: table.sorted().codes for name, table in tables.items()}
        agent_of = pairs.numbers // PAIR_FACTOR
        entity_of = place[self.entity][pairs.numbers % PAIR_FACTOR]
        agent_of = agent_of if self.agent is None else place[self.agent][agent_of]
        distinct, position = np.unique(agent_of * PAIR_FACTOR + entity_of, return_inverse=True)
        pair = position.astype(np.int32)[np.concatenate(codes)]
        return held_out(pair, len(distinct), self.fraction, self.seed)

    def _batches(self, columns: list[str], what: str, shell: Shell) -> Iterator[pa.Table]:
        with shell.bar(self.file.size, what, unit_of(self.file)) as bar:
            for raw, position in batched(self.file.read_pieces_as_is(columns), len(columns)):
                yield raw
                bar.reach(position)

    def _write_both(
        self,
        train: BinaryIO,
        train_kind: str | None,
        test_kind: str | None,
        is_test: NDArray[np.bool_],
        shell: Shell,
        test: BinaryIO,
    ) -> None:
        first = 0
        with TableWriter(train, train_kind) as train_writer, TableWriter(test, test_kind) as test_writer:
            for raw in self._batches(list(self.file.columns), "splitting", shell):
                chosen = is_test[first : first + len(raw)]
                if len(chosen) < len(raw):
                    raise self._changed()
                train_writer.write(raw.filter(pa.array(~chosen)))
                test_writer.write(raw.filter(pa.array(chosen)))
                first += len(raw)
        if first < len(is_test):
            raise self._changed()

    def _changed(self) -> FileError:
        return FileError(f"{self.file.name!r} has changed while it was split; split it again.")


def hold_out_rows(agents: object, entities: object, share: float, seed: int) -> tuple[IndexArray, IndexArray]:
    """Return the row numbers to fit and those to hold out."""
    train, test = hold_out_events(agents, entities, fraction=share, random_state=seed)
    if not len(test):
        raise nothing_held_out()
    return train, test


def _refuse_missing(counts: dict[str, int]) -> None:
    if missing := ", ".join(f"{name!r} {count:,}" for name, count in counts.items() if count):
        raise DataError(f"some rows have no id: {missing}; drop these rows or give them an id.")
