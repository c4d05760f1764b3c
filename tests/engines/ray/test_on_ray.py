"""Workers on a Ray cluster of this machine, which is started and stopped here. Most cases are in `test_ray_engine`."""

from __future__ import annotations

import os
import signal
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedhlcr
from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.ray import RayCluster
from fedhlcr.exceptions import FileError
from fedhlcr.federation.sums import PAGE_SIZE
from tests.cli.test_streamed_fit import require_same_model
from tests.commands import call
from tests.federations import hierarchy_of
from tests.local_actors import assert_same_fit

# Ray leaves processes to the operating system when it shuts down, and Python says so
IGNORED = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.ci,
    pytest.mark.xdist_group("ray"),
    *map(pytest.mark.filterwarnings, IGNORED),
]

TABLE, _ = make_hlcr(PAGE_SIZE + 40, 2, 3, 2, 3, 0.4, random_state=5)
FIELDS = {"X": TABLE.X, "y": TABLE.y, "agent": TABLE.agent, "entity": TABLE.entity}
PARAMS = {"rounds": 8, "max_clusters": 6, "random_state": 3, "n_threads": 1}
COLUMNS = ("--target", "target", "--agent", "agent", "--entity", "entity")


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray = pytest.importorskip("ray", reason="the ray extra is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def alone():
    return FedHLCRRegressor(**PARAMS).fit(**FIELDS)


@pytest.mark.parametrize("n_workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_model_of_one_process(alone, n_workers):
    model = FedHLCRRegressor(engine=RayCluster(n_workers=n_workers), **PARAMS).fit(**FIELDS)
    assert_same_fit(model, alone)


def test_a_worker_killed_in_an_answer_is_replaced(alone, tmp_path):
    once = str(tmp_path / "once")

    def kill(broadcast, answer):
        contributions = answer(broadcast)
        if broadcast.round == 4 and not os.path.exists(once):
            with open(once, "w") as file:
                file.write(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return contributions

    model = FedHLCRRegressor(engine=RayCluster(n_workers=2, mods=[kill]), **PARAMS).fit(**FIELDS)
    with open(once) as file:
        killed = int(file.read())
    assert killed != os.getpid()
    assert not os.path.exists(f"/proc/{killed}")
    assert_same_fit(model, alone)


@pytest.fixture
def folder(tmp_path):
    """The table in three Parquet files, with rows in any order."""
    whole = TABLE.to_arrow().take(pa.array(np.random.default_rng(0).permutation(len(TABLE))))
    (tmp_path / "table").mkdir()
    for number in range(3):
        part = whole.filter(pa.array(np.arange(len(whole)) % 3 == number))
        pq.write_table(part, tmp_path / "table" / f"{number}.parquet")
    return tmp_path / "table"


def test_a_folder_is_fitted_from_its_files(folder, tmp_path):
    """By one worker and by two that read the files, and by two to which the driver sends their events."""
    models = []
    for n_workers, how in ((1, "--stream"), (2, "--stream"), (2, "--in-memory")):
        out = tmp_path / f"{n_workers}{how}"
        sizes = ("--engine", "ray", "--workers", n_workers, "--sweeps", 8, "--max-clusters", 4, "--hold-out", 0.2)
        assert call("fit", folder, *COLUMNS, *sizes, how, "--out", out, "-q") == 0
        models.append(out)
    assert type(fedhlcr.load(models[0])) is FedHLCRRegressor
    for model in models[1:]:
        require_same_model(models[0], model)


class Elsewhere:
    """A part of a table that only the driver can read."""

    def load(self):
        raise FileError("a worker on node 'n': 'table' does not exist.")


def test_an_error_of_a_worker_reaches_the_user_as_it_was():
    index = hierarchy_of(TABLE).index
    with pytest.raises(FileError, match="a worker on node 'n': 'table' does not exist"):
        RayCluster(n_workers=2).engine(index, lambda ranges: [Elsewhere() for _ in ranges], 0, seed=0)


def test_no_worker_is_left():
    psutil = pytest.importorskip("psutil")

    def is_worker(process):
        try:
            return any("ShardWorker" in text for text in process.cmdline())
        except psutil.Error:
            # it has ended
            return False

    workers = [process for process in psutil.Process().children(recursive=True) if is_worker(process)]
    assert not psutil.wait_procs(workers, timeout=20)[1]
