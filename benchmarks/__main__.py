"""`python -m benchmarks [name ...]`: run benchmarks and print what came out. It reports; it never fails a build."""

from __future__ import annotations

import argparse
import os

from benchmarks import blocked, classes, collapsed, effects, federation, flexmix, imports, scaling, secure_sum
from benchmarks.report import Options, Row, format_table, say
from fedhlcr._support.threads import available_threads

BENCHMARKS = {
    "collapsed": collapsed.run,
    "blocked": blocked.run,
    "effects": effects.run,
    "classes": classes.run,
    "scaling": scaling.run,
    "federation": federation.run,
    "secure_sum": secure_sum.run,
    "imports": imports.run,
    "flexmix": flexmix.run,
}
# Minutes, not seconds: `--quick` leaves them out unless they are named.
SLOW = {"classes", "flexmix"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure speed, as ratios in one run.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which to run, of {', '.join(BENCHMARKS)}; all")
    parser.add_argument("--threads", type=int, default=2, help="threads of both sides (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the data (default: %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help=f"fewer repetitions; without {', '.join(SLOW)} unless named"
    )
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.names if name not in BENCHMARKS]:
        parser.error(f"unknown: {', '.join(unknown)}; expected some of {', '.join(BENCHMARKS)}")
    if arguments.threads < 1:
        parser.error(f"--threads must be at least 1, but is {arguments.threads}")
    options = Options(arguments.threads, arguments.seed, arguments.quick)
    chosen = arguments.names or [name for name in BENCHMARKS if not (options.quick and name in SLOW)]
    if hasattr(os, "getloadavg"):
        say("machine", f"{available_threads()} cores; load before the start {os.getloadavg()[0]:.1f}, best near 0")
    rows: list[Row] = []
    try:
        for name in chosen:
            say(name, "starts")
            rows += BENCHMARKS[name](options)
    finally:
        # print also what was measured before an error or Ctrl-C
        print(f"\n{format_table(rows)}")


if __name__ == "__main__":
    main()
