"""The summary of a model: only effects that the draws support, and the same figures everywhere."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedhlcr import FedHLCRRegressor, HLCRRegressor, describe_clusters, load
from fedhlcr._support.wording import percent
from fedhlcr.analysis.effects import change_intervals, coef_intervals, effect_sizes, entity_shares, unit_changes
from fedhlcr.cli.descriptions import model_facts
from fedhlcr.posterior import PublicModel
from fedhlcr.report import render_report
from tests.reports import fitted, public, recipe_of


def one_cluster(n_events, columns, slopes, seed=0, **parameters):
    """A model of one cluster, of events with independent columns and noise 1."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: draw(rng, n_events) for name, draw in columns.items()})
    y = frame.to_numpy(dtype=float) @ slopes + rng.normal(size=n_events)
    model = HLCRRegressor(n_clusters=1, **{"n_sweeps": 60, "effects": "none", "noise": "common", **parameters})
    return model.fit(frame, y, agent=np.zeros(n_events, int), entity=np.arange(n_events) % 5)


def normal(rng, n):
    return rng.normal(size=n)


def test_effects_of_unclear_sign_are_left_out():
    model = one_cluster(40, {"sure": normal, "unsure": normal}, [3.0, 0.0], seed=0)
    lower, upper = change_intervals(model)
    # strong enough to be told, but of either sign
    assert abs(effect_sizes(model)[0, 1]) > 0.1 * model.noise_scale_
    assert lower[0, 1] < 0.0 < upper[0, 1]
    (sentence,) = describe_clusters(model)
    assert "as sure goes from" in sentence
    assert "unsure" not in sentence
    nothing = one_cluster(40, {"unsure": normal}, [0.0])
    assert describe_clusters(nothing)[0].endswith("; no feature clearly moves it.")


def test_a_weaker_clear_effect_comes_before_a_stronger_unclear_one(monkeypatch):
    model = one_cluster(40, {"unsure": normal, "sure": normal}, [0.0, 0.6], seed=2)
    monkeypatch.setattr(type(model), "coef_", np.array([[9.0, model.coef_[0, 1]]]))
    assert "as sure goes from" in describe_clusters(model, n_effects=1)[0]


@pytest.mark.parametrize("drop_first", [False, True])
def test_intervals_belong_to_the_changes(drop_first):
    levels = ["a", "b", "c"]

    def indicator(level):
        return lambda rng, n: (np.arange(n) % 3 == levels.index(level)).astype(float)

    columns = {f"kind={level}": indicator(level) for level in levels[drop_first:]}
    model = one_cluster(60, columns, [1.0, -2.0, 0.0][: len(columns)])
    model.recipe_ = recipe_of(["kind"], agent="a", entity="e", categorical={"kind": levels[drop_first:]})
    posterior = model.posterior_
    slopes, _ = posterior.standardization.to_user_units(posterior.layout, posterior.draws.coef[:, 0])
    # all levels have the same share of the events: there against elsewhere
    full = np.pad(slopes, ((0, 0), (int(drop_first), 0)))
    contrasts = 1.5 * (full - full.mean(axis=1, keepdims=True))[:, drop_first:]
    np.testing.assert_allclose(unit_changes(model)[0], contrasts.mean(axis=0))
    # with a feature for each level, coefficients are differences from the average event
    coef = slopes if drop_first else slopes - slopes.mean(axis=1, keepdims=True)
    for (lower, upper), values in ((change_intervals(model), contrasts), (coef_intervals(model), coef)):
        expected = np.quantile(values, [0.05, 0.95], axis=0, method="inverted_cdf")
        np.testing.assert_allclose([lower[0], upper[0]], expected)


def test_facts_for_json_have_intervals_and_shares(small):
    table, _ = small
    model = fitted(table)
    facts = model_facts(model)
    assert facts["interval_level"] == 0.9
    lower, upper = coef_intervals(model)
    for k, cluster in enumerate(facts["clusters"]):
        assert cluster["share"] == entity_shares(model)[k]
        assert list(cluster["coef_interval"]) == facts["features"]
        np.testing.assert_array_equal(list(cluster["coef_interval"].values()), np.column_stack([lower[k], upper[k]]))
        assert all(low <= cluster["coef"][name] <= high for name, (low, high) in cluster["coef_interval"].items())


def test_one_draw_has_no_intervals_and_no_clear_effects():
    model = one_cluster(40, {"x": normal}, [3.0], n_draws=1)
    assert np.isnan(coef_intervals(model)).all()
    assert "no feature clearly moves it" in describe_clusters(model)[0]


