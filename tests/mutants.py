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

from fedhlcr.federation import label_draws
from fedhlcr.kernels import labels as kernels
from fedhlcr.kernels import skipping
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
        "        count_labels(old_labels, first, last, counts)\n        clear(seen)\n",
        "        count_labels(old_labels, 0, first, counts)\n        clear(seen)\n",
    ),
    "only the first opens a table": (
        "    opens = (seen[k] == 0.0) | (uniform * seated < prior_weights[k])\n",
        "    opens = seen[k] == 0.0\n",
    ),
    "own data not removed": (
        "                clusters[p, own] -= gram[p]\n",
        "                clusters[p, own] -= 0.0 * gram[p]\n",
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


# What decides whether an entity is skipped: lines of `kernels.skipping` and of `kernels.labels`.
SKIPPING_MUTATIONS = {
    "the movement of the own cluster is forgotten": (skipping, " + reach * own_moved", ""),
    "the movement of other clusters is forgotten": (skipping, " - reach * farthest", ""),
    "the bound moves the wrong way": (skipping, "- reach * farthest", "+ reach * farthest"),
    "the uniform number does not matter": (skipping, "return doubt < uniform < 1.0 - doubt", "return doubt < 1.0"),
    "the root of an entity that moved is kept": (kernels, "own_root[e] = np.inf", "pass"),
    "the second best cluster is forgotten": (skipping, "elif scores[k] > second:", "elif scores[k] > np.inf:"),
}  # fmt: skip


# Compiling the kernels takes seconds. Where they run a few times only, they are faster as plain Python.
COMPILED = "from fedhlcr.kernels.compiling import kernel, vector_kernel\n"
PLAIN = "def kernel(function):\n    return function\n\n\nvector_kernel = kernel\n"


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
        blocked.kernels = collapsed.kernels = label_draws.kernels = module
        yield
    finally:
        blocked.kernels = collapsed.kernels = label_draws.kernels = kernels
        del sys.modules["mutated_labels"]


@contextmanager
def skipping_mutant(name: str | None, folder: Path):
    """The blocked sampler runs on kernels as plain Python, one of whose lines is changed; None changes nothing.

    Yields the module `kernels.skipping` with the change.
    """
    changed, old, new = SKIPPING_MUTATIONS[name] if name is not None else (None, "", "")
    made = {}
    for module, compiled in ((skipping, "from fedhlcr.kernels.compiling import kernel\n"), (kernels, COMPILED)):
        source = Path(module.__file__).read_text()
        if module is changed:
            assert source.count(old) == 1, f"the mutation {name!r} no longer fits the source"
            source = source.replace(old, new)
        path = folder / f"mutated_{module.__name__.rpartition('.')[2]}.py"
        path.write_text(source.replace(compiled, PLAIN))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        made[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made[module])
    for function in ("is_certain", "remember"):
        setattr(made[kernels], function, getattr(made[skipping], function))
    try:
        blocked.kernels = made[kernels]
        yield made[skipping]
    finally:
        blocked.kernels = kernels


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
        mutant = made[function.__name__]
        # that of a cached property is its `func`
        function.__code__ = getattr(mutant, "func", mutant).__code__
        yield
    finally:
        function.__code__ = original
