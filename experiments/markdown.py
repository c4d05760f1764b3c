"""Text of RESULTS.md: tables, figures with their errors, pictures."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from experiments.figures import standard_error

WIDTH = 110
# A line that is not wrapped: of a table, a heading, a picture, or code.
VERBATIM = re.compile(r"\||#|!|    ")


def wrap(page: str) -> str:
    """The page with lines of at most WIDTH columns, except lines that cannot be broken."""
    return "\n\n".join(map(_wrap_block, page.split("\n\n")))


def _wrap_block(block: str) -> str:
    """A paragraph, or a list whose items begin with a dash."""
    if VERBATIM.match(block):
        return block
    items, indent = (re.split(r"\n(?=- )", block), "  ") if block.startswith("- ") else ([block], "")
    wrapper = textwrap.TextWrapper(WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapper.fill(" ".join(item.split())) for item in items)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def mean_and_error(values: ArrayLike, digits: int = 3) -> str:
    """`0.831 ± 0.002`: mean and standard error."""
    values = np.asarray(values, float)
    return f"{values.mean():.{digits}f} ± {float(standard_error(values)):.{digits}f}"


@dataclass(frozen=True)
class Gallery:
    """Where a study's pictures go, and how a page shows them."""

    folder: Path
    page: Path

    def path(self, name: str) -> Path:
        """Of a picture, without suffix."""
        return self.folder / name

    def show(self, name: str, caption: str) -> str:
        link = Path(os.path.relpath(self.folder / name, self.page.parent)).as_posix()
        return f"![{caption}]({link}.png)\n\n*{caption}* ([vector]({link}.svg))"
