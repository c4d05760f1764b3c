"""What the names of features say about them: logarithms, sines and cosines of a cycle, squares.

A name alone is no proof. Sines and cosines must have mean squares that add up to one, and a square must have the mean
square of its root as its mean.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray

LOG = re.compile(
    r"(?P<kind>log10|log2|log1p|log|ln)"
    # log_price, logPrice (but not LOGIN) or log(price)
    r"(?:[_ .]+(?P<name>.+)|(?-i:(?<=[a-z\d])(?P<camel>[A-Z].*))|\((?P<inner>[^()]+)\))$",
    re.IGNORECASE,
)
BASES = {"log10": (10.0, 0.0), "log2": (2.0, 0.0), "log1p": (np.e, 1.0)}
WAVE_FIRST = re.compile(r"(?P<wave>sin|cos)[_ .(]*(?P<stem>.*?)[)_ ]*(?P<order>\d*)\)?$", re.IGNORECASE)
WAVE_LAST = re.compile(r"(?P<stem>.+?)[_ .]+(?P<wave>sin|cos)[_ ]*(?P<order>\d*)$", re.IGNORECASE)
SQUARE = re.compile(r"(?:(?P<root>.+?)(?:_sq|_squared|_square|\^2|\*\*2|²)|I\((?P<inner>.+?) ?(?:\^|\*\*) ?2\))$")
# Moments of columns agree up to this relative difference.
TOLERANCE = 1e-6
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
YEAR = frozenset(("y", "yr", "year", "doy", "yday", "dayofyear", "season", "annual", "week", "woy", "date"))
DAY = frozenset(("h", "hr", "hour", "hours", "tod", "time", "timeofday", "hourofday", "clock"))
WEEK = frozenset(("w", "wd", "dow", "wday", "weekday", "dayofweek"))


class Cycle(NamedTuple):
    """Something that goes round.

    Attributes
    ----------
    name : what an axis shows: "month", "hour"
    length : of one round, in the units of the ticks
    ticks : (place, text) of each tick
    whole : what one round is called
    when : the preposition before a place
    """

    name: str
    length: float
    ticks: tuple[tuple[float, str], ...]
    whole: str = "cycle"
    when: str = ""

    def place(self, place: float) -> str:
        """A place by its name: "January", "18:00"."""
        if self.name == "month":
            # months are numbered from 1, or the year starts at 0
            return MONTHS[(round(place) - 1) % 12 if self.ticks[0][0] == 1.0 else int(place) % 12]
        if self.name == "hour":
            return f"{round(place) % 24}:00"
        if self.name == "day of the week":
            return f"day {round(place) % 7}"
        return f"{place / self.length:.0%} of the way through the cycle".replace("%", " %")


def base_of_log(name: str) -> tuple[float, float, str] | None:
    """The base of the logarithm that a column is by its name, what was added before it, and the name of the rest."""
    if (found := LOG.match(name.strip())) is None:
        return None
    base, offset = BASES.get(found["kind"].lower(), (np.e, 0.0))
    return base, offset, found["name"] or found["camel"] or found["inner"]


def cycle_of(stem: str) -> Cycle:
    """The cycle that a column describes by the rest of its name, without sine and cosine."""
    word = re.sub(r"[^a-z]", "", stem.lower())
    if word in YEAR:
        return Cycle("month", 12.0, tuple((n + 0.5, month[0]) for n, month in enumerate(MONTHS)), "year", "in ")
    if word in ("month", "mon", "mo", "m"):
        # months are numbered from 1 then, and December is also the place 0
        return Cycle(
            "month", 12.0, tuple((float((n + 1) % 12), month[0]) for n, month in enumerate(MONTHS)), "year", "in "
        )
    if word in DAY:
        return Cycle("hour", 24.0, tuple((float(hour), f"{hour}:00") for hour in (0, 6, 12, 18, 24)), "day", "at ")
    if word in WEEK:
        return Cycle("day of the week", 7.0, tuple((float(day), str(day)) for day in range(8)), "week", "on ")
    quarters = tuple((quarter / 4, text) for quarter, text in enumerate(("0", "¼", "½", "¾", "1")))
    return Cycle(f"part of the cycle {stem}".strip(), 1.0, quarters)


def find_waves(names: list[str], means: FloatArray, spreads: FloatArray) -> dict[str, list[tuple[int, int, int]]]:
    """Pairs of sine and cosine by the rest of their names: (order, position of the sine, position of the cosine).

    The pairs of one stem are harmonics, such as sin1, cos1, sin2, cos2. Only those of order 1 stand alone.
    """
    found: dict[tuple[str, int], dict[str, int]] = {}
    for f, name in enumerate(names):
        if (parts := WAVE_LAST.match(name) or WAVE_FIRST.match(name)) is not None:
            key = (parts["stem"].strip("_ .").lower(), int(parts["order"] or 1))
            found.setdefault(key, {})[parts["wave"].lower()] = f
    squares = means**2 + spreads**2
    waves: dict[str, list[tuple[int, int, int]]] = {}
    for (stem, order), pair in sorted(found.items()):
        if len(pair) == 2 and np.isclose(squares[pair["sin"]] + squares[pair["cos"]], 1.0, rtol=TOLERANCE):
            waves.setdefault(stem, []).append((order, pair["sin"], pair["cos"]))
    return {stem: _harmonics(pairs, means, squares) for stem, pairs in waves.items()}


def _harmonics(pairs: list[tuple[int, int, int]], means: FloatArray, squares: FloatArray) -> list[tuple[int, int, int]]:
    """The first pair as order 1, and the second if it goes round twice as often: cos 2φ = 1 − 2 sin² φ on average."""
    first, *rest = [(order / pairs[0][0], sine, cosine) for order, sine, cosine in pairs]
    kept = [(1, first[1], first[2])]
    for order, sine, cosine in rest:
        if order == 2.0 and np.isclose(means[cosine], 1.0 - 2.0 * squares[first[1]], rtol=TOLERANCE, atol=TOLERANCE):
            kept.append((2, sine, cosine))
    return kept


def find_squares(
    names: list[str], means: FloatArray, spreads: FloatArray, X: FloatArray | None = None
) -> list[tuple[int, int, float]]:
    """Positions of features and of their squares, such as age and age_sq, and what was subtracted before squaring.

    With events X (events, features) all of them must agree; without, only a plain square is recognised.
    """
    position = {name: f for f, name in enumerate(names)}
    found = []
    for f, name in enumerate(names):
        parts = SQUARE.match(name)
        root = None if parts is None else position.get(parts["root"] or parts["inner"])
        if root is None:
            continue
        if np.isclose(means[f], means[root] ** 2 + spreads[root] ** 2, rtol=TOLERANCE):
            found.append((root, f, 0.0))
        elif X is not None and (centre := _centre_of_square(X[:, root], X[:, f])) is not None:
            found.append((root, f, centre))
    return found


def _centre_of_square(root: FloatArray, square: FloatArray) -> float | None:
    """c if the square is (root − c)² in all events, else None."""
    distance = np.sqrt(np.maximum(square, 0.0))
    for sign in (1.0, -1.0):
        # events far from the centre on either side each give the same c
        centre = float(np.median(root - sign * distance))
        if np.allclose((root - centre) ** 2, square, rtol=TOLERANCE, atol=TOLERANCE * max(float(square.max()), 1e-300)):
            return centre
    return None
