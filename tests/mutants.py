"""Mutants: the real source with one line changed, compiled and put in place.

A test that a mutant passes is no test.
"""

from __future__ import annotations
import __future__

import importlib.util
import inspect
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

from fedhlcr.federation import labelling
from fedhlcr.kernels import labels as kernels
from fedhlcr.samplers import blocked, collapsed


class Mutation(NamedTuple):
    """A line of a function, what becomes of it, and the check that must notice."""

    function: object
    old: str
    new: str
    check: object


MUTATIONS = {
    "own label not removed": (
        "            own = old_labels[e]\n            if own >= 0:\n                counts[own] -= 1.0\n",
        "            own = old_labels[e]\n            if own >= 0:\n                counts[own] -= 0.0\n",
    ),
    "counts of the wrong agent": (
        "        count_labels(old_labels, first, last, counts)\n        seen[:] = 0.0\n",
        "        count_labels(old_labels, 0, first, counts)\n        seen[:] = 0.0\n",
    ),
    "only the first opens a table": (
        "    opens = seen[k] == 0.0 or uniform * seated < prior_weights[k]\n",
        "    opens = seen[k] == 0.0\n",
    ),
    "own data not removed": (
        "            clusters[:, own] -= gram\n",
        "            clusters[:, own] -= 0.0 * gram\n",
    ),
    "own label kept in the collapsed sweep": (
        "            counts[own] -= 1.0\n            if totals[own] == 0.0:\n",
        "            if totals[own] == 0.0:\n",
    ),
    "own label kept in the blend": (
        "                counts[own] -= 1.0\n                others[own] = max(totals[own] - 1.0, 0.0)\n",
        "                others[own] = max(totals[own] - 1.0, 0.0)\n",
    ),
    "own label kept in the blend's totals": (
        "                others[own] = max(totals[own] - 1.0, 0.0)\n",
        "                others[own] = totals[own]\n",
    ),
    "own data not added in the blend": (
        "                    work[p, k] = clusters[p, k] + gram[p]\n            "
        "lane_evidence(work, n_coef, floors, pivots, with_entity)\n            paper_weights(",
        "                    work[p, k] = clusters[p, k] + (0.0 if k == own else gram[p])\n            "
        "lane_evidence(work, n_coef, floors, pivots, with_entity)\n            paper_weights(",
    ),
}


# Compiling the kernels takes seconds. Where they run a few times only, they are faster as plain Python.
COMPILED = "from fedhlcr.kernels.compiling import finite_kernel, kernel, vector_kernel\n"
PLAIN = "def kernel(function):\n    return function\n\n\nvector_kernel = finite_kernel = kernel\n"


@contextmanager
def mutant(name: str | None, folder: Path, *, compiled: bool = True):
    """The samplers and the federation's agents run on mutated kernels inside this block; None changes nothing."""
    changes = [] if name is None else [MUTATIONS[name]]
    source = Path(kernels.__file__).read_text()
    for old, new in changes if compiled else [*changes, (COMPILED, PLAIN)]:
        assert source.count(old) == 1, f"the mutation {name!r} no longer fits the source"
        source = source.replace(old, new)
    path = folder / "mutated_labels.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("mutated_labels", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutated_labels"] = module
    spec.loader.exec_module(module)
    try:
        blocked.kernels = collapsed.kernels = labelling.kernels = module
        yield
    finally:
        blocked.kernels = collapsed.kernels = labelling.kernels = kernels
        del sys.modules["mutated_labels"]


@contextmanager
def mutated(function: FunctionType, old: str, new: str):
    """A function of plain Python has `new` in the place of `old` inside this block, whoever has imported it."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"the mutation of {function.__qualname__} no longer fits the source"
    code = compile(
        source.replace(old, new), f"<mutant of {function.__qualname__}>", "exec", __future__.annotations.compiler_flag
    )
    made: dict[str, FunctionType] = {}
    exec(code, function.__globals__, made)
    original = function.__code__
    try:
        function.__code__ = made[function.__name__].__code__
        yield
    finally:
        function.__code__ = original
