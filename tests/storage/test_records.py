"""What is declared once is written and read by its declaration, and every wrong field is refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

import numpy as np
import pytest

from fedhlcr._support.checks import finite, not_negative, positive
from fedhlcr.exceptions import CodecError
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Below, Stored, field_names, from_record, restore, stored, to_record


class Phase(Enum):
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class Units:
    shift: np.ndarray = stored("f8", "columns", possible=finite)


@dataclass(frozen=True)
class Thing:
    units: Units = stored(Units, name="")
    squares: np.ndarray = stored("f8", "columns + 1", possible=not_negative)
    owner: np.ndarray = stored("i8", "rows", possible=Below("agents", least=-1))
    names: list = stored(list)
    present: np.ndarray = stored("?", "agents")
    key: bytes = stored(bytes, 2, 4)
    groups: tuple = stored(tuple, None, possible=positive)
    phase: Phase = stored(Phase)
    count: int = stored(int, possible=not_negative, name="number")
    inner: Units | None = stored(Units, optional=True, default=None)
    weight: np.ndarray | None = stored("f8", "rows", optional=True, default=None)
    unstored: str = field(default="", kw_only=True)

    def check_record(self, reader, sizes):
        reader.require(len(self.names) == sizes["agents"], "names")


def thing(**changes):
    whole = {
        "units": Units(np.zeros(3)),
        "squares": np.ones(4),
        "owner": np.array([0, -1, 1]),
        "names": ["a", "b"],
        "present": np.array([True, False]),
        "key": bytes(range(8)),
        "groups": (2, 3),
        "phase": Phase.LAST,
        "count": 7,
    }
    return Thing(**whole | changes)


def reader_of(record):
    return RecordReader(codec.decode(codec.encode("thing", 1, record), "thing", 1), "the thing", "make it again")


FULL = thing(inner=Units(np.ones(3)), weight=np.ones(3))


@pytest.mark.parametrize("value", [thing(), FULL], ids=["without optional fields", "with all"])
def test_value_survives_its_record(value):
    record = to_record(value)
    again = from_record(Thing, reader_of(record), unstored="given")
    assert codec.encode("thing", 1, to_record(again)) == codec.encode("thing", 1, record)
    assert again.phase is Phase.LAST
    assert again.groups == (2, 3)
    assert again.unstored == "given"
    assert set(record) <= field_names(Thing)


def test_order_of_fields_is_that_of_the_declarations():
    names = ["shift", "squares", "owner", "names", "present", "key", "groups", "phase", "number", "inner.shift"]
    assert list(to_record(FULL)) == [*names, "weight"]


WRONG = {
    "a missing field": ("number", None),
    "another type": ("number", 1.5),
    "an impossible number": ("number", -1),
    "another dtype": ("squares", np.ones(4, dtype=np.float32)),
    "an axis of another size": ("squares", np.ones(3)),
    "an impossible value": ("squares", -np.ones(4)),
    "a position beyond the axis": ("owner", np.array([0, 2, 0])),
    "a position below the least": ("owner", np.array([0, -2, 0])),
    "an axis that differs from one before": ("weight", np.ones(2)),
    "bytes of another shape": ("key", np.zeros(8, dtype=np.uint8)),
    "whole numbers out of range": ("groups", np.array([1, 0])),
    "no such phase": ("phase", "middle"),
    "a text twice": ("names", ["a", "a"]),
    "a rule about two fields": ("names", ["a"]),
    "a part with a wrong value": ("inner.shift", np.full(3, np.nan)),
    "an empty array of a huge size": ("inner.shift", np.zeros((0, 2))),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_field_is_refused_by_name(case):
    name, value = WRONG[case]
    record = to_record(FULL) | {name: value}
    if value is None:
        del record[name]
    with pytest.raises(CodecError, match=f"^the thing is not valid: `{name}` is missing or has a wrong value"):
        from_record(Thing, reader_of(record))


def test_empty_array_cannot_claim_a_huge_axis():
    @dataclass(frozen=True)
    class Matrix:
        values: np.ndarray = stored("f8", "rows", "columns")

    with pytest.raises(CodecError, match="`values`"):
        from_record(Matrix, reader_of({"values": np.zeros((0, 2**50))}))
    assert from_record(Matrix, reader_of({"values": np.zeros((0, 5))})).values.shape == (0, 5)


def test_sizes_that_are_known_are_required():
    with pytest.raises(CodecError, match="`shift`"):
        from_record(Thing, reader_of(to_record(thing())), {"columns": 4})


def test_object_with_a_table_is_restored_in_place():
    class Counter:
        STORED: ClassVar = {"_count": Stored(int, possible=not_negative, name="count"), "over": Stored(bool)}

        def __init__(self):
            self._count = 0
            self.over = False

    counter = Counter()
    restore(counter, reader_of({"count": 3, "over": True}))
    assert to_record(counter) == {"count": 3, "over": True}
    with pytest.raises(CodecError, match="`count`"):
        restore(counter, reader_of({"count": -3, "over": True}))
