"""Every Python block of the README and the docs runs, and what they name exists."""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=lambda p: p.name)
def test_code_blocks_run(page, capsys):
    names: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in python_blocks(page):
            exec(compile(block, str(page), "exec"), names)
    assert len(names) > 1


@pytest.mark.parametrize("page", [ROOT / "PAPER.md", *PAGES], ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


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
