"""The colours of figures. A cluster has the same colour in all plots and in the report."""

from __future__ import annotations

from typing import Any, NamedTuple

# Okabe and Ito's palette, without its black and its yellow, which is too light for lines, and with a violet and an
# olive. `--k0` to `--k7` in report/templates/report.css are the same.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7657B0", "#85752A")
BLUE, ORANGE, GREEN = PALETTE[:3]
GREY = "#777777"
PALE = "#dddddd"
# From the ninth cluster on, colours come again with other lines and markers.
LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "D", "^")


class ClusterStyle(NamedTuple):
    """How a cluster is drawn."""

    color: str
    line: Any
    marker: str


def cluster_style(cluster: int) -> ClusterStyle:
    """The colour, line style and marker of a cluster, by its number."""
    again = cluster // len(PALETTE)
    return ClusterStyle(PALETTE[cluster % len(PALETTE)], LINES[again % len(LINES)], MARKERS[again % len(MARKERS)])


def color_class(cluster: int) -> str:
    """CSS classes of a cluster's colour; beyond eight clusters colours come again, with stripes or dashes."""
    return f"c{cluster % len(PALETTE)}{' again' if cluster >= len(PALETTE) else ''}"


def ink_on(color: str) -> str:
    """Black or white, whichever is easier to read on a colour such as "#0072B2"."""
    # relative luminance as in WCAG 2; at 0.18 both have the same contrast
    parts = [int(color[start : start + 2], 16) / 255.0 for start in (1, 3, 5)]
    linear = [((c + 0.055) / 1.055) ** 2.4 if c > 0.04045 else c / 12.92 for c in parts]
    return "white" if 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < 0.18 else "black"
