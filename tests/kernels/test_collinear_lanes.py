"""The collapsed samplers' factorisation, where columns are collinear and events many."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.datasets import make_hlcr
from fedhlcr.kernels import labels as kernels
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers import blocked
from tests.problems import entities_from


def evidences(X, targets, weight):
    """Log evidence, up to a constant, of each target given X, with every event `weight` times: a lane for each."""
    n_coef = X.shape[1]
    rows, columns = np.tril_indices(n_coef + 1)
    lanes = []
    for y in targets:
        design = np.column_stack([X, y])
        lanes.append((weight * design.T @ design + np.diag([*np.ones(n_coef), 0.0]))[rows, columns])
    out = np.empty(len(targets))
    work = np.ascontiguousarray(np.transpose(lanes))
    kernels.lane_evidence(work, n_coef, np.empty((n_coef, len(targets))), np.empty(len(targets)), out)
    return out


@pytest.mark.parametrize("weight", [1.0, 1e6, 1e12, 1e15])
def test_collinear_columns_add_nothing_to_the_evidence(weight, rng):
    X = rng.normal(size=(200, 4))
    targets = X @ rng.normal(size=4) + rng.normal(size=(3, 200))
    expected = evidences(X, targets, weight)
    collinear = evidences(np.column_stack([X, X.sum(axis=1), X[:, 0]]), targets, weight)
    np.testing.assert_allclose(np.diff(collinear), np.diff(expected), rtol=1e-6, atol=0.01)


def test_a_cluster_that_lost_its_last_entity_sums_to_nothing():
    """What subtraction leaves, however little, may outweigh the prior: it would be divided by a small variance."""
    table, _ = make_hlcr(30, 4, 5, 3, 3, 0.3, random_state=1)
    entities = entities_from(table.X, 1e3 * table.y, table.agent, table.entity)
    stream = Stream(1)
    state = blocked.initial_state(entities, ModelSpec(target_spread=1e3), 3, stream)
    labels = np.arange(len(entities), dtype=np.int32) % 3
    sums = blocked.sums_of_labels(entities, state.globals, labels, 1, stream)
    part = entities.part({}, 1, stream)
    _, answers, _ = blocked.relabel_agents(entities.likelihood, part, state.globals, labels)
    left = np.where(labels == 2, 1, labels).astype(np.int32)
    counts = np.zeros_like(answers.entities)
    counts[0] = np.bincount(left, minlength=3)
    after = blocked.summed(entities, state.globals, left, answers._replace(entities=counts), labels, sums.blocks)
    assert not after.grams[2].any()
