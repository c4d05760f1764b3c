"""Round numbers for the ticks of an axis."""

from __future__ import annotations

import math

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
# From this factor on, evenly spaced ticks would crowd at the high end of a logarithmic axis.
WIDE = 20.0
# Millions and billions.
LARGE = ((1e6, "M"), (1e9, "bn"))


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """At most `most` multiples of a round step that lie between `low` and `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    for step in (*(power * s for s in STEPS), 20.0 * power):
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
        if last - first < most:
            break
    # steps of a tenth are not exact, so that 3 × 0.1 would not be 0.3
    return [float(f"{n * step:.12g}") for n in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two positive ones that are about evenly spaced on a logarithmic axis."""
    if not 0.0 < low < high:
        return nice_ticks(low, high, most)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in ((1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{m * 10.0**e:.12g}") for e in exponents for m in mantissas]
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) <= most:
            break
    while len(ticks) > most:
        ticks = ticks[::2]
    # within about one power of ten there are better ticks than 1, 2 and 5
    return ticks if len(ticks) >= min(3, most) or high > WIDE * low else nice_ticks(low, high, most)


def range_text(low: float, high: float) -> str:
    """Two round numbers written alike: "1990 to 2010", but "4,000 to 12,000"."""
    ends = [tick_text(low), tick_text(high)]
    if "," in "".join(ends):
        ends = [f"{int(end):,}" if end.isdecimal() else end for end in ends]
    return " to ".join(ends)


def tick_text(value: float) -> str:
    """A round number beside an axis: "1990", "25,000", "2.5M". Years are not written with a separator."""
    for size, letters in LARGE:
        if size <= abs(value) < 1000.0 * size:
            return f"{value / size:.6g}{letters}".replace("-", "−")
    text = f"{value + 0.0:,.6g}" if abs(value) >= 10_000 else f"{value + 0.0:.6g}"
    return text.replace("-", "−")
