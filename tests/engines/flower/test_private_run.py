"""Differential privacy on a grid without sockets: the same model as in process, and nothing but noisy sums."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")
pytest.importorskip("opendp", reason="the privacy extra is not installed")

import fedhlcr
from tests.flower_grid import history_of, run_app, scores_of
from tests.flower_keys import keyed_nodes
from tests.flower_private import OPTIONS, ROUNDS, assert_same_draws, server_in_process, without_noise

SECURE = {**OPTIONS, "aggregation": "secure", "min_cohort": 3}


@pytest.fixture
def keyed(tmp_path, table):
    """Five nodes, the keys of all, and test events."""
    return keyed_nodes(tmp_path, table, 5)


def test_plain_run_gives_the_model_of_a_run_in_process(nodes, table, tmp_path, monkeypatch):
    without_noise(monkeypatch)
    model = run_app(nodes, tmp_path, **OPTIONS)
    server = server_in_process(table)
    assert_same_draws(model, server.model())
    assert model.privacy == server.plan
    assert [record["n_accepted"] for record in history_of(tmp_path)] == [4 * 12, *[12] * ROUNDS]


def test_secure_run_gives_the_model_of_a_run_in_process(keyed, table, tmp_path, monkeypatch):
    without_noise(monkeypatch)
    model = run_app(keyed, tmp_path, **SECURE)
    assert_same_draws(model, server_in_process(table, aggregation="secure", min_cohort=3).model())
