"""Clusters are numbered by size, everywhere alike."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor, describe_clusters
from fedhlcr._support.wording import percent
from fedhlcr.analysis.effects import entity_shares
from fedhlcr.cli.descriptions import model_facts
from fedhlcr.model.gaussian import GaussianGlobals
from fedhlcr.posterior import Draws
from fedhlcr.posterior.alignment import align
from fedhlcr.report import findings
from tests.reports import fitted, public


def draws_of(counts, weights):
    """Draws of clusters whose one coefficient is 0, 10, 20, …"""
    n_draws, n_clusters = np.shape(counts)
    coef = np.tile(10.0 * np.arange(n_clusters)[:, None], (n_draws, 1, 1))
    ones = np.ones(n_draws)
    stacked = GaussianGlobals(
        coef=coef,
        log_weights=np.log(np.tile(weights, (n_draws, 1))),
        noise_scale=ones,
        coef_mean=np.zeros((n_draws, 1)),
        coef_scale=np.ones((n_draws, 1)),
        global_concentration=ones,
        agent_concentration=ones,
    )
    return Draws(stacked, np.asarray(counts, dtype=float), -np.arange(n_draws, dtype=float), np.zeros(n_draws, int))


@pytest.mark.parametrize(
    ("counts", "weights", "order"),
    [
        pytest.param([[1, 5, 3]], [0.6, 0.3, 0.1], [1, 2, 0], id="size, not weight"),
        pytest.param([[4, 9, 1], [4, 1, 4]], [0.2, 0.1, 0.7], [1, 0, 2], id="mean over the draws"),
        pytest.param([[3, 3, 4]], [0.2, 0.3, 0.5], [2, 1, 0], id="equal sizes by weight"),
        pytest.param([[3, 3, 4]], [0.3, 0.2, 0.5], [2, 0, 1], id="equal sizes by the opposite weight"),
    ],
)
def test_clusters_are_ordered_by_size_then_weight(counts, weights, order):
    alignment = align(draws_of(counts, weights), np.eye(1), drop_empty=False)
    np.testing.assert_array_equal(np.argsort(alignment.target[0]), order)


@pytest.fixture(scope="module", params=["centralised", "federated"])
def model(request, small):
    table, _ = small
    if request.param == "centralised":
        return fitted(table, n_chains=2)
    settings = {"participation": 0.5, "failure_rate": 0.2, "rounds": 60}
    return FedHLCRRegressor(**settings).fit(table.X, table.y, agent=table.agent, entity=table.entity)


def test_shares_fall_with_the_cluster_number(model):
    shares = entity_shares(model)
    assert (np.diff(shares) <= 0.0).all()
    summary = model.summary()
    place = summary.header.index("share")
    assert [row[place] for row in summary.rows] == [percent(share) for share in shares]


def test_a_public_model_has_the_same_numbers(model):
    shared = public(model)
    np.testing.assert_array_equal(shared.coef_, model.coef_)
    np.testing.assert_array_equal(entity_shares(shared), entity_shares(model))


def test_an_adapted_model_keeps_the_numbers(model, small):
    table, _ = small
    adapted = model.adapt(table.X[:50], table.y[:50], agent=["new"] * 50, entity=np.arange(50))
    np.testing.assert_array_equal(adapted.coef_, model.coef_)
    np.testing.assert_array_equal(entity_shares(adapted), entity_shares(model))
    assert len(adapted.labels_) == len(model.labels_) + 50


def test_every_place_counts_the_same_entities(model):
    counts = np.bincount(model.labels_, minlength=model.n_clusters_).tolist()
    assert [cluster["entities"] for cluster in model_facts(model)["clusters"]] == counts
    clusters = findings.Findings(model).clusters
    assert [cluster.n_entities for cluster in clusters] == counts
    assert [cluster.number for cluster in clusters] == list(range(model.n_clusters_))
    assert all(sentence.startswith(f"Cluster {k}, ") for k, sentence in enumerate(describe_clusters(model)))
