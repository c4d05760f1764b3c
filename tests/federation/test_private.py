"""Federations under differential privacy: what agents send, what the server makes of it, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedhlcr
from fedhlcr import DifferentialPrivacy, FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import ArgumentError, FederationError
from fedhlcr.federation.private import units
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.run import AgentsHere, SecureTotals, plain_total, run_private
from fedhlcr.federation.private.scores import ClusterRows, RoundQuery, agent_blocks, pack_symmetric, unpack_symmetric
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.release import UNIT, agent_vectors
from tests.federations import hierarchy_of

N_FEATURES, N_AGENTS = 2, 80


def rounded_normal(seed: int):
    """A fast source of noise for tests: normal draws from a seed, which a run must never use."""
    rng = np.random.default_rng(seed)
    return lambda scale, size: np.rint(rng.normal(size=size) * scale).astype(np.int64)


def no_noise(_: float, size: int) -> np.ndarray:
    return np.zeros(size, dtype=np.int64)


@pytest.fixture(scope="module")
def table():
    return make_hlcr(n_agents=N_AGENTS, n_clusters=2, n_features=N_FEATURES, random_state=3)[0]


def make_run(table, *, epsilon=200.0, rounds=12, **more):
    hierarchy = hierarchy_of(table)
    privacy = DifferentialPrivacy(epsilon, rounds=rounds)
    settings_of_run = FederationSettings(GramLayout(table.X.shape[1]), privacy=privacy, n_clusters=2, **more)
    agents = PrivateAgents(AgentShard.from_hierarchy(hierarchy), secret=1)
    return PrivateServer(settings_of_run, privacy.plan(len(agents.names)), agents.names), agents


def answers(table, source, *, n_queries, seed=0):
    """Queries of a run with the agents' vectors for each."""
    server, agents = make_run(table, seed=seed)
    everyone = np.arange(len(agents.names))
    for _ in range(n_queries):
        query = server.query()
        pages = list(agents.answer(query, everyone))
        yield query, np.concatenate([vectors for _, vectors in pages])
        server.accept(plain_total(query, pages, source), everyone)


def test_every_answer_is_within_the_clips(table):
    """In every query, each block of each agent has at most norm 1: what the accounting assumes."""
    stages = []
    for query, vectors in answers(table, rounded_normal(0), n_queries=10):
        stages.append(query.stage)
        start = 0
        for block in query.blocks:
            part = vectors[:, start : start + block.size].astype(np.float64) / UNIT
            assert np.linalg.norm(part, axis=1).max() <= 1.0
            start += block.size
        assert start == vectors.shape[1]
    assert stages == ["votes", "locations", "spreads", "moments"] + 6 * ["round"]


@given(st.integers(0, 10_000), st.floats(1e-6, 1e12))
@settings(deadline=None, max_examples=40)
def test_blocks_of_any_agent_are_clipped(seed, size):
    """Agents of any size, under any broadcast."""
    rng, layout, n_clusters = np.random.default_rng(seed), GramLayout(2), 3
    rows = rng.normal(size=(4, 5, layout.width)) * size
    rows[:, :, 0] = 1.0
    grams = layout.pack(np.einsum("rnf,rng->rfg", rows, rows))
    stack = ClusterRows(grams, np.array([0, 0, 1, 1]), np.array([0, 2, 1, 2]), 2)
    moments = np.tile(np.eye(3), (n_clusters, 1, 1))
    query = RoundQuery(rng.normal(size=(n_clusters, 3)), 0.1, np.eye(3), moments, 8.0, 10.0)
    blocks = query.blocks(DifferentialPrivacy(3).plan(10))
    values = agent_blocks(stack, layout, query)
    assert [block.shape[1] for block in values] == [block.size for block in blocks]
    vectors, start = agent_vectors(values) / UNIT, 0
    for block in blocks:
        assert (np.linalg.norm(vectors[:, start : start + block.size], axis=1) <= 1.0).all()
        start += block.size


def test_scores_are_those_of_the_regressions():
    """Against plain matrices of the events."""
    rng, layout = np.random.default_rng(0), GramLayout(2)
    X = np.column_stack([np.ones(6), rng.normal(size=(6, 2))])
    y = rng.normal(size=6)
    events = np.column_stack([X, y])
    coef = rng.normal(size=(2, 3))
    whitening = np.diag([1.0, 2.0, 0.5])
    query = RoundQuery(coef, 0.7, whitening, np.tile(np.eye(3), (2, 1, 1)), 6.0, 100.0)
    rows = ClusterRows(layout.pack(events.T @ events)[None], np.array([0]), np.array([1]), 1)
    scores, sizes, residuals = agent_blocks(rows, layout, query)
    residual = y - X @ coef[1]
    expected = (X @ whitening).T @ residual / (0.7 * query.score_clip)
    np.testing.assert_allclose(scores[0], [0.0, 0.0, 0.0, *expected], atol=1e-12)
    assert residuals[0, 0] == pytest.approx(((residual**2).sum() / 0.49 - 6) / query.residual_clip)
    assert sizes[0, 0] == 0.0
    assert sizes[0, sizes.shape[1] // 2] > 0.0


def test_packed_symmetric_matrices_have_the_norm_of_the_full_ones():
    full = np.array([[1.0, 2.0], [2.0, 5.0]])
    packed = pack_symmetric(full)
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(full))
    np.testing.assert_allclose(unpack_symmetric(packed, 2), full)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (2020.0, 3.0), (-1e6, 1e3), (0.0, 1e-9), (1e-3, 1e-6)])
