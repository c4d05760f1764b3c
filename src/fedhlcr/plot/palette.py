"""The colours of plots. A cluster has the same colour in all of them and in the report."""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib.colors import LinearSegmentedColormap, to_rgb

# Okabe and Ito's palette, without its black and its yellow, which is too light for lines, and with a violet and an
# olive. `--k0` to `--k7` in report/templates/report.css are the same.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#7657B0", "#85752A")
BLUE, ORANGE = PALETTE[:2]
GREY = "#777777"
PALE = "#dddddd"
# From the ninth cluster on, colours come again with other lines and markers.
LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "D", "^")
# one hue each, so that only lightness carries information
FEW_TO_MANY = LinearSegmentedColormap.from_list("few_to_many", ["#bcd9eb", BLUE, "#00263b"])
NONE_TO_ALL = LinearSegmentedColormap.from_list("none_to_all", ["#ffffff", BLUE, "#00263b"])


class ClusterStyle(NamedTuple):
    """How a cluster is drawn."""

    color: str
    line: Any
    marker: str


def ink_on(color: str) -> str:
    """Black or white, whichever is easier to read on a colour."""
    # relative luminance as in WCAG 2; at 0.18 both have the same contrast
    linear = [((c + 0.055) / 1.055) ** 2.4 if c > 0.04045 else c / 12.92 for c in to_rgb(color)]
    return "white" if 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] < 0.18 else "black"


def cluster_style(cluster: int) -> ClusterStyle:
    """The colour, line style and marker of a cluster, by its number."""
    again = cluster // len(PALETTE)
    return ClusterStyle(PALETTE[cluster % len(PALETTE)], LINES[again % len(LINES)], MARKERS[again % len(MARKERS)])
