"""Records in pages: values come back exactly, nothing is held in memory twice, and every altered byte is noticed."""

from __future__ import annotations

import io
import mmap
import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhlcr.exceptions import CodecError
from fedhlcr.storage import codec, pages
from fedhlcr.storage.atomic import replace_file
from fedhlcr.storage.pages import PagedRecord
from fedhlcr.storage.reader import RecordReader

KIND, VERSION = "thing", 3
RECORD = {
    "name": "ä thing",
    "texts": ["a", "ü", ""],
    "flag": True,
    "count": -5,
    "share": 0.1,
    "matrix": np.arange(12.0).reshape(3, 4),
    "labels": np.arange(7, dtype=np.uint8),
    "none": np.empty((0, 3)),
    "bits": np.array([True, False]),
    "number": np.array(2.5),
    "turned": np.arange(6).reshape(2, 3).T,
    "big-endian": np.arange(3, dtype=">i4"),
}


def written(record, kind=KIND, version=VERSION):
    file = io.BytesIO()
    pages.write(file, kind, version, record)
    return file.getvalue()


def read(data):
    record = PagedRecord(bytearray(data), KIND, VERSION)
    record.verify()
    return dict(record)


def assert_same(found, kept):
    assert list(found) == list(kept)
    for name, value in kept.items():
        if isinstance(value, np.ndarray):
            assert found[name].dtype == value.dtype.newbyteorder("<")
            np.testing.assert_array_equal(found[name], value)
            assert found[name].shape == value.shape
        else:
            assert type(found[name]) is type(value)
            assert found[name] == value


@pytest.fixture
def small_pages(monkeypatch):
    monkeypatch.setattr(pages, "PAGE", 256)
    monkeypatch.setattr(pages, "CHECKED_AT_ONCE", 1024)


def test_values_come_back_exactly(small_pages):
    assert_same(read(written(RECORD)), RECORD)
    assert_same(read(written({})), {})


def test_same_record_gives_same_bytes():
    assert written(RECORD) == written(dict(RECORD))


def test_arrays_are_aligned_views_that_kernels_can_write_to():
    data = bytearray(written(RECORD))
    record = PagedRecord(data, KIND, VERSION)
    for name in ("matrix", "labels"):
        array = record[name]
        assert type(array) is np.ndarray
        assert array.flags.writeable
        assert array.flags.aligned
        assert array.flags.c_contiguous
        assert not array.flags.owndata
        assert np.shares_memory(array, np.frombuffer(data, dtype=np.uint8))
    assert RecordReader(record, "it", "again").array("matrix", "f8", (3, 4)) is not None


def test_every_altered_byte_is_noticed():
    data = bytearray(written(RECORD))
    for place in range(len(data)):
        data[place] ^= 1 << place % 8
        with pytest.raises(CodecError):
            read(data)
        data[place] ^= 1 << place % 8
    assert_same(read(data), RECORD)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damage_to_any_page_is_noticed_when_a_value_in_it_is_used(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "PAGE", 256)
        whole = written(RECORD)
        altered = bytearray(whole)
        place = data.draw(st.integers(0, len(whole) - 1))
        altered[place] ^= data.draw(st.integers(1, 255))
        try:
            record = PagedRecord(altered, KIND, VERSION)
        except CodecError:
            return
        intact = dict(PagedRecord(bytearray(whole), KIND, VERSION))
        for name in record:
            try:
                found = record[name]
            except CodecError:
                continue
            np.testing.assert_array_equal(found, intact[name])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_truncated_and_extended_files_are_refused(data):
    whole = written(RECORD)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for damaged in (whole[:cut], whole + b"\0", whole[cut:] if cut else b""):
        with pytest.raises(CodecError):
            read(damaged)


def forged_directory(**changes):
    """A file with a directory that no release writes, but with correct checksums."""
    whole = written(RECORD)
    size, _ = pages.TAIL.unpack(whole[-pages.TAIL.size :])
    start = len(whole) - pages.TAIL.size - size
    directory = codec.decode(whole[start : start + size], pages.DIRECTORY, pages.DIRECTORY_VERSION)
    forged = codec.encode(pages.DIRECTORY, pages.DIRECTORY_VERSION, directory | changes)
    return whole[:start] + forged + pages.TAIL.pack(len(forged), pages.MAGIC)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": np.full(len(RECORD), 10**9)},
        {"positions": np.full(len(RECORD), -8)},
        {"positions": np.zeros(2, dtype=np.int64)},
        {"sizes": np.full(30, 2**62)},
        {"sizes": np.full(30, -1)},
        {"sizes": np.empty(0, dtype=np.int64)},
        {"n_axes": np.full(len(RECORD), 200, dtype=np.uint8), "sizes": np.zeros(200 * len(RECORD), dtype=np.int64)},
        {"codes": np.full(len(RECORD), 77, dtype=np.uint8)},
        {"codes": np.full(len(RECORD), 4, dtype=np.uint8)},
        {"names": "a text"},
        {"pages": np.empty(0, dtype=np.uint32)},
        {"pages": 1.5},
    ],
)
def test_forged_directory_is_refused(changes):
    with pytest.raises(CodecError):
        read(forged_directory(**changes))


def test_other_kinds_and_versions_are_refused():
    for kind, version, told in (("other", VERSION, "'other'"), (KIND, 4, "upgrade"), (KIND, 2, "older release")):
        with pytest.raises(CodecError, match=told):
            read(written(RECORD, kind, version))


def large(path, n=1 << 17):
    record = {"first": np.arange(n, dtype=np.float64), "second": np.ones(n), "text": "short"}
    replace_file(path, lambda file: pages.write(file, KIND, VERSION, record))
    return record


def test_large_file_is_mapped_and_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "MAPPED_FROM", 1 << 20)
    path = tmp_path / "large"
    kept = large(path)
    with path.open("rb") as file:
        record = pages.open_record(file, KIND, VERSION)
    assert isinstance(record._data, mmap.mmap)
    assert record["text"] == "short"
    assert sum(record._is_checked) <= 2, "only the pages that were used are checked"
    # another file takes its place: what was opened stays as it was
    replace_file(path, b"something else")
    np.testing.assert_array_equal(record["first"], kept["first"])
    record["first"][:] = 0.0
    assert path.read_bytes() == b"something else"


def test_changes_of_a_mapped_array_do_not_reach_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "MAPPED_FROM", 1 << 20)
    path = tmp_path / "large"
    kept = large(path)
    for _ in range(2):
        with path.open("rb") as file:
            record = pages.open_record(file, KIND, VERSION)
        np.testing.assert_array_equal(record["first"], kept["first"])
        record["first"][:] = -1.0


def test_memory_that_is_given_back_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "MAPPED_FROM", 1 << 20)
    path = tmp_path / "large"
    kept = large(path)
    with path.open("rb") as file:
        record = pages.open_record(file, KIND, VERSION)
    reader = RecordReader(record, "it", "again")
    np.testing.assert_array_equal(reader.array("first", "f8", (None,), np.isfinite), kept["first"])
    record.give_back(np.zeros(1 << 20))


def test_writing_needs_little_memory(tmp_path):
    n = 1 << 22
    source = np.memmap(tmp_path / "source", dtype=np.float64, mode="w+", shape=(n,))
    turned = np.broadcast_to(np.arange(8.0), (1 << 19, 8)).T
    with (tmp_path / "out").open("wb") as file:
        tracemalloc.start()
        pages.write(file, KIND, VERSION, {"mapped": source, "turned": turned})
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert os.path.getsize(tmp_path / "out") > 64 << 20
    assert peak < 16 << 20
