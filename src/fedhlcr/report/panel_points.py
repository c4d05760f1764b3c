"""The dots of a panel: single events, or means of groups of events, at average other features."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.axes import Axis
from fedhlcr.analysis.axis_lines import AxisLine
from fedhlcr.analysis.links import Link
from fedhlcr.report.events import DrawnEvents

# Dots of one panel; groups of events of classes and counts, and events in each of them.
MOST_DOTS = 120
MOST_GROUPS = 8
FEWEST_IN_GROUP = 8
# Half the width of the scatter of a level's dots, as a share of the room of a level.
HALF_SCATTER = 0.3


def points_of(
    lines: dict[int, AxisLine], own: tuple[int, ...], events: DrawnEvents | None, link: Link | None
) -> tuple[FloatArray, FloatArray, int]:
    """Places along the axis (0 to 1) and targets of the events to draw, and the number of events behind them."""
    if events is None:
        return np.empty(0), np.empty(0), 0
    rows = np.flatnonzero(np.isin(events.label, own))
    axis = lines[own[0]].axis
    if link is None and len(rows) > MOST_DOTS:
        shown = rows[np.linspace(0, len(rows) - 1, MOST_DOTS).astype(np.int64)]
    else:
        shown = rows
    places = axis.places(events.X[shown])
    x = axis.fractions(places)
    on_line = np.empty(len(shown))
    for k in own:
        mine = events.label[shown] == k
        on_line[mine] = lines[k].at(places[mine])
    if link is not None:
        return *_means_of_groups(x, on_line, events.observed[shown], events.predicted[shown], link, axis), len(rows)
    if axis.is_discrete:
        # a fixed scatter, so that dots of one level do not hide each other
        x = x + (np.arange(len(x)) * 0.618034 % 1.0 - 0.5) * 2.0 * HALF_SCATTER / len(axis.levels)
    return x, on_line + events.residuals[shown], len(rows)


def _means_of_groups(
    x: FloatArray, on_line: FloatArray, observed: FloatArray, predicted: FloatArray, link: Link, axis: Axis
) -> tuple[FloatArray, FloatArray]:
    """Neighbours on the axis together: where they are, and how far what was observed is from the line.

    That distance is the one from the model's own predictions, as a factor of the odds or of the rate.
    """
    if not len(x):
        return x, x
    n_groups = max(1, min(MOST_GROUPS, len(x) // FEWEST_IN_GROUP))
    quantiles = np.quantile(x, np.linspace(0.0, 1.0, n_groups + 1))[:-1]
    edges = np.unique(x) if axis.is_discrete else np.unique(quantiles)
    group: IndexArray = np.searchsorted(edges, x, side="right") - 1
    counts = np.bincount(group, minlength=len(edges))
    places, line, seen, expected = (
        np.bincount(group, weights=values, minlength=len(edges)) / counts
        for values in (x, on_line, observed, predicted)
    )
    # one expected event is added, so that a share of 0 or 1 has odds
    seen = (seen * counts + expected) / (counts + 1.0)
    if not link.family.has_classes:
        return np.asarray(places), np.asarray(line * seen / np.maximum(expected, 1e-300))
    log_odds = [logit(np.clip(share, 1e-9, 1.0 - 1e-9)) for share in (line, seen, expected)]
    return np.asarray(places), np.asarray(expit(log_odds[0] + log_odds[1] - log_odds[2]))
