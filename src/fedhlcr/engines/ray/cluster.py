"""Which cluster is used: one that runs already, or one on this machine for the time of a fit."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from fedhlcr._support.threads import available_threads
from fedhlcr.data.hierarchy import EntityIndex, Hierarchy
from fedhlcr.engines.ray.actors import Actors, require_ray
from fedhlcr.engines.ray.engine import RayEngine
from fedhlcr.engines.ray.parts import Part, TablePart, share_out
from fedhlcr.exceptions import ArgumentError, FederationError
from fedhlcr.federation.mods import Mod

# The object store of a cluster on this machine: room for messages, besides the table.
STORE_BYTES = 256 * 2**20
# Ray reserves CPUs in steps of this size.
CPU_STEP = 1e-4
UNHANDLED = "RAY_IGNORE_UNHANDLED_ERRORS"
# What workers build their agents from, given the positions of each worker's agents.
MakeParts = Callable[[Sequence[range]], Iterable[Part]]


@dataclass(frozen=True)
class RayCluster:
    """Makes engines on a Ray cluster; pass it as `engine` to an estimator of a federation.

        FedHLCRRegressor(engine=RayCluster(address="head:6379", n_workers=16)).fit(…)

    The model is that of `engine="in_process"`, bit for bit, whatever the number of workers.

    Attributes
    ----------
    address : of a cluster; None takes the cluster this process is connected to, else the one that the environment
        variable RAY_ADDRESS names, else starts one on this machine and stops it after the fit
    n_workers : number of workers; None for one per CPU of the cluster. Fewer are used if there are too few agents
    threads_per_worker : threads of each worker, which then takes so many CPUs
    mods : functions that contributions pass through before they leave the agents, `federation.mods`
    """

    address: str | None = None
    n_workers: int | None = None
    threads_per_worker: int = 1
    mods: Sequence[Mod] = ()

    def __post_init__(self) -> None:
        for name in ("n_workers", "threads_per_worker"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ArgumentError(f"`{name}` must be a whole number of at least 1, but is {value!r}.")

    def __call__(self, hierarchy: Hierarchy, *, failure_rate: float, seed: int, n_threads: int) -> RayEngine:
        """The engine for the agents of a table, of which the driver sends each worker its part.

        `n_threads` is for the driver's own work.
        """
        del n_threads
        if failure_rate:
            raise ArgumentError(
                f"`failure_rate` is {failure_rate:g}, but faults are simulated with engine='in_process' only; leave it "
                "at 0."
            )
        n_bytes = sum(part.nbytes for part in (hierarchy.X, hierarchy.y, hierarchy.weight))
        return self.engine(hierarchy.index, lambda ranges: _sent(hierarchy, ranges), n_bytes, seed=seed)

    def engine(self, index: EntityIndex, make_parts: MakeParts, n_bytes: int, *, seed: int) -> RayEngine:
        """The engine for agents whose workers build them from these parts, which take about so many bytes."""
        ray = require_ray()
        disconnect = self._connect(ray, n_bytes)
        try:
            n_workers, share = self._shares(ray)
            ranges = share_out(index.agent_start, n_workers)
            return RayEngine(
                Actors(ray, share),
                list(index.agents.texts),
                index.agent_start,
                list(zip(ranges, make_parts(ranges), strict=True)),
                seed=seed,
                n_threads=self.threads_per_worker,
                mods=self.mods,
                on_close=disconnect,
            )
        except BaseException:
            disconnect()
            raise

    def _connect(self, ray: ModuleType, n_bytes: int) -> Callable[[], None]:
        """Connect to a cluster, and return what ends that."""
        if ray.is_initialized():
            if self.address not in (None, "auto", ray.get_runtime_context().gcs_address):
                raise FederationError(
                    f"`address` is {self.address!r}, but this process is connected to another Ray cluster; call "
                    "`ray.shutdown()` first, or leave out `address`."
                )
            return lambda: None
        settings: dict[str, object] = {"log_to_driver": False, "logging_level": logging.ERROR}
        address = self.address or os.environ.get("RAY_ADDRESS")
        if address is None:
            n_cpus = max(available_threads(), (self.n_workers or 1) * self.threads_per_worker)
            settings |= {"num_cpus": n_cpus, "include_dashboard": False, "address": "local"}
            settings["object_store_memory"] = STORE_BYTES + 2 * n_bytes
        else:
            settings["address"] = address
        with warnings.catch_warnings():
            # Ray warns of its own plans
            warnings.simplefilter("ignore")
            try:
                ray.init(**settings)
            except (ConnectionError, ValueError, RuntimeError) as error:
                where = "on this machine" if address is None else f"at {address!r}"
                raise FederationError(
                    f"no Ray cluster can be reached {where} ({type(error).__name__}); check the address, and that "
                    "the cluster has the same releases of Python and Ray."
                ) from error
        # a worker's error is raised by the engine, so Ray need not log it as well
        was = os.environ.get(UNHANDLED)
        os.environ[UNHANDLED] = "1"

        def disconnect() -> None:
            ray.shutdown()
            if was is None:
                os.environ.pop(UNHANDLED, None)
            else:
                os.environ[UNHANDLED] = was

        return disconnect

    def _shares(self, ray: ModuleType) -> tuple[int, float]:
        """The number of workers, and the CPUs that are reserved for each."""
        cpus = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
        threads = self.threads_per_worker
        n_workers = max(1, places(cpus, threads)) if self.n_workers is None else self.n_workers
        return n_workers, largest_share(cpus, n_workers, threads)


def places(cpus: Sequence[float], share: float) -> int:
    """How many workers find a place on nodes with so many CPUs, if each reserves `share` of them on one node."""
    # a share may have been rounded down
    return sum(int(own / share * (1.0 + 1e-9)) for own in cpus)


def largest_share(cpus: Sequence[float], n_workers: int, threads: int) -> float:
    """The most CPUs, up to `threads`, that each worker can reserve so that all find a place.

    More workers than CPUs share them. Where no node has a CPU, nothing is reserved.
    """
    shares = {float(threads), *(own / n for own in cpus for n in range(1, n_workers + 1) if own > 0.0)}
    fitting = [share for share in shares if share <= threads and places(cpus, share) >= n_workers]
    share = max(fitting, default=0.0)
    # Ray reserves whole CPUs, or parts of one
    return float(int(share)) if share >= 1.0 else int(share / CPU_STEP) * CPU_STEP


def _sent(hierarchy: Hierarchy, ranges: Sequence[range]) -> Iterator[TablePart]:
    return (TablePart.of(hierarchy, agents) for agents in ranges)
