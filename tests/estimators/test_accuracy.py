"""How good the defaults are: against the limit on synthetic data, and on real tables."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.synthetic.limit import limit_mse
from fedhlcr import NEW, HLCRRegressor, hold_out_events
from fedhlcr.baselines import GroupedRidge
from fedhlcr.datasets import load_flights, make_hlcr
from fedhlcr.datasets.hierarchical import HierarchicalData

# agents, entities per agent, events per entity, features, clusters, noise scale
SETS = {"S": (128, 8, 5, 7, 8, 0.5), "M": (1000, 16, 10, 15, 16, 0.5), "H": (500, 16, 3, 7, 8, 1.5)}


def synthetic(name, seed):
    table, truth = make_hlcr(*SETS[name], random_state=seed)
    train, test = hold_out_events(table.agent, table.entity, random_state=seed)
    return table[train], table[test], truth


def fit(train, **params):
    return HLCRRegressor(**params).fit(train.X, train.y, agent=train.agent, entity=train.entity)


def held_out_mse(model, test):
    return ((model.predict(test.X, agent=test.agent, entity=test.entity) - test.y) ** 2).mean()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("seed", [201, 202])
def test_defaults_reach_the_limit(seed):
    train, test, truth = synthetic("S", seed)
    limit = limit_mse(train, test, truth)
    model = fit(train, random_state=seed + 1)
    assert held_out_mse(model, test) < 1.03 * limit
    assert abs(model.n_clusters_ - len(np.unique(truth.labels))) <= 1
    assert held_out_mse(fit(train, n_clusters=8, random_state=seed + 1), test) < 1.03 * limit


@pytest.mark.slow
@pytest.mark.parametrize("name", ["S", "H"])
def test_defaults_reach_the_limit_nearly_always(name):
    """At least 9 of 10 (data seed, algorithm seed) pairs."""
    n_clusters = SETS[name][4]
    ratios, fixed, off = [], [], []
    for seed in range(300, 310):
        train, test, truth = synthetic(name, seed)
        limit = limit_mse(train, test, truth)
        model = fit(train, random_state=3 * seed)
        ratios.append(held_out_mse(model, test) / limit)
        fixed.append(held_out_mse(fit(train, n_clusters=n_clusters, random_state=3 * seed), test) / limit)
        off.append(abs(model.n_clusters_ - len(np.unique(truth.labels))))
    assert np.sum(np.array(ratios) <= 1.03) >= 9, ratios
    assert np.sum(np.array(fixed) <= 1.03) >= 9, fixed
    if name == "S":
        assert np.sum(np.array(off) <= 1) >= 9, off


@pytest.mark.slow
def test_many_entities_reach_the_limit():
    train, test, truth = synthetic("M", 400)
    model = fit(train)
    assert held_out_mse(model, test) < 1.03 * limit_mse(train, test, truth, n_sweeps=80, burn_in=20)
    assert model.n_clusters_ == len(np.unique(truth.labels))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("S", marks=pytest.mark.ci), "H"])
def test_intervals_cover_what_they_say(name):
    inside = {"known": [], "new entity": [], "new agent": []}
    for seed in range(500, 510):
        train, test, _ = synthetic(name, seed)
        known_agents = train.agent % 8 != 0
        model = fit(train[known_agents], random_state=seed)
        cases = {
            "known": (test[test.agent % 8 != 0], True, True),
            "new entity": (test[test.agent % 8 != 0], True, False),
            "new agent": (test[test.agent % 8 == 0], False, False),
        }
        for case, (rows, with_agent, with_entity) in cases.items():
            ids = {"agent": rows.agent if with_agent else NEW, "entity": rows.entity if with_entity else NEW}
            lower, upper = model.predict_interval(rows.X, **ids)
            inside[case].extend((lower <= rows.y) & (rows.y <= upper))
    assert 0.88 < np.mean(inside["known"]) < 0.92
    assert np.mean(inside["new entity"]) > 0.86
    assert np.mean(inside["new agent"]) > 0.84


def ridge_scores(train, test):
    return [
        GroupedRidge(level)
        .fit(train.X, train.y, train.agent, train.entity)
        .score(test.X, test.y, test.agent, test.entity)
        for level in ("all", "agent")
    ]


def test_flights_are_predicted_better_than_by_ridge():
    flights = load_flights()
    train_rows, test_rows = hold_out_events(flights.agent, flights.entity, random_state=5)
    train, test = flights[train_rows], flights[test_rows]
    r2 = fit(train).score(test.X, test.y, agent=test.agent, entity=test.entity)
    assert r2 > 0.807
    assert r2 > max(ridge_scores(train, test))


# columns that are no features, and the R² of simple latent classes to stay near
REAL = {
    "flights_carrier_route_flight": (("doy",), 0.817),
    "oj_store_brand_week": (("brand", "week"), 0.772),
    "cheese_city_retailer_week": (("week",), 0.891),
    "chem97_lea_school_pupil": ((), 0.512),
    "egsingle_school_child_visit": ((), 0.822),
}


# by the time that they take
LONG = ("oj_store_brand_week", "chem97_lea_school_pupil", "egsingle_school_child_visit")


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in LONG else pytest.mark.ci) for name in REAL])
def test_real_tables(shared_data, name):
    left_out, classes = REAL[name]
    raw = pq.read_table(shared_data / f"{name}.parquet")
    features = tuple(c for c in raw.column_names if c not in ("agent", "entity", "target", *left_out))
    table = HierarchicalData.from_arrow(raw, features)
    scores, ridges = [], []
    for seed in range(3):
        train_rows, test_rows = hold_out_events(table.agent, table.entity, random_state=seed)
        train, test = table[train_rows], table[test_rows]
        scores.append(fit(train, random_state=seed).score(test.X, test.y, agent=test.agent, entity=test.entity))
        ridges.append(ridge_scores(train, test))
    assert np.mean(scores) > classes - 0.01
    assert np.mean(scores) > np.mean(ridges, axis=0).max()
