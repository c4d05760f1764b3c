"""A default fit against one start of R's flexmix: time, and error on held-out events."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from pyarrow import csv

from benchmarks.problems import N_CLUSTERS, Split, draw_m
from benchmarks.report import Options, Row, at_least, below, say, skipped
from benchmarks.timing import seconds_of
from fedhlcr import HLCRRegressor
from fedhlcr.datasets import make_hlcr

BOUND = 15
SCRIPT = Path(__file__).with_name("flexmix.R")
WHAT = "default fit, faster than one start of flexmix"


class FlexmixRun(NamedTuple):
    """What the R script prints."""

    seconds: float
    iterations: int
    mse_best_class: float
    mse_all_classes: float
    failed_starts: int


def run(options: Options) -> list[Row]:
    if not flexmix_is_installed():
        say("flexmix", "R or its package flexmix is missing: install Debian's r-base-core and r-cran-flexmix")
        return [skipped(WHAT)]
    split = draw_m(options.seed)
    compile_kernels()
    model = HLCRRegressor()
    # before and after flexmix, so that a slow minute of the machine does not hit one side only
    fits = [fit_seconds(model, split)]
    say("flexmix", f"fitted in {fits[0]:.2f} s; now flexmix, a minute or more")
    theirs = run_flexmix(split, options.seed)
    fits += [fit_seconds(model, split) for _ in range(2)]
    seconds = median(fits)
    mse = float(np.mean((model.predict(split.test.X, split.test.agent, split.test.entity) - split.test.y) ** 2))
    say("flexmix", f"fit {seconds:.2f} s, {model.n_clusters_} clusters found, held-out MSE {mse:.4f}")
    say(
        "flexmix",
        f"flexmix {theirs.seconds:.1f} s, {theirs.iterations} iterations with {N_CLUSTERS} classes, held-out MSE "
        f"{theirs.mse_best_class:.4f} by a pair's best class, {theirs.mse_all_classes:.4f} by all",
    )
    if theirs.failed_starts:
        say("flexmix", f"starts of flexmix that failed before, not counted: {theirs.failed_starts}")
    better = min(theirs.mse_best_class, theirs.mse_all_classes)
    return [at_least(WHAT, theirs.seconds / seconds, BOUND), below("default fit, held-out MSE", mse, better)]


def flexmix_is_installed() -> bool:
    if shutil.which("Rscript") is None:
        return False
    return subprocess.run(["Rscript", "-e", "library(flexmix)"], capture_output=True, check=False).returncode == 0


def compile_kernels() -> None:
    table, _ = make_hlcr(8, 3, 4, 2, 2, random_state=0)
    fit = HLCRRegressor().fit(table.X, table.y, agent=table.agent, entity=table.entity)
    fit.predict(table.X, table.agent, table.entity)


def fit_seconds(model: HLCRRegressor, split: Split) -> float:
    train = split.train
    return seconds_of(lambda: model.fit(train.X, train.y, agent=train.agent, entity=train.entity))


def run_flexmix(split: Split, seed: int) -> FlexmixRun:
    with tempfile.TemporaryDirectory() as directory:
        csv.write_csv(split.train.to_arrow(), Path(directory, "train.csv"))
        csv.write_csv(split.test.to_arrow(), Path(directory, "test.csv"))
        command = ["Rscript", str(SCRIPT), directory, str(N_CLUSTERS), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{SCRIPT.name} failed:\n{done.stderr}")
    seconds, iterations, mse_best_class, mse_all_classes, failed_starts = map(float, done.stdout.split())
    return FlexmixRun(seconds, int(iterations), mse_best_class, mse_all_classes, int(failed_starts))
