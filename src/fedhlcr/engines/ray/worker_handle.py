"""The driver's side of one worker: who sits there may be replaced, and the replacement continues where the other was.

The driver keeps the newest state that the worker has sent, and all that it has asked of it since. A worker that has
died is built again from its part of the table, given that state, and asked the same again. Its answers are the same.
"""

from __future__ import annotations

import logging
from typing import Any

from fedhlcr.engines.ray.actors import Actors
from fedhlcr.engines.ray.worker import WorkerReply
from fedhlcr.exceptions import FederationError
from fedhlcr.storage import codec

logger = logging.getLogger(__name__)

# How often a worker may die without having answered anything in between.
MOST_DEATHS = 3
# What changes a worker's state, and so must be asked again.
CHANGES = ("answer", "moved")


class WorkerHandle:
    """One worker.

    Parameters
    ----------
    actors : starts processes
    name : of the worker, for messages
    built_from : arguments of `ShardWorker.build`
    """

    def __init__(self, actors: Actors, name: str, built_from: tuple[Any, ...]) -> None:
        self._actors = actors
        self._name = name
        self._built_from = built_from
        self._saved: codec.Record | None = None
        self._log: list[tuple[str, tuple[Any, ...]]] = []
        self._asked: tuple[str, tuple[Any, ...]] = ("build", built_from)
        self._n_deaths = 0
        self._actor = actors.start()
        self.pending = actors.call(self._actor, *self._asked)

    def ask(self, method: str, *arguments: Any) -> None:
        """Ask the worker; `result` is its answer."""
        self._asked = (method, arguments)
        if method in CHANGES:
            self._log.append(self._asked)
        self.pending = self._actors.call(self._actor, method, arguments)

    def result(self) -> Any:
        """The answer to what was asked last, from this worker or from one that has taken its place."""
        while True:
            try:
                found = self._actors.fetch(self.pending)
            except self._actors.deaths as death:
                self._replace(death)
                continue
            self._n_deaths = 0
            if isinstance(found, WorkerReply) and found.before is not None:
                self._saved = found.before
                self._log = [self._asked]
            return found

    def _replace(self, death: Exception) -> None:
        """Start another worker, and bring it to where the dead one was."""
        self._n_deaths += 1
        kind = type(death).__name__
        if self._n_deaths > MOST_DEATHS:
            raise FederationError(
                f"{self._name} has died {self._n_deaths} times in a row ({kind}). Usually its node has too little "
                "memory; Ray's logs on the node say more. Use more workers, or nodes with more memory."
            ) from None
        logger.warning("%s has died (%s); another takes its place.", self._name, kind)
        self._actors.stop(self._actor)
        self._actor = self._actors.start(self._n_deaths)
        asked = [*self._log] if self._asked[0] in CHANGES else [*self._log, self._asked]
        if self._saved is not None:
            asked.insert(0, ("restore", (self._saved,)))
        if self._asked[0] != "build":
            asked.insert(0, ("build", self._built_from))
        # an actor does one thing after the other, so only the last answer is waited for, unless something fails
        calls = [self._actors.call(self._actor, *one) for one in asked]
        self.pending = calls[-1]
        for call in calls[:-1]:
            try:
                self._actors.fetch(call)
            except self._actors.deaths:
                # `result` will find it out
                return

    def restore(self, state: codec.Record) -> None:
        """Let the worker continue from a state."""
        self._saved = state
        self._log = []
        self.ask("restore", state)

    def leave(self) -> None:
        self._actors.stop(self._actor)