def test_table_and_sentences_have_the_same_shares(small):
    table, _ = small
    for model in (fitted(table), public(fitted(table))):
        summary = model.summary()
        counted = [] if not len(model.labels_) else ["entities"]
        assert summary.header[: 4 + len(counted)] == ("cluster", *counted, "share", "weight", "level")
        columns = dict(zip(summary.header, zip(*summary.rows, strict=True), strict=True))
        assert list(columns["share"]) == [percent(share) for share in entity_shares(model)]
        assert list(columns["weight"]) == [percent(weight) for weight in model.cluster_weights_]
        if counted:
            assert list(columns["entities"]) == [str(n) for n in np.bincount(model.labels_)]
        for text in (str(summary), summary._repr_html_()):
            assert "share: share of the fitted entities, mean over the draws; weight: " in text


def test_one_chain_is_compared_by_halves(small, tmp_path):
    table, _ = small

    def agreement(model):
        return str(dict(model.summary().facts)["R-hat (effective size)"])

    assert agreement(fitted(table)).endswith(
        "; computed from the two halves of one chain; try n_chains=4 to compare independent chains"
    )
    assert "only one chain" not in agreement(fitted(table, n_chains=2))
    # so few draws that there is nothing to compare
    assert agreement(fitted(table, n_sweeps=3)) == "too few draws"
    federated = FedHLCRRegressor(rounds=20).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    assert "only one chain" not in agreement(federated)
    # what Flower's server writes
    posterior = federated.posterior_
    PublicModel(posterior.likelihood, posterior.standardization, posterior.draws, seed=0).save(tmp_path / "model")
    left = load(tmp_path / "model")
    assert agreement(left) == "unknown"
    assert "n_chains" not in render_report(left)


def test_a_note_says_if_events_are_few():
    note = "There are only 9 events for the 2 coefficients of a cluster. Intervals are too narrow."
    few, enough = (one_cluster(n, {"x": normal}, [1.0]) for n in (9, 10))
    assert note in few.summary().notes
    assert "too narrow" not in str(enough.summary())
    assert "too narrow" not in str(public(few).summary())
    # those it was adapted to are not those it was fitted with
    large = public(one_cluster(500, {"x": normal}, [1.0]))
    adapted = large.adapt(pd.DataFrame({"x": [0.0, 1.0]}), [0.0, 1.0], agent=["new", "new"], entity=["e", "e"])
    assert "2 events" in str(adapted.summary())
    assert "too narrow" not in str(adapted.summary())


def test_facts_agree_in_number():
    rng = np.random.default_rng(0)
    model = HLCRRegressor(n_sweeps=10).fit(rng.normal(size=(30, 1)), rng.normal(size=30), entity=np.zeros(30, int))
    assert dict(model.summary().facts)["data"] == "1 agent, 1 entity, 30 events, 1 feature"


def test_zero_has_no_sign(monkeypatch):
    model = one_cluster(40, {"x": normal, "constant": lambda rng, n: np.ones(n)}, [1.0, 0.0])
    monkeypatch.setattr(type(model), "coef_", np.array([[model.coef_[0, 0], -0.0]]))
    assert model.summary().rows[0][-1] == "0"


def test_a_column_of_0_and_1_is_described_as_such():
    columns = {"on": lambda rng, n: rng.random(n) < 0.3, "third": lambda rng, n: rng.integers(0, 3, n) / 2}
    (sentence,) = describe_clusters(one_cluster(400, columns, [2.0, -3.0]))
    assert "higher where on is 1 than where it is 0" in sentence
    assert "as third goes from" in sentence


LONG_NAMES = ("average price of the week before last", "number_of_promotions_running", "day")


@pytest.fixture(scope="module")
def long_names():
    return one_cluster(60, dict.fromkeys(LONG_NAMES, normal), [1.0, -2.0, 0.5], n_sweeps=20)


@pytest.mark.parametrize("columns", [40, 80, 110, 300])
def test_names_are_cut_only_where_the_terminal_is_narrow(columns, long_names, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    summary = long_names.summary()
    assert set(LONG_NAMES) <= set(summary.header)
    (header,) = (line for line in str(summary).splitlines() if line.startswith("cluster "))
    assert "day" in header
    is_whole = [name in header for name in LONG_NAMES[:2]]
    if columns == 300:
        assert all(is_whole)
        return
    assert not all(is_whole)
    # as long as there is room, and never so short that nobody recognises them
    assert header.count("…") == 2 - sum(is_whole)
    assert f"{LONG_NAMES[0][:13]}" in header
    if columns == 110:
        assert columns - 2 <= len(header) <= columns


def test_names_in_a_table_have_no_line_breaks():
    model = one_cluster(60, {"price\nof\tthe week": normal}, [1.0], n_sweeps=20)
    assert "price of the week" in model.summary().header
