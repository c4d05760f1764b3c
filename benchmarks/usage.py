"""Run a command and print the seconds and the peak memory of that command alone, as one line of JSON.

    python benchmarks/usage.py COMMAND ...

A process of its own, and a small one: on Linux, a child's peak memory starts at that of the process that forks it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time


def main() -> int:
    start = time.perf_counter()
    done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        return done.returncode
    print(json.dumps({"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "peak_bytes": peak}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
