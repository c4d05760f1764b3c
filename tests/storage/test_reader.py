"""RecordReader refuses every wrong type, shape and value, and names the field."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr._support.checks import (
    finite,
    log_weights,
    not_negative,
    positive,
    square_finite,
    square_positive,
    within,
)
from fedhlcr.exceptions import CodecError
from fedhlcr.storage.reader import RecordReader


def reader_of(**fields):
    return RecordReader(fields, "the thing", "make it again")


def refused(name):
    message = f"^the thing is not valid: `{name}` is missing or has a wrong value; make it again.$"
    return pytest.raises(CodecError, match=message)


EXAMPLES = {int: 3, float: 0.5, bool: True, str: "a", list: ["a"], type(None): None, np.ndarray: np.zeros(2)}


@pytest.mark.parametrize("kind", [int, float, bool, str, list])
@pytest.mark.parametrize("given", EXAMPLES)
def test_value_has_exactly_its_type(kind, given):
    reader = reader_of(field=EXAMPLES[given])
    if kind is given:
        assert reader.value("field", kind) is EXAMPLES[given]
    else:
        with refused("field"):
            reader.value("field", kind)


def test_missing_fields_are_refused():
    with refused("field"):
        reader_of().value("field", int)
    with refused("field"):
        reader_of().array("field", "f8", (None,))
    with refused("field"):
        reader_of().texts("field")


@pytest.mark.parametrize(("value", "passes"), [(4, True), (5, False), (-1, False)])
def test_value_must_pass_its_test(value, passes):
    reader = reader_of(field=value)
    if passes:
        assert reader.value("field", int, within(0, 5)) == value
    else:
        with refused("field"):
            reader.value("field", int, within(0, 5))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3), dtype=np.float32),
        np.zeros((2, 3), dtype=np.int64),
        np.zeros((2, 3), dtype=">f8"),
        np.zeros((3, 3)),
        np.zeros((2, 2)),
        np.zeros(6),
        np.zeros((2, 3, 1)),
        np.full((2, 3), np.nan),
        [[0.0] * 3] * 2,
        0.0,
        None,
    ],
)
def test_wrong_arrays_are_refused(array):
    with refused("field"):
        reader_of(field=array).array("field", "f8", (2, 3), finite)


def test_arrays_are_writable_copies():
    given = np.arange(6.0).reshape(2, 3)
    given.flags.writeable = False
    read = reader_of(field=given).array("field", "f8", (2, None), finite)
    np.testing.assert_array_equal(read, given)
    read[0] = 7.0
    assert given[0, 0] == 0.0


def test_texts_must_differ():
    assert reader_of(field=["a", "A"]).texts("field") == ["a", "A"]
    with refused("field"):
        reader_of(field=["a", "a"]).texts("field")


def test_parts_are_named_in_full():
    reader = RecordReader({"model.units.shift": 1.0}, "the thing", "make it again")
    part = reader.part("model.").part("units.")
    assert part.value("shift", float) == 1.0
    assert "shift" in part
    assert "shift" not in reader
    assert not part.is_empty
    assert reader.part("other.").is_empty
    with refused(r"model\.units\.scale"):
        part.value("scale", float)


@pytest.mark.parametrize(
    ("cluster_of", "valid"),
    [
        ([0, 1, 2], True),
        ([0, 1, 1, -1, 2], True),
        ([2, 0, 1], True),
        ([0, 2, 2], False),
        ([0, 1, 3], False),
        ([0, 1, -2], False),
        ([-1, -1, -1], False),
        ([], False),
    ],
)
def test_every_current_cluster_comes_from_an_original_one(cluster_of, valid):
    reader = reader_of(field=np.array(cluster_of, dtype=np.int64))
    if valid:
        assert reader.clusters("field", (None,), 3).tolist() == cluster_of
    else:
        with refused("field"):
            reader.clusters("field", (None,), 3)


@pytest.mark.parametrize(
    ("check", "allowed", "forbidden"),
    [
        (finite, [0.0, -1e308], [np.nan, np.inf, -np.inf]),
        (not_negative, [0.0, 1e308], [-1e-300, np.nan, np.inf]),
        (positive, [1e-300, 1e308], [0.0, -1.0, np.nan, np.inf]),
        (square_positive, [1e-150, 1e150], [0.0, -1.0, 1e-200, 1e200, np.nan]),
        (square_finite, [0.0, -1e150], [1e200, -1e200, np.nan, np.inf]),
        (within(-1, 3), [-1, 0, 2], [-2, 3]),
    ],
)
def test_checks_of_values(check, allowed, forbidden):
    with np.errstate(all="ignore"):
        assert check(np.array(allowed)).all()
        assert not check(np.array(forbidden)).any()


def test_log_weights_are_of_weights_that_sum_to_at_most_one():
    rows = np.log([[0.25, 0.75], [0.1, 0.2], [0.6, 0.6], [1e-9, 1e-9]])
    assert log_weights(rows).tolist() == [True, True, False, False]
    assert not log_weights(np.array([[np.nan, 0.0]])).any()
