"""Commands import only what they need. Seconds are measured by `python -m benchmarks imports`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import fedhlcr
from fedhlcr import FedHLCRRegressor, HLCRClassifier, HLCRCountRegressor, HLCRRegressor
from fedhlcr.cli import run
from fedhlcr.datasets import make_hlcr
from fedhlcr.model import choice
from fedhlcr.storage import model_facts, model_reader
from tests.golden import cases

pytestmark = pytest.mark.xdist_group("processes")

HEAVY = ("sklearn", "scipy.stats", "scipy.optimize", "pandas", "narwhals", "matplotlib", "flwr")
# Runs a command as a process of its own does, and prints which of the modules it has imported.
CODE = """
import sys
from fedhlcr.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print([name for name in {names!r} if sys.modules.get(name)], file=sys.stderr)
"""


def imported(names, *arguments):
    """Which of the modules a command imports."""
    code = CODE.format(names=names)
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    table, _ = make_hlcr(6, 3, 5, 2, 2, 0.3, random_state=1)
    (folder / "events.csv").write_text(
        "agent,entity,x0,x1\n"
        + "".join(f"{a},{e},{x[0]},{x[1]}\n" for a, e, x in zip(table.agent, table.entity, table.X, strict=True))
    )
    import pandas as pd

    X = pd.DataFrame(table.X, columns=["x0", "x1"]).assign(agent=table.agent, entity=table.entity)
    ids = {"agent": "agent", "entity": "entity"}
    HLCRRegressor(n_sweeps=6, max_clusters=4, n_threads=1).fit(X, table.y, **ids).save(folder / "real.fedhlcr")
    HLCRRegressor(n_sweeps=6, max_clusters=4).fit(X, table.y, **ids).save(folder / "public.fedhlcr", public=True)
    HLCRClassifier(n_sweeps=6, max_clusters=4).fit(X, table.y > 0, **ids).save(folder / "binary.fedhlcr")
    counts = abs(table.y).round()
    HLCRCountRegressor(n_sweeps=6, max_clusters=4).fit(X, counts, **ids).save(folder / "count.fedhlcr")
    paper = HLCRRegressor(n_sweeps=6, max_clusters=4, effects="none", noise="common")
    paper.fit(X, table.y, **ids).save(folder / "paper.fedhlcr")
    for noise in ("common", "student"):
        model = HLCRRegressor(n_sweeps=6, max_clusters=4, noise=noise)
        model.fit(X, table.y, **ids).save(folder / f"{noise}.fedhlcr")
    FedHLCRRegressor(rounds=3, max_clusters=4).fit(X, table.y, **ids).save(folder / "federated.fedhlcr")
    return folder


MODELS = ("real", "public", "binary", "count", "federated", "paper", "common", "student")


def test_help_imports_no_numbers():
    names = (*HEAVY, "numpy", "scipy", "numba", "pyarrow")
    assert imported(names, "--help") == "[]"


def test_inspect_imports_numpy_only(folder):
    names = (*HEAVY, "scipy", "numba", "pyarrow")
    assert imported(names, "inspect", folder / "real.fedhlcr") == "[]"


def test_split_imports_neither_compiler_nor_statistics(folder):
    names = (*HEAVY, "scipy", "numba")
    files = ["--train", folder / "train.csv", "--test", folder / "test.csv"]
    ids = ["--agent", "agent", "--entity", "entity"]
    assert imported(names, "split", folder / "events.csv", *ids, *files) == "[]"


@pytest.mark.slow
def test_predict_imports_no_scikit_learn(folder):
    for name in (*MODELS[:3], "student"):
        new = ["--new-agents"] if name == "public" else []
        assert imported(HEAVY, "predict", folder / f"{name}.fedhlcr", folder / "events.csv", *new) == "[]"


@pytest.mark.parametrize("name", ["real", "public", "paper"])
@pytest.mark.parametrize("interval", [(), ("--interval", "0.8")])
def test_predict_imports_no_linear_algebra(name, interval, folder):
    """numba would import it, for matrix products that no kernel has."""
    new = ["--new-agents"] if name == "public" else []
    arguments = [folder / f"{name}.fedhlcr", folder / "events.csv", *interval, *new]
    assert imported(("scipy.linalg", "scipy.special"), "predict", *arguments) == "[]"


LAZY = "import sys\nfrom fedhlcr.cli.start_up import import_blas_lazily\nimport_blas_lazily()\n"
USES = {
    "numba's matrix product": """
