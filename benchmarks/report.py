"""Settings and results of a benchmark, and how they are printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Options(NamedTuple):
    """The command line."""

    threads: int
    seed: int
    quick: bool
    release: str | None = None  # checkout of an older release to compare with


class Row(NamedTuple):
    """One line of the final table."""

    what: str
    measured: str
    bound: str
    verdict: str


class Limit(NamedTuple):
    """What the machine can do at best, measured in the same run."""

    what: str
    value: float
    unit: str


class Timing(NamedTuple):
    """Seconds of a stage on a table of some shape; see `benchmarks/cost_model.py`.

    Attributes
    ----------
    stage : what was timed
    varied : the one number by which the shape differs from the centre; "centre"; or "check", which no model is
        fitted to
    shape : the sizes that the cost may depend on
    seconds, low, high : median, smallest and largest of the repetitions
    """

    stage: str
    varied: str
    shape: dict[str, float]
    seconds: float
    low: float
    high: float


class Contender(NamedTuple):
    """A method on a table: seconds of its fit and its error on held-out events; None if it did not run, and why."""

    table: str
    name: str
    seconds: float | None
    mse: float | None
    note: str


class Findings(NamedTuple):
    """All that a benchmark found. One that has rows only returns these alone."""

    rows: Sequence[Row] = ()
    limits: Sequence[Limit] = ()
    timings: Sequence[Timing] = ()
    contenders: Sequence[Contender] = ()


def at_most(what: str, ratio: float, bound: float) -> Row:
    return Row(what, f"{ratio:.2f} x", f"at most {bound:g} x", _verdict(ratio <= bound))


def at_least(what: str, ratio: float, bound: float) -> Row:
    return Row(what, f"{ratio:.1f} x", f"at least {bound:g} x", _verdict(ratio >= bound))


def at_most_unit(what: str, value: float, bound: float, unit: str) -> Row:
    """As `at_most`, of something that is no ratio."""
    digits = 2 if bound < 10 else 1 if bound < 100 else 0
    return Row(what, f"{value:.{digits}f} {unit}", f"at most {bound:g} {unit}", _verdict(value <= bound))


def close_to_one(what: str, ratio: float, tolerance: float) -> Row:
    return Row(what, f"{ratio:.2f} x", f"1 ± {tolerance:g}", _verdict(abs(ratio - 1) <= tolerance))


def below(what: str, value: float, limit: float) -> Row:
    return Row(what, f"{value:.4f}", f"below {limit:.4f}", _verdict(value < limit))


def informational(what: str, ratio: float) -> Row:
    return Row(what, f"{ratio:.2f} x", "none", "")


def void(row: Row) -> Row:
    """The same measurement without a verdict: the machine was too busy for it to mean something."""
    return row._replace(verdict="void: busy")


def skipped(what: str, reason: str = "") -> Row:
    return Row(what, "", "", f"skipped: {reason}" if reason else "skipped")


def failed(what: str, error: Exception) -> Row:
    return Row(what, "", "", f"failed: {type(error).__name__}")


def say(name: str, text: str) -> None:
    """One line of progress, at once."""
    print(f"{name:<9}  {text}", flush=True)


def format_table(rows: list[Row]) -> str:
    lines = [Row("what", "measured", "bound", ""), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(Row._fields))]
    return "\n".join(
        f"{what:<{widths[0]}}  {measured:>{widths[1]}}  {bound:<{widths[2]}}  {verdict}".rstrip()
        for what, measured, bound, verdict in lines
    )


def format_limits(limits: Sequence[Limit]) -> str:
    """The machine's limits, one per line."""
    return "\n".join(f"{limit.what}: {limit.value:.3g} {limit.unit}" for limit in limits)


def _verdict(met: bool) -> str:
    return "ok" if met else "MISSED"
