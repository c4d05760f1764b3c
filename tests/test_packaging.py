"""Wheel and source distribution: what they hold, and that the wheel runs where nothing else of the project is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import fedhlcr
from tests.reports import Page

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.xdist_group("processes")]
# Reads the wheel from a source distribution, as `python -m build` does, with the hatchling that is installed.
BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"


def run(*command, cwd, **environment):
    """Run a command without the project's own sources in reach."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("sdist")
    return folder / run(sys.executable, "-c", BUILD, "build_sdist", folder, cwd=ROOT).split()[-1]


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """Built from the source distribution alone."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return folder / run(sys.executable, "-c", BUILD, "build_wheel", folder, cwd=source).split()[-1]


def is_left_over(name):
    parts = Path(name).parts
    return "__pycache__" in parts or name.endswith((".pyc", ".nbi", ".nbc", ".orig")) or "demo-report.html" in parts


def test_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.name == f"fedhlcr-{fedhlcr.__version__}-py3-none-any.whl"
    info = f"fedhlcr-{fedhlcr.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"fedhlcr", info}
    package = ROOT / "src" / "fedhlcr"
    source = {f"fedhlcr/{path.relative_to(package).as_posix()}" for path in package.rglob("*") if path.is_file()}
    assert {name for name in names if name.startswith("fedhlcr/")} == {s for s in source if not is_left_over(s)}
    assert {"fedhlcr/py.typed", "fedhlcr/datasets/flights.parquet", "fedhlcr/report/templates/report.html"} <= {*names}
    assert f"{info}/licenses/LICENSE" in names
    assert not [name for name in names if is_left_over(name)]


def test_sdist_holds_what_is_needed_to_build_test_and_read(sdist):
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    wanted = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/fedhlcr/py.typed", "tests/conftest.py"}
    assert wanted | {"SECURITY.md", "docs/index.md", "src/fedhlcr/datasets/flights.parquet", "PKG-INFO"} <= {*names}
    assert not [name for name in names if is_left_over(name)]
    tops = {name.split("/")[0] for name in names}
    assert not tops & {".venv", ".git", ".mypy_cache", ".pytest_cache", ".ruff_cache", "dist", "site", "data"}


def test_metadata_name_the_licence_the_extras_and_the_oldest_python(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    metadata = archive.read(name).decode()
    for line in ("License-Expression: Apache-2.0", "Requires-Python: >=3.11", "Provides-Extra: plot"):
        assert line in metadata
    assert "Classifier: Typing :: Typed" in metadata


def _take_compiled_kernels(folder):
    """Copy what this environment has compiled of the same files: compiling again takes minutes."""
    ours = Path(fedhlcr.__file__).parent / "kernels"
    for path in ours.glob("*.py"):
        assert (folder / path.name).read_bytes() == path.read_bytes()
        # numba compares times of files
        shutil.copystat(path, folder / path.name)
    if (ours / "__pycache__").is_dir():
        shutil.copytree(ours / "__pycache__", folder / "__pycache__", ignore=shutil.ignore_patterns("*.pyc"))


# pip of this environment, for other folders; nothing is looked up anywhere.
PIP = (sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check")
# Prints what importing `fedhlcr.plot` says where there is no matplotlib.
WITHOUT_MATPLOTLIB = """
import sys
sys.modules["matplotlib"] = None
try:
    import fedhlcr.plot
except ImportError as error:
    print(error)
"""


class Environment:
    """An environment that has the wheel only; dependencies are those of this one, without the project's sources."""

    def __init__(self, folder, wheel):
        venv.create(folder, with_pip=False, symlinks=os.name != "nt")
        self.python = folder / ("Scripts" if os.name == "nt" else "bin") / Path(sys.executable).name
        where = run(self.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder)
        self.packages = Path(where.strip())
        self.command = [self.python, self.packages / "bin" / "fedhlcr"]
        run(*PIP, "--target", self.packages, wheel, cwd=folder)
        # after the packages of the environment itself, so that its fedhlcr comes first
        own = sorted({path for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")})
        (self.packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in own))
        _take_compiled_kernels(self.packages / "fedhlcr" / "kernels")


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("env"), wheel)


def demo_runs(environment, folder):
    said = run(*environment.command, "demo", "--rounds", 3, cwd=folder)
    assert "What it found: " in said
    assert [path.name for path in folder.iterdir()] == ["demo-report.html"]
    page = Page((folder / "demo-report.html").read_text())
    assert "routes" in page.columns("clusters")


def test_wheel_runs_the_demo_in_an_environment_of_its_own(environment, tmp_path):
    where = run(environment.python, "-c", "import fedhlcr; print(fedhlcr.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(environment.packages)
    assert run(*environment.command, "--version", cwd=tmp_path).split() == ["fedhlcr", fedhlcr.__version__]
    demo_runs(environment, tmp_path)


def test_hint_at_a_missing_package_fits_a_wheel(environment, tmp_path):
    """The wheel may be gone, and no index has it, so the hint names what the extra stands for."""
    said = run(environment.python, "-c", WITHOUT_MATPLOTLIB, cwd=tmp_path)
    assert 'pip install "matplotlib>=' in said
    assert str(environment.packages) not in said


def test_hint_at_a_missing_package_fits_a_clone(tmp_path):
    """As after `pip install .` in a clone."""
    pytest.importorskip("hatchling")
    run(*PIP, "--no-build-isolation", "--target", tmp_path / "packages", ROOT, cwd=tmp_path)
    said = run(sys.executable, "-c", f"import sys; sys.path.insert(0, 'packages')\n{WITHOUT_MATPLOTLIB}", cwd=tmp_path)
    assert 'pip install ".[plot]"' in said


def test_core_runs_with_the_newest_typer(wheel, tmp_path):
    """Flower holds typer back in this environment, but the core takes the newest, which has click's code inside."""
    environment = Environment(tmp_path / "env", wheel)
    # without --upgrade, which would replace the folder of commands
    newest = ["--quiet", "--ignore-installed", "--target", str(environment.packages), "typer", "click"]
    done = subprocess.run([*PIP[:4], *newest], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        pytest.skip("no index can be reached from here")
    versions = "import typer, click; print(typer.__version__, typer.__file__, click.__file__)"
    version, *where = run(environment.python, "-c", versions, cwd=tmp_path).split()
    assert all(Path(path).is_relative_to(environment.packages) for path in where)
    assert tuple(map(int, version.split(".")[:2])) >= (0, 29)
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for how in (("help", "fit"), ("fit", "--help")):
        said = run(*environment.command, *how, cwd=folder, COLUMNS="200")
        assert "A table with one row per event" in said
        assert "--max-clusters" in said
    demo_runs(environment, folder)
