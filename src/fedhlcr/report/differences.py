"""The section on how entities of one cluster differ."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fedhlcr._support.wording import FEATURE, capital, listed, number, percent
from fedhlcr.analysis.axes import Axis, axis_of, feature_axes
from fedhlcr.analysis.differences import NOISE_RANGE, EntityDifferences, tail_words
from fedhlcr.analysis.links import Link
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.model.likelihood import GAUSSIAN
from fedhlcr.report.findings import Findings
from fedhlcr.report.names import Names

# Most features in the table.
MOST_ROWS = 12


class DifferenceSection(NamedTuple):
    """Paragraphs, and a table of standard deviations: name, between entities, between agents."""

    paragraphs: tuple[str, ...]
    rows: tuple[tuple[str, str, str], ...] = ()
    has_agents: bool = False
    note: str = ""
    scale: str = ""  # of the regressions, such as "log odds"; empty if it is that of the target


def describe_differences(model: HierarchicalPredictor, findings: Findings) -> DifferenceSection | None:
    """What the report says about differences; None if the likelihood says nothing about them."""
    names = findings.names
    found = findings.differences
    if found is None:
        if model.posterior_.likelihood.name != GAUSSIAN:
            return None
        equal = f"This is the model of the paper: all {names.entity.many} of a cluster have the same regression"
        return DifferenceSection((f"{equal}, and the noise is the same everywhere, {number(findings.noise)}.",))
    link = findings.link
    axes = feature_axes(model)
    alone = len(findings.clusters) == 1
    scatter: tuple[str, ...] = ()
    if link is None:
        scatter = (_noise(model, found, findings),)
    elif not link.family.has_classes:
        scatter = (_dispersion(model, findings),)
    return DifferenceSection(
        (" ".join(_effects(found, names, link, axes, alone=alone)), *scatter),
        _rows(found, names),
        bool(found.has_agent_effect.any()),
        _note(found, names),
        "" if link is None else link.linear,
    )


def _effects(
    found: EntityDifferences, names: Names, link: Link | None, axes: tuple[Axis, ...], *, alone: bool
) -> list[str]:
    """How regressions differ; `alone` if there is only one cluster."""
    members = _members(names, alone=alone)
    if not (found.has_entity_effect | found.has_agent_effect).any():
        return [f"The model has no differences between the regressions of {members}."]
    sentences = [_alike(members, alone=alone)]
    if found.has_entity_effect[0]:
        sentences.append(_of_level(float(found.entity_scales[0]), names.target, members, link))
    if found.has_entity_effect[1:].any():
        sentences.append(_strongest(found, axes))
    if found.has_agent_effect.any():
        whole = "the common regression" if alone else "their clusters"
        sentences.append(f"All {names.entity.many} of one {names.agent.one} also share a deviation from {whole}.")
    return sentences


def _of_level(scale: float, target: str, members: str, link: Link | None) -> str:
    """How levels differ; with a link, in factors."""
    if link is None:
        return f"At average features, {target} differs between {members} by {number(scale)}."
    factor = number(math.exp(scale))
    return (
        f"At average features, one standard deviation is {number(scale)} in {link.linear}: it multiplies "
        f"{link.subject} by {factor}, or divides {link.verb('them', 'it')} by {factor}."
    )


def _members(names: Names, *, alone: bool) -> str:
    return names.entity.many if alone else f"{names.entity.many} of one cluster"


def _alike(members: str, *, alone: bool) -> str:
    around = "the common one" if alone else "that of its cluster"
    return (
        f"{capital(members)} are alike, not equal: each has its own regression around {around}. About two thirds of "
        "them are within one standard deviation."
    )


def _strongest(found: EntityDifferences, axes: tuple[Axis, ...]) -> str:
    feature = int(np.argmax(found.typical_effect[1:]))
    return f"Of the effects, that of {axis_of(axes, feature).name} differs most between them."


def _dispersion(model: Any, findings: Findings) -> str:
    """How much counts scatter, at the mean of the fitted ones, beside those of a Poisson law."""
    mean = 1.0 if findings.base is None else findings.base
    spread = float(np.sqrt(mean + model.dispersion_ * mean**2))
    return (
        f"Counts scatter around their mean with dispersion {number(model.dispersion_)}: at an exposure of 1, a count "
        f"whose mean is {number(mean)} has standard deviation {number(spread)}. Pure chance, a Poisson law, would give "
        f"{number(float(np.sqrt(mean)))}."
    )


def _noise(model: HierarchicalPredictor, found: EntityDifferences, findings: Findings) -> str:
    entities = findings.names.entity.many
    typical = number(findings.noise)
    if tails := tail_words(model):
        return f"The noise is the same for all {entities}. Its scale is {number(model.noise_scale_)}{tails}."
    if found.noise_range is None:
        return f"The noise is the same for all {entities}: {typical}."
    low, high = found.noise_range
    return (
        f"Some {entities} are noisier than others. The typical noise is {typical}; for the middle "
        f"{percent(NOISE_RANGE)} of the {entities} it lies between {number(low)} and {number(high)}."
    )


def _rows(found: EntityDifferences, names: Names) -> tuple[tuple[str, str, str], ...]:
    """The level, and the slopes that differ, the strongest first."""
    has = found.has_entity_effect | found.has_agent_effect
    order = [0, *(1 + np.argsort(-found.typical_effect[1:], kind="stable"))]
    titles = ["level at average features", *(f"slope of {name}" for name in names.features)]
    return tuple(
        (
            titles[place],
            number(found.entity_scales[place]) if found.has_entity_effect[place] else "–",
            number(found.agent_scales[place]) if found.has_agent_effect[place] else "–",
        )
        for place in [place for place in order if has[place]][:MOST_ROWS]
    )


def _note(found: EntityDifferences, names: Names) -> str:
    """Which slopes do not differ."""
    has = found.has_entity_effect | found.has_agent_effect
    without = [name for name, own in zip(names.features, has[1:], strict=True) if not own]
    if not without:
        return ""
    if len(without) > MOST_ROWS:
        return f"The slopes of {FEATURE.count(len(without))} do not differ."
    return f"The {'slope' if len(without) == 1 else 'slopes'} of {listed(without)} {_do(without)} not differ."


def _do(items: list[str]) -> str:
    return "does" if len(items) == 1 else "do"
