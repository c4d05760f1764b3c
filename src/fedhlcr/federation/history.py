"""The history of a run: one record for each round."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.checks import within
from fedhlcr.federation.messages import SURVEY_ROUND
from fedhlcr.model.schema import Globals
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader


@dataclass(frozen=True)
class RoundRecord:
    """One line of the history.

    `log_joint` includes the last contributions of absent agents; under the blend rule it is the log evidence only.
    `shared` holds the quantities that the likelihood's globals declare as traced.
    """

    round: int
    n_asked: int
    n_accepted: int
    n_refused: int
    bytes_down: int
    bytes_up: int
    labels_changed: int
    log_joint: float
    shared: dict[str, float]
    n_clusters: int
    validation_mse: float

    def to_dict(self) -> dict[str, Any]:
        """The values of `record_columns`, by name."""
        flat = (self.shared.items() if f.name == "shared" else [(f.name, getattr(self, f.name))] for f in fields(self))
        return {name: value for items in flat for name, value in items}


def record_columns(globals_type: type[Globals]) -> list[tuple[str, type]]:
    """Names and types of the values of a record."""
    types = get_type_hints(RoundRecord)
    shared = [(q.name, float) for q in globals_type.traced_quantities()]
    return [column for name, kind in types.items() for column in (shared if name == "shared" else [(name, kind)])]


def history_columns(globals_type: type[Globals]) -> list[tuple[str, type]]:
    """Names and types of the columns of the table that users see."""
    columns = [column for column in record_columns(globals_type) if column[0] != "round"]
    return [("round", int), ("participants", object), *columns, ("kept", bool)]


class History:
    """Records of all rounds, including the survey (round 0), and which agents took part in each."""

    def __init__(self, globals_type: type[Globals]) -> None:
        self._globals_type = globals_type
        self.records: list[RoundRecord] = []
        self._took_part: list[NDArray[np.uint8]] = []  # a bit for each agent

    def add(self, record: RoundRecord, participants: IndexArray) -> None:
        """Append a record. Surveys that follow each other become one record."""
        if self.records and self.records[-1].round == record.round == SURVEY_ROUND:
            before = self.records.pop()
            participants = np.concatenate([self.participants(-1), participants])
            self._took_part.pop()
            added = ("n_asked", "n_accepted", "n_refused", "bytes_down", "bytes_up")
            record = replace(record, **{name: getattr(before, name) + getattr(record, name) for name in added})
        self.records.append(record)
        bits = np.zeros(participants.max(initial=-1) + 1, dtype=bool)
        bits[participants] = True
        self._took_part.append(np.packbits(bits))

    def participants(self, row: int) -> IndexArray:
        """Positions of the agents that took part."""
        return np.flatnonzero(np.unpackbits(self._took_part[row]))

    def set_validation(self, errors: Mapping[int, float]) -> None:
        """Set the validation errors of some of the last rounds."""
        place = len(self.records)
        n_set = 0
        while place and n_set < len(errors):
            place -= 1
            if (record := self.records[place]).round in errors:
                self.records[place] = replace(record, validation_mse=errors[record.round])
                n_set = n_set + 1

    def table(self, agent_ids: NDArray[np.object_], kept: Collection[int]) -> NDArray[np.void]:
        """A structured array, which a dataframe library can read. `kept` are the rounds whose draw was kept."""
        table = np.empty(len(self.records), dtype=np.dtype(history_columns(self._globals_type)))
        for number, (row, record) in enumerate(zip(table, self.records, strict=True)):
            for name, value in record.to_dict().items():
                row[name] = value
            row["participants"] = agent_ids[self.participants(number)]
            row["kept"] = record.round in kept
        return table

    def to_record(self) -> codec.Record:
        sizes = np.array([len(bits) for bits in self._took_part], dtype=np.int64)
        values = [record.to_dict() for record in self.records]
        columns: dict[str, Any] = {
            name: np.array([value[name] for value in values], dtype=kind)
            for name, kind in record_columns(self._globals_type)
        }
        bits = np.concatenate([np.empty(0, dtype=np.uint8), *self._took_part])
        return {**columns, "took_part": bits, "took_part_sizes": sizes}

    @classmethod
    def read(cls, reader: RecordReader, globals_type: type[Globals], n_agents: int) -> History:
        history = cls(globals_type)
        # one bit for each agent, packed in bytes
        sizes = reader.array("took_part_sizes", "i8", (None,), within(0, n_agents // 8 + 2))
        took_part = reader.array("took_part", "u1", (int(sizes.sum()),))
        columns = {
            name: reader.array(name, np.dtype(kind).str, sizes.shape).tolist()
            for name, kind in record_columns(globals_type)
        }
        shared = [q.name for q in globals_type.traced_quantities()]
        for values in zip(*columns.values(), strict=True):
            named = dict(zip(columns, values, strict=True))
            own = {name: named.pop(name) for name in shared}
            history.records.append(RoundRecord(**named, shared=own))
        history._took_part = np.split(took_part, np.cumsum(sizes)[:-1]) if len(sizes) else []
        last = max((history.participants(row).max(initial=-1) for row in range(len(sizes))), default=-1)
        reader.require(last < n_agents, "took_part")
        return history
