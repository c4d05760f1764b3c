"""Records that travel between server and nodes: their round trips, and forged ones."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.app import Message

from fedhlcr.engines.flower.records import Answers, NodeScore, RecordError, RequestType, RoundRequest
from fedhlcr.federation.messages import Contribution
from tests.flower_grid import LocalNode, run_app, through_bytes

pytestmark = pytest.mark.usefixtures("clock")


def test_scores_add_up():
    y, predicted = np.random.default_rng(0).normal(size=(2, 50)) + 1e6
    parts = [slice(0, 1), slice(1, 20), slice(20, 50)]

    def score(rows):
        mean = y[rows].mean()
        return NodeScore(len(y[rows]), mean, ((y[rows] - mean) ** 2).sum(), ((y[rows] - predicted[rows]) ** 2).sum())

    total = score(parts[0]) + score(parts[1]) + score(parts[2])
    np.testing.assert_allclose(list(vars(total).values()), list(vars(score(slice(0, 50))).values()), rtol=1e-9)


def test_answers_round_trip_through_flower():
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    for contributions in ([], [b""], [b"a\0b", b"c"]):
        message = Message(Answers(contributions).to_content(), 7, str(RequestType.ROUND))
        assert Answers.from_content(through_bytes(message).content).contributions == contributions


@pytest.mark.parametrize(("agents", "acknowledged"), [(["a", "a"], [1, 1]), (["a", "b"], [1]), (["a"], [1, 2])])
def test_round_request_needs_one_round_for_each_agent(agents, acknowledged):
    with pytest.raises(RecordError, match="names an agent twice, or does not have one acknowledged round"):
        RoundRequest.from_content(RoundRequest(b"", agents, acknowledged).to_content())


NOTHING = np.empty(0, dtype=np.int32)


NOBODYS = Contribution(0, 0, 0, "", NOTHING, NOTHING, {"grams": np.empty((0, 0))}, np.empty(0), np.empty(0))


class Forged(LocalNode):
    """Answers as it should, but for one record."""

    def __init__(self, honest, record, forgery):
        super().__init__(honest.config)
        self._record, self._forgery = record, forgery

    def handle(self, node_id, message):
        reply = super().handle(node_id, message)
        if self._record in reply.content.config_records:
            reply.content.config_records[self._record].update(self._forgery)
        return reply


@pytest.mark.parametrize(
    ("record", "forgery"),
    [
        ("Presence", {"agents": 5}),
        ("Presence", {"agents": [1, 2]}),
        ("Presence", {"features": 5}),
        ("Presence", {"version": 1.0}),
        ("Presence", {"surplus": 1}),
        ("Answers", {"contributions": 5}),
        ("Answers", {"contributions": ["text"]}),
        ("Answers", {"contributions": [replace(NOBODYS, agent=["a"]).to_bytes()]}),
        ("Score", {"n_events": -5}),
        ("Score", {"mean": float("nan")}),
        ("Score", {"spread": "wide"}),
        ("Score", {"mean": 1e200}),
        ("Presence", {"features": []}),
        ("Presence", {"features": ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x6"]}),
        ("Presence", {"features": ["x0\n\x1b[31m"]}),
    ],
)
def test_forged_record_excludes_its_node_only(record, forgery, nodes, table, tmp_path, logged):
    nodes[102] = Forged(nodes[102], record, forgery)
    model = run_app(nodes, tmp_path)
    assert model.draws.n_clusters
    # contributions in nobody's name are left out, and that is all
    harmless = isinstance(forgery.get("contributions"), list) and isinstance(forgery["contributions"][0], bytes)
    assert harmless or "node 102 does not take part now: RecordError" in logged.text
