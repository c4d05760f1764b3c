"""Mutants of the kernels: the real source with one line changed, compiled and put in place.

A statistical test that a mutant passes is no test.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path

from fedhlcr.kernels import labels as kernels
from fedhlcr.samplers import blocked, collapsed

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
        "            counts[own] -= 1.0\n            for p in range(packed):\n",
        "            for p in range(packed):\n",
    ),
}


@contextmanager
def mutant(name: str, folder: Path):
    """The samplers run on the mutated kernels inside this block."""
    old, new = MUTATIONS[name]
    source = Path(kernels.__file__).read_text()
    assert source.count(old) == 1, f"the mutation {name!r} no longer fits the source"
    path = folder / "mutated_labels.py"
    path.write_text(source.replace(old, new))
    spec = importlib.util.spec_from_file_location("mutated_labels", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutated_labels"] = module
    spec.loader.exec_module(module)
    try:
        blocked.kernels = collapsed.kernels = module
        yield
    finally:
        blocked.kernels = collapsed.kernels = kernels
        del sys.modules["mutated_labels"]
