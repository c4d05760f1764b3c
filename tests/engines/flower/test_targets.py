"""Federations on Flower with two classes and with counts: the same as in one process."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

import fedhlcr
from fedhlcr import FedHLCRClassifier, FedHLCRCountRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.flower.engine import NotEnoughNodesError
from fedhlcr.engines.flower.options import RunOptions
from fedhlcr.exceptions import ArgumentError
from fedhlcr.posterior import PublicModel
from tests.flower_grid import LocalNode, assert_same_model, run_app, scores_of, state_of

pytestmark = pytest.mark.usefixtures("clock")

COLUMNS = {"target": "reply", "agent": "agent", "entity": "entity", "features": "a,b", "min-entities": "0"}


def frame_of(target, seed=1):
    table, _ = make_hlcr(n_agents=9, n_features=2, n_clusters=2, target=target, random_state=seed)
    columns = {"agent": table.agent, "entity": table.entity, "reply": table.y}
    return table, pd.DataFrame({"a": table.X[:, 0], "b": table.X[:, 1], **columns})


def nodes_of(folder, frame, **more):
    """Three nodes, each with a file for training that is also its test file."""
    nodes = {}
    for number in range(3):
        path = folder / f"{number}.csv"
        frame[frame["agent"] % 3 == number].to_csv(path, index=False)
        nodes[100 + number] = LocalNode({"data-path": str(path), "test-path": str(path), **COLUMNS, **more})
    return nodes


def test_a_binary_target_is_fitted_as_in_one_process(tmp_path):
    table, frame = frame_of("binary")
    model = run_app(nodes_of(tmp_path, frame), tmp_path, family="binary")
    alone = FedHLCRClassifier(rounds=8, random_state=3)
    alone.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    assert_same_model(model, alone.posterior_)
    assert scores_of(tmp_path)["all"]["r2"] > 0.05
    loaded = fedhlcr.load(tmp_path / "out" / "experiment.model")
    assert loaded.predict_proba(frame[["a", "b"]]).sum(axis=1) == pytest.approx(1.0)


def test_the_positive_class_counts_as_one(tmp_path):
    _, frame = frame_of("binary")
    models = []
    for name, replies, more in (
        ("numbers", frame["reply"], {}),
        ("texts", np.where(frame["reply"] == 1, "yes", "no"), {"positive": "yes"}),
    ):
        folder = tmp_path / name
        folder.mkdir()
        models.append(run_app(nodes_of(folder, frame.assign(reply=replies), **more), folder, family="binary"))
    assert_same_model(*models)


def test_nodes_predict_probabilities(tmp_path):
    table, frame = frame_of("binary")
    nodes = nodes_of(tmp_path, frame)
    run_app(nodes, tmp_path, family="binary")
    public = PublicModel.load(tmp_path / "0.csv.state" / "experiment.model")
    own = table.agent % 3 == 0
    agent, entity = (ids[own].astype(str) for ids in (table.agent, table.entity))
    predicted = state_of(nodes[100]).predict(public, table.X[own], entity, agent=agent).mean
    assert ((predicted > 0) & (predicted < 1)).all()
    assert predicted[table.y[own] == 1].mean() > predicted[table.y[own] == 0].mean() + 0.05


def test_counts_with_exposures_are_fitted_as_in_one_process(tmp_path):
    table, frame = frame_of("count")
    days = np.random.default_rng(0).integers(1, 9, len(frame)).astype(float)
    model = run_app(nodes_of(tmp_path, frame.assign(days=days), exposure="days"), tmp_path, family="count")
    alone = FedHLCRCountRegressor(rounds=8, random_state=3)
    alone.fit(table.X, table.y, agent=table.agent, entity=table.entity, exposure=days)
    assert_same_model(model, alone.posterior_)
    predicted = alone.predict(table.X, table.agent, table.entity, exposure=days)
    assert scores_of(tmp_path)["all"]["n_events"] == len(frame)
    explained = 1 - np.sum((table.y - predicted) ** 2) / np.sum((table.y - table.y.mean()) ** 2)
    assert scores_of(tmp_path)["all"]["r2"] == pytest.approx(explained, abs=0.05)


@pytest.mark.parametrize(
    ("change", "more", "words"),
    [
        ({"reply": "maybe"}, {"positive": "yes"}, "2 classes besides `positive`"),
        ({"reply": ""}, {"positive": "yes"}, "classes are missing"),
        ({"days": 0.0}, {"exposure": "days", "positive": "yes"}, "exposures are zero or negative"),
    ],
)
def test_unusable_columns_are_refused_without_quoting_them(tmp_path, logged, change, more, words):
    _, frame = frame_of("binary")
    frame = frame.assign(days=1.0, reply=np.where(frame["reply"] == 1, "yes", "no"))
    for column, value in change.items():
        frame.loc[frame.index[::7], column] = value
    with pytest.raises(NotEnoughNodesError):
        run_app(nodes_of(tmp_path, frame, **more), tmp_path, family="binary", wait_for_nodes=0.1)
    assert words in logged.text
    assert "maybe" not in logged.text


def test_a_target_that_is_not_binary_is_refused(tmp_path, logged):
    _, frame = frame_of("count")
    with pytest.raises(NotEnoughNodesError, match="does not suit the `family` of the run"):
        run_app(nodes_of(tmp_path, frame), tmp_path, family="binary", wait_for_nodes=0.1)
    assert "needs targets that are 0 or 1" in logged.text


def test_family_and_likelihood_must_agree():
    with pytest.raises(ArgumentError, match=r"`family` must be one of real, binary, count"):
        RunOptions.from_config({"family": "ordinal"})
    with pytest.raises(ArgumentError, match="set only one of them"):
        RunOptions.from_config({"family": "count", "likelihood": "logistic"})
