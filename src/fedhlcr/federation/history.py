"""What happened, round by round."""

from __future__ import annotations

from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedhlcr import codec
from fedhlcr.arrays import IndexArray


class RoundRecord(NamedTuple):
    """One line of the history. `log_joint` counts absent agents with what they last reported."""

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


class History:
    """Records of all rounds, the survey (round 0) among them, and who took part in each."""

    def __init__(self) -> None:
        self.records: list[RoundRecord] = []
        self.participants: list[IndexArray] = []

    def add(self, record: RoundRecord, participants: IndexArray) -> None:
        self.records.append(record)
        self.participants.append(participants.astype(np.int32))

    def set_validation(self, mse: float) -> None:
        """The error of the model as it is after the last round."""
        self.records[-1] = self.records[-1]._replace(validation_mse=mse)

    def table(self, agent_ids: NDArray[np.object_]) -> NDArray[np.void]:
        """A structured array: a column by name, or a dataframe's input as it is."""
        types = get_type_hints(RoundRecord).items()
        columns = [("round", int), ("participants", object), *(column for column in types if column[0] != "round")]
        table = np.empty(len(self.records), dtype=np.dtype(columns))
        for row, record, positions in zip(table, self.records, self.participants, strict=True):
            for name, value in record._asdict().items():
                row[name] = value
            row["participants"] = agent_ids[positions]
        return table

    def to_record(self) -> codec.Record:
        sizes = np.array([len(who) for who in self.participants], dtype=np.int64)
        columns: dict[str, Any] = {
            f"history_{name}": np.array([getattr(record, name) for record in self.records], dtype=kind)
            for name, kind in get_type_hints(RoundRecord).items()
        }
        who = np.concatenate([np.empty(0, dtype=np.int32), *self.participants])
        return {**columns, "history_participants": who, "history_sizes": sizes}

    @classmethod
    def from_record(cls, record: codec.Record) -> History:
        history = cls()
        columns = [record[f"history_{name}"].tolist() for name in RoundRecord._fields]
        history.records = [RoundRecord(*values) for values in zip(*columns, strict=True)]
        ends = np.cumsum(record["history_sizes"])
        history.participants = np.split(record["history_participants"], ends[:-1]) if len(ends) else []
        return history
