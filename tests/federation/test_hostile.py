"""Broken and hostile replies are refused with a reason that contains no values, and the round goes on."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

import numpy as np
import pytest

from fedhlcr import NEW, FedHLCRRegressor, hold_out_events
from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.messages import Broadcast, Contribution
from fedhlcr.federation.run import run_round
from fedhlcr.model.gram import GramLayout
from fedhlcr.storage import codec
from tests.federations import (
    FIXED,
    OneByOneEngine,
    agents_of,
    grams_of,
    in_process,
    run_rounds,
    server_for,
    with_grams,
)
from tests.problems import PAPER

# other tests may have left threads that log
OPEN_ROUND = "fedhlcr.federation.open_round"


def record_of(contribution):
    """The fields of a contribution, as they are written."""
    return codec.decode(contribution.to_bytes(), "contribution", 1)


def changed(name, change):
    """A contribution with one array changed in place."""

    def spoil(contribution):
        is_block = name in contribution.blocks
        array = (contribution.blocks[name] if is_block else getattr(contribution, name)).copy()
        change(array)
        changes = {"blocks": {**contribution.blocks, name: array}} if is_block else {name: array}
        return replace(contribution, **changes)

    return spoil


def put(place, value):
    def change(array):
        array[place] = value

    return change


def occupied(contribution):
    return int(np.argmax(contribution.entity_counts))


def counted(name, value):
    """A contribution with another count of a cluster it has entities in."""

    def spoil(contribution):
        return changed(name, put(occupied(contribution), value))(contribution)

    return spoil


def scaled(factor):
    def spoil(contribution):
        counts = (contribution.entity_counts * min(factor, 1e3)).astype(np.int32)
        return with_grams(contribution, grams_of(contribution) * factor, entity_counts=counts)

    return spoil


def indefinite(contribution):
    grams = grams_of(contribution).copy()
    # a covariance beyond what the variances allow
    grams[occupied(contribution), 4] = 3 * np.sqrt(grams[occupied(contribution), 2] * grams[occupied(contribution), 5])
    return with_grams(contribution, grams)


def wild(contribution):
    """The columns as if in other units; positive semi-definite, and the counts agree."""
    units = np.array([1.0, 1e6, 1e6, 1e6, 1e6])
    return with_grams(contribution, grams_of(contribution) * GramLayout(3).pack(np.outer(units, units)))


SPOILERS = {
    "wrong shape of `grams`": lambda c: with_grams(c, grams_of(c)[:, :-1]),
    "wrong shape of `entity_counts`": lambda c: replace(c, entity_counts=c.entity_counts[:-1]),
    "wrong shape of `scalars`": lambda c: replace(c, scalars=c.scalars[:2]),
    "wrong shape of `shift`": lambda c: replace(c, shift=np.zeros(3)),
    "wrong dtype of `grams`": lambda c: with_grams(c, grams_of(c).astype(np.int64)),
    "wrong dtype of `table_counts`": lambda c: replace(c, table_counts=c.table_counts.astype(np.float64)),
    "wrong dtype of `scalars`": lambda c: replace(c, scalars=True),
    "the agent's name is not text": lambda c: replace(c, agent=7),
    "the agent's name is not text ": lambda c: replace(c, agent=np.array([3.14, 2.72])),
    "run, session or round is not an integer": lambda c: replace(c, round=float(c.round)),
    "it answers another round than the open one": lambda c: replace(c, round=c.round - 1),
    "run, session or round is not an integer ": lambda c: replace(c, run=np.array([1, 2])),
    "it answers another round than the open one ": lambda c: replace(c, session=c.session - 1),
    "it belongs to another run": lambda c: replace(c, run=c.run + 1),
    "the agent is not known": lambda c: replace(c, agent="stranger"),
    "NaN or infinity in `grams`": changed("grams", put((0, 3), np.nan)),
    "NaN or infinity in `grams` ": changed("grams", put((1, 0), np.inf)),
    "NaN or infinity in `scalars`": changed("scalars", put(0, -np.inf)),
    "fewer events than entities": counted("entity_counts", 10_000),
    "a cluster has events but no entities": counted("entity_counts", 0),
    "a cluster has events but no entities ": counted("entity_counts", -3),
    "impossible table counts": counted("table_counts", -1),
    "impossible table counts ": counted("table_counts", 10_000),
    "impossible `log_beta_draws`": changed("scalars", put(0, 0.5)),
    "impossible `log_beta_draws` ": changed("scalars", put(0, -1e300)),
    "impossible `log_beta_draws`  ": changed("scalars", put(0, -1e4)),
    "impossible `bernoulli_draws`": changed("scalars", put(1, 0.5)),
    "impossible `log_label_prior`": changed("scalars", put(2, 1.0)),
    "impossible `log_label_prior` ": changed("scalars", put(2, -1e300)),
    "impossible `labels_changed`": changed("scalars", put(3, -1.0)),
    "impossible `labels_changed` ": changed("scalars", put(3, 1e6)),
    "impossible `labels_changed`  ": changed("scalars", put(3, 0.5)),
    "a matrix is not positive semi-definite": indefinite,
    "fewer events than entities ": changed("grams", put((slice(None), 0), 0.0)),
    "more events than `max_events`": scaled(1e9),
    "a column exceeds `max_mean_square`": wild,
}


@pytest.fixture
def open_round(small):
    """A federation in an open round, and the reply of one agent that is still awaited."""
    table, _ = small
    return opened(table, **PAPER)


def opened(table, **model):
    server, agents = server_for(3, seed=1, max_clusters=6, patience=None, **model), agents_of(table)
    engine = OneByOneEngine(agents)
    run_rounds(server, engine, 4)
    call = server.open_round(engine.agents())
    victim = agents[3]
    reply = victim.round(call.broadcast.acknowledging(int(call.acknowledged[call.agents.index(victim.name)])))
    return server, reply


@pytest.mark.parametrize("reason", SPOILERS)
@pytest.mark.parametrize("through_bytes", [True, False])
def test_invalid_contributions_are_refused_with_their_reason(open_round, reason, through_bytes, caplog):
    server, reply = open_round
    before = server.rule.account.total()
    spoiled = SPOILERS[reason](reply)
    with caplog.at_level(logging.INFO):
        assert server.accept(spoiled.to_bytes() if through_bytes else spoiled) == 0
    (message,) = [record.getMessage() for record in caplog.records if record.name == OPEN_ROUND]
    assert reason.strip() in message
    assert not re.search(r"\d\.\d|nan\b|\binf\b|\[", message), "a reason with values"
    np.testing.assert_array_equal(server.rule.account.total().grams, before.grams)
    assert server.accept(reply) == 1, "the round goes on, and the true reply is still welcome"
    assert server.close_round().n_refused == 1


WITH_EFFECTS = {
    "NaN or infinity in `effects`": lambda c, place: changed("effects", put((0, 1), np.nan))(c),
    "a matrix is not positive semi-definite": lambda c, place: indefinite(c),
    "more events than `max_events`": lambda c, place: changed("scalars", put(place("events"), 1e9))(c),
    "fewer events than entities": lambda c, place: counted("entity_counts", 10_000)(c),
    "impossible `agents`": lambda c, place: changed("scalars", put(place("agents"), 3.0))(c),
    "impossible `noisy_entities`": lambda c, place: changed("scalars", put(place("noisy_entities"), 1e3))(c),
    "impossible `precisions`": lambda c, place: changed("scalars", put(place("precisions"), -1.0))(c),
    "impossible `precisions` ": lambda c, place: changed("scalars", put(place("precisions"), 1e12))(c),
    "impossible `log_variances`": lambda c, place: changed("scalars", put(place("log_variances"), -1e300))(c),
    "impossible `squared_events`": lambda c, place: changed("scalars", put(place("squared_events"), 1e300))(c),
    "impossible `noise_squares`": lambda c, place: changed("scalars", put(place("noise_squares"), 0.0))(c),
    "impossible `noise_excess`": lambda c, place: changed("scalars", put(place("noise_excess"), -1e300))(c),
    "impossible `weighed_events`": lambda c, place: changed("scalars", put(place("weighed_events"), 1e300))(c),
}


@pytest.mark.parametrize("reason", WITH_EFFECTS)
def test_invalid_contributions_with_effects_are_refused(small, reason, caplog):
    table, _ = small
    server, reply = opened(table)
    names = [scalar.name for scalar in server.likelihood.sum_schema.scalars]
    with caplog.at_level(logging.INFO):
        assert server.accept(WITH_EFFECTS[reason](reply, names.index).to_bytes()) == 0
    assert reason.strip() in caplog.text
    assert server.accept(reply) == 1


TOO_LARGE = {
    "`log_beta_draws`": lambda c, place: changed("scalars", put(place("log_beta_draws"), -1e300))(c),
    "`scalars`": lambda c, place: changed("scalars", put(place("log_density"), -1e300))(c),
    "`effects`": lambda c, place: changed("effects", put((occupied(c), 0), 1e200))(c),
    "`grams`": lambda c, place: with_grams(
        c, grams_of(c) * GramLayout(3).pack(np.outer([1, 1, 1, 1, 1e8], [1, 1, 1, 1, 1e8]))
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_does_not_fit_into_fixed_point_is_refused_and_does_not_end_the_server(small, name, caplog):
    table, _ = small
    limits = ReplyLimits(max_change=np.inf, max_mean_square=np.inf, max_target_square=np.inf)
    server, reply = opened(table, fixed_point=True, limits=limits)
    names = [scalar.name for scalar in server.likelihood.sum_schema.scalars]
    with caplog.at_level(logging.INFO):
        assert server.accept(TOO_LARGE[name](reply, names.index).to_bytes()) == 0
    assert name in caplog.text
    assert server.accept(reply) == 1
    assert np.isfinite(server.close_round().log_joint)


@pytest.mark.parametrize(("name", "value"), [("shift", 1e60), ("grams", 1e60)])
def test_what_does_not_fit_into_fixed_point_in_the_survey_is_refused(small, name, value, caplog):
    table, _ = small
    agents = agents_of(table)
    server, engine = server_for(3, seed=1, max_clusters=6, fixed_point=True), OneByOneEngine(agents)
    call = server.open_round(engine.agents())
    for position, agent in enumerate(agents):
        reply = agent.round(call.broadcast)
        lie = changed(name, put(0 if name == "shift" else (0, 5), value))(reply)
        assert server.accept(lie if position == 0 else reply) == (position > 0)
    assert f"`{name}`" in caplog.text
    server.close_round()
    assert (np.abs(server.units.standardization.shift) < 10).all()


def test_bytes_that_are_not_a_message_are_refused(open_round, caplog):
    server, reply = open_round
    data = reply.to_bytes()
    for nonsense in (b"", b"nonsense", data[:-1], data[1:], data[:50] + bytes([data[50] ^ 1]) + data[51:]):
        assert server.accept(nonsense) == 0
    assert server.accept(codec.encode("contribution", 2, record_of(reply))) == 0
    assert server.accept(codec.encode("broadcast", 1, {})) == 0
    assert server.accept(codec.encode("contribution", 1, {"run": 1})) == 0
    assert server.accept(codec.encode("contribution", 1, {**record_of(reply), "more": np.zeros(3)})) == 0
    assert len(caplog.records) == 9
    assert server.accept(data) == 1
    assert server.accept(data) == 0, "a second time"


def test_bounds_can_be_set(small):
    table, _ = small
    largest = int(np.bincount(table.agent).max())
    for limit, n_refused in [(largest, 0), (largest - 1, 1)]:
        server = server_for(3, limits=ReplyLimits(max_events=limit))
        run_round(server, in_process(table))
        assert server.history.records[0].n_refused >= n_refused
        assert (server.history.records[0].n_refused == 0) == (n_refused == 0)


def test_surveys_are_checked_too(small, caplog):
    table, _ = small
    agents = agents_of(table)
    server, engine = server_for(3), OneByOneEngine(agents)
    call = server.open_round(engine.agents())
    replies = [agent.round(call.broadcast) for agent in agents]
    labelled = changed("entity_counts", put(0, 3))(replies[0])
    not_finite = changed("shift", put(0, np.nan))(replies[1])
    indefinite_one = changed("grams", put((0, 4), 1e9))(replies[2])
    assert [server.accept(reply) for reply in (labelled, not_finite, indefinite_one)] == [0, 0, 0]
    assert "labels in the survey" in caplog.text
    # what is sound but absurd does not spoil the units of all
    absurd = with_grams(replies[3], grams_of(replies[3]) * np.where(np.arange(15) > 0, 1e30, 1.0))
    for reply in [absurd, *replies[4:]]:
        assert server.accept(reply) == 1
    server.close_round()
    rest = table[table.agent >= 4]
    np.testing.assert_allclose(server.units.standardization.scale[:-1], rest.X.std(axis=0), rtol=1e-9)


class LyingEngine(OneByOneEngine):
    """Some agents send garbage of all kinds, every time."""

    def __init__(self, agents, liars, seed=0):
        super().__init__(agents)
        self.liars, self.rng = liars, np.random.default_rng(seed)

    def deliver(self, call):
        for name, acknowledged in zip(call.agents, call.acknowledged, strict=True):
            reply = self.by_name[name].round(
                Broadcast.from_bytes(call.broadcast.acknowledging(int(acknowledged)).to_bytes())
            )
            if name in self.liars:
                reply = self.garbage(reply)
            yield reply

    def garbage(self, reply: Contribution):
        kind = self.rng.integers(4)
        if kind == 0:
            return self.rng.bytes(200)
        if kind == 1:
            return with_grams(reply, 1e3 * self.rng.normal(size=grams_of(reply).shape))
        if kind == 2:
            return with_grams(reply, grams_of(reply) * 1e12)
        return replace(reply, round=reply.round - 1)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(PAPER, marks=pytest.mark.slow),
        pytest.param({}, marks=pytest.mark.slow),
    ],
    ids=["paper", "default"],
)
def test_a_third_of_garbage_costs_nothing(model, caplog):
    """The run ends as well as one without these agents."""
    caplog.set_level(logging.CRITICAL)
    table, _ = make_hlcr(45, 5, 6, 3, 3, 0.4, random_state=5)
    train, test = hold_out_events(table.agent, table.entity, random_state=1)
    train, test = table[train], table[test]
    liars = {str(agent) for agent in range(0, 45, 3)}
    honest = train.agent % 3 != 0
    n_honest = len(np.unique(np.column_stack([train.agent, train.entity])[honest], axis=0))
    errors = {}
    for name, agents in {
        "with liars": agents_of(train),
        "without": agents_of(train[honest]),
    }.items():
        server = server_for(3, seed=2, rounds=60, patience=None, **model)
        run_rounds(server, LyingEngine(agents, liars), 61)
        own = test.agent % 3 != 0
        squares = []
        for agent in agents:
            rows = own & (test.agent == int(agent.name))
            if rows.any():
                moments = agent.predict(server.model(), test.X[rows], test.entity[rows])
                squares.extend((moments.mean - test.y[rows]) ** 2)
        errors[name] = np.mean(squares)
        assert server.rule.account.total().entity_counts.sum() == n_honest
    assert errors["with liars"] == pytest.approx(errors["without"], rel=0.02)


@pytest.mark.parametrize(
    ("n_liars", "offset"),
    [
        pytest.param(1, 1e3, marks=(pytest.mark.slow, pytest.mark.ci)),
        pytest.param(15, 1e2, marks=pytest.mark.slow),
        pytest.param(15, 20.0, marks=pytest.mark.slow),
    ],
)
def test_lies_in_the_survey_do_not_spoil_the_units(n_liars, offset):
    """Sound matrices, of a hundred thousand times the events, around means far off; then the liars are silent."""
    table, _ = make_hlcr(45, 5, 6, 3, 3, 0.4, random_state=5)
    train, test = hold_out_events(table.agent, table.entity, random_state=1)
    train, test = table[train], table[test]
    errors = []
    for lie in (True, False):
        agents = agents_of(train)
        server, engine = server_for(3, seed=2, rounds=60, patience=None), OneByOneEngine(agents)
        call = server.open_round(engine.agents())
        for position, agent in enumerate(agents):
            reply = agent.round(call.broadcast)
            if lie and position < n_liars:
                # within the limits: the largest of them have a few thousand events
                reply = with_grams(reply, grams_of(reply) * 1e5, shift=reply.shift + offset)
            assert server.accept(reply) == 1
        server.close_round()
        engine = OneByOneEngine(agents[n_liars:])
        run_rounds(server, engine, 60)
        squares = []
        for agent in agents[n_liars:]:
            rows = test.agent == int(agent.name)
            moments = agent.predict(server.model(), test.X[rows], test.entity[rows])
            squares.extend((moments.mean - test.y[rows]) ** 2)
        errors.append(np.mean(squares))
    assert errors[0] < 1.1 * errors[1]


@pytest.mark.parametrize("value", [1e90, 1e99, 1e200])
@pytest.mark.parametrize("column", [0, -1])
@pytest.mark.parametrize("standardize", [True, False])
def test_one_absurd_mean_does_not_spoil_the_units(small, value, column, standardize):
    table, _ = small
    agents = agents_of(table)
    server, engine = server_for(3, standardize=standardize, max_clusters=6), OneByOneEngine(agents)
    call = server.open_round(engine.agents())
    for position, agent in enumerate(agents):
        reply = agent.round(call.broadcast)
        server.accept(changed("shift", put(column, value))(reply) if position == 0 else reply)
    server.close_round()
    for figures in (server.units.standardization.scale, server.units.mean_squares, server.units.standardization.shift):
        assert (np.abs(figures) < 10).all()
    run_rounds(server, engine, 3)
    # who was accepted with a lie in the survey is refused when the truth differs from it
    assert server.history.records[-1].n_accepted == len(agents) - (value < 1e100)
    assert np.isfinite(server.history.records[-1].log_joint)


def test_text_of_a_sender_is_not_logged(open_round, caplog):
    server, reply = open_round
    secret = "patient 4711"
    server.accept(codec.encode(secret, 1, record_of(reply)))
    server.accept(codec.encode("contribution", 1, {secret: 1}))
    server.accept(replace(reply, agent=secret))
    assert len(caplog.records) == 3
    assert secret not in caplog.text


def test_units_of_agents_that_are_each_odd_in_another_column():
    rng = np.random.default_rng(0)
    agent = np.repeat(np.arange(6), 30)
    X = rng.normal(size=(180, 6)) * np.where(np.eye(6)[agent] > 0, 1e3, 1.0)
    y = rng.normal(size=180)
    model = FedHLCRRegressor(rounds=10).fit(X, y, agent=agent, entity=agent)
    assert np.isfinite(model.predict(X, NEW)).all()
    assert model.history_["n_refused"].sum() == 0


def test_weighted_events_may_weigh_less_than_one(small, caplog):
    table, _ = small
    weight = np.full(len(table), 0.1)
    for limits in (None, ReplyLimits(max_events=1e5)):
        model = FedHLCRRegressor(rounds=5, limits=limits).fit(
            table.X, table.y, agent=table.agent, entity=table.entity, sample_weight=weight
        )
        assert model.history_["n_refused"].sum() == 0
    assert not caplog.records


def test_blend_checks_its_replies_too(small, caplog):
    table, _ = small
    server, agents = server_for(3, rule="blend", n_clusters=3, **FIXED), agents_of(table)
    engine = OneByOneEngine(agents)
    run_rounds(server, engine, 2)
    call = server.open_round(engine.agents())
    reply = agents[0].round(call.broadcast)
    assert server.accept(changed("table_counts", put(0, 2))(reply)) == 0
    assert server.accept(reply) == 1


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e8])
def test_honest_agents_are_never_refused(offset):
    """Entities without any spread, far from zero, with one event: rounding must not make liars of them."""
    rng = np.random.default_rng(3)
    n = 600
    agent, entity = np.arange(n) // 20, np.arange(n) % 4
    X = rng.normal(size=(n, 3)) + offset
    X[:, 1] = offset + (agent % 3) + 0.1 * (entity % 2)
    X[:, 2] = offset
    y = X[:, 0] - X[:, 1] + 0.01 * rng.normal(size=n)
    for standardize in (True, False):
        model = FedHLCRRegressor(rounds=15, standardize=standardize, participation=0.5).fit(
            X, y, agent=agent, entity=entity
        )
        assert model.history_["n_refused"].sum() == 0
