"""Odds ratios of classifiers and rate ratios of count models, with intervals, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import capital, number, percent, printable
from fedhlcr.analysis.effects import INTERVAL_LEVEL, change_intervals, feature_names, one_hot, unit_changes
from fedhlcr.analysis.links import Link, link_of
from fedhlcr.exceptions import ArgumentError
from fedhlcr.posterior.fitted_model import FittedModel

# From this ratio on, "to 3.4 times" is easier to read than "by 240 %".
TIMES = 2.0


@dataclass(frozen=True)
class Ratio:
    """The odds ratio, or the rate ratio, of one feature in one cluster.

    Attributes
    ----------
    cluster, feature : number of the cluster and name of the feature
    step : the change of the feature that it belongs to, in words: "with each further standard deviation (4.3) of time"
    size : the size of this step, in units of the feature
    ratio : the factor by which the odds or the rate change; its logarithm is the posterior mean, `size` times `coef_`
    lower, upper : ends of its central posterior interval; NaN if the model has only one draw
    phrase : what changes, without the subject: "fall by 62 % with each further … (90 % interval: 48 % to 73 %)"
    sentence : the same as a sentence
    """

    cluster: int
    feature: str
    step: str
    size: float
    ratio: float
    lower: float
    upper: float
    phrase: str
    sentence: str

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 1, which is no difference."""
        return self.lower > 1.0 or self.upper < 1.0


def cluster_ratios(model: FittedModel, level: float = INTERVAL_LEVEL) -> list[list[Ratio]]:
    """Odds ratios of a classifier, or rate ratios of a count model: one for each cluster and feature.

    A ratio belongs to a step of the feature: from 0 to 1 for a feature of zeros and ones, from all other levels (their
    mean on the scale of the logarithm) to one level for a category, and one standard deviation for any other feature.
    Other features stay the same, and so does the entity: where entities differ, the ratio is that of events of one
    entity, not of averages over entities. An odds ratio is not a ratio of probabilities. Of a feature with a curve, it
    is the ratio of its straight line.

    Parameters
    ----------
    model : classifier or count model, fitted
    level : probability of the intervals

    Returns
    -------
    ratios : ratios[cluster][feature]
    """
    check_is_fitted(model)
    link = check_ratios(model)
    sizes, (ratios, lower, upper) = step_sizes(model), step_ratios(model, level)
    steps = _steps(model, sizes)
    names = [printable(name) for name in feature_names(model)]
    return [
        [
            _ratio(k, names[f], steps[f], sizes[f], (ratios[k, f], lower[k, f], upper[k, f]), link, level)
            for f in range(len(names))
        ]
        for k in range(model.n_clusters_)
    ]


def check_ratios(model: FittedModel) -> Link:
    """The link of a model of classes or counts; anything else is refused."""
    link = link_of(model)
    if link is None:
        raise ArgumentError(
            "`model` predicts real numbers, which have no odds or rates; `describe_clusters` describes its clusters."
        )
    return link


def step_ratios(model: FittedModel, level: float = INTERVAL_LEVEL) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The numbers of `cluster_ratios`: ratios and the ends of their intervals, (clusters, features) each."""
    sizes = step_sizes(model)
    # a coefficient of an extreme fit may be beyond the largest number
    with np.errstate(over="ignore"):
        ratios, lower, upper = (
            np.asarray(np.exp(part * sizes)) for part in (unit_changes(model), *change_intervals(model, level))
        )
    return ratios, lower, upper


def zero_or_one(model: FittedModel) -> NDArray[np.bool_]:
    """(features,) which features are 0 or 1 in all events."""
    means = model.feature_means_
    spreads = model.feature_spreads_
    # of all columns between 0 and 1, only those without values in between have this variance
    return np.isclose(spreads**2, means * (1.0 - means), rtol=1e-9, atol=0.0) & (spreads > 0.0)


def step_sizes(model: FittedModel) -> FloatArray:
    """(features,) the step of each feature that ratios belong to: 1 for zeros and ones, else a standard deviation."""
    is_unit = zero_or_one(model)
    is_unit[list(one_hot(model))] = True
    return np.where(is_unit, 1.0, model.feature_spreads_)


def _steps(model: FittedModel, sizes: FloatArray) -> list[tuple[str, bool]]:
    """For each feature its step in words, and whether it compares two groups of events."""
    names = feature_names(model)
    levels = one_hot(model)
    is_unit = zero_or_one(model)
    steps = []
    for f, name in enumerate(names):
        if f in levels:
            column, level = levels[f]
            steps.append((printable(f"where {column} is {level}, compared with elsewhere"), True))
        elif is_unit[f]:
            steps.append((printable(f"where {name} is 1, compared with 0"), True))
        else:
            steps.append((printable(f"with each further standard deviation ({number(sizes[f])}) of {name}"), False))
    return steps


def _ratio(
    cluster: int,
    feature: str,
    step: tuple[str, bool],
    size: float,
    values: tuple[float, float, float],
    link: Link,
    level: float,
) -> Ratio:
    words, is_comparison = step
    ratio, lower, upper = (float(value) for value in values)
    if lower > 1.0 or upper < 1.0:
        figure = _comparative(ratio) if is_comparison else _change(ratio)
        verb = link.verb("are", "is") if is_comparison else _verb(ratio, link)
        does = f"{verb} {figure}"
        known = f" ({percent(level)} interval: {_span(ratio, lower, upper)})"
    else:
        does = f"{link.verb('do', 'does')} not clearly {'differ' if is_comparison else 'change'}"
        known = ""
        if np.isfinite(lower):
            known = f" ({percent(level)} interval: {_comparative(lower)} to {_comparative(upper)})"
    phrase = f"{does} {words}{known}"
    sentence = f"{capital(words)}, {link.subject} {does}{known}."
    return Ratio(cluster, feature, words, float(size), ratio, lower, upper, phrase, sentence)


def _verb(ratio: float, link: Link) -> str:
    return link.verb("rise", "rises") if ratio > 1.0 else link.verb("fall", "falls")


def _change(ratio: float) -> str:
    """ "by 62 %" or "to 3.4 times" """
    return f"to {number(ratio)} times" if ratio >= TIMES else f"by {percent(abs(ratio - 1.0))}"


def _comparative(ratio: float) -> str:
    """ "62 % lower", "12 % higher" or "3.4 times as high" """
    if ratio >= TIMES:
        return f"{number(ratio)} times as high"
    return f"{percent(abs(ratio - 1.0))} {'higher' if ratio > 1.0 else 'lower'}"


def _span(ratio: float, lower: float, upper: float) -> str:
    """An interval that leaves out 1, in the figures of its ratio: the smaller change first."""
    if ratio >= TIMES:
        return f"{number(lower)} to {number(upper)} times"
    near, far = (lower, upper) if ratio > 1.0 else (upper, lower)
    return f"{percent(abs(near - 1.0))} to {percent(abs(far - 1.0))}"
