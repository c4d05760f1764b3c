"""Every code block of the README and the docs runs, and what the pages name exists."""

from __future__ import annotations

import doctest
import importlib
import inspect
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
SOURCE = ROOT / "src" / "fedhlcr"
SITE_PAGES = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE_PAGES]
TRACKED_FOLDERS = ("docs", "experiments", "benchmarks")
ALL_MARKDOWN = [
    *sorted(ROOT.glob("*.md")),
    *(p for name in TRACKED_FOLDERS for p in sorted((ROOT / name).rglob("*.md"))),
]
# Languages of fenced blocks. Blocks of RUN are executed; blocks of SHOWN are output, formulas, or what only a
# deployment executes.
RUN, SHOWN = {"python", "sh"}, {"text"}
FENCED = re.compile(r"^(?P<fence>`{3,})(?P<language>[^`\n]*)\n(?P<body>.*?)^(?P=fence)\s*$", re.DOTALL | re.MULTILINE)
# A line that is a command, in a block that is shown.
COMMAND = re.compile(r"^(fedhlcr|flwr|flower-\w+|python|pip|make|export|curl) [\w-]", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and body of each fenced block."""
    return [(found["language"].strip(), found["body"]) for found in FENCED.finditer(page.read_text())]


def runs(page: Path) -> bool:
    return any(language in RUN for language, _ in blocks(page))


def long_unless_readme(page: Path) -> object:
    """The README's code runs with every `make test`, that of all other pages in CI."""
    marks = () if page.name == "README.md" else (pytest.mark.slow, pytest.mark.ci)
    return pytest.param(page, marks=marks, id=name_of(page))


@pytest.mark.parametrize("page", [long_unless_readme(p) for p in PAGES if runs(p)])
def test_code_blocks_run(page, capsys, tmp_path, monkeypatch):
    """In order, in a folder of their own; Python blocks of a page share their names. They print the output shown."""
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for language, body, shown in blocks_and_outputs(page):
            if language == "python":
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
    return [(f["language"].strip(), f["body"], outputs.get(f.end(), "")) for f in found if f["language"].strip() in RUN]


def is_output(block: re.Match[str]) -> bool:
    return block["language"].strip() in SHOWN and not COMMAND.search(block["body"])


def assert_printed(shown: str, printed: str) -> None:
    """Every line shown was printed. Numbers may differ, because machines do; … stands for the rest of a line."""
    lines = {_without_numbers(line) for line in printed.splitlines()}
    for line in map(_without_numbers, shown.splitlines()):
        start, *cut = line.split("…")
        assert line in lines or (cut and any(other.startswith(start) for other in lines)), (
            f"{line!r} is not printed:\n{printed}"
        )


def _without_numbers(line: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"[-+−]?\d[\d.,e]*", "0", line.replace("─", ""))).strip()


def run_in_shell(commands: str, folder: Path) -> str:
    """Standard output and errors of the commands, with this checkout's fedhlcr and this environment's commands."""
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
def test_every_code_block_is_fenced_and_has_a_known_language(page):
    """A block in another form would neither run nor be checked."""
    text = page.read_text()
    assert {language for language, _ in blocks(page)} <= RUN | SHOWN
    rest = FENCED.sub("", text)
    assert "```" not in rest
    assert "~~~" not in rest
    # four spaces after an empty line are code too, except inside lists
    assert not re.findall(r"(?<=\n)\n {4,}(?![-*0-9 ]).*", rest)


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "command-line.md"], ids=name_of)
def test_pages_with_commands_that_do_not_run_name_a_test_that_does(page):
    """No test deploys three machines; the page names the test that comes closest."""
    shown = [body for language, body in blocks(page) if language in SHOWN and COMMAND.search(body)]
    named = re.findall(r"`(tests/[\w/]+\.py|\.ci/run)`", page.read_text())
    assert not shown or named, shown
    assert all((ROOT / name).exists() for name in named)


@pytest.mark.parametrize("page", ALL_MARKDOWN, ids=name_of)
def test_links_lead_somewhere(page):
    text = FENCED.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", ALL_MARKDOWN, ids=name_of)
def test_lines_are_wrapped(page):
    """At 120 columns, except tables, code and headings, and lines that cannot be broken."""
    prose = (line for line in FENCED.sub("", page.read_text()).splitlines() if not line.startswith(("|", "#", "!")))
    assert not [line for line in prose if len(line) > 120 and " " in line.strip()]


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in SITE_PAGES:
        assert str(page.relative_to(ROOT / "docs")) in navigation, page


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().split()) <= 1200


@pytest.mark.parametrize("start", ["README.md", "docs/index.md"])
def test_start_pages_list_tutorial_how_tos_and_explanations(start):
    start = ROOT / start
    linked = {(start.parent / target).resolve() for target in re.findall(r"\]\(([^)#]+\.md)", start.read_text())}
    pages = {page for page in SITE_PAGES if page.parent.name in ("how-to", "explanation") or page.name == "tutorial.md"}
    assert pages <= linked


