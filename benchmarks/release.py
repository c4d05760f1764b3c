"""Predictions on L against those of an older release, each in processes of their own.

python -m benchmarks release --release FOLDER      # a checkout of the older release
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.problems import draw_l
from benchmarks.report import Options, Row, at_least, informational, say, skipped

BOUND = 3
ROOT = Path(__file__).parents[1]
WHAT = "predictions and intervals of L, faster than an older release"
# Only what all releases have. The first fit, of few agents, compiles.
SCRIPT = """
import json, sys, time, numpy as np
from fedhlcr import HLCRRegressor
data = dict(np.load(sys.argv[1]))
agent, entity, X, y = (data[name] for name in ("agent", "entity", "X", "y"))
few, seconds = agent < 20, {}
for rows in (few, slice(None)):
    model = HLCRRegressor()
    for name, call in (
        ("fit", lambda: model.fit(X[rows], y[rows], agent=agent[rows], entity=entity[rows])),
        ("predictions", lambda: model.predict(X[rows], agent[rows], entity[rows])),
        ("intervals", lambda: model.predict_interval(X[rows], agent[rows], entity[rows])),
    ):
        start = time.perf_counter()
        call()
        seconds[name] = time.perf_counter() - start
print(json.dumps(seconds))
"""


def run(options: Options) -> list[Row]:
    if options.release is None:
        return [skipped(WHAT, "no --release FOLDER")]
    table, _ = draw_l(options.seed, 1_000 if options.quick else 10_000)
    found: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "table.npz")
        np.savez(path, agent=table.agent, entity=table.entity, X=table.X, y=table.y)
        for _ in range(1 if options.quick else 2):
            found["new"].append(_measure(ROOT / "src", path))
            found["old"].append(_measure(Path(options.release, "src").resolve(), path))
    rows = []
    for stage in ("fit", "predictions", "intervals"):
        old, new = (median(one[stage] for one in found[side]) for side in ("old", "new"))
        say("release", f"{stage}: {old:.2f} s in the older release, {new:.2f} s now")
        what = f"{stage} of {len(table) / 1e6:.1f} million events, faster than the older release"
        rows.append(informational(what, old / new) if stage == "fit" else at_least(what, old / new, BOUND))
    return rows


def _measure(source: Path, path: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the fit with {source} failed:\n{done.stderr}")
    seconds: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seconds
