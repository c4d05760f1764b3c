"""Settings and results of a benchmark, and how they are printed."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """The command line."""

    threads: int
    seed: int
    quick: bool


class Row(NamedTuple):
    """One line of the final table."""

    what: str
    measured: str
    bound: str
    verdict: str


def at_most(what: str, ratio: float, bound: float) -> Row:
    return Row(what, f"{ratio:.2f} x", f"at most {bound:g} x", _verdict(ratio <= bound))


def at_least(what: str, ratio: float, bound: float) -> Row:
    return Row(what, f"{ratio:.1f} x", f"at least {bound:g} x", _verdict(ratio >= bound))


def below(what: str, value: float, limit: float) -> Row:
    return Row(what, f"{value:.4f}", f"below {limit:.4f}", _verdict(value < limit))


def informational(what: str, ratio: float) -> Row:
    return Row(what, f"{ratio:.2f} x", "none", "")


def void(row: Row) -> Row:
    """The same measurement without a verdict: the machine was too busy for it to mean something."""
    return row._replace(verdict="void: busy")


def skipped(what: str) -> Row:
    return Row(what, "", "", "skipped")


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


def _verdict(met: bool) -> str:
    return "ok" if met else "MISSED"
