"""Time to import fedhlcr over that of what it stands on, each in fresh processes."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from benchmarks.report import Options, Row, at_most, say

BOUND = 1.3
OURS, FOUNDATIONS = "fedhlcr", "numpy, scipy, sklearn, numba"


def run(options: Options) -> list[Row]:
    times: dict[str, list[float]] = {OURS: [], FOUNDATIONS: []}
    for names in times:  # the first reads from disk, and may compile bytecode
        import_seconds(names)
    for _ in range(4 if options.quick else 10):
        for names, own in times.items():
            own.append(import_seconds(names))
    ours, foundations = median(times[OURS]), median(times[FOUNDATIONS])
    say("imports", f"{OURS} {ours:.3f} s; {FOUNDATIONS} {foundations:.3f} s")
    return [at_most(f"import fedhlcr, time over that of {FOUNDATIONS}", ours / foundations, BOUND)]


def import_seconds(names: str) -> float:
    """Seconds an import takes in a process of its own, whose start does not count."""
    code = f"from time import perf_counter as now; start = now(); import {names}; print(now() - start)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
