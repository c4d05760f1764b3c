"""Arrays of the one type that kernels are compiled for."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr._support.arrays import for_kernels
from fedhlcr.data.ids import Texts
from fedhlcr.data.inputs import feature_matrix


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        read_only(np.arange(6.0).reshape(3, 2)),
        np.asfortranarray(np.arange(6.0).reshape(3, 2)),
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.frombuffer(bytes(49), dtype=np.uint8)[1:].view(np.float64),
    ],
)
def test_arrays_of_any_other_type_are_copied(array):
    copy = for_kernels(array)
    assert copy.flags.carray
    np.testing.assert_array_equal(copy, array)


def test_arrays_of_the_type_are_not_copied():
    array = np.arange(6.0).reshape(3, 2)
    assert for_kernels(array) is array


def test_tables_mapped_from_files_are_read_for_kernels(tmp_path):
    np.save(tmp_path / "X.npy", np.arange(6.0).reshape(3, 2))
    matrix = feature_matrix(np.load(tmp_path / "X.npy", mmap_mode="r"))
    assert type(matrix) is np.ndarray
    assert matrix.flags.carray


@pytest.mark.parametrize("texts", [[], ["a", "bc"]])
def test_texts_are_read_for_kernels(texts):
    for part in (Texts.of(texts), Texts.of(texts).take(np.arange(len(texts)))):
        assert part.data.flags.carray
        assert part.offsets.flags.carray
