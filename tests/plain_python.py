"""Run tests of kernels again with the kernels as plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def check_without_compiler(file: str, chosen: str) -> None:
    """Run those tests of a file that pytest's `-k chosen` selects, without numba's compiler; all must pass."""
    if os.environ.get("NUMBA_DISABLE_JIT"):
        pytest.skip("this is that run")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", file, "-k", chosen],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:]
    assert " passed" in run.stdout
