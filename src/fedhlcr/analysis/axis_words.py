"""What clusters' regressions say, in plain words: "is highest in January (1.1 above the year’s mean)"."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.wording import fine_percent, number, percent
from fedhlcr.analysis.axes import Axis, feature_axes, is_whole
from fedhlcr.analysis.axis_lines import TargetAxis, axis_is_clear, axis_line, axis_strengths, target_axis
from fedhlcr.analysis.contrasts import compared_places, cycle_line, is_doubled
from fedhlcr.analysis.ticks import range_text, tick_text
from fedhlcr.posterior.fitted_model import FittedModel

# Effects below this share of the noise are left out.
WEAK = 0.1
# A line bends if it goes beyond both of its ends by this share of its range.
BENDS = 0.1
# Points of a line between a low and a high value.
N_POINTS = 21
# Significant digits of a change.
DIGITS = 2
# From this factor on, "to 3.4 times" is easier to read than "240 %".
TIMES = 2.0


def describe_effects(model: FittedModel, n_effects: int = 3) -> list[list[str]]:
    """The effects in each cluster without their subject, strongest first: "rises 0.7 as price goes from 1 to 2".

    Features that belong together are one effect, in the reader's units, as in `feature_axes`. Effects whose 90 %
    interval includes no change are left out; so are, of real targets, effects below a tenth of the noise.
    """
    axes = feature_axes(model)
    return [[axis_phrase(model, axes[a], k) for a in told] for k, told in enumerate(told_axes(model, axes, n_effects))]


def told_axes(model: FittedModel, axes: tuple[Axis, ...], most: int) -> list[list[int]]:
    """For each cluster the positions of the axes worth telling, strongest first."""
    strengths = axis_strengths(model, axes)
    clear = axis_is_clear(model, axes) & (strengths > 0.0)
    if not target_axis(model).family.has_link:
        clear = clear & (strengths > WEAK * model.posterior_.noise_level())
    strongest = np.argsort(-strengths, axis=1, kind="stable")
    return [[int(a) for a in order if clear[k, a]][:most] for k, order in enumerate(strongest)]


def axis_phrase(model: FittedModel, axis: Axis, cluster: int) -> str:
    """What an axis does to the target in a cluster, without the subject."""
    target = target_axis(model)
    if axis.cycle is not None:
        return _cycle_phrase(model, target, axis, cluster)
    if axis.is_discrete:
        return _level_phrase(target, axis, axis_line(model, axis, cluster).mean)
    low, high = compared_places(model, axis)
    if is_doubled(model, axis):
        ends = axis_line(model, axis, cluster, np.array([low, high])).mean
        return f"{_change(target, *ends)} with each doubling of {axis.name}"
    places = np.linspace(low, high, N_POINTS)
    values = axis_line(model, axis, cluster, places).mean
    ends = values[[0, -1]]
    for way, at, beyond in (
        ("highest", int(values.argmax()), values.max() - ends.max()),
        ("lowest", int(values.argmin()), ends.min() - values.min()),
    ):
        if beyond > BENDS * np.ptp(values):
            other = 0 if abs(values[at] - ends[0]) > abs(values[at] - ends[1]) else -1
            far = f"{_apart(target, values[at], values[other])} at {tick_text(places[other])}"
            near = (
                round(places[at])
                if axis.kind == "number" and is_whole(model, axis.columns[0])
                else float(f"{places[at]:.3g}")
            )
            return f"is {way} near {axis.name} {tick_text(near)} ({far})"
    return f"{_change(target, *ends)} as {axis.name} goes from {range_text(low, high)}"


def _cycle_phrase(model: FittedModel, target: TargetAxis, axis: Axis, cluster: int) -> str:
    assert axis.cycle is not None
    places, values = cycle_line(model, axis, cluster)
    top = values.argmax()
    bottom = values.argmin()
    high, low = (f"{axis.cycle.when}{axis.cycle.place(float(places[at]))}" for at in (top, bottom))
    if target.family.has_link:
        a, b = _two_texts(target, values[top], values[bottom])
        return f"is highest {high} ({a}) and lowest {low} ({b})"
    mean = float(values.mean())
    whose = f"the {axis.cycle.whole}’s"
    if target.base is not None:
        # twice the mean is 100 % above it, and half of it 50 % below
        return (
            f"is highest {high} ({_beside(target, values[top] - mean)} {whose} mean) and lowest {low} "
            f"({_amount(target, values[bottom] - mean)} below)"
        )
    above, below = (_amount(target, abs(values[at] - mean)) for at in (top, bottom))
    if above == below:
        return f"is highest {high} and lowest {low} ({above} above and below {whose} mean)"
    return f"is highest {high} ({above} above {whose} mean) and lowest {low} ({below} below)"


def _level_phrase(target: TargetAxis, axis: Axis, values: np.ndarray) -> str:
    top = int(values.argmax())
    bottom = int(values.argmin())
    high = axis.levels[top]
    low = axis.levels[bottom]
    if target.family.has_link:
        a, b = _two_texts(target, values[top], values[bottom])
        if len(values) == 2:
            return f"is {a} where {axis.name} is {high} and {b} where it is {low}"
        return f"is highest where {axis.name} is {high} ({a}) and lowest where it is {low} ({b})"
    if len(values) == 2:
        way = "higher" if top else "lower"
        size = _amount(target, values[1] - values[0])
        times = _factor(target, values[1] - values[0])
        if times >= TIMES:
            factor = number(times, DIGITS)
            return f"is {factor} times as high where {axis.name} is {axis.levels[1]} as where it is {axis.levels[0]}"
        return f"is {size} {way} where {axis.name} is {axis.levels[1]} than where it is {axis.levels[0]}"
    size = _apart(target, values[top], values[bottom])
    return f"is highest where {axis.name} is {high} ({size} where it is {low}, the lowest)"


def _change(target: TargetAxis, before: float, after: float) -> str:
    """ "rises 3.2", "falls 12 %" or "falls from 45 % to 12 %" """
    verb = "rises" if after > before else "falls"
    if target.family.has_link:
        a, b = _two_texts(target, before, after)
        return f"{verb} from {a} to {b}"
    factor = _factor(target, after - before)
    if factor >= TIMES:
        return f"rises to {number(factor, DIGITS)} times"
    return f"{verb} {_amount(target, after - before)}"


def _factor(target: TargetAxis, difference: float) -> float:
    """What a difference of logarithms multiplies the target by; 1 if the target is no logarithm."""
    return 1.0 if target.base is None else float(target.base**difference)


def _beside(target: TargetAxis, difference: float) -> str:
    """How far a value lies above another, of logarithms: "40 % above" or "2.4 times"."""
    factor = _factor(target, difference)
    return f"{number(factor, DIGITS)} times" if factor >= TIMES else f"{_amount(target, difference)} above"


def _amount(target: TargetAxis, difference: float) -> str:
    """The size of a difference, without its sign; of a logarithm, in per cent."""
    if target.base is None:
        return number(abs(difference), DIGITS)
    return percent(abs(_factor(target, difference) - 1.0))


def _apart(target: TargetAxis, extreme: float, other: float) -> str:
    """An extreme beside another value: "2.1 more than" or, of probabilities, "45 %, against 12 %"."""
    if target.family.has_link:
        a, b = _two_texts(target, extreme, other)
        return f"{a}, against {b}"
    factor = _factor(target, extreme - other)
    if factor >= TIMES:
        return f"{number(factor, DIGITS)} times as high as"
    return f"{_amount(target, extreme - other)} {'more' if extreme > other else 'less'} than"


def _two_texts(target: TargetAxis, first: float, second: float) -> tuple[str, str]:
    """Two probabilities or rates, with a decimal if they would read the same without."""
    a = target.text(first)
    b = target.text(second)
    if a == b and target.family.has_classes:
        return fine_percent(first), fine_percent(second)
    return a, b
