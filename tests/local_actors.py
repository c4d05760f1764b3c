"""Workers in this process, in the place of Ray's: whatever passes between them and the driver is pickled.

Arrays arrive read-only, as they do from Ray's object store.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedhlcr.engines.ray import RayCluster
from fedhlcr.engines.ray.engine import RayEngine
from fedhlcr.engines.ray.parts import TablePart, share_out
from fedhlcr.engines.ray.worker import ShardWorker
from tests.federations import hierarchy_of


class Death(Exception):  # noqa: N818
    """A worker has died."""


def sent(value: Any) -> Any:
    """The value as it arrives in another process."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(pickled, buffers=[bytes(buffer) for buffer in buffers])


class LocalActors:
    """Like `engines.ray.actors.Actors`.

    Attributes
    ----------
    dies : (number of the call, method) → whether the worker dies after it has done what was asked, before it answers
    started : all workers that were ever started
    """

    deaths = (Death,)

    def __init__(self, dies: Callable[[int, str], bool] = lambda number, method: False) -> None:
        self.dies, self.started, self._n_calls = dies, [], 0

    def start(self, n_deaths: int = 0) -> ShardWorker:
        del n_deaths
        self.started.append(ShardWorker())
        return self.started[-1]

    def call(self, actor: ShardWorker, method: str, arguments: Sequence[Any]) -> Any:
        self._n_calls += 1
        if not hasattr(actor, method):
            return Death()
        # mods are functions of tests, which cannot be pickled
        n_sent = len(arguments) - (method == "build")
        given = [*sent(list(arguments[:n_sent])), *arguments[n_sent:]]
        try:
            answer = sent(getattr(actor, method)(*given))
        except Exception as error:
            return error
        if self.dies(self._n_calls, method):
            actor.__class__ = type("Dead", (), {})
            return Death()
        return answer

    def fetch(self, call: Any) -> Any:
        if isinstance(call, Exception):
            raise call
        return call

    def warn_if_slow(self, calls: list[Any]) -> None:
        """All calls are answered at once."""

    def next_ready(self, calls: list[Any]) -> int:
        # the last first: the order of replies must not matter
        return len(calls) - 1

    def put(self, value: Any) -> Any:
        return value

    def stop(self, actor: Any) -> None:
        del actor


class DiesOnce:
    """The worker that does the given call of a method, counted from 1, dies in it."""

    def __init__(self, method, *numbers):
        self._method, self._numbers, self._n = method, numbers, 0

    def __call__(self, number, method):
        self._n += method == self._method
        return method == self._method and self._n in self._numbers


def local_engine(table, n_workers: int, actors: Any = None, kind: type[RayEngine] = RayEngine, **params) -> RayEngine:
    """An engine of workers in this process for the agents of a table."""
    hierarchy = hierarchy_of(table)
    start = hierarchy.index.agent_start
    parts = [(agents, TablePart.of(hierarchy, agents)) for agents in share_out(start, n_workers)]
    actors = LocalActors() if actors is None else actors
    return kind(actors, list(hierarchy.index.agents.texts), np.asarray(start), parts, seed=0, **params)


def use_local_actors(monkeypatch: Any, actors: Any = None) -> None:
    """Let clusters have their workers in this process."""

    def engine(cluster: RayCluster, index: Any, make_parts: Any, n_bytes: int, *, seed: int) -> RayEngine:
        ranges = share_out(index.agent_start, cluster.n_workers or 2)
        parts = list(zip(ranges, make_parts(ranges), strict=True))
        names = list(index.agents.texts)
        return RayEngine(actors or LocalActors(), names, index.agent_start, parts, seed=seed, mods=cluster.mods)

    monkeypatch.setattr(RayCluster, "engine", engine)


def assert_same_fit(one, other) -> None:
    """All draws, labels and figures of the history."""
    for name, value in vars(one.posterior_.draws).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, getattr(other.posterior_.draws, name))
    np.testing.assert_array_equal(one.labels_, other.labels_)
    for name in set(one.history_.dtype.names) - {"participants"}:
        np.testing.assert_array_equal(one.history_[name], other.history_[name])
