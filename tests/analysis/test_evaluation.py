"""Evaluations of models: coverage, chunks, agents; and whether a model has seen the events it is judged by."""

import numpy as np
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr.analysis import evaluation
from fedhlcr.analysis.evaluation import EVERYBODY, AgentGroups, HeldOut, predict_in_chunks, share_seen
from fedhlcr.analysis.scores import scores_of
from fedhlcr.data.families import REAL
from fedhlcr.data.hierarchy import index_pairs
from fedhlcr.data.ids import read_ids
from fedhlcr.data.inputs import EncodedTable
from fedhlcr.datasets import make_hlcr
from fedhlcr.estimators import loading, saving
from fedhlcr.exceptions import ForgottenIdsWarning
from fedhlcr.posterior.responses import interval_ends

TABLE, _ = make_hlcr(8, 3, 5, 2, 2, 0.3, random_state=1)


@pytest.fixture(scope="module")
def model():
    return HLCRRegressor(2, n_sweeps=20).fit(TABLE.X, TABLE.y, agent=TABLE.agent, entity=TABLE.entity)


def moments(model, level=0.8):
    return model.predict_moments(TABLE.X, TABLE.agent, TABLE.entity, interval_ends(level))


def test_coverage_is_that_of_the_intervals(model):
    predicted = moments(model)
    scores = scores_of(REAL, TABLE.y, predicted.mean, predicted.quantiles, 0.8)
    lower, upper = model.predict_interval(TABLE.X, TABLE.agent, TABLE.entity, level=0.8)
    assert scores["coverage"] == np.mean((lower <= TABLE.y) & (TABLE.y <= upper))
    assert scores["width"] == pytest.approx(np.mean(upper - lower), rel=1e-12)
    assert 0.6 < scores["coverage"] < 1.0
    found = evaluation.evaluate(model, HeldOut(TABLE.X, TABLE.y, TABLE.agent, TABLE.entity), 0.8)
    assert found.was_fitted
    assert {**found.model.figures, **scores.figures} == found.model.figures


def test_chunks_change_nothing(model, monkeypatch):
    monkeypatch.setattr(evaluation, "CHUNK", 7)
    done = []
    agent, entity = (read_ids(ids, "agent", len(TABLE.y)) for ids in (TABLE.agent, TABLE.entity))
    table = EncodedTable(TABLE.X, ("a", "b"), {"store": agent})
    named = HLCRRegressor(2, n_sweeps=20).fit(table, TABLE.y, agent="store", entity=entity)
    assert named.feature_names_in_.tolist() == ["a", "b"]
    predicted = predict_in_chunks(named, table, agent, entity, 0.8, done.append)
    for part, whole in zip(predicted, moments(model), strict=True):
        np.testing.assert_array_equal(part, whole)
    assert sum(done) == len(TABLE.y)
    assert max(done) == 7
    with pytest.warns(ForgottenIdsWarning, match="every row counts as an event of a new entity"):
        predict_in_chunks(named, table, None, None, None, done.append)


def share(model, rows=slice(None), y=TABLE.y, **ids):
    ids = {"agent": TABLE.agent[rows], "entity": TABLE.entity[rows]} | ids
    return share_seen(model, TABLE.X[rows], y[rows], **ids)


def test_events_that_were_fitted_are_known_again(model):
    assert share(model) == 1.0
    order = np.random.default_rng(0).permutation(len(TABLE.y))
    assert share(model, order) == 1.0
    assert share(loading.from_bytes(saving.to_bytes(model))) == 1.0


def test_other_events_are_new(model):
    assert share(model, y=TABLE.y + 0.01) == 0.0
    assert share(model, agent=TABLE.agent + 100) == 0.0
    assert share(model, entity=TABLE.entity + 100) == 0.0
    assert share(model, entity=None) == 1.0, "the same events, whosever they are"
    assert share(model, agent=None) == 0.0, "of several agents, none is meant"
    assert share(loading.from_bytes(saving.to_bytes(model, public=True))) == 0.0


def test_some_events_are_known(model):
    pairs = np.unique(np.column_stack([TABLE.agent, TABLE.entity]), axis=0)
    others = np.where(TABLE.agent < 4, TABLE.y, TABLE.y + 1.0)
    assert share(model, y=others) == pytest.approx((pairs[:, 0] < 4).mean())
    # a single event less is another set of events
    first = (TABLE.agent == TABLE.agent[0]) & (TABLE.entity == TABLE.entity[0])
    rows = np.flatnonzero(~first | (np.cumsum(first) > 1))
    n_left = len(np.unique(np.column_stack([TABLE.agent[rows], TABLE.entity[rows]]), axis=0))
    assert share(model, rows) == pytest.approx((len(pairs) - 1) / n_left)


def test_a_sole_agent_need_not_be_named():
    model = HLCRRegressor(2, n_sweeps=5).fit(TABLE.X, TABLE.y, entity=TABLE.entity)
    assert share(model, agent=None) == 1.0


def test_agents_have_one_number_in_all_batches():
    known, entities = read_ids(["b", "a", "10"], "agent", 3), read_ids([1, 1, 1], "entity", 3)
    groups = AgentGroups(index_pairs(known, entities, known.codes, entities.codes)[0])
    first = groups.of_rows(read_ids(["new", "a", "a"], "agent", 3), 3)
    second = groups.of_rows(read_ids([9, 10, 9], "agent", 3), 3)
    third = groups.of_rows(read_ids(["a", "new", "9"], "agent", 3), 3)
    assert first.tolist() == [3, 1, 1]
    assert second.tolist() == [4, 0, 4]
    assert third.tolist() == [1, 3, 4]
    assert groups.in_order() == [(9, 4), (10, 0), ("a", 1), ("new", 3)]
    nobody = AgentGroups(index_pairs(known, entities, known.codes, entities.codes)[0])
    assert nobody.of_rows(None, 2).tolist() == [0, 0]
    assert nobody.in_order() == [(EVERYBODY, 0)]
