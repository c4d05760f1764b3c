"""Records round-trip exactly, damage is noticed, and files survive a crash."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedhlcr.exceptions import StorageError
from fedhlcr.storage import atomic, codec

DTYPES = st.sampled_from(["<f8", "<i8", "<i4", "<u8", "<u4", "<u2", "|u1", "|b1", "<f4"])
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=True),
    st.text(),
    st.lists(st.text(), max_size=4),
    DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))),
)
RECORDS = st.dictionaries(st.text(max_size=12), VALUES, max_size=6)


def assert_identical(a, b):
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    elif isinstance(a, float):
        assert np.float64(a).tobytes() == np.float64(b).tobytes()
    else:
        assert a == b


@given(RECORDS)
def test_records_round_trip_exactly(record):
    data = codec.encode("thing", 3, record)
    assert codec.encoded_size("thing", 3, record) == len(data)
    decoded = codec.decode(data, "thing", 3)
    assert list(decoded) == list(record)
    for name, value in record.items():
        assert_identical(decoded[name], np.asarray(value) if isinstance(value, np.ndarray) else value)


@settings(max_examples=200)
@given(RECORDS, st.data())
def test_truncated_or_altered_records_are_refused(record, data):
    whole = codec.encode("thing", 1, record)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(codec.CodecError):
        codec.decode(whole[:cut], "thing", 1)
    altered = bytearray(whole)
    altered[cut] ^= data.draw(st.integers(1, 255))
    with pytest.raises(codec.CodecError):
        codec.decode(bytes(altered), "thing", 1)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data):
    with pytest.raises(codec.CodecError):
        codec.decode(data, "thing", 1)


@pytest.mark.parametrize(
    ("kind", "version", "message"), [("other", 1, "expected a record of kind 'other'"), ("thing", 2, "version 2")]
)
def test_wrong_kind_or_version_is_named(kind, version, message):
    with pytest.raises(codec.CodecError, match=message):
        codec.decode(codec.encode("thing", 1, {}), kind, version)


def test_record_with_wrong_fields_is_refused():
    """Even with a right checksum: a hostile sender can make one."""
    body = codec.encode("thing", 1, {"x": np.zeros(3)})[: -codec.CHECKSUM_BYTES]
    for claimed in (2, 4, 2**60):
        forged = body.replace((3).to_bytes(8, "little"), claimed.to_bytes(8, "little"))
        with pytest.raises(codec.CodecError):
            codec.decode(signed(forged), "thing", 1)


def signed(body):
    return body + codec._checksum(body)


@settings(max_examples=300)
@given(RECORDS, st.data())
def test_forged_records_with_valid_checksum_raise_only_codec_error(record, data):
    body = bytearray(codec.encode("thing", 1, record)[: -codec.CHECKSUM_BYTES])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(codec.CodecError):
        codec.decode(signed(bytes(body)), "thing", 1)


@pytest.mark.parametrize("texts", [b"3", b"null", b"1" * 5000, b"[" * 200_000, b"[1]", b"{}", b"["])
def test_list_of_strings_must_be_one(texts):
    body = codec.encode("thing", 1, {"x": ["a"]})[: -codec.CHECKSUM_BYTES]
    size = len(b'["a"]')
    forged = body[: -8 - size] + len(texts).to_bytes(8, "little") + texts
    with pytest.raises(codec.CodecError):
        codec.decode(signed(forged), "thing", 1)


def test_objects_are_refused_and_nothing_is_pickled():
    with pytest.raises(TypeError, match="`x`"):
        codec.encode("thing", 1, {"x": np.array([object()])})
    with pytest.raises(codec.CodecError):
        codec.decode(pickle.dumps({"x": 1}), "thing", 1)


def test_decoded_arrays_are_read_only():
    decoded = codec.decode(codec.encode("thing", 1, {"x": np.zeros(3)}), "thing", 1)
    with pytest.raises(ValueError, match="read-only"):
        decoded["x"][0] = 1.0


def test_damaged_file_falls_back_to_the_previous_one(tmp_path, caplog):
    path = tmp_path / "state"
    for number in (1, 2):
        atomic.write_atomically(path, codec.encode("thing", 1, {"number": number}))
    path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        assert atomic.read_newest(path, "thing", 1)["number"] == 1
    assert "truncated" in caplog.text
    assert not path.exists(), "the next write must not put the damaged file in the place of the whole one"
    assert atomic.read_newest(path, "thing", 1)["number"] == 1
    atomic.previous_of(path).write_bytes(b"nonsense")
    with pytest.raises(StorageError, match=r"does not exist.*not a fedhlcr file"):
        atomic.read_newest(path, "thing", 1)


def test_without_keep_previous_no_old_file_is_left(tmp_path):
    path = tmp_path / "state"
    for number in (1, 2):
        atomic.write_atomically(path, codec.encode("thing", 1, {"number": number}))
    atomic.write_atomically(path, codec.encode("thing", 1, {"number": 3}), keep_previous=False)
    assert [file.name for file in tmp_path.iterdir()] == ["state"]
    assert atomic.read_newest(path, "thing", 1)["number"] == 3


WRITER = """
import sys
import numpy as np
from fedhlcr.storage import codec, atomic
number = 0
while True:
    number += 1
    record = {"number": number, "values": np.full(200_000, number, dtype=np.int64)}
    atomic.write_atomically(sys.argv[1], codec.encode("thing", 1, record))
    print(number, flush=True)
"""


def test_writer_killed_at_any_moment_leaves_a_complete_file(tmp_path):
    path = tmp_path / "state"
    rng = np.random.default_rng(4)
    for _ in range(8):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        said = [int(line) for line in process.stdout.read().split()]
        process.wait()
        process.stdout.close()
        record = atomic.read_newest(path, "thing", 1)
        assert (record["values"] == record["number"]).all()
        # at most the one that was being written is lost
        assert record["number"] >= max(said, default=1)
