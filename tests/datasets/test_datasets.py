"""The bundled table, the synthetic one, and splitting."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fedhlcr import hold_out_events
from fedhlcr.baselines import GroupedRidge
from fedhlcr.datasets import load_airports, load_flights, make_hlcr
from fedhlcr.exceptions import MissingDependencyError


def test_flights():
    flights = load_flights()
    assert flights.X.shape == (49_208, 6)
    assert len(set(flights.agent.tolist())) == 33
    assert len(set(flights.entity.tolist())) == 354
    assert np.isfinite(flights.X).all()
    table = flights.to_arrow()
    assert table.column_names == ["agent", "entity", *flights.feature_names, "target"]
    assert flights[:10].to_pandas()["target"].tolist() == flights.y[:10].tolist()


def test_frame_without_pandas_names_the_cure(monkeypatch):
    flights = load_flights()[:10]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependencyError, match=r"pip install pandas.*to_arrow"):
        flights.to_pandas()


def test_make_hlcr_is_the_model():
    table, truth = make_hlcr(600, 5, 4, 3, 4, 0.7, coef_scale=2.0, agent_concentration=2.0, random_state=0)
    assert table.X.shape == (len(table), 3)
    pairs = np.unique(table.agent * 10_000 + table.entity)
    assert len(truth.labels) == len(pairs)
    # counts are means: 1 + Poisson(mean − 1)
    assert len(pairs) / 600 == pytest.approx(5, abs=4 * np.sqrt(4 / 600))
    assert len(table) / len(pairs) == pytest.approx(4, abs=4 * np.sqrt(3 / len(pairs)))
    residual = table.y - truth.predict(table.X, truth.event_labels)
    assert residual.std() == pytest.approx(0.7, rel=0.05)
    assert abs(table.X.mean()) < 0.05
    assert table.X.std() == pytest.approx(1.0, rel=0.05)
    np.testing.assert_allclose(truth.agent_weights.sum(axis=1), 1.0)
    # labels follow the agents' weights
    agent_of = np.repeat(np.arange(600), np.bincount(pairs // 10_000))
    expected = truth.agent_weights[agent_of].mean(axis=0)
    np.testing.assert_allclose(np.bincount(truth.labels, minlength=4) / len(pairs), expected, atol=0.03)
    # all events of a pair share its label
    assert len(np.unique(np.column_stack([table.agent, table.entity, truth.event_labels]), axis=0)) == len(pairs)


def test_make_hlcr_is_seeded():
    first, second, other = (make_hlcr(5, random_state=seed)[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.y, second.y)
    assert len(first) != len(other) or (first.y != other.y).any()
    np.testing.assert_array_equal(make_hlcr(5, random_state=np.int64(1))[0].y, first.y)
    drawn = make_hlcr(5, random_state=np.random.RandomState(3))[0]
    assert np.isfinite(drawn.y).all()


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_agents", 0),
        ("entities_per_agent", 0.5),
        ("events_per_entity", 0.5),
        ("n_clusters", 0),
        ("noise_scale", -1.0),
        ("coef_scale", -1.0),
        ("global_concentration", 0.0),
        ("agent_concentration", 0.0),
        ("events_per_entity", np.nan),
        ("entities_per_agent", np.inf),
        ("noise_scale", np.nan),
        ("noise_scale", np.inf),
        ("coef_scale", np.nan),
        ("agent_concentration", np.nan),
        ("global_concentration", np.inf),
    ],
)
def test_impossible_models_are_refused(argument, value):
    with pytest.raises(ValueError, match=f"`{argument}` must"):
        make_hlcr(**{"n_agents": 5, argument: value})


def test_hold_out_takes_a_share_of_each_entity():
    agent, entity = np.repeat([1, 1, 2, 2], [10, 5, 1, 8]), np.repeat([1, 2, 1, 2], [10, 5, 1, 8])
    train, test = hold_out_events(agent, entity, fraction=0.2, random_state=3)
    assert sorted([*train, *test]) == list(range(24))
    held = [np.sum((agent[test] == a) & (entity[test] == e)) for a, e in ((1, 1), (1, 2), (2, 1), (2, 2))]
    assert held[:3] == [2, 1, 0]
    assert held[3] in (1, 2)
    again = hold_out_events(agent, entity, fraction=0.2, random_state=3)[1]
    np.testing.assert_array_equal(again, test)
    with pytest.raises(ValueError, match="`entity` is missing"):
        hold_out_events(agent, None)
    with pytest.raises(ValueError, match="`agent` has 2 rows but `entity` has 24"):
        hold_out_events(agent[:2], entity)
    with pytest.raises(ValueError, match="`fraction` must lie between 0 and 1"):
        hold_out_events(agent, entity, fraction=1.0)


def test_grouped_ridge_by_level():
    rng = np.random.default_rng(0)
    agent, entity = np.repeat([0, 1], 60), np.tile(np.repeat([0, 1], 30), 2)
    X = rng.normal(size=(120, 2))
    slope = 1.0 + 2 * agent + 4 * entity
    y = slope * X[:, 0] + 0.1 * rng.normal(size=120)
    scores = {
        level: GroupedRidge(level).fit(X, y, agent, entity).score(X, y, agent, entity)
        for level in ("all", "agent", "entity")
    }
    assert scores["all"] < scores["agent"] < 0.95 < scores["entity"]
    # what was not seen falls back
    model = GroupedRidge("entity").fit(X, y, agent, entity)
    np.testing.assert_array_equal(
        model.predict(X, agent, np.full(120, 9)),
        GroupedRidge("agent").fit(X, y, agent, entity).predict(X, agent, entity),
    )
    np.testing.assert_array_equal(
        model.predict(X, np.full(120, 9), entity), GroupedRidge("all").fit(X, y, agent, entity).predict(X)
    )
    with pytest.raises(ValueError, match="'level' parameter of GroupedRidge must be"):
        GroupedRidge("school").fit(X, y)


def test_airports_locate_the_destination_of_every_route():
    airports = load_airports()
    assert {route[-3:] for route in load_flights().entity} == set(airports)
    assert airports["LAX"].city == "Los Angeles"
    assert all(17 < at.latitude < 50 and -160 < at.longitude < -60 for at in airports.values())
