"""Fixtures of all tests of engines."""

from __future__ import annotations

import pytest


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the server's waiting moves, for tests with a `LocalGrid`."""
    pytest.importorskip("flwr", reason="the flower extra is not installed")
    from tests.flower_grid import StillClock

    clock = StillClock()
    clock.stop_others(monkeypatch)
    return clock
