"""The page about plots shows every function of fedhlcr.plot, with a picture of its own code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedhlcr import plot

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "plots.md"
# A block of code, a picture with a description, and words on how to read it.
SHOWN = re.compile(r"```python\n[^`]*```\n\n!\[[^\]]+\]\((?P<picture>[^)]+)\)\n\n\w")
MOST_BYTES = 60_000


def pieces():
    """Blocks of code, each with what follows it up to the next."""
    text = PAGE.read_text()
    starts = [found.start() for found in re.finditer(r"^```python$", text, re.M)]
    return [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]


@pytest.mark.parametrize("name", plot.__all__)
def test_every_plot_is_shown_next_to_its_code_with_words(name):
    own = [piece for piece in pieces() if f"plot.{name}(" in piece.split("```")[1]]
    assert own, f"plot.{name} is not called on the page"
    found = [SHOWN.match(piece) for piece in own]
    assert any(found), f"no picture follows the code of plot.{name}"
    assert f"`{name}(" in PAGE.read_text(), f"the table of questions lacks {name}"


def test_pictures_exist_are_small_and_none_is_left_over():
    linked = {(PAGE.parent / found["picture"]).resolve() for piece in pieces() if (found := SHOWN.match(piece))}
    folder = PAGE.parents[1] / "images" / "plots"
    assert linked == {path.resolve() for path in folder.iterdir()}
    for path in linked:
        assert path.stat().st_size < MOST_BYTES, path.name
