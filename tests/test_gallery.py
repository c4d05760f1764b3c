"""The gallery and the page about models: figures are those of RESULTS.md, pictures are small and have words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PICTURES = sorted((ROOT / "docs" / "images" / "gallery").iterdir())
GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.md"))
# Figures of the page that are no results: levels of intervals, settings, differences that the text computes.
NO_RESULTS = {"3.2"}


def figures(text: str) -> set[str]:
    """Decimal numbers, without signs, zeros before the point, and the bold of the best."""
    return {number.lstrip("0") for number in re.findall(r"(?<![\w.])\d*\.\d+", text.replace("**", ""))}


def test_figures_about_models_are_those_of_the_results():
    page = (ROOT / "docs" / "explanation" / "which-model.md").read_text()
    results = figures((ROOT / "RESULTS.md").read_text())
    shown = figures(re.sub(r"\(.*?\.md.*?\)", "", page)) - NO_RESULTS
    assert len(shown) > 80
    assert shown <= results, shown - results


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_pictures_are_small_and_shown(picture):
    assert picture.stat().st_size < (150_000 if picture.name.startswith("report") else 80_000)
    pages = [*GALLERY, ROOT / "docs" / "index.md", ROOT / "docs" / "explanation" / "which-model.md"]
    assert any(f"gallery/{picture.name}" in page.read_text() for page in pages)


@pytest.mark.parametrize("page", GALLERY, ids=lambda path: path.name)
def test_every_picture_says_what_it_shows(page):
    words = re.findall(r"!\[([^]]*)\]", page.read_text())
    assert words
    assert all(len(word) > 40 for word in words)


@pytest.mark.parametrize("page", [page for page in GALLERY if page.name != "index.md"], ids=lambda path: path.name)
def test_pages_or_their_script_draw_the_pictures_they_show(page):
    text = page.read_text()
    shown = set(re.findall(r"images/gallery/([\w-]+\.png)\)", text))
    by_script = set(re.findall(r'"([\w-]+\.png)": ', (ROOT / "docs" / "images" / "draw_gallery.py").read_text()))
    assert shown - by_script == set(re.findall(r'savefig\("([\w-]+\.png)"', text))
    assert "## The decision" in text
