"""Hints at optional packages: what they name exists, and what they print works where fedhlcr was installed from."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import fedhlcr
from fedhlcr._support import extras
from fedhlcr._support.extras import install_command, missing_extra
from fedhlcr.exceptions import Category, MissingDependencyError

SOURCE = Path(fedhlcr.__file__).parent
ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# A command that installs an extra, in documents: `pip install ".[plot]"`.
COMMAND = re.compile(r"""pip install (?:-e )?['"]?([\w.]+)\[([\w,-]+)\]""")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]


def calls():
    """Each call of `missing_extra` in the sources: the file, what needs the extra, and the extra."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).lstrip("_") == "missing_extra":
                yield path.relative_to(SOURCE).as_posix(), *(ast.literal_eval(argument) for argument in node.args)


CALLS = list(calls())


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Let fedhlcr be installed from somewhere: `install(origin)`, with what pip writes to direct_url.json, or None."""
    required = [
        f"{'fedhlcr' + text[len('fedhlcr') :] if text.startswith('fedhlcr[') else text}; extra == '{extra}'"
        for extra, texts in EXTRAS.items()
        for text in (text.partition(";")[0].strip() for text in texts)
    ]

    def install_from(origin):
        folder = tmp_path / "fedhlcr-1.0.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.4", "Name: fedhlcr", "Version: 1.0", *(f"Requires-Dist: {r}" for r in required)]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")
        if origin is not None:
            (folder / "direct_url.json").write_text(json.dumps(origin))
        monkeypatch.setattr(extras.metadata, "distribution", lambda name: metadata.PathDistribution(folder))

    return install_from


def test_hints_are_found():
    assert {"privacy", "flower", "ray", "torch", "plot", "arviz", "formula"} <= {extra for *_, extra in CALLS}


@pytest.mark.parametrize(("path", "need", "extra"), CALLS)
def test_every_hint_names_an_extra_that_exists_and_a_command_that_works(path, need, extra, install):
    assert extra in EXTRAS, path
    install({"url": "file:///somewhere", "dir_info": {"editable": True}})
    error = missing_extra(need, extra)
    assert isinstance(error, MissingDependencyError)
    assert error.category is Category.FAILED
    assert str(error).startswith(f"{need}: ")
    assert f'pip install ".[{extra}]"' in str(error)


def test_no_other_place_words_hints_at_extras():
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if COMMAND.search(text):
                found.add(path.relative_to(SOURCE).as_posix())
            if isinstance(node, ast.Raise) and "MissingDependencyError(" in ast.unparse(node):
                # packages that are no extra, such as pandas
                assert re.search(r"pip install (pandas|polars|\{library\})", ast.unparse(node)), path
    assert not found


@pytest.mark.parametrize("editable", [True, False])
def test_folder_of_sources(install, editable):
    install({"url": "file:///home/me/my%20clone", "dir_info": {"editable": True} if editable else {}})
    said = install_command("plot")
    assert 'pip install ".[plot]"' in said
    assert "clone" in said
    assert "/home/me" not in said


def test_index(install):
    install(None)
    assert install_command("plot") == 'pip install "fedhlcr[plot]"'


@pytest.mark.parametrize(
    "origin",
    [
        {"url": "file:///tmp/odd%20place/fedhlcr-1.0-py3-none-any.whl", "archive_info": {"hash": "sha256=0"}},
        {"url": "https://example.org/fedhlcr.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}},
    ],
)
@pytest.mark.parametrize("extra", sorted({extra for *_, extra in CALLS} | {"simulation", "experiments"}))
def test_wheel_or_archive_that_may_be_gone(install, origin, extra):
    install(origin)
    said = install_command(extra)
    assert "://" not in said
    assert "fedhlcr" not in said
    wanted, open_extras = set(), [extra]
    while open_extras:
        for requirement in EXTRAS[open_extras.pop()]:
            inner = re.fullmatch(r"fedhlcr\[(.+)\]", requirement)
            if inner is None:
                wanted.add(requirement)
            else:
                open_extras += inner[1].split(",")
    assert set(re.findall('"([^"]+)"', said)) == wanted
    assert said.startswith("pip install ")


@pytest.mark.parametrize("is_clone", [True, False])
def test_sources_that_are_not_installed(is_clone, tmp_path, monkeypatch):
    def not_installed(name):
        raise metadata.PackageNotFoundError(name)

    if is_clone:
        (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(extras.metadata, "distribution", not_installed)
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "src" / "fedhlcr" / "_support" / "extras.py"))
    assert ('pip install ".[plot]"' in install_command("plot")) == is_clone
    assert (install_command("plot") == 'pip install "fedhlcr[plot]"') != is_clone


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_in_documents_work_in_a_clone(page):
    for where, names in COMMAND.findall(page.read_text()):
        assert where == ".", names
        assert set(names.split(",")) <= set(EXTRAS)
