"""The kernels of effects equal their readable versions and dense densities; keyed numbers have the right laws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import Blocks
from fedhlcr.kernels import effective, effects, evidence, keyed, lanes
from fedhlcr.kernels.effects import EffectState
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.mixed_globals import EFFECTS, NOISE_SCALARS
from fedhlcr.model.schema import GRAMS, Stage
from fedhlcr.reference import draw_effects, effective_gram
from fedhlcr.samplers import blocked
from tests.effects_problems import LIKELIHOODS, globals_with, random_covariance, random_events
from tests.plain_python import check_without_compiler

K = 3


def drawn_problem(seed, n_features, noise, *, fit_intercept=True, rank=None, agent_effects=True, n_threads=1):
    """Entities, globals and a private state, none of them at rest."""
    rng = np.random.default_rng(seed)
    events = random_events(rng, (9, 1, 17, 3), 4, n_features)
    y = rng.normal(size=(30, 4)) * 2
    entities = events.entities(LIKELIHOODS[noise], y, fit_intercept=fit_intercept, n_threads=n_threads)
    likelihood, n_coef = entities.likelihood, entities.layout.n_coef
    current = globals_with(
        likelihood,
        K,
        coef=rng.normal(size=(K, n_coef)),
        effect_covariance=random_covariance(rng, n_coef, rank),
        agent_effect_scale=rng.uniform(0.2, 1, n_coef) * (np.arange(n_coef) != 1) * agent_effects,
        noise_scale=0.7,
        noise_shape=7.0 if noise == "entity" else np.inf,
        noise_unit=1.3 if noise == "entity" else 0.7,
    )
    variance = rng.uniform(0.2, 1.2, 30) if noise == "entity" else np.ones(30)
    agent_state = {"variance": variance, "agent_effects": rng.normal(size=(4, n_coef)) * agent_effects}
    return events, y, entities, current, agent_state


CASES = [(1, True, None), (1, False, None), (2, True, 2), (3, False, 1), (4, True, 0), (6, True, None), (6, False, 4)]


@pytest.mark.parametrize(("n_features", "fit_intercept", "rank"), CASES)
@pytest.mark.parametrize("agent_effects", [False, True])
def test_scores_are_dense_log_densities(n_features, fit_intercept, rank, agent_effects):
    """log N(y; X(w_k + a), σ²I + XDXᵀ), up to a constant that is the same for all clusters."""
    events, y, entities, current, agent_state = drawn_problem(
        n_features, n_features, "entity", fit_intercept=fit_intercept, rank=rank, agent_effects=agent_effects
    )
    likelihood, design = entities.likelihood, events.design(entities.layout)
    scoring = likelihood.scoring_matrices(entities.part(agent_state, 0, Stream(0)), current)
    scores = scoring @ likelihood.score_rows(current).T
    dense, variance = np.empty_like(scores), agent_state["variance"] * current.noise_unit**2
    for e, x in enumerate(design):
        covariance = variance[e] * np.eye(len(x)) + x @ current.effect_covariance @ x.T
        for k, coef in enumerate(current.coef):
            mean = x @ (coef + agent_state["agent_effects"][events.owner[e]])
            dense[e, k] = stats.multivariate_normal.logpdf(y[e], mean, covariance)
    np.testing.assert_allclose(scores - scores[:, :1], dense - dense[:, :1], rtol=1e-10, atol=1e-10)
    of_entities = {**agent_state, "agent_effects": agent_state["agent_effects"][events.owner]}
    single = likelihood.entity_matrices(entities.grams, current, of_entities)
    np.testing.assert_allclose(single, scoring, rtol=1e-10, atol=1e-10)


def test_effective_matrix_with_a_singular_covariance_of_correlated_effects():
    """Λ of rank 1 with two effects: their correlation is 1."""
    rng, layout = np.random.default_rng(3), GramLayout(2)
    events = random_events(rng, (5,), 4, 2)
    grams, root = events.grams(layout, rng.normal(size=(5, 4))), np.array([[0.8, 0.0], [-0.5, 0.0]])
    likelihood = LIKELIHOODS["entity"](layout)
    current = globals_with(likelihood, 1, effect_covariance=np.diag([1.0, 1.0, 0.0]))
    law, out, log_dets = likelihood.kernel_law(current, 0)._replace(root=root), np.empty_like(grams), np.empty(5)
    effective.effective_grams(grams, np.full(5, 0.5), np.arange(5), 0, 5, law, out, log_dets)
    covariance = np.zeros((3, 3))
    covariance[:2, :2] = root @ root.T
    expected = [effective_gram(layout, gram, 0.5, covariance) for gram in grams]
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)
    dense = [np.eye(4) + x @ covariance @ x.T / 0.5 for x in events.design(layout)]
    np.testing.assert_allclose(log_dets, np.linalg.slogdet(dense)[1], rtol=1e-10)


@pytest.mark.parametrize("noise", LIKELIHOODS)
@pytest.mark.parametrize("stage", [Stage.MERGING, Stage.EXACT])
@pytest.mark.parametrize(("n_features", "fit_intercept", "rank"), CASES)
def test_draws_and_sums_equal_the_readable_version(noise, stage, n_features, fit_intercept, rank):
    _, _, entities, current, agent_state = drawn_problem(5, n_features, noise, fit_intercept=fit_intercept, rank=rank)
    current = globals_with(entities.likelihood, K, **{**vars(current), "stage": float(stage)})
    stream, labels = Stream(2), np.random.default_rng(1).integers(K, size=30).astype(np.int32)
    part = entities.part(agent_state, 11, stream)
    scoring = entities.likelihood.scoring_matrices(part, current)
    concluded = entities.likelihood.conclude(part, current, scoring, labels, labels.astype(np.int64), K)
    unit = current.noise_unit**2
    old = EffectState(agent_state["variance"] * unit, agent_state["agent_effects"], np.empty((0, 0)))
    state, sums = draw_effects(entities.layout, part.entities, current, labels, old, 11)
    for name, expected in (("variance", state.variance / unit), ("agent_effects", state.agent_effects)):
        np.testing.assert_allclose(concluded.state[name], expected, rtol=1e-9, atol=1e-9)
    for name, expected in ((GRAMS, sums.data), (EFFECTS, sums.effects)):
        np.testing.assert_allclose(concluded.blocks[name], expected, rtol=1e-9, atol=1e-9)
    # those that follow are counts of agents and events
    drawn = [*range(evidence.EVENTS), evidence.HAS_EFFECT]
    np.testing.assert_allclose(concluded.scalars[:, drawn], sums.scalars[:, drawn], rtol=1e-9, atol=1e-9)
    squares = slice(len(NOISE_SCALARS), len(NOISE_SCALARS) + entities.layout.n_coef)
    np.testing.assert_allclose(concluded.scalars[:, squares], sums.scalars[:, squares], rtol=1e-9, atol=1e-9)


def test_draws_do_not_depend_on_threads():
    ways = []
    for n_threads in (1, 3):
        *_, entities, current, agent_state = drawn_problem(5, 2, "entity", n_threads=n_threads)
        agents = blocked.AgentStates(np.zeros(30, dtype=np.int32), agent_state)
        ways.append(blocked.relabel(entities, current, agents, 4, Stream(3)))
    (one, sums), (other, other_sums) = ways
    np.testing.assert_array_equal(one.agent_state["variance"], other.agent_state["variance"])
    np.testing.assert_array_equal(one.agent_state["agent_effects"], other.agent_state["agent_effects"])
    np.testing.assert_allclose(sums.grams, other_sums.grams, rtol=1e-12)


def test_draws_of_an_agent_do_not_depend_on_other_agents():
    *_, entities, current, agent_state = drawn_problem(5, 2, "entity")
    labels = np.random.default_rng(1).integers(K, size=30).astype(np.int32)
    ways = []
    for agents in (np.arange(4), np.array([2])):
        part = entities.part(agent_state, 4, Stream(3))._replace(agents=agents)
        part = part._replace(blocks=Blocks((0, len(agents))))
        scoring = entities.likelihood.scoring_matrices(part, current)
        rows = np.where(np.isin(part.owner, agents), labels, -1).astype(np.int64)
        ways.append(entities.likelihood.conclude(part, current, scoring, labels, rows, K).state)
    np.testing.assert_array_equal(ways[0]["variance"][10:27], ways[1]["variance"][10:27])
    np.testing.assert_array_equal(ways[0]["agent_effects"][2], ways[1]["agent_effects"][2])
    # up to a rounding error: they are multiplied by the unit and divided by it
    np.testing.assert_allclose(ways[1]["variance"][:10], agent_state["variance"][:10], rtol=1e-15)


@pytest.mark.parametrize(("n_features", "rank"), [(1, None), (2, None), (6, 3), (6, 0)])
def test_effective_matrices_do_not_depend_on_the_lane(n_features, rank):
    *_, entities, current, agent_state = drawn_problem(5, n_features, "entity", rank=rank)
    law, grams, out = entities.likelihood.kernel_law(current, 0), entities.grams, np.empty_like(entities.grams)
    effective.effective_grams(grams, agent_state["variance"], np.arange(30), 0, 30, law, out, np.empty(0))
    shuffled, other = np.random.default_rng(0).permutation(30), np.empty_like(out)
    for first, last in ((0, 5), (5, 30)):
        effective.effective_grams(grams, agent_state["variance"], shuffled, first, last, law, other, np.empty(0))
    np.testing.assert_array_equal(out, other)


@pytest.mark.slow
@pytest.mark.ci
def test_kernels_without_the_compiler():
    """Draws and sums of the kernels as plain Python, where lanes are rows of arrays."""
    chosen = "equal_the_readable_version and entity and 2-True-2 or singular or lane"
    check_without_compiler(__file__, chosen)


# Keyed random numbers.


def normals_of(keys, size=5, round_number=3, stream=5):
    out = np.empty((len(keys), size))
    for row, key in zip(out, keys, strict=True):
        keyed.keyed_normals(np.uint64(stream), np.uint64(key), round_number, effects.EFFECT, row)
    return out


def test_keyed_normals_are_normal_and_independent():
    draws = normals_of(range(20_000))
    assert all(stats.kstest(column, "norm").pvalue > 1e-4 for column in draws.T)
    for values in (draws, draws**2):
        assert np.abs(np.corrcoef(values.T) - np.eye(5)).max() < 4 / np.sqrt(len(draws))
    other = [
        normals_of(range(20_000), round_number=4),
        normals_of(range(20_000), stream=6),
        normals_of(range(1, 20_001)),
    ]
    assert all(abs((draws * o).mean()) < 4 / np.sqrt(draws.size) for o in other)


def test_keyed_normals_depend_on_their_key_only():
    draws, shuffled = normals_of(range(50)), np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(normals_of(shuffled), draws[shuffled])
    # a shorter draw begins like a longer one
    np.testing.assert_array_equal(normals_of(range(50), 3), draws[:, :3])


@pytest.mark.parametrize("size", [2, 6])
def test_keyed_normals_are_the_same_in_each_lane(size):
    keys = np.arange(7, 7 + lanes.SIDE_BY_SIDE).astype(np.uint64)
    drawn = np.empty((size, len(keys)))
    keyed.keyed_normal_lanes(np.full(len(keys), 5, dtype=np.uint64), keys, 3, effects.EFFECT, drawn)
    np.testing.assert_array_equal(drawn.T, normals_of(keys, size))


def test_unit_circle_is_cosine_and_sine():
    turns = np.concatenate([np.random.default_rng(0).random(5000), np.arange(0.125, 1.0, 0.125), [1e-12, 1 - 1e-12]])
    drawn = np.array([keyed.unit_circle(v) for v in turns])
    expected = np.column_stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)])
    np.testing.assert_allclose(drawn, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("shape", [1.0, 1.5, 3.5, 40.0, 1e4])
def test_keyed_gammas_are_gamma(shape):
    keys = np.arange(20_000, dtype=np.uint64)
    draws = np.array([keyed.keyed_gamma(np.uint64(5), key, 3, effects.NOISE, shape) for key in keys])
    assert stats.kstest(draws, stats.gamma(shape).cdf).pvalue > 1e-4
    assert abs(draws.mean() - shape) < 4 * np.sqrt(shape / len(draws))
    # they are independent of the normals of the same entity
    assert abs(np.corrcoef(draws, normals_of(keys, 1)[:, 0])[0, 1]) < 4 / np.sqrt(len(draws))
