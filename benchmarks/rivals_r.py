"""Rivals in R, one script each: flexmix and lme4. Only the fitting call counts, not R's start or reading the data."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from pyarrow import csv

from benchmarks.problems import Split
from benchmarks.rival_methods import Outcome, UnavailableError

TIMEOUT_SECONDS = 840


def flexmix(split: Split, seed: int) -> Outcome:
    """One start of flexmix with the true number of clusters; the better of its two predictions."""
    n_clusters = len(split.truth.coef)
    seconds, iterations, mse_best, mse_all, n_failed = _run("flexmix", split, str(n_clusters), str(seed))
    note = f"one start, {n_clusters} clusters given, {iterations:.0f} iterations"
    if n_failed:
        note += f"; failed starts before, not counted: {n_failed:.0f}"
    return Outcome(seconds, min(mse_best, mse_all), note)


def lme4(split: Split, seed: int) -> Outcome:
    """A mixed model with correlated random intercepts and slopes of every agent–entity pair."""
    del seed  # nothing is random
    seconds, mse = _run("lme4", split)
    return Outcome(seconds, mse, "all slopes random by entity, correlated")


def _run(package: str, split: Split, *arguments: str) -> list[float]:
    _require(package)
    script = Path(__file__).with_name(f"{package}.R")
    with tempfile.TemporaryDirectory() as directory:
        csv.write_csv(split.train.to_arrow(), Path(directory, "train.csv"))
        csv.write_csv(split.test.to_arrow(), Path(directory, "test.csv"))
        command = ["Rscript", str(script), directory, *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"did not finish in {TIMEOUT_SECONDS / 60:.0f} minutes") from error
    if done.returncode != 0:
        raise RuntimeError(f"{script.name} failed:\n{done.stderr}")
    return [float(word) for word in done.stdout.split()]


def _require(package: str) -> None:
    if shutil.which("Rscript") is None:
        raise UnavailableError(f"R is not installed (Debian: r-base-core, r-cran-{package})")
    found = subprocess.run(["Rscript", "-e", f"library({package})"], capture_output=True, check=False)
    if found.returncode != 0:
        raise UnavailableError(f"R's package {package} is not installed (Debian: r-cran-{package})")
