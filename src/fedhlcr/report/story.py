"""The report in a few sentences."""

from __future__ import annotations

import math

import numpy as np

from fedhlcr._support.wording import (
    CLUSTER,
    EVENT,
    FEATURE,
    Noun,
    capital,
    fine_percent,
    listed,
    number,
    percent,
    printable,
)
from fedhlcr.analysis.evaluation import LEVEL, Evaluation
from fedhlcr.analysis.facts import AgentFacts
from fedhlcr.analysis.names import NO_NAME, named
from fedhlcr.analysis.rounds import FederatedRun
from fedhlcr.analysis.simpler import ONE_RIDGE
from fedhlcr.analysis.verdict import FitComparison
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.report.doubts import Doubt
from fedhlcr.report.findings import Findings
from fedhlcr.report.scores import goodness_in_words

NUMERALS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
# So many features are named, more are counted.
FEATURES_NAMED = 3
# An agent with this share of its entities in one cluster counts as pure.
ALMOST_ALL = 0.9
# An agent's main cluster leads by so much of its entities.
CLEAR_LEAD = 0.05


def in_short(
    model: HierarchicalPredictor, findings: Findings, run: FederatedRun | None, doubts: tuple[Doubt, ...]
) -> list[str]:
    """The report in a few paragraphs."""
    paragraphs = [_what(model, findings)]
    if run is not None:
        paragraphs.append(_federation(findings, run))
    serious = [doubt.headline for doubt in doubts if doubt.serious and not doubt.is_told]
    if serious:
        paragraphs.append(f"Read on with care. {'. '.join(serious)}.")
    return paragraphs


def goodness(model: HierarchicalPredictor, findings: Findings, scores: Evaluation | None) -> str:
    """How well the model predicts, in a few sentences."""
    if scores is not None and scores.family.has_link:
        return goodness_in_words(scores)
    return _goodness(findings, scores, model.comparison_)


def _what(model: HierarchicalPredictor, findings: Findings) -> str:
    names = findings.names
    n_clusters = len(findings.clusters)
    # readers see a category as one feature, even if it is encoded in several columns
    n_features = len(names.features if model.recipe_ is None else model.recipe_.features)
    features = f"the {FEATURE.count(n_features)}"
    if n_features <= FEATURES_NAMED:
        features = listed([printable(name) for name in (model.recipe_.features if model.recipe_ else names.features)])
    of_what = names.target if findings.link is None else findings.link.response
    regression = f"Each cluster has its own regression of {of_what} on {features}."
    clusters = f"{_small(n_clusters)} {CLUSTER.of(n_clusters)}"
    found = "The model chose this number" if findings.finds_clusters else "This number was given"
    if findings.agents is None or findings.entities is None:
        return (
            f"This model has {clusters} of {names.entity.many}. {found}. {regression} "
            f"It is public: it holds no data of any {names.agent.one}, so no {names.entity.one} can be looked up here."
        )
    n_agents = len(findings.agents)
    n_entities = findings.entities.n_all
    owners = f" of {names.agent.count(n_agents) if n_agents > 1 else f'one {names.agent.one}'}"
    if not findings.has_agents:
        owners = ""
    if n_clusters == 1:
        all_of = f"All {names.entity.count(n_entities)}" if n_entities > 1 else f"The one {names.entity.one}"
        are = "are" if n_entities > 1 else "is"
        return f"{all_of}{owners} {are} in one cluster, with one regression of {of_what} on {features}."
    entities = names.entity.count(n_entities)
    return f"The {entities}{owners} fall into {clusters}. {found}. {regression}"


def _goodness(findings: Findings, scores: Evaluation | None, found: FitComparison | None) -> str:
    if scores is None:
        fitted = ""
        if findings.explained is not None:
            fitted = (
                f"It explains {percent(findings.explained)} of the variance of the events it was fitted with, which "
                "is an optimistic figure. "
            )
        compared = "" if found is None else f"{found.told} "
        return f"{fitted}{compared}No held-out events were given, so it was not evaluated."
    inside = f"{fine_percent(scores.model['coverage'])} of these events lie in their {percent(LEVEL)} intervals."
    if not math.isfinite(scores.model.explained):
        return f"R² is undefined: the target is constant over the {EVENT.count(scores.n_events)} given. {inside}"
    held_out = "the events it was fitted with" if scores.was_fitted else f"{EVENT.count(scores.n_events)} held out"
    rivals = listed(
        [f"{_rival(name, findings)} explains {explained(own.explained)}" for name, own in scores.rivals.items()]
    )
    caution = " These figures are optimistic for every method." if scores.was_fitted else ""
    target = findings.names.target
    if scores.model.explained < 0.0:
        does = f"predicts {target} worse than the plain mean does"
    else:
        does = f"explains {explained(scores.model.explained)} of the variance of {target}"
    comparison = f" For comparison, {rivals}." if rivals else ""
    return f"On {held_out} it {does}.{comparison}{caution} {inside}"


def _rival(name: str, findings: Findings) -> str:
    return "one ridge for all" if name == ONE_RIDGE else f"a {name.replace('entity', findings.names.entity.one)}"


def explained(r2: float) -> str:
    """R² as a share of the variance, to a tenth of a per cent."""
    return fine_percent(r2) if r2 >= 0.0 else "none of it"


def _federation(findings: Findings, run: FederatedRun) -> str:
    answered = f"{percent(run.answered)} of the {findings.names.agent.many} asked answered in time."
    return f"{run.ending()} {run.traffic_in_words()} {answered} {what_is_sent(findings, run)}"


def what_is_sent(findings: Findings, run: FederatedRun) -> str:
    """What leaves an agent, by the protocol. Only a run that was simulated in one process keeps its rounds."""
    agents = findings.names.agent.many
    validated = " A validation set was scored after each round." if run.was_validated else ""
    return f"{capital(agents)} send sums, never events. This run was simulated in one process.{validated}"


def agents_in_words(agents: AgentFacts, names: tuple[Noun, Noun]) -> list[str]:
    """How the clusters are spread over the agents."""
    agent, entity = names
    n_clusters = agents.weights.shape[1]
    main = agents.main_cluster
    if len(agents) == 1:
        name = "" if agents.ids[0] == NO_NAME else f", {agents.ids[0]}"
        return [f"All {entity.many} belong to one {agent.one}{name}."]
    if n_clusters == 1:
        return [f"There is only one cluster. All {agent.many} share it."]
    pure = int((agents.weights.max(axis=1) >= ALMOST_ALL).sum())
    first, second = np.sort(agents.weights, axis=1)[:, :-3:-1].T
    leads = first - second >= CLEAR_LEAD
    counts = [(int(((main == k) & leads).sum()), k) for k in range(n_clusters)]
    most, k = max(counts, key=lambda pair: (pair[0], -pair[1]))
    effective = agents.effective_clusters()
    mixed = int(effective.argmax())
    has = "has" if most == 1 else "have"
    nearly_all = agent.count(pure) if pure else f"no {agent.one}"
    leading = f"{agent.count(most)} of {len(agents):,} {has} cluster {k} as the main cluster."
    return [
        f"{leading if most else f'No {agent.one} has one main cluster.'} "
        f"{capital(nearly_all)} {'has' if pure < 2 else 'have'} {percent(ALMOST_ALL)} or more of the {entity.many} in "
        f"one cluster. The most mixed is {named(agents.ids[mixed], agent)}, with an effective number of "
        f"{number(effective[mixed], 2)} clusters."
    ]


def _small(n: int) -> str:
    return NUMERALS[n] if n < len(NUMERALS) else f"{n:,}"
