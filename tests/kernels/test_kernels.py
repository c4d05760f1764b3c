"""The kernels equal their readable versions in `fedhlcr.reference`, with the compiler on and off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import logsumexp
from scipy.stats import norm

from fedhlcr._support.streams import Stream
from fedhlcr.datasets import make_hlcr
from fedhlcr.kernels import labels as kernels
from fedhlcr.kernels import mixtures
from fedhlcr.kernels import uniforms as keyed
from fedhlcr.kernels.arguments import EntityArrays
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPrior
from fedhlcr.model.schema import GRAMS
from fedhlcr.reference import LiteralHLCR, blend_agents, relabel_agents
from fedhlcr.samplers import blocked, collapsed
from fedhlcr.samplers.merging import merge_map, merge_state
from fedhlcr.samplers.state import label_law
from tests.federations import FIXED, in_process, run_rounds, server_for
from tests.plain_python import check_without_compiler
from tests.problems import entities_from

# Counter, key → output, from the Random123 distribution's known-answer file.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_known_answers(counter, key, expected):
    words = [np.uint64(word) for word in (*counter, *key)]
    assert tuple(int(word) for word in keyed.philox(*words)) == expected


def test_keyed_uniforms_are_uniform_and_independent():
    keys = np.arange(20_000, dtype=np.uint64)
    draws = np.array([keyed.keyed_uniforms(np.uint64(5), key, 3, np.uint64(0)) for key in keys])
    assert np.abs(draws.mean(axis=0) - 0.5).max() < 4 / np.sqrt(12 * len(keys))
    assert np.abs(np.corrcoef(draws.T) - np.eye(3)).max() < 4 / np.sqrt(len(keys))
    assert draws.min() > 0
    assert draws.max() < 1


def blocked_problem(n_clusters=5, seed=2, entities_per_agent=7):
    table, _ = make_hlcr(12, entities_per_agent, 3, 2, n_clusters, 0.8, random_state=seed)
    entities = entities_from(table.X, table.y, table.agent, table.entity)
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(n_clusters))
    start = entities.likelihood.start(ModelSpec(noise_scale=0.8, agent_concentration=0.9), n_clusters)
    current = replace(start, coef=rng.normal(size=(n_clusters, 3)), log_weights=np.log(weights))
    labels = rng.integers(n_clusters, size=len(entities)).astype(np.int32)
    return entities, current, labels


@pytest.mark.parametrize("n_clusters", [1, 2, 5, 9])
@pytest.mark.parametrize("entities_per_agent", [1, 7, 150])
def test_relabel_equals_readable_version(n_clusters, entities_per_agent):
    entities, current, labels = blocked_problem(n_clusters, 3, entities_per_agent)
    stream = Stream(4, 1)
    labels[:2] = -1
    law = label_law(entities.likelihood, current, 6)
    expected_labels, expected = relabel_agents(entities.arrays(stream), law, labels)
    old = np.zeros((n_clusters, entities.layout.packed_size))
    np.add.at(old, labels[labels >= 0], entities.grams[labels >= 0])
    agents, sums = blocked.relabel(entities, current, blocked.AgentStates(labels, {}), 6, stream, {GRAMS: old})
    np.testing.assert_array_equal(agents.labels, expected_labels)
    np.testing.assert_array_equal(sums.entity_counts, expected.entity_counts)
    np.testing.assert_array_equal(sums.table_counts, expected.table_counts)
    np.testing.assert_allclose(sums.grams, expected.grams, rtol=1e-10, atol=1e-10)
    found, wanted = sums.scalars, expected.scalars
    assert found["log_beta_draws"] == pytest.approx(wanted["log_beta_draws"])
    assert found["bernoulli_draws"] == wanted["bernoulli_draws"]
    assert found["log_label_prior"] == pytest.approx(wanted["log_label_prior"])
    assert found["labels_changed"] == wanted["labels_changed"]


@pytest.mark.parametrize("seed", [0, 1, 11])
def test_relabel_equals_readable_version_in_a_chain_that_merges(seed):
    """A compiler that errs now and then is found out (numba 0.59.1 was)."""
    table, _ = make_hlcr(40, 4, 6, 3, 3, 0.3, random_state=seed)
    entities = entities_from(table.X, table.y, table.agent, table.entity)
    spec, stream = ModelSpec(target_spread=float(table.y.std())), Stream(seed)
    state = blocked.initial_state(entities, spec, 40, stream)
    for _ in range(45):
        before, state = state, blocked.step(entities, spec, state, stream)
        law = label_law(entities.likelihood, state.globals, state.round)
        labels, sums = relabel_agents(entities.arrays(stream), law, before.labels)
        np.testing.assert_array_equal(state.labels, labels)
        np.testing.assert_allclose(state.sums.grams, sums.grams, atol=1e-6)
        if state.round > 15:
            target = merge_map(entities.likelihood, state.sums, state.globals, None)
            state = merge_state(entities.likelihood, state, target)
    assert state.globals.n_clusters < 10


def check_blend(n_clusters):
    """Round after round of the rule itself: its law, the agents' kernel and its blending."""
    table, _ = make_hlcr(12, 5, 3, 2, 3, 0.8, random_state=2)
    engine = in_process(table)
    server = server_for(2, seed=5, rule="blend", n_clusters=n_clusters, learning_rate=0.4, patience=None, **FIXED)
    run_rounds(server, engine, 1)
    everyone, rule, layout = engine.everyone, server.rule, server.settings.layout
    blended = np.zeros((n_clusters, layout.packed_size)), np.zeros(n_clusters)
    labels = everyone.pending.copy()
    for _ in range(8):
        arrays = EntityArrays(
            everyone.grams, everyone.agent_start, everyone.entity_keys, Stream(5).agent_streams(everyone.agent_keys)
        )
        before = rule._blended
        run_rounds(server, engine, 1)
        labels = blend_agents(layout, arrays, before, rule._current, labels, server.round - 1)
        np.testing.assert_array_equal(everyone.pending, labels)
        sums = np.zeros((n_clusters, layout.packed_size))
        np.add.at(sums, labels, everyone.grams)
        counts = np.bincount(labels, minlength=n_clusters)
        blended = 0.6 * blended[0] + 0.4 * sums, 0.6 * blended[1] + 0.4 * counts
        np.testing.assert_allclose(rule._blended.grams, blended[0], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(rule._blended.entity_counts, blended[1], rtol=1e-12)


@pytest.mark.parametrize("n_clusters", [1, 3, 6])
def test_blend_equals_readable_version(n_clusters):
    check_blend(n_clusters)


def test_sums_of_labels_equal_sums_of_the_sweep():
    entities, current, _ = blocked_problem()
    stream = Stream(8)
    agents, sums = blocked.relabel(entities, current, blocked.AgentStates.unlabelled(entities), 2, stream)
    again = blocked.sums_of_labels(entities, current, agents.labels, 2, stream)
    np.testing.assert_allclose(again.grams, sums.grams, rtol=1e-12)
    np.testing.assert_array_equal(again.table_counts, sums.table_counts)
    assert again.scalars["log_label_prior"] == pytest.approx(sums.scalars["log_label_prior"])


def test_score_does_not_depend_on_position():
    entities, current, _ = blocked_problem(7)
    rows = label_law(entities.likelihood, current, 0).score_rows
    whole = np.empty((len(entities), len(rows)))
    kernels.score_chunk(entities.grams, 0, len(entities), rows, whole)
    for first, last in ((3, 4), (5, 11), (1, len(entities))):
        part = np.empty((last - first, len(rows)))
        kernels.score_chunk(entities.grams, first, last, rows, part)
        np.testing.assert_array_equal(part, whole[first:last])


def test_exponentiate_approximates_exp():
    scores = np.array([[0.0, -1e-3, -5.0, -40.0], [-2000.0, -2003.0, -2000.5, -4000.0]])
    expected = np.exp(scores - scores.max(axis=1, keepdims=True))
    kernels.exponentiate(scores, 2, np.ones(4))
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-300)


