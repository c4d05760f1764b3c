"""Bars of shares, and the picture of many agents."""

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
from fedhlcr._support.wording import percent
from fedhlcr.figures.agents import by_main_cluster
from fedhlcr.figures.palette import color_class

# Most rows in the picture of many agents; if there are more agents, neighbours are averaged.
MAX_BANDS = 400
# Colour of that picture; its opacity shows the share.
INK = (92, 102, 112)
# A part of a bar of shares this wide has room for its number; shares told to those who do not see the bar.
ROOM = 0.03
MAX_TOLD = 12


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
    order, sorted_main = by_main_cluster(weights)
    sorted_weights = weights[order]
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
