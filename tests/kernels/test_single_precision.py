"""Labels from scores in single precision are those from scores in double precision, and errors are bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.kernels import labels, scores
from fedhlcr.reference import relabel_agents
from fedhlcr.samplers import blocked
from fedhlcr.samplers.state import label_law
from tests.kernels.test_kernels import blocked_problem
from tests.plain_python import check_without_compiler


def single_problem(scale=1.0, n_clusters=5):
    """The larger the scale, the larger the scores and the errors of single precision."""
    entities, current, old = blocked_problem(n_clusters, 4, 40)
    entities = replace(entities, grams=entities.grams * scale, single=True)
    return entities, replace(current, noise_scale=current.noise_scale * np.sqrt(scale) / min(scale, 30.0)), old


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3, 1e6, 1e42])
def test_labels_equal_the_readable_version(scale):
    entities, current, old = single_problem(scale)
    stream = Stream(2)
    for sweep in range(5):
        law = label_law(entities.likelihood, current, sweep)
        expected, _ = relabel_agents(entities.arrays(stream), law, old)
        part = entities.part({}, sweep, stream)
        found, _, _ = blocked.relabel_agents(entities.likelihood, part, current, old)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n_clusters", [1, 5])
def test_error_of_scores_is_within_its_bound(n_clusters):
    entities, current, _ = single_problem(30.0, n_clusters)
    law = label_law(entities.likelihood, current, 0, single=True)
    found = np.empty((len(entities), len(law.score_rows)))
    scores.score_single(entities.grams, np.arange(len(entities)), len(entities), law.single_rows, found)
    errors = np.abs(found - entities.grams @ law.score_rows.T).max(axis=1)
    largest = scores.largest_trace(law.score_rows)
    bounds = np.array([scores.single_error(gram, largest) for gram in entities.grams])
    assert (errors <= bounds).all()
    assert errors.max() > 1e-3 * bounds.max()


def test_doubt_is_where_another_score_within_the_error_draws_another_label(rng):
    n_sure = 0
    for _ in range(2000):
        logs, prior, uniform, error = (
            rng.normal(size=4),
            rng.uniform(0.1, 2, 4),
            rng.uniform(),
            10 ** rng.uniform(-4, 0),
        )
        weights = prior * np.exp(logs)
        k = labels.pick(weights, uniform * weights.sum())
        if not scores.is_in_doubt(weights, k, uniform, weights.sum(), error):
            n_sure += 1
            for direction in (1.0, -1.0):
                # the worst errors push all clusters before k one way, and the others the other way
                for split in (k, k + 1):
                    moved = weights * np.exp(direction * error * np.where(np.arange(4) < split, 1.0, -1.0))
                    assert labels.pick(moved, uniform * moved.sum()) == k
    assert n_sure > 500


@pytest.mark.slow
@pytest.mark.ci
def test_kernels_without_the_compiler():
    check_without_compiler(__file__, "bound or doubt or readable and 30.0")
