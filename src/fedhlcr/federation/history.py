"""What happened, round by round."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.federation.messages import SURVEY_ROUND
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader, within


class RoundRecord(NamedTuple):
    """One line of the history.

    `log_joint` counts absent agents with what they last reported; under the blend rule it is the evidence alone.
    """

    round: int
    n_asked: int
    n_accepted: int
    n_refused: int
    bytes_down: int
    bytes_up: int
    labels_changed: int
    log_joint: float
    noise_scale: float
    global_concentration: float
    agent_concentration: float
    n_clusters: int
    validation_mse: float


def history_columns() -> list[tuple[str, type]]:
    """Columns of the table told to users."""
    types = get_type_hints(RoundRecord).items()
    columns = [("round", int), ("participants", object), *(column for column in types if column[0] != "round")]
    return [*columns, ("kept", bool)]


class History:
    """Records of all rounds, the survey (round 0) among them, and who took part in each."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []
        self._took_part: list[NDArray[np.uint8]] = []  # a bit for each agent

    def add(self, record: RoundRecord, participants: IndexArray) -> None:
        """Surveys that follow each other are one line."""
        if self.records and self.records[-1].round == record.round == SURVEY_ROUND:
            before = self.records.pop()
            participants = np.concatenate([self.participants(-1), participants])
            self._took_part.pop()
            added = ("n_asked", "n_accepted", "n_refused", "bytes_down", "bytes_up")
            record = record._replace(**{name: getattr(before, name) + getattr(record, name) for name in added})
        self.records.append(record)
        bits = np.zeros(participants.max(initial=-1) + 1, dtype=bool)
        bits[participants] = True
        self._took_part.append(np.packbits(bits))

    def participants(self, row: int) -> IndexArray:
        """Positions of those that took part."""
        return np.flatnonzero(np.unpackbits(self._took_part[row]))

    def set_validation(self, mse: float) -> None:
        """The error of the model as it is after the last round."""
        self.records[-1] = self.records[-1]._replace(validation_mse=mse)

    def table(self, agent_ids: NDArray[np.object_], kept: Collection[int]) -> NDArray[np.void]:
        """A structured array: a column by name, or a dataframe's input as it is; `kept` are rounds with a draw."""
        table = np.empty(len(self.records), dtype=np.dtype(history_columns()))
        for number, (row, record) in enumerate(zip(table, self.records, strict=True)):
            for name, value in record._asdict().items():
                row[name] = value
            row["participants"] = agent_ids[self.participants(number)]
            row["kept"] = record.round in kept
        return table

    def to_record(self) -> codec.Record:
        sizes = np.array([len(bits) for bits in self._took_part], dtype=np.int64)
        columns: dict[str, Any] = {
            name: np.array([getattr(record, name) for record in self.records], dtype=kind)
            for name, kind in get_type_hints(RoundRecord).items()
        }
        bits = np.concatenate([np.empty(0, dtype=np.uint8), *self._took_part])
        return {**columns, "took_part": bits, "took_part_sizes": sizes}

    @classmethod
    def read(cls, reader: RecordReader, n_agents: int) -> History:
        history = cls()
        # bits of agents, in bytes
        sizes = reader.array("took_part_sizes", "i8", (None,), within(0, n_agents // 8 + 2))
        took_part = reader.array("took_part", "u1", (int(sizes.sum()),))
        columns = [
            reader.array(name, np.dtype(kind).str, sizes.shape).tolist()
            for name, kind in get_type_hints(RoundRecord).items()
        ]
        history.records = [RoundRecord(*values) for values in zip(*columns, strict=True)]
        history._took_part = np.split(took_part, np.cumsum(sizes)[:-1]) if len(sizes) else []
        last = max((history.participants(row).max(initial=-1) for row in range(len(sizes))), default=-1)
        reader.require(last < n_agents, "took_part")
        return history
