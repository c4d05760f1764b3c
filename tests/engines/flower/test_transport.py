"""Replies that are huge, slow, unfinished or nonsense: they cost only their own node its place in the round."""

import threading
import time

import httpx
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.supercore.run import RunNotRunningException

from fedhlcr.engines.flower import transport
from fedhlcr.engines.flower.engine import FlowerEngine
from fedhlcr.engines.flower.pauses import WaitTimes
from fedhlcr.engines.flower.transport import HttpTransport
from fedhlcr.exceptions import MissingDependencyError
from fedhlcr.federation.run import run_round
from tests.federations import server_for
from tests.flower_link import FakeSuperLink

LIMIT = 3.0


@pytest.fixture
def link(nodes):
    return FakeSuperLink(nodes)


@pytest.fixture
def started(link, table):
    """An engine whose nodes have all answered the survey, and its server."""
    engine = FlowerEngine(link.grid(), "experiment", WaitTimes(3, 30.0, LIMIT))
    engine.gather()
    server = server_for(table.X.shape[1], seed=3, rounds=60)
    assert run_round(server, engine).n_accepted == 12
    return engine, server


def timed_round(started):
    engine, server = started
    begin = time.monotonic()
    record = run_round(server, engine)
    return record, time.monotonic() - begin


def test_all_replies_arrive_and_are_deleted_from_superlink(link, started):
    record, seconds = timed_round(started)
    assert record.n_accepted == 12
    assert seconds < LIMIT
    assert len(link.deleted) == 9, "three roll calls, three surveys, three rounds"


def test_reply_of_500_mb_is_refused_unread_and_delays_nobody(link, started, logged):
    link.huge = {101}
    record, seconds = timed_round(started)
    assert record.n_accepted == 8
    assert seconds < LIMIT
    assert not link.body.was_read
    assert "node node-101 does not take part now: TooLarge: its reply is larger than the" in logged.text
    assert "Silence" not in logged.text
    assert len(link.deleted) == 9, "the reply is deleted all the same"


def test_reply_without_a_known_size_is_refused(link, started, logged):
    honest = link._pull_object

    def chunked(request):
        found = honest(request)
        if link._owner.get(request.object_id) != 101:
            return found
        return httpx.Response(200, stream=link.body)

    link._pull_object = chunked
    record, _ = timed_round(started)
    assert record.n_accepted == 8
    assert not link.body.was_read


@pytest.mark.slow
def test_node_stopped_in_mid_upload_costs_its_own_time_only(link, started, logged):
    link.stalled = {102}
    record, seconds = timed_round(started)
    assert record.n_accepted == 8
    assert LIMIT <= seconds < 1.1 * LIMIT
    assert "node node-102 does not take part now: Unfinished: the node began to reply" in logged.text
    _, seconds = timed_round(started)
    assert seconds < LIMIT / 2, "it is not asked again before it has answered a roll call"


@pytest.mark.slow
def test_slow_transfer_does_not_hold_up_the_others(link, started):
    """SuperLink hands over one node's reply slowly: the round ends in time, with the others' replies."""
    link.slow = {100: 10 * LIMIT}
    record, seconds = timed_round(started)
    assert record.n_accepted == 8
    assert seconds < 1.1 * LIMIT


@pytest.mark.slow
def test_frozen_superlink_does_not_freeze_the_round(link, started, monkeypatch):
    """A SuperLink that is busy with something else does not answer who is connected."""
    thawed = threading.Event()
    honest = link._get_nodes

    def frozen(request):
        thawed.wait(20 * LIMIT)
        return honest(request)

    link._get_nodes = frozen
    link.stalled = {102}
    _, seconds = timed_round(started)
    thawed.set()
    assert seconds < 1.1 * LIMIT


def test_nonsense_ends_neither_the_run_nor_the_round(link, started, logged):
    link.broken = {100}
    record, seconds = timed_round(started)
    assert record.n_accepted == 8
    assert seconds < LIMIT
    assert "node node-100 does not take part now: Unreadable" in logged.text


def test_reply_of_many_parts_is_refused(link, started, monkeypatch, logged):
    monkeypatch.setattr(transport, "MOST_OBJECTS", 2)
    record, _ = timed_round(started)
    assert record.n_accepted == 0
    assert "TooLarge" in logged.text


@pytest.mark.slow
def test_threads_end_with_their_messages(link, started):
    # threads of other tests may still wait for a slow SuperLink
    before = set(threading.enumerate())
    link.stalled = {102}
    timed_round(started)
    engine, _ = started
    for ticket in list(engine._sent):
        engine._forget(ticket)
    deadline = time.monotonic() + 10
    while any(thread.name.startswith("message") for thread in set(threading.enumerate()) - before):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_failure_of_superlink_ends_the_run(link, started):
    """What Flower reports about the run itself is raised in the server, not swallowed in a thread."""

    def stopped(request):
        raise RuntimeError("the run was stopped")

    link._get_nodes = stopped
    engine, _ = started
    time.sleep(2 * transport.NODES_POLL)
    with pytest.raises(RuntimeError, match="the run was stopped"):
        engine.agents()


def test_end_of_the_run_that_a_thread_hears_of_ends_it(link, started):
    def over(request):
        raise RunNotRunningException

    link._pull_messages = over
    with pytest.raises(RunNotRunningException):
        timed_round(started)


def test_other_release_of_flower_is_refused(link):
    grid = link.grid()
    grid._client = object()
    with pytest.raises(MissingDependencyError, match=r"needs Flower 1\.41"):
        HttpTransport(grid)