def test_impossible_clusters_do_not_set_the_maximum():
    scores = np.array([[5000.0, 1.0, 0.0, 0.0]])
    kernels.exponentiate(scores, 1, np.array([0.0, 1.0, 1.0]))
    np.testing.assert_allclose(scores[0, 1:3], [1.0, np.exp(-1.0)], rtol=1e-12)


def test_collapsed_sweep_equals_literal_algorithm_2():
    table, truth = make_hlcr(8, 4, 4, 2, 3, 0.6, random_state=5)
    entities = entities_from(table.X, table.y, table.agent, table.entity)
    spec = ModelSpec(noise_scale=0.6, coef_scale=1.2, global_concentration=2.0, agent_concentration=0.7)
    stream = Stream(2)
    state = blocked.state_from_labels(entities, spec, truth.labels[::-1], 3, stream)
    starts = np.searchsorted(table.agent * 1000 + table.entity, np.unique(table.agent * 1000 + table.entity))
    design = np.column_stack([np.ones(len(table)), table.X])
    literal = LiteralHLCR(
        np.split(design, starts[1:]),
        np.split(table.y, starts[1:]),
        entities.index.agent_of,
        state.labels.copy(),
        3,
        0.6,
        CoefPrior(np.zeros(3), np.full(3, 1.2)),
        2.0,
        0.7,
    )
    arrays = entities.arrays(stream)
    for round_number in range(1, 4):
        streams = arrays.agent_streams[entities.index.agent_of]
        uniforms = np.array(
            [
                keyed.keyed_uniforms(own, key, round_number, np.uint64(0))[0]
                for own, key in zip(streams, arrays.entity_keys, strict=True)
            ]
        )
        literal.sweep(uniforms)
        state = collapsed.step(entities, spec, state, stream, label_prior="paper")
        np.testing.assert_array_equal(state.labels, literal.labels)


