"""Events that a report draws."""

from __future__ import annotations

import numpy as np

from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.report import HeldOut
from fedhlcr.report.events import drawn_events


def test_events_know_their_prediction_and_their_cluster(model, split):
    test = split[1]
    drawn = drawn_events(model, HeldOut(test.X, test.y, test.agent, test.entity))
    np.testing.assert_allclose(drawn.predicted, model.predict(test.X, agent=test.agent, entity=test.entity))
    np.testing.assert_array_equal(drawn.observed, test.y)
    labels = dict(zip(model.pair_ids_, model.labels_, strict=True))
    expected = [labels[pair] for pair in zip(test.agent.tolist(), test.entity.tolist(), strict=True)]
    np.testing.assert_array_equal(drawn.label, expected)


def test_events_of_new_entities_have_no_cluster(model, split):
    test = split[1]
    entity = np.where(np.arange(len(test)) % 2, test.entity, 10**6)
    drawn = drawn_events(model, HeldOut(test.X, test.y, test.agent, entity))
    np.testing.assert_array_equal(drawn.label == UNKNOWN, entity == 10**6)
