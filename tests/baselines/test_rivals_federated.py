"""What the federated rivals share: rounds one can look at, bytes one can count, settings chosen on events held out."""

import numpy as np
import pytest
from sklearn.metrics import mean_squared_error

from fedhlcr.baselines import FedAvgRegressor, FedEMRegressor, GroupedRidge, IFCARegressor
from fedhlcr.baselines.clustered import _Groups
from fedhlcr.baselines.federated import RandomCohorts
from fedhlcr.baselines.rival import Standardized
from fedhlcr.data.hierarchy import UNKNOWN, build_hierarchy
from fedhlcr.model.gram import GramLayout, Standardization

LINEAR = [
    FedAvgRegressor(20),
    FedAvgRegressor(20, participation=0.3),
    IFCARegressor(2),
    IFCARegressor(2, level="entity", participation=0.3),
    FedEMRegressor(2),
    FedEMRegressor(2, participation=0.3),
]


def two_classes(rng, n_agents=12, n_entities=4, n_events=10):
    """Agents of two classes, far apart."""
    agent = np.repeat(np.arange(n_agents), n_entities * n_events)
    entity = np.tile(np.repeat(np.arange(n_entities), n_events), n_agents)
    X = rng.normal(size=(len(agent), 2))
    coef = np.array([[2.0, -1.0, 1.0], [-2.0, 1.0, 3.0]])[agent % 2]
    return X, coef[:, 0] + (X * coef[:, 1:]).sum(axis=1) + 0.1 * rng.normal(size=len(X)), agent, entity


@pytest.mark.parametrize("rival", LINEAR, ids=str)
def test_stages_end_where_the_rival_ends_and_get_there_by_and_by(rival):
    X, y, agent, entity = two_classes(np.random.default_rng(0))
    rival.fit(X, y, agent=agent, entity=entity)
    stages = list(rival.staged_predict(X, agent=agent, entity=entity))
    assert len(stages) == rival.n_rounds_ == len(rival.bytes_per_round_)
    np.testing.assert_array_equal(stages[-1], rival.predict(X, agent=agent, entity=entity))
    errors = [mean_squared_error(y, stage) for stage in stages]
    assert errors[0] > 1.05 * errors[-1]


@pytest.mark.parametrize("rival", LINEAR, ids=str)
def test_a_seed_gives_the_same_rounds_again(rival):
    X, y, agent, entity = two_classes(np.random.default_rng(1))
    first, second = ([step.model for step in rival.fit(X, y, agent=agent, entity=entity).rounds_] for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a[0], b[0])


def test_bytes_are_those_of_the_numbers_that_travel():
    """12 agents, 2 features: 3 coefficients, 4·5/2 = 10 numbers in a packed Gram matrix, 8 bytes each."""
    X, y, agent, entity = two_classes(np.random.default_rng(2))
    averaging = FedAvgRegressor(4, participation=0.25).fit(X, y, agent=agent, entity=entity)
    np.testing.assert_array_equal(averaging.bytes_per_round_, [3 * (3 + 3 + 1) * 8] * 4)
    soft = FedEMRegressor(2, max_iter=3, participation=0.5).fit(X, y, agent=agent, entity=entity)
    np.testing.assert_array_equal(soft.bytes_per_round_, [12 * 2 * 10 * 8] + [6 * (2 * (3 + 1) + 2 * 10) * 8] * 2)
    # every agent is in one of the two clusters, whatever its start
    hard = IFCARegressor(2, n_init=1).fit(X, y, agent=agent, entity=entity)
    np.testing.assert_array_equal(hard.bytes_per_round_[0], 12 * (1 + 10) * 8)
    np.testing.assert_array_equal(hard.bytes_per_round_[1:], 12 * (2 * 3 + 1 + 10) * 8)
    # with one cluster, all entities of an agent share one matrix
    by_entity = IFCARegressor(1, level="entity", n_init=1).fit(X, y, agent=agent, entity=entity)
    np.testing.assert_array_equal(by_entity.bytes_per_round_, [12 * 11 * 8, 12 * (3 + 11) * 8])


