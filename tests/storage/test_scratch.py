"""Large arrays in files: the same numbers, pages that can be dropped, and one line if the disk is full."""

from __future__ import annotations

import errno
import mmap
import tempfile
from pathlib import Path

import numpy as np
import pytest

from fedhlcr.exceptions import OutputError
from fedhlcr.storage import scratch


@pytest.fixture
def everything_is_large(monkeypatch):
    monkeypatch.setattr(scratch, "LARGE", 0)
    monkeypatch.setattr(scratch, "LARGE_ROW", 0)


def test_small_arrays_stay_in_memory():
    array = np.arange(6)
    assert scratch.put_aside(array) is array
    assert scratch.mapping_of(scratch.stacked([array, array], (2, 6), np.uint8)) is None


def test_arrays_in_files_have_the_same_numbers(everything_is_large):
    rows = np.random.default_rng(0).normal(size=(5, 3, 4))
    aside = scratch.put_aside(rows[1])
    stacked = scratch.stacked(iter([*rows[:1], aside, *rows[2:]]), rows.shape, np.float32)
    assert scratch.mapping_of(aside) is not None
    np.testing.assert_array_equal(aside, rows[1])
    np.testing.assert_array_equal(stacked, rows.astype(np.float32))
    assert stacked.dtype == np.float32
    assert stacked.flags.writeable


def test_pages_that_were_dropped_can_be_read_again(everything_is_large):
    array = scratch.put_aside(np.arange(10_000))
    view = array[5:].reshape(5, -1)[::2]
    scratch.release(view, np.arange(3))
    np.testing.assert_array_equal(array, np.arange(10_000))


def test_what_is_written_to_an_array_in_a_file_stays(everything_is_large):
    array = scratch.empty((50, 200))
    assert scratch.mapping_of(array) is not None
    array[:] = np.arange(10_000).reshape(50, 200)
    scratch.release(array)
    np.testing.assert_array_equal(array.ravel(), np.arange(10_000))


def test_full_disk_ends_in_one_line(everything_is_large, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(OutputError, match=r"temporary file to .* No space left on device; .* TMPDIR"):
        scratch.put_aside(np.zeros(10**6))
    with pytest.raises(OutputError, match="No space left"):
        scratch.empty((10**6,))


def test_rows_that_were_dropped_can_be_read_again(everything_is_large):
    array = scratch.put_aside(np.arange(100_000.0).reshape(-1, 10))
    scratch.release(array[300:4_300], array[:0], np.zeros((3, 3)))
    np.testing.assert_array_equal(array, np.arange(100_000.0).reshape(-1, 10))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells which pages are in memory")
def test_dropped_rows_leave_memory_and_others_stay(everything_is_large):
    array = scratch.empty((1 << 20, 4))
    array[:] = 1.0
    address = array.ctypes.data
    array.sum()
    assert resident_bytes(address) == array.nbytes
    scratch.release(array[1 << 18 : 1 << 19])
    assert resident_bytes(address) == 0.75 * array.nbytes


def resident_bytes(address: int) -> int:
    """Bytes in memory of the mapping that begins at an address."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith(f"{address:x}-"))
    found = next(line for line in lines[at:] if line.startswith("Rss:"))
    return int(found.split()[1]) * 1024


def test_arrays_put_aside_share_few_files_and_stay_apart(monkeypatch):
    """Every mapping keeps a descriptor open, and a process may have about a thousand of them."""
    monkeypatch.setattr(scratch, "LARGE_ROW", 0)
    monkeypatch.setattr(scratch, "LARGE", 1 << 20)
    rows = np.random.default_rng(0).normal(size=(100, 3_000))
    aside = [scratch.put_aside(row) for row in rows]
    assert len({id(scratch.mapping_of(row)) for row in aside}) <= 4
    aside[7][:] = 7.0
    scratch.release(*aside)
    rows[7] = 7.0
    np.testing.assert_array_equal(aside, rows)


def test_too_many_open_files_end_in_one_line(everything_is_large, monkeypatch):
    class Refused(mmap.mmap):
        def __new__(cls, *_, **__):
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(scratch.mmap, "mmap", Refused)
    with pytest.raises(OutputError, match="Too many open files"):
        scratch.stacked([np.zeros(10)], (1, 10), np.float64)
