"""Fixtures of all tests of the Flower engine."""

from __future__ import annotations

import logging

import pytest

from fedhlcr.datasets import make_hlcr


@pytest.fixture
def table():
    data, _ = make_hlcr(n_agents=12, random_state=1)
    return data


@pytest.fixture
def nodes(tmp_path, table):
    """Three nodes with four agents each."""
    from tests.flower_grid import local_nodes

    return local_nodes(tmp_path, table)


@pytest.fixture(autouse=True)
def keep_logging_to_pytest(monkeypatch):
    """The app hands its log lines to Flower's handlers, for good; here pytest needs them."""
    from fedhlcr.engines.flower import client_app

    monkeypatch.setattr(client_app, "log_through_flower", lambda: None)


@pytest.fixture
def logged(caplog):
    """What the server and the nodes log, together."""
    caplog.set_level(logging.INFO, logger="fedhlcr")
    return caplog