@pytest.mark.parametrize("level", ["agent", "entity"])
def test_ifca_with_some_agents_ends_at_a_fixed_point_of_all(level):
    """It must not take three agents that stay where they are for an end."""
    X, y, agent, entity = two_classes(np.random.default_rng(3), n_agents=30)
    model = IFCARegressor(2, level=level, participation=0.1).fit(X, y, agent=agent, entity=entity)
    assert model.score(X, y, agent=agent, entity=entity) > 0.99
    # 3 of 30 agents: everyone has been asked after 10 rounds at the earliest
    assert 1 + 10 <= model.n_rounds_ < 100
    settled = model.rounds_[-1].model
    np.testing.assert_array_equal(model.rounds_[-2].model.labels, settled.labels)
    np.testing.assert_array_equal(model.rounds_[-10].model.coef, settled.coef)


def test_only_agents_that_are_asked_change_clusters():
    """One agent per round leaves one cluster for another: all others stay to the digit."""
    rng = np.random.default_rng(11)
    X, _, agent, entity = two_classes(rng, n_agents=30)
    y = (X * rng.normal(size=(30, 2))[agent]).sum(axis=1) + rng.normal(size=len(X))
    model = IFCARegressor(6, n_init=1, participation=1 / 30).fit(X, y, agent=agent, entity=entity)
    coef = np.array([step.model.coef for step in model.rounds_])
    n_changed = np.any(np.diff(coef, axis=0) != 0.0, axis=2).sum(axis=1)
    assert set(n_changed) == {0, 2}


def test_an_empty_cluster_keeps_its_regression():
    X, y, agent, entity = two_classes(np.random.default_rng(12), n_agents=3)
    events = build_hierarchy(X, y, np.ones(len(y)), agent, entity)
    groups = _Groups.of(Standardized.of(events, GramLayout(2), Standardization(np.zeros(3), np.ones(3))), "agent", 0.01)
    before = np.full((3, 3), 7.0)
    after = groups.regressions(np.array([0, UNKNOWN, 2]), before)
    np.testing.assert_array_equal(after[1], before[1])
    assert np.all(after[[0, 2]] != 7.0)


def test_averaging_weighs_agents_by_their_events():
    """From nothing, one step of each agent is the step of all events together."""
    rng = np.random.default_rng(13)
    agent = np.repeat([0, 1], [10, 90])
    X = rng.normal(size=(100, 2)) + agent[:, None]
    y = rng.normal(size=100) + agent
    model = FedAvgRegressor(1, local_steps=1).fit(X, y, agent=agent)
    units = model.standardization_
    Z, t = np.column_stack([np.ones(100), units.apply(X)]), (y - units.shift[-1]) / units.scale[-1]
    curvatures = [Z[agent == a].T @ Z[agent == a] / np.sum(agent == a) for a in (0, 1)]
    size = 1.0 / max(np.linalg.eigvalsh(curvature)[-1] for curvature in curvatures)
    np.testing.assert_allclose(model.model_.of_all, size * Z.T @ t / 100, atol=1e-12)


def test_soft_em_judges_its_growth_when_everyone_has_been_asked():
    X, y, agent, entity = two_classes(np.random.default_rng(14))
    model = FedEMRegressor(2, n_init=1, participation=0.25, tol=1e9).fit(X, y, agent=agent, entity=entity)
    rng = np.random.default_rng(0)
    rng.integers(2, size=len(y))  # the classes it starts from
    attendance, n_rounds = RandomCohorts(12, 0.25), 1
    for _ in range(2):
        attendance.restart()
        while not attendance.complete:
            attendance.ask(rng)
            n_rounds += 1
    assert model.n_rounds_ == n_rounds


