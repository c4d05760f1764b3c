"""What travels: exact through bytes, of a size that tells nothing of how many events or entities there are."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace

import numpy as np
import pytest

from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.agent import Agent
from fedhlcr.federation.messages import Broadcast, Contribution, Contributions
from fedhlcr.storage import codec
from tests.federations import FIXED, OneByOneEngine, grams_of, in_process, run_rounds, server_for
from tests.problems import PAPER

RULES = {"delta": {}, "blend": {"rule": "blend", "n_clusters": 3, **FIXED}}


def assert_same_fields(one, other):
    assert type(one) is type(other)
    for field in fields(one):
        assert_same(getattr(one, field.name), getattr(other, field.name))


def assert_same(one, other):
    if is_dataclass(one):
        assert_same_fields(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for name, value in one.items():
            assert_same(value, other[name])
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    else:
        # what agents do not get to know is NaN
        assert one == other or (math.isnan(one) and math.isnan(other))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("rounds", [0, 3])
def test_messages_round_trip_exactly(small, rule, rounds):
    table, _ = small
    server, engine = server_for(3, **RULES[rule]), in_process(table)
    run_rounds(server, engine, rounds)
    call = server.open_round(engine.agents())
    letter = call.broadcast.acknowledging(2)
    assert letter.n_bytes == len(letter.to_bytes())
    read = Broadcast.from_bytes(letter.to_bytes())
    # the survey does not name the likelihood
    assert_same_fields(replace(read, likelihood=letter.likelihood) if rounds == 0 else read, letter)
    (contributions,) = engine.deliver(call)
    total = 0
    for position in range(len(contributions)):
        contribution = contributions[position]
        data = contribution.to_bytes()
        assert_same_fields(Contribution.from_bytes(data), contribution)
        stacked = Contributions.from_one(contribution, letter.representative, contributions.sums.schema)
        assert_same_fields(stacked[0], contribution)
        total += len(data)
    assert contributions.encoded_size() == total


def test_messages_cannot_be_changed(small):
    table, _ = small
    server, engine = server_for(3), in_process(table)
    call = server.open_round(engine.agents())
    with pytest.raises(FrozenInstanceError):
        call.broadcast.round = 5
    (contributions,) = engine.deliver(call)
    with pytest.raises(FrozenInstanceError):
        contributions[0].agent = "other"
    for array in (grams_of(contributions[0]), contributions[0].shift):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    server.close_round()
    run_rounds(server, engine, 1)
    letter = server.open_round(engine.agents()).broadcast
    for array in (letter.law.coef, letter.law.log_weights, letter.cluster_of):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_the_size_does_not_depend_on_events_or_entities():
    rng = np.random.default_rng(0)
    sizes = set()
    for n_entities, n_events in [(1, 1), (2, 40), (40, 3), (40, 300), (4000, 3)]:
        entity = np.repeat(np.arange(n_entities), n_events)
        X = rng.normal(size=(len(entity), 3))
        agent = Agent("a", X, X[:, 0] + rng.normal(size=len(X)), entity, disclosure=None)
        server, engine = server_for(3, max_clusters=6), OneByOneEngine([agent])
        lengths = []
        for _ in range(4):
            call = server.open_round(engine.agents())
            (reply,) = engine.deliver(call)
            server.accept(reply)
            server.close_round()
            lengths += [len(call.broadcast.to_bytes()), len(reply)]
        sizes.add(tuple(lengths))
    assert len(sizes) == 1, sizes


@pytest.mark.parametrize(("model", "factor"), [(PAPER, 1.0), ({}, 2.2)], ids=["paper", "default"])
def test_messages_hold_what_the_mathematics_needs_and_no_more(model, factor):
    """Up K·(F + 2)(F + 3)/2 + 2K numbers and a few, down K·F + K and a few; headers are a small constant.

    With effects, messages may be 2.2 times as long.
    """
    n_features, n_clusters = 5, 12
    table, _ = make_hlcr(6, 50, 4, n_features, 4, 0.5, random_state=2)
    server, engine = server_for(n_features, max_clusters=n_clusters, **model), in_process(table)
    run_rounds(server, engine, 2)
    call = server.open_round(engine.agents())
    (contributions,) = engine.deliver(call)
    up = n_clusters * ((n_features + 2) * (n_features + 3) // 2 + 2) + 4
    down = n_clusters * (n_features + 1) + n_clusters + n_clusters + 2 * (n_features + 1) + 8
    assert len(contributions[0].to_bytes()) <= factor * (8 * up + 300)
    assert len(call.broadcast.to_bytes()) <= factor * (8 * down + 300)


@pytest.mark.parametrize(
    ("message", "missing"), [(Broadcast, "`n_features` is missing"), (Contribution, "lacks the field `run`")]
)
def test_a_message_of_another_version_is_refused(message, missing):
    kind = message.__name__.lower()
    with pytest.raises(codec.CodecError, match="version 99"):
        message.from_bytes(codec.encode(kind, 99, {}))
    with pytest.raises(codec.CodecError, match=missing):
        message.from_bytes(codec.encode(kind, 1, {}))


def test_a_batch_can_be_cut(small):
    table, _ = small
    server, engine = server_for(3), in_process(table)
    run_rounds(server, engine, 2)
    (contributions,) = engine.deliver(server.open_round(engine.agents()))
    part = contributions.take(np.array([3, 1]))
    for position, original in enumerate([3, 1]):
        assert_same_fields(part[position], contributions[original])
    assert replace(part, run=0)[0].run == 0
