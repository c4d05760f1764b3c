"""Scores of events that come in batches are those of all events at once."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr.analysis.class_scores import ClassScores
from fedhlcr.analysis.count_scores import CountScores
from fedhlcr.analysis.evaluation import Scores
from fedhlcr.analysis.running_scores import EVERYBODY, AgentGroups, running_scores
from fedhlcr.data.hierarchy import index_pairs
from fedhlcr.data.ids import read_ids
from fedhlcr.posterior.predictive import Moments

N = 500


def events(kind, far):
    """Outcomes and predictions, of agents that may differ far more from each other than their events do."""
    rng = np.random.default_rng(4)
    groups = rng.integers(0, 7, N)
    centre = rng.normal(size=7)[groups] * far
    if kind == "real":
        y, mean = centre + rng.normal(size=N), centre
    elif kind == "count":
        mean = np.exp(rng.normal(size=N))
        y = rng.poisson(mean).astype(np.float64)
    else:
        mean = rng.uniform(size=N).round(2)
        y = (rng.uniform(size=N) < mean).astype(np.float64)
    return groups, y, Moments(mean, np.ones(N), np.column_stack([mean - 1.0, mean + 1.5]))


def at_once(kind, y, predicted):
    if kind == "binary":
        return ClassScores.of(y, predicted.mean)
    if kind == "count":
        return CountScores.of(y, predicted.mean, *predicted.quantiles.T, 0.8)
    return Scores.of(y, predicted, 0.8)


@pytest.mark.parametrize("far", [1.0, 1e4])
@pytest.mark.parametrize("kind", ["real", "binary", "count"])
def test_batches_have_the_scores_of_all_events(kind, far):
    groups, y, predicted = events(kind, far)
    running = running_scores(kind, 0.8)
    for rows in np.array_split(np.arange(N), 9):
        running.add(groups[rows], y[rows], Moments(*(part[rows] for part in predicted)))
    # around their common mean the events of far groups have few digits left
    tolerance = 1e-9 if far == 1.0 else 1e-7
    np.testing.assert_allclose(running.overall(), at_once(kind, y, predicted), rtol=tolerance)
    for group in range(7):
        own = groups == group
        expected = at_once(kind, y[own], Moments(*(part[own] for part in predicted)))
        np.testing.assert_allclose(running.of_group(group), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["real", "count"])
def test_constant_targets_explain_nothing(kind):
    running = running_scores(kind, 0.9)
    constant = Moments(np.full(3, 2.5), np.ones(3), np.column_stack([np.full(3, 1.0), np.full(3, 3.0)]))
    running.add(np.array([0, 0, 1]), np.full(3, 2.0), constant)
    assert np.isnan(running.overall()[1 if kind == "real" else 2])
    assert running.overall().coverage == 1.0


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
