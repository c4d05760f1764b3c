"""Time to import fedhlcr over that of what it stands on, and what commands cost before they do anything large."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.report import Options, Row, at_most, say

BOUND = 1.3
# CPU seconds that a process may take for each command, with a small model and ten rows.
STARTS = {"--help": 0.6, "inspect": 0.6, "split": 0.6, "predict": 1.5}
COMMAND = "from fedhlcr.cli import main; main()"
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
    first = at_most(f"import fedhlcr, time over that of {FOUNDATIONS}", ours / foundations, BOUND)
    return [first, *start_up(4 if options.quick else 10)]


def start_up(n_runs: int) -> list[Row]:
    """CPU seconds of commands, each in fresh processes; the least of several runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = _prepared(folder)
        seconds = {"python -c pass": _cpu_seconds("pass", []), "import numpy": _cpu_seconds("import numpy", [])}
        for command, own in arguments.items():
            # the first run may compile
            seconds[command] = min(_cpu_seconds(COMMAND, own) for _ in range(n_runs + 1))
    say("imports", "; ".join(f"{what} {value:.2f} CPU s" for what, value in seconds.items()))
    return [at_most(f"fedhlcr {command}, CPU seconds", seconds[command], bound) for command, bound in STARTS.items()]


def _prepared(folder: Path) -> dict[str, list[str]]:
    """Write a table, a model and ten rows, and return the arguments of each command."""
    table, model, ten = (str(folder / name) for name in ("events.csv", "model.fedhlcr", "ten.csv"))
    ids = ["--agent", "agent", "--entity", "entity"]
    for own in (["synth", table], ["fit", table, "--target", "target", *ids, "--sweeps", "20", "--out", model]):
        _cpu_seconds(COMMAND, [*own, "--quiet"])
    Path(ten).write_text("".join(Path(table).read_text().splitlines(keepends=True)[:11]))
    halves = ["--train", str(folder / "train.csv"), "--test", str(folder / "test.csv")]
    return {
        "--help": ["--help"],
        "inspect": ["inspect", model],
        "split": ["split", ten, *ids, *halves],
        "predict": ["predict", model, ten],
    }


def _cpu_seconds(code: str, arguments: list[str]) -> float:
    # the first run keeps what it compiles, as Python does unless it is set up otherwise
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def import_seconds(names: str) -> float:
    """Seconds an import takes in a process of its own, whose start does not count."""
    code = f"from time import perf_counter as now; start = now(); import {names}; print(now() - start)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
