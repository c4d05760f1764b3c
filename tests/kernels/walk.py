"""Journeys through the package, which between them call all kernels that are compiled ahead.

`python -m tests.kernels.walk JOURNEY` prints the types of arguments that kernels were called with, as JSON, and
`--write` writes `signatures.json` from all journeys.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numba import types
from numba.core import event

import fedhlcr
from fedhlcr.datasets import make_hlcr
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.kernels import ahead

# Few sweeps and clusters: enough of each for merging, for the comparison with one cluster, and for kept draws.
SWEEPS = {"n_sweeps": 60, "max_clusters": 6, "random_state": 0}
ROUNDS = {"rounds": 60, "max_clusters": 6, "random_state": 0}


def table_of(target: str, n_features: int = 3) -> HierarchicalData:
    table, _ = make_hlcr(12, 4, 12, n_features, 3, 0.4, target=target, random_state=1)
    return table


def use(model: Any, table: HierarchicalData, *, density: bool = True) -> None:
    """Predictions of all kinds, for events of known entities, new entities and new agents."""
    ids = {"agent": table.agent, "entity": table.entity}
    new = {"agent": table.agent, "entity": np.full(len(table.y), "new")}
    for of in (ids, new, {"agent": np.full(len(table.y), "new"), "entity": table.entity}):
        model.predict(table.X, **of)
        model.predict_interval(table.X, **of)
        if density:
            model.log_density(table.X, table.y, **of)
    model.score(table.X, table.y, **ids)
    model.responsibilities(table.agent[0], table.entity[0])
    model.adapt(table.X[:9], table.y[:9], table.agent[:9], table.entity[:9])


def fit_all(target: str, central: Any, federated: Any, **only: Any) -> None:
    table = table_of(target)
    ids = {"agent": table.agent, "entity": table.entity}
    for settings in only.get("settings", ({}, {"effects": "none", "noise": "common"}, {"effects": "entity+agent"})):
        use(central(**SWEEPS, **settings).fit(table.X, table.y, **ids), table)
        more = {"participation": 0.7, "failure_rate": 0.2}
        use(federated(**ROUNDS, **more, **settings).fit(table.X, table.y, **ids), table)


def real(_: Path) -> None:
    fit_all("real", fedhlcr.HLCRRegressor, fedhlcr.FedHLCRRegressor)
    table = table_of("real")
    # in no order, as most tables are
    table = table[np.random.default_rng(0).permutation(len(table))]
    ids = {"agent": table.agent, "entity": table.entity}
    model = fedhlcr.HLCRRegressor(**SWEEPS).fit(table.X, table.y, **ids)
    model.coef_table()
    model.entity_table()


def curves(_: Path) -> None:
    fit_all("real", fedhlcr.HLCRRegressor, fedhlcr.FedHLCRRegressor, settings=({"curves": "auto"},))


def student(_: Path) -> None:
    fit_all("real", fedhlcr.HLCRRegressor, fedhlcr.FedHLCRRegressor, settings=({"noise": "student"},))


def classes(_: Path) -> None:
    settings = ({}, {"effects": "none"}, {"effects": "entity+agent"})
    fit_all("binary", fedhlcr.HLCRClassifier, fedhlcr.FedHLCRClassifier, settings=settings)
    quantiles_and_table("binary", fedhlcr.HLCRClassifier(**SWEEPS))


def counts(_: Path) -> None:
    settings = ({}, {"effects": "none"}, {"effects": "entity+agent"})
    fit_all("count", fedhlcr.HLCRCountRegressor, fedhlcr.FedHLCRCountRegressor, settings=settings)
    quantiles_and_table("count", fedhlcr.HLCRCountRegressor(**SWEEPS))


def quantiles_and_table(target: str, model: Any) -> None:
    table = table_of(target)
    ids = {"agent": table.agent, "entity": table.entity}
    model.fit(table.X, table.y, **ids)
    model.predict_moments(table.X, **ids, levels=(0.1, 0.9))
    model.entity_table()


def paper(_: Path) -> None:
    table = table_of("real")
    ids = {"agent": table.agent, "entity": table.entity}
    for settings in ({"label_prior": "paper", "coef_prior": "zero_mean"}, {"label_prior": "tables"}):
        use(
            fedhlcr.HLCRRegressor(sampler="collapsed", n_clusters=3, **SWEEPS, **settings).fit(table.X, table.y, **ids),
            table,
        )
    fixed = {"noise_scale": 0.4, "coef_scale": 1.0, "global_concentration": 3.0, "agent_concentration": 1.0}
    blend = fedhlcr.FedHLCRRegressor(rule="blend", n_clusters=3, rounds=20, random_state=0, **fixed)
    use(blend.fit(table.X, table.y, **ids), table)


def guarded(_: Path) -> None:
    table = table_of("real")
    ids = {"agent": table.agent, "entity": table.entity}
    use(fedhlcr.FedHLCRRegressor(aggregation="secure", rounds=40, random_state=0).fit(table.X, table.y, **ids), table)
    private = {"privacy": fedhlcr.DifferentialPrivacy(epsilon=8), "n_clusters": 3, "effects": "none", "noise": "common"}
    fedhlcr.FedHLCRRegressor(**private, random_state=0).fit(table.X, table.y, **ids).predict(table.X, **ids)


def files(folder: Path) -> None:
    """A table in files, with ids that are texts and numbers, and gaps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = table_of("real")
    frame = table.to_arrow()
    names = pa.array([f"agent {i}" for i in table.agent])
    frame = frame.set_column(frame.schema.get_field_index("agent"), "agent", names)
    source = folder / "events"
    source.mkdir()
    for part in range(2):
        pq.write_table(frame.slice(part * len(frame) // 2, len(frame) // 2), source / f"{part}.parquet")
    numbers = frame.set_column(frame.schema.get_field_index("entity"), "entity", pa.array(np.arange(len(frame)) % 4))
    (folder / "numbers").mkdir()
    pq.write_table(numbers, folder / "numbers" / "0.parquet")
    for name in ("events", "numbers"):
        model = fedhlcr.HLCRRegressor(**SWEEPS)
        model.fit_files(folder / name, target="target", agent="agent", entity="entity")
        model.save(folder / f"{name}.fedhlcr")
        fedhlcr.load(folder / f"{name}.fedhlcr").predict(frame if name == "events" else numbers)


def without_ids(folder: Path) -> None:
    """Fits without agents, or without entities too; and predictions of models that were saved."""
    table = table_of("real")
    for ids in ({}, {"entity": table.entity}, {"agent": table.agent}):
        model = fedhlcr.HLCRRegressor(**SWEEPS).fit(table.X, table.y, **ids)
        model.predict(table.X, **ids)
        model.save(folder / "model")
        fedhlcr.load(folder / "model").predict(table.X, **ids)


def read_only(folder: Path) -> None:
    """Arrays that are mapped from files, sorted and in no order."""
    real, count = table_of("real"), table_of("count")
    shuffled = np.random.default_rng(0).permutation(len(real))
    for name, table in (("sorted", real), ("shuffled", real[shuffled]), ("counts", count)):
        arrays = {"X": table.X, "y": table.y, "agent": table.agent, "entity": table.entity}
        arrays["sample_weight"] = np.ones(len(table.y))
        for part, values in arrays.items():
            np.save(folder / f"{name}-{part}.npy", values)
        mapped = {part: np.load(folder / f"{name}-{part}.npy", mmap_mode="r") for part in arrays}
        ids = {part: mapped[part] for part in ("agent", "entity")}
        models: list[Any] = [fedhlcr.HLCRCountRegressor(**SWEEPS), fedhlcr.FedHLCRCountRegressor(**ROUNDS)]
        if name != "counts":
            models = [fedhlcr.HLCRRegressor(**SWEEPS), fedhlcr.FedHLCRRegressor(**ROUNDS)]
            models.append(fedhlcr.HLCRRegressor(noise="student", **SWEEPS))
        for model in models:
            model.fit(**mapped)
            model.predict(mapped["X"], **ids)
            model.predict_interval(mapped["X"], **ids)
            model.log_density(mapped["X"], mapped["y"], **ids)


def large_agents(_: Path) -> None:
    """Agents whose entities are counted once for all predictions."""
    table, _ = make_hlcr(2, 1100, 2, 2, 2, 0.4, random_state=1)
    ids = {"agent": table.agent, "entity": table.entity}
    for settings in ({}, {"effects": "none", "noise": "common"}):
        few = {**SWEEPS, "n_sweeps": 12}
        fedhlcr.HLCRRegressor(**few, **settings).fit(table.X, table.y, **ids).predict(table.X, **ids)


def many_clusters(_: Path) -> None:
    """More clusters than a byte can number."""
    table, _ = make_hlcr(40, 40, 6, 2, 4, 0.2, random_state=2)
    ids = {"agent": table.agent, "entity": table.entity}
    for settings in ({"effects": "entity"}, {"effects": "none", "noise": "common"}):
        model = fedhlcr.HLCRRegressor(n_sweeps=12, n_clusters=300, random_state=0, **settings)
        use(model.fit(table.X, table.y, **ids), table)


def cluster(folder: Path) -> None:
    """Workers like those of a Ray cluster, given a table in memory and one in files."""
    import pyarrow.parquet as pq
    import pytest

    from tests.local_actors import use_local_actors

    table = table_of("real")
    for part in range(2):
        pq.write_table(table.to_arrow().slice(part * len(table) // 2, len(table) // 2), folder / f"{part}.parquet")
    columns = {"target": "target", "agent": "agent", "entity": "entity"}
    with pytest.MonkeyPatch.context() as patch:
        use_local_actors(patch)
        for settings in ({}, {"noise": "student"}):
            model = fedhlcr.FedHLCRRegressor(engine="ray", **ROUNDS, **settings)
            use(model.fit(table.X, table.y, agent=table.agent, entity=table.entity), table)
            fedhlcr.FedHLCRRegressor(engine="ray", **ROUNDS, **settings).fit_files(folder, **columns)


def flower(folder: Path) -> None:
    """A server and nodes of Flower, in this process."""
    from tests.flower_grid import local_nodes, run_app

    table = table_of("real")
    run_app(local_nodes(folder, table), folder, rounds=60, round_timeout=600.0)


JOURNEYS: dict[str, Callable[[Path], None]] = {
    of.__name__: of
    for of in (
        *(real, curves, student, classes, counts, paper, guarded, files),
        *(without_ids, read_only, large_agents, many_clusters, cluster, flower),
    )
}
# What journeys need besides the package.
EXTRAS = {"flower": "flwr"}


def is_possible(journey: str) -> bool:
    """Whether what the journey needs is installed."""
    return journey not in EXTRAS or find_spec(EXTRAS[journey]) is not None


class Stopwatch(event.Listener):
    """Measures how long the compiler takes for each kernel, with those that it calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started: list[float] = []

    def on_start(self, event: Any) -> None:
        self._started.append(time.process_time())

    def on_end(self, event: Any) -> None:
        name = name_of(event.data["dispatcher"])
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - self._started.pop()


def name_of(kernel: Any) -> str:
    return f"{kernel.py_func.__module__.rpartition('.')[2]}.{kernel.py_func.__qualname__}"


def types_in_use() -> dict[str, list[Any]]:
    """The kernels that have been compiled or loaded in this process, and each list of types of their arguments."""
    modules = [module for name, module in sys.modules.items() if name.startswith("fedhlcr.kernels.")]
    kernels = {name_of(value): value for module in modules for value in vars(module).values() if is_kernel(value)}
    return {
        name: [[described(of) for of in signature] for signature in kernel.signatures]
        for name, kernel in kernels.items()
        if kernel.signatures
    }


def described(of: Any) -> Any:
    """The opposite of `ahead.numba_type`, for types that can be kept in a file; the name of others."""
    if isinstance(of, types.BaseTuple):
        named = getattr(of, "instance_class", None)
        name = "" if named is None else f"{named.__module__.rpartition('.')[2]}.{named.__name__}"
        return [name, *map(described, of.types)]
    number = of.dtype if isinstance(of, types.Array) else of
    if not isinstance(number, types.Number | types.Boolean):
        return str(of)
    dtype = np.dtype(str(number)).str[1:]
    if number is of:
        return dtype
    return f"{dtype}:{of.ndim}" if of.layout == "C" and of.mutable and of.aligned else str(of)


def is_kernel(value: Any) -> bool:
    return hasattr(value, "py_func") and value.py_func.__module__.startswith("fedhlcr.kernels.")


def take(journey: str) -> dict[str, Any]:
    """Go on a journey in this process; return `types_in_use` and the seconds of the compiler."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    watch = Stopwatch()
    event.register("numba:compile", watch)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        JOURNEYS[journey](Path(folder))
    return {"types": types_in_use(), "seconds": watch.seconds}


def take_apart(journey: str, **environment: str) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "tests.kernels.walk", journey]
    # what goes wrong there is shown here
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **environment})
    return json.loads(done.stdout)


def write_signatures() -> None:
    """Write `signatures.json` from all journeys, with nothing compiled before."""
    wanted = {name for names in ahead.GROUPS.values() for name in names.split()}
    known: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as cache:
        for journey in JOURNEYS:
            print(journey, file=sys.stderr, flush=True)
            taken = take_apart(journey, NUMBA_CACHE_DIR=cache, **{ahead.WORKER: "1"})
            for name in wanted.intersection(taken["types"]).difference(known):
                known[name] = {"seconds": round(taken["seconds"].get(name, 0.0), 1), "types": taken["types"][name][0]}
    if missing := wanted.difference(known):
        sys.exit(f"no journey calls {', '.join(sorted(missing))}")
    lines = (f"{json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known))
    ahead.SIGNATURES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        write_signatures()
    else:
        print(json.dumps(take(sys.argv[1])))