def test_mixture_moments_and_quantiles(rng):
    coef, scales = rng.normal(size=(6, 2)), rng.uniform(0.1, 2, 6)
    weights = rng.dirichlet(np.ones(6), size=3)
    weights[0, 2:] = 0.0
    weights /= weights.sum(axis=1, keepdims=True)
    design, profile, row_start = rng.normal(size=(5, 2)), np.array([0, 0, 1, 2, 2]), np.array([0, 2, 3, 5])
    levels = np.array([0.001, 0.05, 0.5, 0.95])
    mean, std, quantiles = np.empty(5), np.empty(5), np.empty((5, 4))
    mixture = mixtures.Mixture(weights, coef, scales)
    mixtures.mixture_rows(mixture, design, row_start, levels, norm.ppf(levels), mean, std, quantiles, 0, 3)
    means = np.empty(5)
    mixtures.mean_rows(mixture, design, row_start, means, 0, 3)
    np.testing.assert_allclose(means, mean, rtol=1e-12)
    for r in range(5):
        w, centre = weights[profile[r]], coef @ design[r]
        assert mean[r] == pytest.approx(w @ centre)
        assert std[r] ** 2 == pytest.approx(w @ (scales**2 + centre**2) - (w @ centre) ** 2)
        for q, level in enumerate(levels):
            exact = brentq(lambda x, w=w, c=centre, p=level: w @ norm.cdf(x, c, scales) - p, -50, 50, xtol=1e-13)
            assert quantiles[r, q] == pytest.approx(exact, abs=1e-10)


def test_log_density_of_mixtures(rng):
    coef, scales = rng.normal(size=(6, 2)), rng.uniform(0.1, 2, 6)
    weights = rng.dirichlet(np.full(6, 0.3), size=3)
    weights[0, 2:] = 0.0
    # all there is to explain a target far out, however little its weight
    weights[1, 3], coef[3], scales[3] = 1e-250, 100.0, 0.5
    design, profile, row_start = rng.normal(size=(6, 2)), np.array([0, 0, 1, 1, 2, 2]), np.array([0, 2, 4, 6])
    target = rng.normal(size=6)
    target[[2, 4, 1]] = coef[3] @ design[2], 1e4, 1e200
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    out = np.empty(6)
    peaks = log_weights - np.log(scales) - 0.5 * np.log(2 * np.pi)
    mixtures.log_density_rows(peaks, coef, scales, design, row_start, target, out, 0, 3)
    usual = [0, 2, 3, 4, 5]
    expected = [logsumexp(log_weights[profile[r]] + norm.logpdf(target[r], coef @ design[r], scales)) for r in usual]
    np.testing.assert_allclose(out[usual], expected, rtol=1e-12)
    assert -np.inf < out[1] < -1e298


@pytest.mark.slow
@pytest.mark.ci
def test_kernels_without_the_compiler():
    """The same tests on the kernels as plain Python."""
    chosen = "relabel_equals and 1-2 or exponentiate or philox_known or place or literally or quantiles or log_density"
    check_without_compiler(__file__, chosen)
