from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from fedhlcr.datasets import make_hlcr

# threads of BLAS beside pytest's workers only get in each other's way
os.environ.setdefault("OMP_NUM_THREADS", "1")
# pictures are drawn, not shown
os.environ.setdefault("MPLBACKEND", "Agg")

# the same examples in every run; the first one compiles kernels, and how long that takes says nothing
settings.register_profile("seeded", deadline=None, derandomize=True)
settings.load_profile("seeded")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_collection_modifyitems(items):
    """Tests of a group (`xdist_group`) stand together, before the others.

    `--dist worksteal` gives each worker a part of the list. So tests that start processes run in one worker, one after
    the other, and share what they build.
    """
    groups = [item.get_closest_marker("xdist_group") for item in items]
    order = {id(item): (not group, group.args if group else ()) for item, group in zip(items, groups, strict=True)}
    items.sort(key=lambda item: order[id(item)])


@pytest.fixture(autouse=True)
def no_figure_is_left():
    """What one test draws is not there in the next, whichever it is; matplotlib is not loaded for it."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(autouse=True)
def no_disk_is_waited_for(monkeypatch):
    """Files of tests need not survive a power failure. That code asks for it is tested where it does."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture
def rng():
    return np.random.default_rng(20240501)


@pytest.fixture(scope="session")
def small():
    """A table that fits in a blink: 40 agents, about 160 entities, 3 clusters."""
    return make_hlcr(40, 4, 6, 3, 3, 0.3, random_state=11)


@pytest.fixture(scope="session")
def shared_data():
    if not SHARED_DATA.is_dir():
        pytest.skip(
            f"the real tables are not here: no folder {SHARED_DATA.parent.name}/{SHARED_DATA.name} beside the project"
        )
    return SHARED_DATA
