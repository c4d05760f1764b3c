"""The samplers leave the exact posterior invariant; mutants do not."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers import blocked, collapsed
from tests.enumeration import exact_posterior, labeling_index
from tests.mutants import mutant
from tests.problems import entities_from, tiny_table

ALPHA, BETA, SIGMA, DELTA = 1.0, 0.7, 1.0, 1.0
SPEC = ModelSpec(noise_scale=SIGMA, coef_scale=DELTA, global_concentration=ALPHA, agent_concentration=BETA)
SAMPLERS = {
    "blocked": blocked.step,
    "collapsed": collapsed.step,
    "collapsed, the paper's prior": partial(collapsed.step, label_prior="paper"),
}


def problem():
    return entities_from(*tiny_table(4, sizes=(3, 2, 1)))


def folded(values):
    """Sum what swapping the two clusters makes equal: the state space of partitions."""
    return values[: len(values) // 2] + values[::-1][: len(values) // 2]


def distance_to(exact, visits, seed=1):
    """Distance of visits of labelings from the exact posterior over partitions, and of as many independent draws."""
    exact, n_visits = folded(exact), int(visits.sum())
    distance = 0.5 * np.abs(folded(visits) / n_visits - exact).sum()
    draws = np.random.default_rng(seed).multinomial(n_visits, exact, size=200) / n_visits
    return distance, 0.5 * np.abs(draws - exact).sum(axis=1).mean()


def total_variation(entities, step, n_sweeps, seed=1):
    """Distance of a long run of two clusters from the exact posterior, and of as many independent draws."""
    _, exact = exact_posterior(entities, 2, SIGMA, DELTA, ALPHA, BETA)
    stream = Stream(seed)
    state = blocked.initial_state(entities, SPEC, 2, stream)
    visits = np.zeros(len(exact))
    for _ in range(n_sweeps):
        state = step(entities, SPEC, state, stream)
        visits[labeling_index(state.labels, 2)] += 1
    return distance_to(exact, visits, seed)


@pytest.mark.parametrize("sampler", ["blocked", pytest.param("collapsed", marks=(pytest.mark.slow, pytest.mark.ci))])
def test_exact_samplers_reach_the_exact_posterior(sampler):
    distance, floor = total_variation(problem(), SAMPLERS[sampler], 10_000)
    assert distance < 2 * floor


@pytest.mark.slow
def test_paper_prior_is_not_exact():
    distance, floor = total_variation(problem(), SAMPLERS["collapsed, the paper's prior"], 6_000)
    assert distance > 3 * floor


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sampler", "n_sweeps"),
    [
        pytest.param("only the first opens a table", "blocked", 15_000, marks=pytest.mark.ci),
        # for the collapsed sampler, the paper's prior above is the quick example of what is not exact
        ("own data not removed", "collapsed", 20_000),
        ("own label kept in the collapsed sweep", "collapsed", 20_000),
        pytest.param("own label not removed", "blocked", 20_000, marks=pytest.mark.ci),
        ("counts of the wrong agent", "blocked", 20_000),
    ],
)
def test_mutants_are_caught(name, sampler, n_sweeps, tmp_path):
    with mutant(name, tmp_path):
        distance, floor = total_variation(problem(), SAMPLERS[sampler], n_sweeps)
    assert distance > 3 * floor


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["blocked", "collapsed"])
@pytest.mark.parametrize("seed", [5, 6])
def test_exact_samplers_on_more_data_sets_and_longer_runs(sampler, seed):
    entities = entities_from(*tiny_table(seed, sizes=(2, 2, 2), n_events=3))
    distance, floor = total_variation(entities, SAMPLERS[sampler], 100_000, seed)
    assert distance < 2 * floor