def map_of_the_code() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return text[text.index("## The map of the code") :].partition("\n## ")[0]


def test_map_of_the_code_has_every_package_and_root_module():
    for path in SOURCE.iterdir():
        is_package = (path / "__init__.py").exists()
        if is_package or (path.suffix == ".py" and path.name != "__init__.py"):
            assert re.search(rf"\b{path.stem}{'/' if is_package else '.py'}", map_of_the_code()), path.name


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "PAPER.md", "docs/explanation/federation.md"])
def test_paths_of_the_code_exist(page):
    """Of modules (`federation/rules.py`, below src/fedhlcr), folders (`engines/flower/`) and tests (`tests/…py`)."""
    text = (ROOT / page).read_text()
    paths = set(re.findall(r"`((?:\w+/)*\w+(?:\.py|/))(?:::\w+)?`", text)) - {"utils.py"}
    for path in paths:
        known = [ROOT / path, SOURCE / path, *(ROOT / "tests").rglob(path)]
        assert any(one.exists() for one in known), path
    assert paths or "test_" in text


def test_find_it_in_a_minute_fits_on_a_screen():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index("## Find it in a minute") :].partition("\n## ")[0]
    assert len(section.strip().splitlines()) <= 30
    assert section.count("\n|") <= 25


def test_paper_map_names_tests_that_exist():
    files = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", (ROOT / "PAPER.md").read_text())
    assert named
    for file, test in named:
        assert file in files, file
        assert not test or f"def {test}(" in files[file].read_text(), f"{file}::{test}"


def test_paper_map_names_functions_that_exist():
    packages = "|".join(path.parent.name for path in SOURCE.glob("*/__init__.py"))
    named = re.findall(rf"`((?:{packages}|reference)(?:\.\w+)*)`", (ROOT / "PAPER.md").read_text())
    assert named
    for name in named:
        assert resolves(name.split(".")), name


def resolves(parts: list[str]) -> bool:
    """Whether a module below fedhlcr has it, or a class, or the fields of a dataclass."""
    found = None
    for part in parts:
        try:
            found = importlib.import_module(".".join([found.__name__ if found else "fedhlcr", part]))
        except (ModuleNotFoundError, AttributeError):
            if part in getattr(found, "__dataclass_fields__", {}):
                return True
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
    return True


@pytest.mark.parametrize("mark", ["Theorem 1", "Theorem 2", "Algorithm 1", "Algorithm 2", "Algorithm 3", "eq. (prior)"])
def test_paper_marks_are_in_the_code(mark):
    assert any(re.search(rf"Paper: .*{re.escape(mark)}", path.read_text()) for path in SOURCE.rglob("*.py"))


def modules_with_examples() -> list[str]:
    paths = (path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text())
    return [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in paths]


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstring_examples(name):
    failures, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0
    assert failures == 0


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The documentation, built strictly, which also counts its words."""
    pytest.importorskip("material", reason="no mkdocs-material here: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
@pytest.mark.ci
def test_reference_has_a_page_per_name_and_shows_each_method_once(site):
    reference = site / "reference"
    shown = {path.stem: set(re.findall(r'id="([\w.]+)"', path.read_text())) for path in reference.glob("*.html")}
    for module in ("", ".datasets", ".plot", ".report", ".baselines", ".federation"):
        public = importlib.import_module(f"fedhlcr{module}")
        for name in public.__all__:
            value = getattr(public, name)
            if inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, BaseException)):
                assert f"fedhlcr{module}.{name}" in shown
    assert "fedhlcr.HLCRRegressor.save" in shown["fitted-models"]
    assert "fedhlcr.HLCRRegressor.predict" in shown["fedhlcr.HLCRRegressor"]
    assert "fedhlcr.FedHLCRRegressor.fit" in shown["fedhlcr.FedHLCRRegressor"]
    assert not shown["fedhlcr.FedHLCRRegressor"] & {f"fedhlcr.FedHLCRRegressor.{name}" for name in ("save", "predict")}
    assert not [name for names in shown.values() for name in names if "._" in name]


@pytest.mark.slow
@pytest.mark.ci
def test_the_site_can_be_searched_from_disk(site):
    """On a phone and on a desktop, in pages of either depth, and without a request to another host."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no browser here: install Debian's chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")
    asked: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, width in (("index.html", 1280), ("how-to/federate.html", 390)):
            page = browser.new_page(viewport={"width": width, "height": 800})
            page.on("request", lambda request: asked.append(request.url))
            page.goto((site / name).as_uri())
            page.click(".md-search__input" if width > 1000 else "label.md-header__button[for=__search]")
            page.keyboard.type("interval")
            page.wait_for_selector(".md-search-result__link", timeout=20_000)
            found = page.locator(".md-search-result__link").first.get_attribute("href") or ""
            assert (site / found.removeprefix(f"{site.as_uri()}/").partition("?")[0].partition("#")[0]).exists()
        browser.close()
    assert asked
    assert all(url.startswith("file:") for url in asked)
