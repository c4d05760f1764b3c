"""Kernels are compiled once, for one type of arguments, and before they are needed."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import fedhlcr
from fedhlcr import HLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.kernels import ahead, compiling, effective, effects, grams, labels, mixtures, profiles
from fedhlcr.storage import pages
from tests.kernels import walk


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


# Kernels that are compiled for two lists of types, and why.
LABELS = "the labels of all draws take one byte per entity, and two in the few models of more than 255 clusters"
SEVERAL: dict[str, str] = dict.fromkeys(
    (
        "label_weights.agent_counts",
        "label_weights.count_agent",
        "label_weights.count_profiles",
        "label_weights.label_weights",
        "label_weights.score_kept",
    ),
    LABELS,
)
JOURNEYS = [
    pytest.param(name, marks=pytest.mark.skipif(not walk.is_possible(name), reason="an extra is not installed"))
    for name in walk.JOURNEYS
    # its labels take two bytes, for which nothing is compiled ahead
    if name != "many_clusters"
]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_no_kernel_is_compiled_for_two_lists_of_types(tmp_path):
    """With nothing compiled before, so that kernels that only other kernels call are seen, too."""
    taken: dict[str, list[Any]] = {}
    for journey in filter(walk.is_possible, walk.JOURNEYS):
        types = walk.take_apart(journey, NUMBA_CACHE_DIR=str(tmp_path), **{ahead.WORKER: "1"})["types"]
        for name, lists in types.items():
            known = taken.setdefault(name, [])
            known += [of for of in lists if of not in known]
    assert len(taken) > 150
    several = {name: lists for name, lists in taken.items() if len(lists) > 1}
    assert {name: lists for name, lists in several.items() if name not in SEVERAL} == {}
    assert {name: len(lists) for name, lists in several.items()} == dict.fromkeys(SEVERAL, 2)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize("journey", JOURNEYS)
def test_every_kernel_is_compiled_ahead_as_it_is_called(journey):
    taken = walk.take_apart(journey)["types"]
    assert len(taken) > 15
    known = json.loads(ahead.SIGNATURES.read_text())
    assert taken == {name: [known[name]["types"]] if name in known else "not compiled ahead" for name in taken}


def run(code, **environment):
    """Run Python code in a process of its own; return what it prints, and its notes."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout, done.stderr


PREPARE = """
import logging
from numba.core import event
from fedhlcr.kernels import ahead
compiled = []
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
{before}
print(ahead.prepare(["tables"]).n_compiled)
ahead.load(["tables"])
print(compiled)
"""


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_group_is_compiled_once_in_other_processes_and_said_by_name(tmp_path):
    n_kernels = len(ahead.GROUPS["tables"].split())
    printed, notes = run(PREPARE.format(before=""), NUMBA_CACHE_DIR=str(tmp_path))
    assert printed.split("\n")[:2] == [str(n_kernels), "[]"]
    assert re.search(rf"compiling for tables: {n_kernels} of {n_kernels} kernels", notes)
    printed, notes = run(PREPARE.format(before=""), NUMBA_CACHE_DIR=str(tmp_path))
    assert printed.split("\n")[:2] == ["0", "[]"]
    assert notes == ""


@pytest.mark.slow
@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_quiet_compilation_prints_nothing(tmp_path):
    quiet = "from fedhlcr.cli.shell import Shell; Shell(quiet=True)"
    printed, notes = run(PREPARE.format(before=quiet), NUMBA_CACHE_DIR=str(tmp_path))
    assert not printed.startswith("0")
    assert notes == ""


def test_change_of_any_source_compiles_all_kernels_again(tmp_path, monkeypatch):
    before = compiling.marker("fits")
    copy = Path(shutil.copytree(compiling.SOURCES, tmp_path / "kernels"))
    monkeypatch.setattr(compiling, "SOURCES", copy)
    # a copy in an image has other times
    os.utime(copy / "lanes.py", (1, 1))
    assert compiling._stamp() == compiling.STAMP
    (copy / "lanes.py").write_text(f"{(copy / 'lanes.py').read_text()}\n")
    monkeypatch.setattr(compiling, "STAMP", compiling._stamp())
    assert compiling.marker("fits") != before
    monkeypatch.undo()
    if not numba.config.DISABLE_JIT:
        assert labels.relabel_agents._cache._cache_file._source_stamp == compiling.STAMP


@pytest.mark.parametrize("family", ["gaussian", "mixed, entity noise", *ahead.OWN_FITS])
def test_all_that_is_compiled_ahead_exists(family):
    known = json.loads(ahead.SIGNATURES.read_text())
    for group in ahead.for_fits(family, federated=True):
        for name in ahead.GROUPS[group].split():
            assert all(ahead.numba_type(of) is not None for of in known[name]["types"])


SOURCE = Path(fedhlcr.__file__).parent
KERNELS = SOURCE / "kernels"
# The slow versions for tests use random numbers of kernels.
FOR_TESTS = (SOURCE / "reference.py", SOURCE / "reference_logits.py")


def all_kernels():
    """The names of all kernels: functions with one of the decorators of `kernels.compiling`."""
    for path in KERNELS.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and any("kernel" in ast.unparse(of) for of in node.decorator_list):
                yield f"{path.stem}.{node.name}"


def taken_from_kernels(path):
    """What a module takes from the modules of kernels, as `module.name`."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    modules = {}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "fedhlcr.kernels":
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedhlcr.kernels."):
            yield from (f"{node.module.rpartition('.')[2]}.{alias.name}" for alias in node.names)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield f"{modules[node.value.id]}.{node.attr}"


def test_groups_have_all_kernels_that_are_called_from_outside_and_no_others():
    kernels = set(all_kernels())
    assert len(kernels) > 150
    outside = (path for path in SOURCE.rglob("*.py") if path.parent != KERNELS and path not in FOR_TESTS)
    called = kernels.intersection(name for path in outside for name in taken_from_kernels(path))
    assert called == {name for names in ahead.GROUPS.values() for name in names.split()}


def test_signatures_are_those_of_the_groups():
    named = {name for names in ahead.GROUPS.values() for name in names.split()}
    assert named == set(json.loads(ahead.SIGNATURES.read_text()))


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_written_number_is_a_number_like_any_other():
    @compiling.kernel
    def inner(n):
        return n + 1

    @compiling.kernel
    def outer(n):
        return inner(0) + inner(1) + inner(n)

    assert outer(2) == 6
    assert len(inner.signatures) == 1