def test_units_are_found_wherever_columns_lie(table, shift, scale):
    moved = replace(table, X=table.X * scale + shift, y=table.y * scale - shift)
    server, agents = make_run(moved, epsilon=30.0)
    everyone = np.arange(len(agents.names))
    for _ in range(4):
        query = server.query()
        server.accept(plain_total(query, agents.answer(query, everyone), rounded_normal(1)), everyone)
    found = server.query().units
    columns = np.column_stack([moved.X, moved.y])
    np.testing.assert_allclose((found.shift - columns.mean(axis=0)) / columns.std(axis=0), 0.0, atol=0.5)
    np.testing.assert_allclose(found.scale / columns.std(axis=0), 1.0, atol=0.5)


def test_votes_have_the_same_norm_whatever_the_data():
    own = units.AgentMoments(np.array([3.0, 1e6]), np.array([[0.0, -5.0], [1e200, 1e-200]]), np.zeros((2, 6)))
    np.testing.assert_allclose(np.linalg.norm(units.votes(own), axis=1), 1.0)


def test_private_model_predicts_like_one_without_noise(table):
    """At a weak budget. The number of rounds is that of the plan, and the plan is kept."""
    server, agents = make_run(table)
    run_private(server, AgentsHere(agents, lambda query, pages: plain_total(query, pages, rounded_normal(2))))
    assert server.round == 12
    assert server.stop_reason == "all 12 rounds of the privacy plan are done"
    model = server.model()
    assert len(model.draws) == 2 * 5


def test_runs_differ_although_the_seed_is_the_same(table, capsys):
    """The noise comes from the operating system, never from the seed."""
    fits = [fitted(table, 5.0, rounds=3, random_state=0) for _ in range(2)]
    assert not np.isclose(fits[0].noise_scale_, fits[1].noise_scale_, rtol=1e-9)
    assert "epsilon = 5" in capsys.readouterr().err


def fitted(table, epsilon, *, rounds=12, n_clusters=2, **more):
    model = FedHLCRRegressor(n_clusters, privacy=DifferentialPrivacy(epsilon, rounds=rounds), **more)
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


def test_fit_save_load(table, tmp_path):
    model = fitted(table, 300.0)
    r2 = model.score(table.X, table.y, agent=table.agent, entity=table.entity)
    free = FedHLCRRegressor(2, effects="none", noise="common", rounds=30)
    free.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    assert r2 > free.score(table.X, table.y, agent=table.agent, entity=table.entity) - 0.02
    assert model.privacy_.epsilon == pytest.approx(300.0)
    assert "epsilon 300" in str(model.summary())
    for public in (False, True):
        model.save(tmp_path / "m.fedhlcr", public=public)
        again = fedhlcr.load(tmp_path / "m.fedhlcr")
        assert again.privacy_ == model.privacy_
        assert again.privacy == model.privacy
    assert model.comparison_ is None
    assert len(model.history_) == 1 + 12


def test_public_attributes_follow_from_noisy_sums(table):
    """Exact means of columns would be a release that the plan does not count."""
    model = fitted(table, 20.0, rounds=3)
    assert (np.abs(model.feature_means_ - table.X.mean(axis=0)) > 1e-6).all()
    assert (np.abs(model.feature_spreads_ - table.X.std(axis=0)) > 1e-6).all()


def test_absent_agents_are_missing_in_sums_only(table):
    model = fitted(table, 300.0, failure_rate=0.3)
    assert (model.history_["n_accepted"][1:] < N_AGENTS).all()
    assert model.privacy_.n_agents == N_AGENTS


@pytest.mark.slow
def test_secure_total_has_at_least_the_noise_of_the_plan(table):
    """Every agent adds a share; the sum is that of the plain run, with noise that is not smaller."""
    server, agents = make_run(table, aggregation="secure")
    query = server.query()
    everyone = np.arange(len(agents.names))
    exact = plain_total(query, agents.answer(query, everyone), no_noise)
    secure = SecureTotals(agents.names, 5)
    noisy = secure(query, agents.answer(query, everyone))
    scale = (noisy - exact).std() / query.blocks[0].lattice_scale
    # a fifth of the agents may drop out, so with all of them the noise is √1.25 times as large
    assert 1.0 < scale < 1.25
    few = everyone[: N_AGENTS // 2]
    assert secure(query, agents.answer(query, few)) is None


def test_secure_run_ends_if_too_few_agents_remain(table):
    server, agents = make_run(table, aggregation="secure")
    with pytest.raises(FederationError, match="80%"):
        run_private(server, AgentsHere.of(server, agents, failure_rate=0.9))


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"rule": "blend"}, "rule"),
        ({"participation": 0.5}, "participation"),
        ({"rounds": 30}, "rounds"),
        ({"effects": "entity"}, "effects"),
        ({"noise": "student"}, "noise"),
        ({"curves": "auto"}, "curves"),
        ({"noise_scale": 1.0}, "noise_scale"),
        ({"checkpoint": "file"}, "checkpoint"),
        ({"engine": print}, "engine"),
    ],
)
def test_private_fit_refuses(table, wrong, name):
    model = FedHLCRRegressor(2, privacy=DifferentialPrivacy(3), **wrong)
    with pytest.raises(ArgumentError, match=f"`{name}`|`privacy` needs {name}"):
        model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


def test_private_fit_refuses_a_likelihood(table):
    model = FedHLCRRegressor(2, privacy=DifferentialPrivacy(3), likelihood="mixed")
    with pytest.warns(FutureWarning), pytest.raises(ArgumentError, match=r"`likelihood`|`privacy` needs likelihood"):
        model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


def test_private_fit_refuses_validation(table):
    model = FedHLCRRegressor(privacy=DifferentialPrivacy(3))
    with pytest.raises(ArgumentError, match="validation"):
        model.fit(table.X, table.y, table.agent, table.entity, validation=(table.X, table.y))