import numba, numpy as np
product = numba.njit(lambda a, b: a @ b)
assert 'scipy.linalg' not in sys.modules
a = np.arange(6.0).reshape(2, 3)
assert (product(a, a.T.copy()) == a @ a.T).all()
""",
    "scipy's own": "from scipy.linalg import cholesky; assert cholesky([[4.0]]) == 2.0",
    "import of the module": "from scipy.linalg.cython_blas import __pyx_capi__; assert 'dgemm' in __pyx_capi__",
}


@pytest.mark.parametrize("use", USES)
def test_lazy_linear_algebra_is_there_when_it_is_used(use):
    code = f"{LAZY}{USES[use]}\nimport scipy.linalg\nblas = sys.modules['scipy.linalg.cython_blas']\n"
    code += "assert blas is scipy.linalg.cython_blas and blas.__file__\n"
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_pandas_can_be_imported_after_a_command_without_it():
    code = """
import sys
from fedhlcr.cli.start_up import without_pandas
import pyarrow as pa
with without_pandas():
    column = pa.array([1, 2])
assert "pandas" not in sys.modules
assert list(column.to_pandas()) == [1, 2]
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_models_of_all_likelihoods_are_read_in_a_fresh_process(folder):
    """A likelihood is known only once its module has been imported."""
    code = """
import sys
from fedhlcr.storage.model_reader import load_model
for path in sys.argv[1:]:
    print(load_model(path).posterior_.likelihood.name)
"""
    paths = [folder / f"{name}.fedhlcr" for name in MODELS]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    assert set(done.stdout.splitlines()) == set(choice.NOISE_OF)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("how", [(), ("--json",)])
def test_inspect_shows_the_same_whether_or_not_it_loads_the_model(name, how, folder, capsys, monkeypatch):
    arguments = ["inspect", str(folder / f"{name}.fedhlcr"), *how]
    loaded = []
    load = fedhlcr.load
    monkeypatch.setattr(fedhlcr, "load", lambda path: loaded.append(path) or load(path), raising=False)
    assert run(arguments) == 0
    known = capsys.readouterr().out
    assert not loaded
    monkeypatch.setattr(model_facts, "read_facts", lambda path: None)
    assert run(arguments) == 0
    assert capsys.readouterr().out == known
    assert loaded


@pytest.mark.parametrize("name", MODELS)
def test_predictions_without_estimator_are_those_of_the_estimator(name, folder, capsys, monkeypatch):
    model, events = folder / f"{name}.fedhlcr", folder / "events.csv"
    arguments = [
        "predict",
        str(model),
        str(events),
        "--interval",
        "0.8",
        *(["--new-agents"] if name == "public" else []),
    ]
    assert run(arguments) == 0
    light = capsys.readouterr()
    monkeypatch.setattr(model_reader, "load_model", fedhlcr.load)
    assert run(arguments) == 0
    assert capsys.readouterr() == light


def test_files_of_earlier_releases_are_inspected(capsys):
    path = cases.VERSION_1 / cases.MODEL.name
    assert model_facts.read_facts(path) is None
    assert run(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimator"] == "HLCRRegressor"


def test_invalid_facts_are_ignored_and_damaged_ones_refused(folder, tmp_path, capsys):
    path = tmp_path / "model.fedhlcr"
    data = bytearray((folder / "real.fedhlcr").read_bytes())
    data[data.index(b'"sentences"') + 30] ^= 1
    path.write_bytes(data)
    assert run(["inspect", str(path)]) == 4
    assert "truncated or altered" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"description": {}, "facts": {}}', "nonsense", "[" * 100_000, 5],
)
def test_facts_of_another_shape_are_not_shown(text, tmp_path, folder):
    from fedhlcr.storage import pages

    with (folder / "real.fedhlcr").open("rb") as file:
        record = dict(pages.open_record(file, model_facts.KIND, model_facts.VERSION))
    with (tmp_path / "model").open("wb") as file:
        pages.write(file, model_facts.KIND, model_facts.VERSION, record | {"facts": text})
    assert model_facts.read_facts(tmp_path / "model") is None
