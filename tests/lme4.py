"""Real lme4, for comparisons with R."""

from __future__ import annotations

import shutil
import subprocess

import pytest


def require_lme4() -> None:
    """Skip the test where R or its package is not installed."""
    if (
        shutil.which("Rscript") is None
        or subprocess.run(["Rscript", "-e", "library(lme4)"], capture_output=True, check=False).returncode
    ):
        pytest.skip("R with lme4 is not installed")
