"""Charts as SVG. Their labels are HTML, so that they keep their size on a phone.

Colours are classes and variables of the page's style sheet, so that charts follow its theme.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import number, percent
from fedhlcr.analysis.scores import CalibrationBin

# Points of a line, and cells along a side of a density.
MAX_POINTS = 400
CELLS = 48
# Most rows in the picture of many agents; if there are more agents, neighbours are averaged.
MAX_BANDS = 400
# Colour of that picture; its opacity shows the share.
INK = (92, 102, 112)
# Bars of a histogram of probabilities.
HISTOGRAM_BARS = 20
# Clusters with a colour of their own; the others repeat these, with stripes or dashes, and every one has its number.
N_COLORS = 8
# A part of a bar of shares this wide has room for its number; shares told to those who do not see the bar.
ROOM = 0.03
MAX_TOLD = 12


@dataclass(frozen=True)
class LineChart:
    """A small chart, and the labels around it."""

    title: str
    svg: Markup
    top: str
    bottom: str
    first: str
    last: str
    names: tuple[str, ...]
    is_marked: bool = False


def color_class(cluster: int) -> str:
    """CSS classes of a cluster's colour; beyond eight clusters colours come again, with stripes or dashes."""
    return f"c{cluster % N_COLORS}{' again' if cluster >= N_COLORS else ''}"


def tag(cluster: int) -> Markup:
    """A cluster's number on its colour."""
    return Markup('<i class="tag {}">{}</i>').format(color_class(cluster), cluster)


def share_bar(shares: Sequence[tuple[int, float]], faded: Sequence[int] = ()) -> Markup:
    """A bar of shares (cluster, share) side by side, with the numbers of clusters where there is room."""
    parts = Markup("").join(
        Markup('<span class="{}{}" style="flex:{:.4f}" title="cluster {}: {}">{}</span>').format(
            color_class(k), " faded" if k in faded else "", share, k, percent(share), k if share >= ROOM else ""
        )
        for k, share in shares
        if share > 0.0
    )
    told = ", ".join(f"cluster {k} {percent(share)}" for k, share in shares[:MAX_TOLD])
    return Markup('<div class="sharebar" role="img" aria-label="Shares: {}.">{}</div>').format(told, parts)


