"""Every code block of the README and the docs runs, and what they name exists."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What an opening fence may say: it is run; or it is shown, such as output, formulas, and what only a deployment runs.
RUN, SHOWN = {"python", "sh"}, {"text"}
FENCED = re.compile(r"^(?P<fence>`{3,})(?P<kind>[^`\n]*)\n(?P<body>.*?)^(?P=fence)\s*$", re.DOTALL | re.MULTILINE)
# Commands that are shown and not run, by how they begin.
COMMAND = re.compile(r"^(fedhlcr|flwr|flower-\w+|python|pip|make|export|curl) [\w-]", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    """Kind and body of each fenced block."""
    return [(found["kind"].strip(), found["body"]) for found in FENCED.finditer(page.read_text())]


def runs(page: Path) -> bool:
    return any(kind in RUN for kind, _ in blocks(page))


@pytest.mark.parametrize("page", [p for p in PAGES if runs(p)], ids=name_of)
def test_code_blocks_run(page, capsys, tmp_path, monkeypatch):
    """In order, in a folder of the page's own; Python blocks share their names. Output shown is what they print."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, body, shown in blocks_and_outputs(page):
            if kind == "python":
                exec(compile(body, str(page), "exec"), names)
                printed = capsys.readouterr().out
            else:
                printed = run_in_shell(body, tmp_path)
            assert_printed(shown, printed)


def blocks_and_outputs(page: Path) -> list[tuple[str, str, str]]:
    """Blocks that run, and for each the block of text right below it, if there is one."""
    found = list(FENCED.finditer(page.read_text()))
    below = {
        one.end(): other for one, other in pairwise(found) if not page.read_text()[one.end() : other.start()].strip()
    }
    outputs = {end: other["body"] for end, other in below.items() if is_output(other)}
    return [(f["kind"].strip(), f["body"], outputs.get(f.end(), "")) for f in found if f["kind"].strip() in RUN]


def is_output(block: re.Match[str]) -> bool:
    return block["kind"].strip() in SHOWN and not COMMAND.search(block["body"])


def assert_printed(shown: str, printed: str) -> None:
    """Every line that is shown was printed, but for its numbers, which may differ by machine; … stands for anything."""
    lines = {_without_numbers(line) for line in printed.splitlines()}
    for line in map(_without_numbers, shown.splitlines()):
        start, *cut = line.split("…")
        assert line in lines or (cut and any(other.startswith(start) for other in lines)), (
            f"{line!r} is not printed:\n{printed}"
        )


def _without_numbers(line: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"[-+−]?\d[\d.,e]*", "0", line.replace("─", ""))).strip()


def run_in_shell(commands: str, folder: Path) -> str:
    """What is printed, errors among it. This checkout's fedhlcr, and this environment's commands before any others."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "120",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}"
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_code_block_is_fenced_and_of_a_known_kind(page):
    """So that none can be there that neither runs nor is meant only to be read."""
    text = page.read_text()
    assert {kind for kind, _ in blocks(page)} <= RUN | SHOWN
    rest = FENCED.sub("", text)
    assert "```" not in rest
    assert "~~~" not in rest
    # four spaces after an empty line are code too, but for the inner lines of lists
    assert not re.findall(r"(?<=\n)\n {4,}(?![-*0-9 ]).*", rest)


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "command-line.md"], ids=name_of)
def test_commands_that_are_only_shown_name_what_runs_them(page):
    """A deployment on three machines is no test; which test runs the like of it must stand on the page."""
    shown = [body for kind, body in blocks(page) if kind in SHOWN and COMMAND.search(body)]
    named = re.findall(r"`(tests/test_\w+\.py|\.ci/run)`", page.read_text())
    assert not shown or named, shown
    assert all((ROOT / name).exists() for name in named)


@pytest.mark.parametrize("page", [ROOT / "PAPER.md", ROOT / "CHANGELOG.md", *PAGES], ids=name_of)
def test_links_lead_somewhere(page):
    text = FENCED.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_page_is_in_the_navigation():
    """The strict build tells it too, but later."""
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES[1:]:
        assert str(page.relative_to(ROOT / "docs")) in navigation, page


@pytest.mark.parametrize("start", ["README.md", "docs/index.md"])
def test_every_page_to_learn_do_or_understand_is_listed_where_readers_start(start):
    start = ROOT / start
    linked = {(start.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+\.md)", start.read_text())}
    pages = {page for page in PAGES[1:] if page.parent.name in ("how-to", "explanation") or page.name == "tutorial.md"}
    assert pages <= linked


def test_the_readme_tells_of_every_module():
    tree = (ROOT / "README.md").read_text().partition("## Reading the code")[2]
    for path in (ROOT / "src" / "fedhlcr").iterdir():
        if not path.name.startswith(("_", ".")) and path.name != "py.typed":
            assert path.name in tree, path.name


def test_the_paper_map_names_what_exists():
    text = (ROOT / "PAPER.md").read_text()
    sources = {path.stem: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    for file, test in re.findall(r"`(test_\w+\.py)::(\w+)`", text):
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), test
    for name in re.findall(
        r"`((?:regression|reference|posterior|kernels|samplers|priors|streams|federation)[\w.]*)`", text
    ):
        for cut in range(name.count(".") + 1, 0, -1):
            try:
                found = importlib.import_module("fedhlcr." + ".".join(name.split(".")[:cut]))
            except ModuleNotFoundError:
                continue
            for part in name.split(".")[cut:]:
                # attributes of dataclasses exist on the class or among its fields
                fields = getattr(found, "__dataclass_fields__", {})
                assert hasattr(found, part) or part in fields, name
                found = getattr(found, part, None)
            break
        else:
            pytest.fail(f"no module for {name}")
    for mark in ("Theorem 1", "Theorem 2", "Algorithm 1", "Algorithm 2", "Algorithm 3", "eq. (prior)"):
        assert any(re.search(rf"Paper: .*{re.escape(mark)}", source) for source in sources.values()), mark


def test_docstring_examples():
    import doctest

    for name in ("estimators", "federated", "selection", "splitting", "datasets.flights", "datasets.synthetic"):
        failures, tried = doctest.testmod(importlib.import_module(f"fedhlcr.{name}"))
        assert tried > 0
        assert failures == 0


def test_the_site_can_be_searched_from_disk(tmp_path):
    """On a phone and on a desktop, in pages of either depth, and without asking any other host."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no browser here: install Debian's chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")
    pytest.importorskip("material", reason="no mkdocs-material here: pip install '.[docs]'")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    asked: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, width in (("index.html", 1280), ("how-to/federate.html", 390)):
            page = browser.new_page(viewport={"width": width, "height": 800})
            page.on("request", lambda request: asked.append(request.url))
            page.goto((tmp_path / name).as_uri())
            page.click(".md-search__input" if width > 1000 else "label.md-header__button[for=__search]")
            page.keyboard.type("interval")
            page.wait_for_selector(".md-search-result__link", timeout=20_000)
            found = page.locator(".md-search-result__link").first.get_attribute("href") or ""
            assert (tmp_path / found.removeprefix(f"{tmp_path.as_uri()}/").partition("?")[0].partition("#")[0]).exists()
        browser.close()
    assert asked
    assert all(url.startswith("file:") for url in asked)
