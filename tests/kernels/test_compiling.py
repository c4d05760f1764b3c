"""Kernels are compiled once: a note says when, and arrays of a mapped file need no other version of a kernel."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import fedhlcr
from fedhlcr import HLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.kernels import compiling, effective, effects, grams, labels, mixtures, profiles
from fedhlcr.storage import pages

NOTE = "once per installation"


def start_of(module):
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))})


def test_note_is_given_once_and_for_kernels_only(caplog):
    note = compiling.CompilationNote()
    with caplog.at_level(logging.WARNING):
        note.on_start(start_of("somebody.else"))
        assert NOTE not in caplog.text
        for _ in range(3):
            note.on_start(start_of("fedhlcr.kernels.labels"))
        note.on_end(None)
    assert caplog.text.count(NOTE) == 1


def test_kernel_without_a_folder_to_keep_it_in_is_compiled_all_the_same(monkeypatch):
    def without_cache(*, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(compiling, "njit", without_cache)
    assert compiling.kernel(abs) is abs


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_mapped_models_need_no_other_version_of_a_kernel(tmp_path, monkeypatch):
    table, _ = make_hlcr(10, 3, 5, 2, 2, 0.3, random_state=1)
    ids = {"agent": table.agent, "entity": table.entity}
    model = HLCRRegressor(n_sweeps=6, max_clusters=4).fit(table.X, table.y, **ids)
    expected = model.predict(table.X, **ids)
    model.predict_interval(table.X, **ids)
    model.adapt(table.X[:9], table.y[:9], table.agent[:9], table.entity[:9])
    model.save(tmp_path / "model")

    def versions():
        modules = (effective, effects, grams, labels, mixtures, profiles)
        kernels = [value for module in modules for value in vars(module).values() if hasattr(value, "signatures")]
        assert kernels
        return {kernel.py_func.__qualname__: len(kernel.signatures) for kernel in kernels}

    before = versions()
    monkeypatch.setattr(pages, "MAPPED_FROM", 0)
    loaded = fedhlcr.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(table.X, **ids), expected)
    loaded.predict_interval(table.X, **ids)
    loaded.adapt(table.X[:9], table.y[:9], table.agent[:9], table.entity[:9])
    assert versions() == before
