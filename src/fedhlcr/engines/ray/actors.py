"""The little that an engine needs of Ray: processes that are started, asked and stopped."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from fedhlcr._support.extras import missing_extra
from fedhlcr.engines.ray.worker import ShardWorker
from fedhlcr.exceptions import FederationError, FedHLCRError

# Seconds before a worker is replaced, by the number of deaths in a row. Ray may start workers on a dead node until it
# notices the death.
PAUSES = (0.0, 0.0, 5.0, 20.0)


logger = logging.getLogger(__name__)

# Seconds after which workers that are not ready are worth a warning.
SLOW_START = 60


def require_ray() -> ModuleType:
    """The package ray, or an error that says how to install it."""
    try:
        import ray
        import ray.exceptions
    except ImportError as missing:
        raise missing_extra('engine="ray" needs Ray', "ray") from missing
    return ray


class Actors:
    """Starts workers on a cluster.

    Parameters
    ----------
    ray : the package, connected to a cluster
    n_cpus : CPUs that Ray reserves for each worker
    """

    def __init__(self, ray: ModuleType, n_cpus: float) -> None:
        self._ray = ray
        # workers are replaced here and not by Ray, which would lose their state
        self._class = ray.remote(num_cpus=n_cpus, max_restarts=0, max_task_retries=0)(ShardWorker)
        # the CPUs of a node that has died are gone: a replacement that wanted some might wait for ever
        self._replacement = self._class.options(num_cpus=0)
        errors = ray.exceptions
        # what is raised if a process, its node, or what they held is gone
        self.deaths: tuple[type[Exception], ...] = (
            errors.RayActorError,
            errors.WorkerCrashedError,
            errors.ObjectLostError,
            errors.NodeDiedError,
            errors.OutOfMemoryError,
        )

    def start(self, n_deaths: int = 0) -> Any:
        """Start a worker, or the next in place of so many that have died in a row; these reserve no CPUs."""
        time.sleep(PAUSES[min(n_deaths, len(PAUSES) - 1)])
        with warnings.catch_warnings():
            # of Ray's own making
            warnings.simplefilter("ignore")
            return (self._replacement if n_deaths else self._class).remote()

    def call(self, actor: Any, method: str, arguments: Sequence[Any]) -> Any:
        """Ask an actor, without waiting. An actor does one thing after the other."""
        return getattr(actor, method).remote(*arguments)

    def fetch(self, call: Any) -> Any:
        """Wait for an answer. Errors at the worker are raised here as they were there."""
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, FedHLCRError):
                raise cause from None
            # without its text, which may quote the table
            raise FederationError(f"a worker has failed with {type(cause).__name__}; Ray's log has more.") from None

    def warn_if_slow(self, calls: list[Any]) -> None:
        """Wait for all calls for a while, and log what may be the matter if some are not answered."""
        ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=SLOW_START)
        if len(ready) < len(calls):
            logger.warning(
                "%d of %d workers are not ready after %d s. They still read their files, or wait for free CPUs: then "
                "use fewer workers, or stop other jobs on the cluster.",
                len(calls) - len(ready),
                len(calls),
                SLOW_START,
            )

    def next_ready(self, calls: list[Any]) -> int:
        """Wait until one of the calls is answered, or its actor has died, and return its place."""
        return calls.index(self._ray.wait(calls, num_returns=1)[0][0])

    def put(self, value: Any) -> Any:
        """Put a value where all workers find it."""
        return self._ray.put(value)

    def stop(self, actor: Any) -> None:
        self._ray.kill(actor, no_restart=True)
