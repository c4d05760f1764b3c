"""Packed messages: they come back exactly, and none is unpacked beyond the size it can have."""

import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="the flower extra is not installed")

from fedhlcr.engines.flower import client_app, engine
from fedhlcr.engines.flower.compression import pack, unpack
from fedhlcr.engines.flower.engine import FlowerEngine
from fedhlcr.engines.flower.pauses import WaitTimes
from fedhlcr.engines.flower.sizes import largest_contribution
from fedhlcr.exceptions import RecordError
from fedhlcr.federation.run import run_round
from tests.federations import server_for
from tests.flower_grid import LocalGrid, history_of, run_app

pytestmark = pytest.mark.usefixtures("clock")


@given(st.binary(max_size=2000), st.booleans())
def test_bytes_come_back_exactly(data, compress):
    assert unpack(pack(data, compress=compress), len(data)) == data


def test_zeros_shrink_and_random_bytes_hardly_grow():
    assert len(pack(bytes(100_000))) < 500
    random = np.random.default_rng(0).bytes(10_000)
    assert len(pack(random)) == len(random) + 1


@pytest.mark.slow
def test_zip_bomb_is_refused_without_unpacking_it():
    bomb = b"\1" + zlib.compress(bytes(300_000_000))
    tracemalloc.start()
    with pytest.raises(RecordError, match="more than the 10,000 bytes"):
        unpack(bomb, 10_000)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [b"", b"\2abc", b"\1abc", pack(bytes(1000))[:-1], pack(bytes(1000)) + b"x", b"\0" + bytes(2000)],
    ids=["nothing", "unknown form", "no zlib", "cut short", "more after it", "too long"],
)
def test_damaged_bytes_are_refused(data):
    with pytest.raises(RecordError):
        unpack(data, 1000)


@pytest.mark.slow
def test_bombs_of_one_node_are_refused_and_the_others_count(nodes, tmp_path, monkeypatch):
    honest = client_app.pack

    def bomb(data):
        return honest(data) if b"bomb" not in data else b"\1" + zlib.compress(bytes(50_000_000))

    def answer(self, request, honest=client_app.Node.answer):
        answers = honest(self, request)
        return [b"bomb"] * len(answers) if self.options.data_path.stem == "0" else answers

    monkeypatch.setattr(client_app.Node, "answer", answer)
    monkeypatch.setattr(client_app, "pack", bomb)
    run_app(nodes, tmp_path, rounds=3)
    assert all(record["n_accepted"] == 8 for record in history_of(tmp_path))


def test_one_contribution_is_unpacked_for_each_agent_asked(nodes, table, monkeypatch):
    """A reply within its size may hold thousands of small bombs."""
    n_unpacked = []

    def count(data, limit, honest=engine.unpack):
        n_unpacked.append(limit)
        return honest(data, limit)

    def many(self, request, honest=client_app.Node.answer):
        return [*honest(self, request), *[bytes(3000)] * 500]

    monkeypatch.setattr(engine, "unpack", count)
    monkeypatch.setattr(client_app.Node, "answer", many)
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", WaitTimes(3, 5.0, 5.0))
    carrier.gather()
    assert run_round(server_for(table.X.shape[1], seed=3), carrier).n_accepted == 12
    assert len(n_unpacked) == 12


@pytest.mark.parametrize("settings", [{}, {"curves": (0, 2)}, {"noise": "student"}])
def test_largest_contribution_is_exact(settings, nodes, table, monkeypatch):
    """The limit of what is unpacked is the size that every honest contribution has."""
    seen = []

    def answer(self, request, honest=client_app.Node.answer):
        answers = honest(self, request)
        seen.extend(zip(request.agents, map(len, answers), strict=True))
        return answers

    monkeypatch.setattr(client_app.Node, "answer", answer)
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", WaitTimes(3, 5.0, 5.0))
    carrier.gather()
    server = server_for(table.X.shape[1], seed=3, **settings)
    for _ in range(3):
        seen.clear()
        call = server.open_round(carrier.agents())
        for reply in carrier.deliver(call):
            server.accept(reply)
        server.close_round()
        assert len(seen) == 12
        for agent, size in seen:
            assert size == largest_contribution(call.broadcast, [agent])


def test_bytes_are_counted_as_sent(nodes, table):
    carrier = FlowerEngine(LocalGrid(nodes), "experiment", WaitTimes(3, 5.0, 5.0))
    carrier.gather()
    server = server_for(table.X.shape[1], seed=3)
    for _ in range(4):
        record = run_round(server, carrier)
    requests = [node.requests[-1].content.config_records["Letter"]["broadcast"] for node in nodes.values()]
    assert record.bytes_down == sum(map(len, requests))
    full = 12 * largest_contribution(server._broadcast(record.round), ["10"])
    assert 0 < record.bytes_up < full / 3
