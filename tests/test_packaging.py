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
pytestmark = [pytest.mark.slow, pytest.mark.ci]
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
    assert wanted | {"docs/index.md", "src/fedhlcr/datasets/flights.parquet", "PKG-INFO"} <= {*names}
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


def test_wheel_runs_the_demo_in_an_environment_of_its_own(wheel, tmp_path):
    """The environment has the wheel only; dependencies are those of this one, without the project's sources."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=os.name != "nt")
    scripts = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / Path(sys.executable).name
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    target = ["--target", packages, "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "install", *target, wheel, cwd=tmp_path)
    # after the packages of the environment itself, so that its fedhlcr comes first
    own = sorted({path for path in map(Path, sys.path) if path.name in ("site-packages", "dist-packages")})
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in own))
    _take_compiled_kernels(packages / "fedhlcr" / "kernels")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    where = run(python, "-c", "import fedhlcr; print(fedhlcr.__file__)", cwd=folder).strip()
    assert Path(where).is_relative_to(packages)
    command = [python, packages / "bin" / "fedhlcr"]
    assert run(*command, "--version", cwd=folder).split() == ["fedhlcr", fedhlcr.__version__]
    said = run(*command, "demo", "--rounds", 3, cwd=folder)
    assert "What it found: " in said
    assert [path.name for path in folder.iterdir()] == ["demo-report.html"]
    page = Page((folder / "demo-report.html").read_text())
    assert "routes" in page.columns("clusters")
