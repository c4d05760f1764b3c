"""Rows from a Gram matrix: of one event it is the row itself, and of two events both rows follow exactly."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.model.gram import GramLayout, Standardization


def rows_in(layout: GramLayout, gram: FloatArray) -> FloatArray:
    """(events, columns) the rows (x, y) that a matrix of one or two events holds; no row for more events.

    With M = Σ (1, x, y)(1, x, y)ᵀ over two events, the mean m is half of the first row of M, and M/2 − mmᵀ = ddᵀ with
    half the distance of the events d. So the events are m ± d.
    """
    full = layout.unpack(gram)
    n_events = round(float(gram[0]))
    if n_events == 1:
        return np.asarray(full[:1, 1:] / full[0, 0])
    if n_events != 2:
        return np.empty((0, layout.width - 1))
    mean = full[0] / 2.0
    spread = full / 2.0 - np.outer(mean, mean)
    widest = int(np.argmax(np.diag(spread)))
    half = spread[widest] / np.sqrt(spread[widest, widest]) if spread[widest, widest] > 0.0 else np.zeros_like(mean)
    return np.asarray(np.stack([mean + half, mean - half])[:, 1:])


def in_user_units(units: Standardization, rows: FloatArray) -> FloatArray:
    """Rows (x, y) as they stand in the agent's table. Constant features have an infinite scale."""
    scale = np.where(np.isfinite(units.scale), units.scale, 0.0)
    return np.asarray(rows * scale + units.shift)
