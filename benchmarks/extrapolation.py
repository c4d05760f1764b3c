"""A billion events: what the cost model, the disk and XL say about a table that nobody here has fitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.cost_model import StageCost, fit_parallel
from benchmarks.limits import DISK_READ, STREAMED_EVENTS
from benchmarks.report import Limit, Timing

SWEEPS, MERGING_FROM, MAX_CLUSTERS, DRAWS = 200, 15, 64, 100
WORKERS = (8, 64)


class Line(NamedTuple):
    """One line of the extrapolation."""

    what: str
    value: str
    source: str


def shape_of_size(
    events: float, events_per_entity: float = 10, features: int = 8, clusters: int = 8
) -> dict[str, float]:
    """A table of the usual proportions, and a default fit of it that finds its clusters when merging begins."""
    entities = events / events_per_entity
    return {
        "events": events,
        "entities": entities,
        "agents": entities / 16,
        "features": features,
        "clusters": clusters,
        "draws": DRAWS,
        "sweeps": SWEEPS,
        "cluster_sweeps": MAX_CLUSTERS * MERGING_FROM + clusters * (SWEEPS - MERGING_FROM),
    }


def matrix_bytes(shape: dict[str, float]) -> float:
    return shape["entities"] * (shape["features"] + 2) * (shape["features"] + 3) / 2 * 8


def extrapolate(
    models: dict[str, StageCost], limits: Sequence[Limit], timings: Sequence[Timing], events: float = 1e9
) -> list[Line]:
    """What a table of so many events takes, with 8 features and 8 clusters. Lines without a source are left out."""
    shape = shape_of_size(events)
    rates = {limit.what: limit.value for limit in limits}
    size = matrix_bytes(shape)
    lines = [
        Line("the entities' matrices", f"{size / 1e9:.0f} GB", "entities × (F + 2)(F + 3) / 2 × 8 bytes"),
        Line("labels of the kept draws", f"{shape['entities'] * DRAWS / 1e9:.0f} GB", "entities × 100 draws × 1 byte"),
    ]
    if STREAMED_EVENTS in rates:
        seconds = events / rates[STREAMED_EVENTS] / 1e6
        lines.append(Line("reading the files", duration(seconds), "the streaming read above"))
    if DISK_READ in rates:
        seconds = size / rates[DISK_READ] / 1e6
        each = f"{duration(seconds)} per sweep, {duration(SWEEPS * seconds)} in all"
        lines.append(Line("reading the matrices, if they do not fit in memory", each, "the disk's read above"))
    if "default fit" in models:
        seconds = models["default fit"].seconds(shape)
        lines.append(Line("default fit, matrices in memory", duration(seconds), "the cost model"))
        lines += _by_workers(seconds, timings)
    for stage in ("predictions", "intervals"):
        if stage in models:
            seconds = models[stage].seconds(shape)
            lines.append(Line(f"{stage} of all events", duration(seconds), "the cost model"))
    return [*lines, *_from_shell(timings, events)]


def _by_workers(seconds: float, timings: Sequence[Timing]) -> list[Line]:
    """The same fit on a cluster: sweeps and matrices divided by the workers, and each round's measured overhead."""
    rounds = [t for t in timings if t.varied == "workers"]
    if len(rounds) < 2:
        return []
    cost = fit_parallel([t.shape["workers"] for t in rounds], [t.seconds for t in rounds])
    source = f"the cost model / workers + {SWEEPS} rounds of {1e3 * cost.serial:.0f} ms that workers do not shorten"
    return [
        Line(f"default fit on {n} such machines", duration(seconds / n + SWEEPS * cost.serial), source) for n in WORKERS
    ]


def _from_shell(timings: Sequence[Timing], events: float) -> list[Line]:
    """The line through the two sizes measured from the shell."""
    lines = []
    for stage in dict.fromkeys(t.stage for t in timings if t.varied.startswith("size: ")):
        smaller, larger = sorted((t for t in timings if t.stage == stage), key=lambda t: t.shape["events"])
        slope = (larger.seconds - smaller.seconds) / (larger.shape["events"] - smaller.shape["events"])
        seconds = smaller.seconds + slope * (events - smaller.shape["events"])
        source = f"the line through {_millions(smaller)} and {_millions(larger)} events"
        lines.append(Line(stage, duration(seconds), source))
    return lines


def _millions(timing: Timing) -> str:
    return f"{timing.shape['events'] / 1e6:.1f} million"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, with two digits."""
    for unit, size in (("hours", 3600), ("minutes", 60), ("seconds", 1)):
        if seconds >= 2 * size:
            value = seconds / size
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    return f"{seconds:.2g} seconds"