def mix_bar(mix: Sequence[tuple[int, float]]) -> Markup:
    """A bar of shares (cluster, per cent), side by side."""
    parts = []
    left = 0.0
    for cluster, share in mix:
        parts.append(
            Markup('<rect class="{}" x="{:.1f}" y="0" width="{:.1f}" height="10"/>').format(
                color_class(cluster), left, share
            )
        )
        left += share
    return Markup(
        '<svg class="mix" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(Markup("").join(parts))


def line_chart(
    title: str,
    x: FloatArray,
    lines: Sequence[tuple[str, FloatArray]],
    axis: str,
    zero: bool,
    mark: float | None = None,
    bands: Sequence[tuple[FloatArray, FloatArray]] = (),
) -> LineChart:
    """Lines (name, values) over x, with a dashed vertical line at `mark`; the y axis starts at zero or the minimum.

    `bands` are the lower and upper ends of intervals around the lines, in their order.
    """
    every = np.concatenate([*(values for _, values in lines), *(end for band in bands for end in band)])
    every = every[np.isfinite(every)]
    low = 0.0 if zero else float(every.min())
    high = float(every.max())
    drawn = Markup("").join(
        Markup('<path class="band l{}" d="{}"/>').format(number_of, _band(x, lower, upper, low, high))
        for number_of, (lower, upper) in enumerate(bands)
    )
    drawn += Markup("").join(
        Markup('<path class="line l{}" d="{}" vector-effect="non-scaling-stroke"/>').format(
            number_of, _path(x, values, low, high)
        )
        for number_of, (_, values) in enumerate(lines)
    )
    if mark is not None:
        place = 100.0 * (mark - float(x[0])) / (float(x[-1] - x[0]) or 1.0)
        drawn += Markup(
            '<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="100" vector-effect="non-scaling-stroke"/>'
        ).format(place)
    ends = "; ".join(f"{name} {_ends(values)}" if len(lines) > 1 else _ends(values) for name, values in lines)
    caption = f"{title}, {axis}s {number(x[0])} to {number(x[-1])}: {ends}."
    svg = Markup(
        '<svg class="chart" viewBox="0 0 100 100" preserveAspectRatio="none" role="img"><title>{}</title>{}</svg>'
    ).format(caption, drawn)
    return LineChart(
        title,
        svg,
        number(high),
        number(low),
        f"{axis} {number(x[0])}",
        number(x[-1]),
        tuple(name for name, _ in lines),
        mark is not None,
    )


def _ends(values: FloatArray) -> str:
    """The first and the last value of a line."""
    known = values[np.isfinite(values)]
    if not len(known):
        return "not known"
    first = number(float(known[0]))
    last = number(float(known[-1]))
    return f"from {first} to {last}" if first != last else f"{first} at both ends"


def _path(x: FloatArray, values: FloatArray, low: float, high: float) -> str:
    rows = np.unique(np.linspace(0, len(values) - 1, MAX_POINTS).astype(np.int64))
    rows = rows[np.isfinite(values[rows])]
    width = float(x[-1] - x[0]) or 1.0
    height = (high - low) or 1.0
    points = [f"{100 * (x[r] - x[0]) / width:.1f} {98 - 96 * (values[r] - low) / height:.1f}" for r in rows]
    return f"M{'L'.join(points)}" if points else ""


def _band(x: FloatArray, lower: FloatArray, upper: FloatArray, low: float, high: float) -> str:
    """The area between two lines; empty where the ends are not known."""
    there = _path(x, upper, low, high)
    back = _path(x, lower, low, high)
    return f"{there}L{'L'.join(reversed(back[1:].split('L')))}Z" if there and back else ""


def density(observed: FloatArray, predicted: FloatArray) -> tuple[Markup, tuple[str, str]]:
    """A two-dimensional histogram of observed against predicted targets, and the ends of both axes.

    Each axis covers 99.8 % of the events, so that a few outliers do not squeeze all others into a corner.
    """
    both = np.concatenate([observed, predicted])
    low, high = (float(end) for end in np.quantile(both, (0.001, 0.999)))
    high = high if high > low else low + 1.0
    counts, _, _ = np.histogram2d(predicted, observed, bins=CELLS, range=((low, high), (low, high)))
    strength = np.log1p(counts) / np.log1p(counts.max() or 1.0)
    cells = Markup("").join(
        Markup('<rect x="{}" y="{}" width="1.04" height="1.04" fill-opacity="{:.2f}"/>').format(
            column, CELLS - 1 - row, 0.1 + 0.9 * strength[column, row]
        )
        for column, row in np.argwhere(counts > 0)
    )
    svg = Markup(
        '<svg class="density" viewBox="0 0 {0} {0}" preserveAspectRatio="none" role="img">'
        "<title>Observed against predicted targets</title>"
        '<g class="ink">{1}</g><line class="diagonal" x1="0" y1="{0}" x2="{0}" y2="0" '
        'vector-effect="non-scaling-stroke"/></svg>'
    ).format(CELLS, cells)
    return svg, (number(low), number(high))


def reliability(bins: Sequence[CalibrationBin], predicted: FloatArray) -> Markup:
    """Observed shares against predicted probabilities, with intervals; below, a histogram of the predictions."""
    heights, _ = np.histogram(predicted, bins=HISTOGRAM_BARS, range=(0.0, 1.0))
    width = CELLS / HISTOGRAM_BARS
    tallest = float(heights.max() or 1)
    drawn = Markup("").join(
        Markup('<rect class="event-bar" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>').format(
            bar * width, CELLS - 0.15 * CELLS * height / tallest, 0.9 * width, 0.15 * CELLS * height / tallest
        )
        for bar, height in enumerate(heights)
        if height
    )
    drawn += Markup(
        '<line class="diagonal" x1="0" y1="{0}" x2="{0}" y2="0" vector-effect="non-scaling-stroke"/>'
    ).format(CELLS)
    for part in bins:
        x, y, low, high = (
            CELLS * value for value in (part.predicted, 1.0 - part.observed, 1.0 - part.lower, 1.0 - part.upper)
        )
        drawn += Markup(
            '<line class="whisker" x1="{0:.2f}" x2="{0:.2f}" y1="{1:.2f}" y2="{2:.2f}" '
            'vector-effect="non-scaling-stroke"/><circle class="spot" cx="{0:.2f}" cy="{3:.2f}" r="0.7"/>'
        ).format(x, low, high, y)
    told = "; ".join(f"{number(part.predicted, 2)} predicted, {number(part.observed, 2)} observed" for part in bins)
    return Markup(
        '<svg class="reliability" viewBox="-1 -1 {0} {0}" role="img"><title>Observed share against predicted '
        "probability: {1}.</title>{2}</svg>"
    ).format(CELLS + 2, told, drawn)


@dataclass(frozen=True)
class AgentPicture:
    """Shares of clusters by agent as an image, a row for each agent or for a few neighbours.

    Attributes
    ----------
    source : the image as a data URL
    largest : the share that is fully opaque
    bands : (main cluster, number of agents, top and height in per cent of the image)
    """

    source: str
    largest: float
    bands: tuple[tuple[int, int, float, float], ...]


def agent_picture(weights: FloatArray) -> AgentPicture:
    """Agents sorted by main cluster, then by its share."""
    main = weights.argmax(axis=1)
    order = np.lexsort((-weights.max(axis=1), main))
    sorted_weights = weights[order]
    sorted_main = main[order]
    edges = np.unique(np.linspace(0, len(order), min(MAX_BANDS, len(order)) + 1).astype(np.int64))
    means = np.add.reduceat(sorted_weights, edges[:-1], axis=0) / np.diff(edges)[:, None]
    clusters, starts, counts = np.unique(sorted_main, return_index=True, return_counts=True)
    bands = tuple(
        (int(k), int(n), 100.0 * start / len(order), 100.0 * n / len(order))
        for k, start, n in zip(clusters, starts, counts, strict=True)
    )
    largest = float(means.max())
    image = base64.b64encode(_png(means / largest)).decode()
    return AgentPicture(f"data:image/png;base64,{image}", largest, bands)


def _png(shares: FloatArray) -> bytes:
    """An image of one colour with a pixel for each share; larger shares are more opaque."""
    height, width = shares.shape
    pixels: NDArray[np.uint8] = np.empty((height, width, 4), dtype=np.uint8)
    pixels[..., :3] = INK
    pixels[..., 3] = np.clip(255.0 * shares, 0.0, 255.0).round()
    # every row begins with the number of its filter; 0 is no filter
    rows = np.concatenate([np.zeros((height, 1), dtype=np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
