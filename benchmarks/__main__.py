"""`python -m benchmarks [name ...]`: run benchmarks and print what came out. It reports; it never fails a build."""

from __future__ import annotations

import argparse
import os
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from benchmarks.report import Findings, Options, Row, failed, format_limits, format_table, say
from benchmarks.results import Entry, Results, describe_machine
from fedhlcr._support.threads import available_threads

# In this order; `limits` first, so that the others stand beside what the machine can do.
BENCHMARKS = (
    "limits",
    "collapsed",
    "blocked",
    "effects",
    "classes",
    "scaling",
    "threads",
    "predictions",
    "release",
    "federation",
    "secure_sum",
    "ray",
    "imports",
    "cost",
    "workers",
    "streaming",
    "rivals",
)
# Minutes, not seconds: `--quick` leaves them out unless they are named.
SLOW = {"classes", "release"}


def main() -> None:
    parser = _parser()
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in BENCHMARKS]:
        parser.error(f"unknown: {', '.join(unknown)}; expected some of {', '.join(BENCHMARKS)}")
    if arguments.threads < 1:
        parser.error(f"--threads must be at least 1, but is {arguments.threads}")
    options = Options(arguments.threads, arguments.seed, arguments.quick, arguments.release)
    chosen = arguments.names or [name for name in BENCHMARKS if not (options.quick and name in SLOW)]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    say("machine", f"{available_threads()} cores; load before the start {load:.1f}, best near 0")
    results = _earlier(arguments.json)
    results.machine = describe_machine(options)
    rows: list[Row] = []
    try:
        for name in chosen:
            entry = run_one(name, options, load)
            results.entries[name] = entry
            rows += entry.findings.rows
            if arguments.json is not None:
                results.write(arguments.json)
    finally:
        # print also what was measured before an error or Ctrl-C
        print(f"\n{format_limits(results.limits)}\n\n{format_table(rows)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure speed, as ratios in one run.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run, of {', '.join(BENCHMARKS)}; all")
    parser.add_argument("--threads", type=int, default=2, help="threads of both sides (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the data (default: %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help=f"small tables, few repetitions; without {', '.join(SLOW)} unless named"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="add all measurements to this file")
    parser.add_argument("--release", metavar="FOLDER", help="checkout of an older release to compare with")
    return parser


def run_one(name: str, options: Options, load: float) -> Entry:
    """Run a benchmark. One that ends in an error costs its own row only."""
    say(name, "starts")
    start = time.perf_counter()
    try:
        found = _function(name)(options)
    except Exception as error:
        traceback.print_exc()
        found = [failed(name, error)]
    findings = found if isinstance(found, Findings) else Findings(rows=found)
    return Entry(findings, options.quick, load, time.perf_counter() - start)


def _function(name: str) -> Callable[[Options], list[Row] | Findings]:
    function: Callable[[Options], list[Row] | Findings] = import_module(f"benchmarks.{name}").run
    return function


def _earlier(path: Path | None) -> Results:
    """The measurements of an earlier run, which those of this run replace name by name."""
    return Results.read(path) if path is not None and path.exists() else Results()


if __name__ == "__main__":
    main()
