"""How good predictions are: targets against predictions, coverage of intervals, reliability of probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import number
from fedhlcr.analysis.scores import N_BINS, calibration_bins
from fedhlcr.data.inputs import log_exposure
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.figures.figure import Mark, Panel, Scale, evenly
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.posterior.prediction import Profiles
from fedhlcr.posterior.responses import interval_ends

# Probabilities of the intervals.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
PER_CENT = tuple((share, f"{100.0 * share:.0f} %") for share in (0.0, 0.25, 0.5, 0.75, 1.0))
# Bars of the histogram of predictions, and the share of the height that the tallest takes.
N_BARS = 20
BAR_HEIGHT = 0.15
# Half the width of a 90 % interval of a normal law, in standard deviations.
HALF_WIDTH = 1.645
# Share of the events beyond either end of a cloud's sides on a page.
OUTSIDE = 0.001


def cloud_panel(observed: FloatArray, predicted: FloatArray, target: str = "", *, is_cut: bool = False) -> Panel:
    """Observed against predicted targets.

    If it is cut, each side covers 99.8 % of the events, so that a few outliers do not squeeze all others into a corner.
    """
    x = Scale(label=f"predicted {target}".strip())
    y = Scale(label=f"observed {target}".strip())
    ends = np.array([predicted.min(), predicted.max()])
    if is_cut:
        low, high = (float(end) for end in np.quantile([*observed, *predicted], (OUTSIDE, 1.0 - OUTSIDE)))
        high = high if high > low else low + 1.0
        x = Scale(low, high, x.label)
        y = Scale(low, high, y.label)
        ends = np.array([low, high])
    marks = (Mark("cloud", "event", predicted, observed), Mark("line", "diagonal", ends, ends))
    return Panel(x, y, marks, told="Observed against predicted targets", is_square=is_cut)


@single_threaded_blas
def interval_coverage(
    model: HierarchicalPredictor,
    X: Any,
    y: Any,
    agent: Any,
    entity: Any,
    exposure: Any,
    levels: Sequence[float],
    most: int,
) -> tuple[FloatArray, int, int]:
    """Share of the targets inside the interval of each level, of real targets and of counts.

    Of more than `most` events a sample is used. Returned are the shares, and the numbers of events used and of all.
    """
    model = check_model(model)
    X, y, agent, entity, _, exposure = model.events_of(X, y, agent, entity, exposure=exposure)
    events = model.read_events(X, agent, entity)
    rows = evenly(len(events.matrix), most)
    observed = model.numeric_target(y, len(events.matrix))[rows]
    of_row = events.profiles.of_row[rows]
    profiles = Profiles.of(events.profiles.agents[of_row], events.profiles.entities[of_row])
    posterior = model.posterior_
    if posterior.likelihood.needs_events and not posterior.likelihood.has_heavy_tails:
        offset = log_exposure(exposure, len(events.matrix))
        offset = None if offset is None else offset[rows]
        ends = [posterior.interval(events.matrix[rows], profiles, level, offset) for level in levels]
    else:
        both = tuple(end for level in levels for end in interval_ends(level))
        quantiles = posterior.predict(events.matrix[rows], profiles, both).quantiles
        ends = [(quantiles[:, 2 * n], quantiles[:, 2 * n + 1]) for n in range(len(levels))]
    coverage = np.array([((low <= observed) & (observed <= high)).mean() for low, high in ends])
    return coverage, len(rows), len(events.matrix)


def calibration_panel(coverage: FloatArray, levels: Sequence[float], n_events: int, told: str = "") -> Panel:
    """The share of events inside intervals against the probability of the intervals, and what chance allows."""
    grid = np.linspace(0.0, 1.0, 101)
    allowed = 2.0 * np.sqrt(grid * (1.0 - grid) / n_events)
    whole = np.array([0.0, 1.0])
    marks = (
        Mark(
            "line",
            "chance",
            grid,
            low=np.maximum(grid - allowed, 0.0),
            high=np.minimum(grid + allowed, 1.0),
            name="chance",
        ),
        Mark("line", "diagonal", whole, whole),
        Mark("line", "curve", np.array(levels), coverage, name="intervals"),
        Mark("dots", "spot", np.array(levels), coverage),
    )
    x = Scale(0.0, 1.0, "probability of the interval", PER_CENT)
    y = Scale(0.0, 1.0, "share of events inside", PER_CENT)
    return Panel(x, y, marks, told=told, legend="", is_square=True)


def reliability_panel(observed: FloatArray, predicted: FloatArray, *, has_classes: bool, title: str = "") -> Panel:
    """Observed shares or mean counts against predicted ones, with intervals, and a histogram of the predictions."""
    if has_classes:
        groups = [(b.predicted, b.observed, b.lower, b.upper) for b in calibration_bins(observed, predicted)]
        longest = 1.0
    else:
        groups = _count_groups(observed, predicted)
        longest = 1.05 * max(max(mean, upper) for _, mean, _, upper in groups) or 1.0
    x, middle, lower, upper = np.array(groups).T
    heights, edges = np.histogram(predicted, bins=N_BARS, range=(0.0, longest))
    whole = np.array([0.0, longest])
    marks = (
        Mark(
            "bars",
            "predictions",
            (edges[:-1] + edges[1:]) / 2.0,
            BAR_HEIGHT * longest * heights / max(heights.max(), 1),
            name="predictions",
        ),
        Mark("line", "diagonal", whole, whole),
        Mark("levels", "spot", x, middle, lower, upper, name="observed, 90 %"),
    )
    told = "; ".join(f"{number(a, 2)} predicted, {number(b, 2)} observed" for a, b, _, _ in groups)
    ticks = PER_CENT if has_classes else None
    return Panel(
        Scale(0.0, longest, "predicted probability" if has_classes else "predicted mean count", ticks),
        Scale(0.0, longest, "observed share" if has_classes else "observed mean count", ticks),
        marks,
        title,
        f"Observed {'share against predicted probability' if has_classes else 'against predicted mean count'}: {told}.",
        legend="",
        is_square=True,
    )


def _count_groups(observed: FloatArray, predicted: FloatArray) -> list[tuple[float, float, float, float]]:
    """Mean prediction, mean count and the ends of its interval, in groups of equally many events."""
    parts = np.array_split(np.argsort(predicted, kind="stable"), min(N_BINS, len(predicted)))
    groups = []
    for rows in parts:
        mean = float(observed[rows].mean())
        half = HALF_WIDTH * float(observed[rows].std(ddof=1) / np.sqrt(len(rows))) if len(rows) > 1 else 0.0
        groups.append((float(predicted[rows].mean()), mean, max(mean - half, 0.0), mean + half))
    return groups
