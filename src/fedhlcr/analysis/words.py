"""What is said of a fitted model, in words: the sentences of terminal, notebook and report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import EVENT, Noun, capital, listed, number, percent, printable
from fedhlcr.analysis.axis_lines import target_axis
from fedhlcr.analysis.axis_words import describe_effects
from fedhlcr.analysis.effects import NOISE_RANGE, target_name
from fedhlcr.analysis.facts import SURE, ClusterFacts, Facts, LabelCertainty, UserNames
from fedhlcr.analysis.links import link_of
from fedhlcr.posterior.fitted_model import check_model

COEFFICIENT = Noun("coefficient", "coefficients")
# Most features to name in a line.
MAX_NAMED = 6


def describe_clusters(
    model: Any, target: str | None = None, n_effects: int = 3, *, entities: str = "entities"
) -> list[str]:
    """Describe each cluster in a sentence: its share, its level, and its strongest effects.

    Effects are in the user's units, strongest first; strength is how much the feature moves the target over the events.
    Columns that belong together, such as sine and cosine of a season or the levels of a category, are one effect.
    Effects below a tenth of the noise are left out, and so are effects whose central 90 % interval includes zero. The
    effects of classifiers are those on the probability, of counts on the rate; `coef_table()` has odds and rate ratios.

    Parameters
    ----------
    model : an estimator of fedhlcr, such as HLCRRegressor or HLCRClassifier, fitted
    target : name of the target; None is the name of its column, if the model knows it
    n_effects : most effects to describe in each cluster
    entities : name of the entities, in the plural
    """
    model = check_model(model)
    axis = target_axis(model)
    target = target_name(model) if target is None else target
    link = link_of(model, target)
    subject = axis.name if axis.is_log else link.response
    typical = link.if_typical(" for a typical one")
    verb = link.family.effect_verb
    return [
        f"Cluster {cluster.number}, {percent(cluster.share)} of {entities}: {subject} is {axis.text(cluster.level)}"
        f"{typical} at average features; {f'it {listed(moves)}' if moves else f'no feature clearly {verb} it'}."
        for cluster, moves in zip(Facts(model).clusters, describe_effects(model, n_effects), strict=True)
    ]


@dataclass(frozen=True)
class ClusterColumn:
    """A column of the table of clusters.

    Attributes
    ----------
    kind : how values are shown
    values : one for each cluster
    meaning : what the values are
    feature : the feature whose effects they are; None of other columns
    """

    label: str
    kind: Literal["cluster", "count", "share", "number"]
    values: list[Any]
    meaning: str
    feature: int | None = None

    def text(self, row: int) -> str:
        """A value as it is shown."""
        value = self.values[row]
        if self.kind == "share":
            return percent(value)
        return number(value) if self.kind == "number" else f"{value:,}"


def cluster_table(facts: Facts, most: int, names: UserNames) -> list[ClusterColumn]:
    """The table of clusters, with a column for each of the strongest features, at most so many."""
    clusters = facts.clusters
    agent = names.agent
    entity = names.entity
    link = facts.link
    meaning = f"{link.response} at average features{link.if_typical(f', for a typical {entity.one}')}"
    columns = [ClusterColumn("cluster", "cluster", [c.number for c in clusters], "")]
    if facts.holds_entities:
        columns.append(
            ClusterColumn(entity.many, "count", [c.n_entities for c in clusters], "number of those whose label it is")
        )
    columns += [
        ClusterColumn(
            "share", "share", [c.share for c in clusters], f"share of the fitted {entity.many}, mean over the draws"
        ),
        ClusterColumn(
            "weight", "share", [c.weight for c in clusters], f"expected share of a new {agent.one}'s {entity.many}"
        ),
        ClusterColumn("level", link.family.kind, [c.level for c in clusters], meaning),
    ]
    for f in facts.strongest_features(most):
        meaning = link.effect(of_level=f in facts.category_levels)
        columns.append(ClusterColumn(names.features[f], "number", [c.changes[f] for c in clusters], meaning, f))
    return columns


def effect_columns(facts: Facts) -> str:
    """What the columns of features in the table of clusters are."""
    category = ", or of a level of a category against all other levels" if facts.category_levels else ""
    return f"{facts.link.change} per {facts.link.family.step}{category}"


def cluster_numbers(numbers: tuple[int, ...]) -> str:
    """ "cluster 3", "clusters 3 and 5", "clusters 3 to 8" """
    if len(numbers) == 1:
        return f"cluster {numbers[0]}"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"clusters {numbers[0]} to {numbers[-1]}"
    return f"clusters {listed([str(k) for k in numbers])}"


def how_sure(found: LabelCertainty, names: UserNames) -> str:
    """How sure memberships are, in a sentence or two; empty where there is nothing to be sure of."""
    entities = names.entity.many
    if found.n_clusters == 1 or not found.n_all:
        return ""
    if not found.is_finding:
        return (
            f"The clusters are not a finding here: only {percent(found.share)} of {entities} are surely in one. "
            f"{capital(entities)} differ gradually rather than in groups."
        )
    if found.n_sure == found.n_all:
        return f"All {entities} are surely in their cluster."
    return f"{percent(found.share)} of {entities} are surely in their cluster."


def mixed_group(found: LabelCertainty, names: UserNames) -> str:
    """What to make of blurred clusters; empty if there are none."""
    if not found.blurred or not found.is_finding:
        return ""
    many = len(found.blurred) > 1
    return (
        f"{capital(cluster_numbers(found.blurred))} {'hold' if many else 'holds'} {percent(found.blurred_share)} of "
        f"{names.entity.many}, and fewer than half of them for certain"
        f"{': read them as one mixed group' if many else ''}."
    )


def sure_in_words(names: UserNames) -> str:
    """What "surely" means, for a note."""
    return f"“Surely” means: the probability that the {names.entity.one} is in this cluster is {percent(SURE)} or more."


def members_in_words(facts: Facts, cluster: ClusterFacts) -> str:
    """How many entities are in a cluster, and how sure that is; empty if that is nothing to tell."""
    entity = facts.names.entity
    if cluster.n_entities is None or len(facts.clusters) == 1:
        return ""
    if not cluster.n_entities:
        return f"No {entity.one} is in it in most draws"
    n_sure = facts.certainty.sure_of_cluster[cluster.number]
    alone = cluster.n_entities == 1
    if n_sure == cluster.n_entities:
        sure = "surely" if alone else "all of them surely"
    elif not n_sure:
        sure = "not surely" if alone else "none of them surely"
    else:
        sure = f"{percent(n_sure / cluster.n_entities)} of them surely"
    return f"{entity.count(cluster.n_entities)}, {sure}"


def few_events(facts: Facts) -> str:
    """Too few events for honest intervals: "4 events for the 3 coefficients of a cluster"; empty if they suffice."""
    if facts.few_events is None:
        return ""
    n_events, n_coef = facts.few_events
    return f"{EVENT.count(n_events)} for the {COEFFICIENT.count(n_coef)} of a cluster"


def privacy_words(model: Any) -> str:
    """What was guaranteed to the agents: "epsilon 3, delta 0.004 for each of 150 agents"; empty without a guarantee."""
    plan = getattr(model, "privacy_", None)
    if plan is None:
        return ""
    return f"epsilon {plan.epsilon:.6g}, delta {plan.delta:.3g} for each of {plan.n_agents:,} agents"


def classes_in_words(model: Any) -> str:
    first, second = (printable(name) for name in model.classes_)
    return f"{first} and {second}; odds and probabilities are those of {second}"


def scales_in_words(
    scales: FloatArray, has: NDArray[np.bool_], size: FloatArray, names: list[str], deviations: str
) -> str:
    """ "level 0.3, slopes: price 0.1 and age 0.2 (standard deviations); no effects on the slope of size"

    Parameters
    ----------
    scales : (1 + features,) standard deviations of the level and of each slope
    has : (1 + features,) where there is an effect
    size : (1 + features,) how large effects are, to name the largest first
    names : of the features
    deviations : what the scales are
    """
    if not has.any():
        return "no effects beyond their clusters"
    parts = [f"level {number(scales[0])}"] if has[0] else []
    order = [f for f in np.argsort(-size[1:], kind="stable") if has[1 + f]]
    if order:
        parts.append(f"slopes: {_some([f'{names[f]} {number(scales[1 + f])}' for f in order])}")
    without = without_effects(has, names)
    return f"{', '.join(parts)} ({deviations}){f'; no effects on {without}' if without else ''}"


def without_effects(has: NDArray[np.bool_], names: list[str]) -> str:
    """What entities of one cluster have in common: "the level and the slopes of price and age"; empty if nothing."""
    without = [] if has[0] else ["the level"]
    if left_out := [name for name, own in zip(names, has[1:], strict=True) if not own]:
        many = "slope" if len(left_out) == 1 else "slopes"
        without.append(f"the {many} of {_some(left_out)}" if has[1:].any() else "slopes")
    return listed(without)


def _some(items: list[str]) -> str:
    """The first items, and how many more there are."""
    shown = items if len(items) <= MAX_NAMED else [*items[: MAX_NAMED - 1], f"{len(items) - MAX_NAMED + 1} more"]
    return listed(shown)


def noise_words(facts: Facts) -> str:
    """What to add to the typical noise: its range, if entities differ, or the shape of its tails; else nothing."""
    model = facts.model
    found = facts.differences
    words = ""
    if found is not None and found.noise_range is not None:
        low, high = found.noise_range
        words = f"; {number(low)} to {number(high)} for {percent(NOISE_RANGE)} of the {facts.names.entity.many}"
    if model.posterior_.likelihood.has_heavy_tails and hasattr(model, "noise_shape_"):
        shape = number(model.noise_shape_)
        words += f"; Student-t with {shape} degrees of freedom, so its standard deviation is {number(facts.noise)}"
    return words