def test_soft_em_with_some_agents_ends_where_all_agents_end():
    X, y, agent, entity = two_classes(np.random.default_rng(4), n_agents=30)
    some, everyone = (
        FedEMRegressor(2, participation=share, tol=1e-8, max_iter=400).fit(X, y, agent=agent, entity=entity)
        for share in (0.2, 1.0)
    )
    assert some.n_rounds_ > everyone.n_rounds_
    np.testing.assert_allclose(some.predict(X, agent=agent), everyone.predict(X, agent=agent), atol=1e-3 * np.std(y))


def test_attendance_asks_its_share_and_tells_when_all_have_been():
    rng = np.random.default_rng(5)
    attendance = RandomCohorts(20, 0.15)
    seen: set[int] = set()
    for _ in range(200):
        asked = attendance.ask(rng)
        assert len(set(asked)) == 3
        seen |= set(asked.tolist())
        assert attendance.complete == (len(seen) == 20)
    attendance.restart()
    assert not attendance.complete
    assert len(RandomCohorts(3, 0.01).ask(rng)) == 1


def test_a_fifth_of_the_events_of_every_agent_is_held_out_and_nothing_else_is_lost():
    rng = np.random.default_rng(6)
    agent = np.repeat([0, 1, 2], [4, 11, 25])
    entity = rng.integers(9, size=40)
    # the target tells whose an event is
    X, y = rng.normal(size=(40, 2)), 100.0 * agent + entity
    events = build_hierarchy(X, y, np.ones(40), agent, entity)
    data = Standardized.of(events, GramLayout(2), Standardization(np.zeros(3), np.ones(3)))
    train, rows, target = data.hold_out()
    np.testing.assert_array_equal(np.bincount(rows.agents, minlength=3), [0, 2, 5])
    np.testing.assert_allclose(np.sort(np.append(train.target(), target)), np.sort(y))
    of_rows = np.column_stack([rows.design, target])
    rest = GramLayout(2).pack(np.einsum("ni,nj->nij", of_rows, of_rows)).sum(axis=0)
    np.testing.assert_allclose(train.grams.sum(axis=0) + rest, data.grams.sum(axis=0))
    left = 100 * train.index.agent_of + train.index.entity_ids.astype(int)
    known = rows.entities != UNKNOWN
    np.testing.assert_array_equal(left[rows.entities[known]], target[known])
    assert not np.isin(target[~known], left).any()
    assert 0 < known.sum() < len(known)


def test_settings_are_chosen_by_events_held_out():
    X, y, agent, entity = two_classes(np.random.default_rng(7))
    assert FedEMRegressor().fit(X, y, agent=agent, entity=entity).n_classes_ >= 2
    # for agents that are alike, one class is as good as any, and the first that is tried
    same = FedEMRegressor(max_iter=5).fit(X, X @ [1.0, 2.0], agent=agent, entity=entity)
    assert same.score(X, X @ [1.0, 2.0], agent=agent) == pytest.approx(1.0, abs=1e-3)
    # agents that differ in x as well: local steps lead away from the regression of all
    rng = np.random.default_rng(8)
    spread = np.where(agent % 2, 3.0, 1.0)[:, None]
    X = rng.normal(size=(len(agent), 1)) * spread
    y = np.where(agent % 2, -1.0, 2.0) * X[:, 0]
    model = FedAvgRegressor(500, proximal="auto").fit(X, y, agent=agent)
    assert model.local_steps_ == 1
    assert model.score(X, y) == pytest.approx(GroupedRidge("all").fit(X, y).score(X, y), abs=1e-3)


def test_choosing_n_clusters_needs_five_events_of_an_agent():
    X, y, agent, entity = two_classes(np.random.default_rng(10), n_agents=2, n_entities=1, n_events=4)
    with pytest.raises(ValueError, match="No agent has the five events it takes to choose `n_clusters`; give a number"):
        IFCARegressor(penalty=1.0).fit(X, y, agent=agent, entity=entity)
    assert IFCARegressor(2, penalty=1.0).fit(X, y, agent=agent, entity=entity).labels_.shape == (2,)
