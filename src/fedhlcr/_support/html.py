"""Small pieces of HTML for notebooks, readable on light and dark pages. All texts are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from fedhlcr._support.wording import printable

# Longest text of one cell.
MAX_TEXT = 160
# Colours are those of the notebook; styles are inline, because notebooks may remove others.
TABLE = "border-collapse:collapse;background:transparent;color:inherit;margin:.3em 0"
CELL = "text-align:left;vertical-align:top;padding:.15em .8em .15em 0"
# One colour that can be seen on white and on black.
BAR = "display:inline-block;height:.7em;background:#4c8bc8;border-radius:2px;min-width:1px"
# Width of the longest bar, in letters.
BAR_WIDTH = 6.0


def block(parts: Iterable[str]) -> str:
    """Parts of one display."""
    return f'<div class="fedhlcr" style="color:inherit">{"".join(parts)}</div>'


def heading(text: Any) -> str:
    return f'<div style="font-weight:bold;font-size:1.1em">{escape(printable(text))}</div>'


def paragraph(text: Any) -> str:
    return f'<p style="margin:.3em 0">{escape(printable(text))}</p>'


def bar(share: float) -> str:
    """A bar; it repeats a number that stands beside it, so screen readers may skip it."""
    width = BAR_WIDTH * min(max(float(share), 0.0), 1.0)
    return f'<span aria-hidden="true" style="{BAR};width:{width:.2f}em"></span>'


def shortened(text: Any) -> str:
    text = printable(text)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def cells_html(tag: str, cells: Iterable[str], scope: str = "") -> str:
    """Cells from pieces of HTML."""
    own = f' scope="{scope}"' if scope else ""
    return "".join(f'<{tag}{own} style="{CELL}">{cell}</{tag}>' for cell in cells)


def table_html(header: Sequence[Any], rows: Iterable[str]) -> str:
    """A table from rows of cells; the header is of texts, and may be empty."""
    names = cells_html("th", [escape(shortened(name)) for name in header], "col")
    head = f"<thead><tr>{names}</tr></thead>" if header else ""
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<table style="{TABLE}">{head}<tbody>{body}</tbody></table>'


def rows_html(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """A table of texts; the first cell of each row names it."""
    texts = ([escape(shortened(cell)) for cell in row] for row in rows)
    return table_html(header, [cells_html("th", row[:1], "row") + cells_html("td", row[1:]) for row in texts])
