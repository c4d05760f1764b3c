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
from fedhlcr.analysis.verdict import rival_name
from fedhlcr.report.doubts import Doubt
from fedhlcr.report.findings import Findings

NUMERALS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
# So many features are named, more are counted.
FEATURES_NAMED = 3
# An agent with this share of its entities in one cluster counts as pure.
ALMOST_ALL = 0.9
# An agent's main cluster leads by so much of its entities.
CLEAR_LEAD = 0.05


def in_short(findings: Findings, doubts: tuple[Doubt, ...]) -> list[str]:
    """The report in a few paragraphs."""
    paragraphs = [_what(findings)]
    if findings.run is not None:
        paragraphs.append(_federation(findings, findings.run))
    serious = [doubt.headline for doubt in doubts if doubt.serious and not doubt.is_told]
    if serious:
        paragraphs.append(f"Read on with care. {'. '.join(serious)}.")
    return paragraphs


def goodness(findings: Findings, scores: Evaluation | None) -> str:
    """How well the model predicts, in a few sentences."""
    if scores is None:
        sentences = ["No held-out events were given, so it was not evaluated."]
        if findings.model.comparison_ is not None:
            sentences.insert(0, findings.model.comparison_.told)
        if findings.explained is not None:
            share = percent(findings.explained)
            fitted = "the variance of the events it was fitted with, which is an optimistic figure"
            sentences.insert(0, f"It explains {share} of {fitted}.")
        return " ".join(sentences)
    own = scores.model
    on = "On the events it was fitted with" if scores.was_fitted else f"On {EVENT.count(scores.n_events)} held out"
    # of classes no other method is named below
    whose = "" if scores.family.has_classes else " for every method"
    caution = f" These figures are optimistic{whose}." if scores.was_fitted else ""
    if scores.family.has_classes:
        apart = "all outcomes are the same, so it cannot be seen whether it tells them apart"
        if math.isfinite(own["auc"]):
            pairs = fine_percent(own["auc"])
            apart = f"it tells the two outcomes apart in {pairs} of the pairs of events that differ (AUC)"
        same = ""
        if scores.constant is not None:
            same = f"; one probability for all events has {number(scores.constant['log_loss'])}"
        return (
            f"{on} {apart}. Its log loss is {number(own['log_loss'])}{same}. Predicted probabilities and observed "
            f"shares differ by {number(100.0 * own['calibration_error'], 2)} percentage points on average.{caution}"
        )
    events = "counts" if scores.family.has_exposure else "events"
    inside = f"{fine_percent(own['coverage'])} of these {events} lie in their {percent(LEVEL)} intervals."
    target = findings.names.target
    share = "deviance of the counts" if scores.family.has_exposure else f"variance of {target}"
    if not math.isfinite(own.explained):
        return f"{on} all targets are equal, so there is no {share} to explain. {inside}{caution}"
    does = f"predicts {target} worse than the plain mean does"
    if own.explained >= 0.0:
        does = f"explains {fine_percent(own.explained)} of the {share}"
    entity = findings.names.entity.one
    rivals = listed(
        [f"{rival_name(name, entity)} explains {explained(rival.explained)}" for name, rival in scores.rivals.items()]
    )
    comparison = f" For comparison, {rivals}." if rivals else ""
    return f"{on} it {does}.{comparison} {inside}{caution}"


def explained(share: float) -> str:
    """R² or D² as a share, to a tenth of a per cent."""
    return fine_percent(share) if share >= 0.0 else "none of it"


def _what(findings: Findings) -> str:
    names = findings.names
    recipe = findings.model.recipe_
    n_clusters = len(findings.clusters)
    # readers see a category as one feature, even if it is encoded in several columns
    known = names.features if recipe is None else recipe.features
    features = f"the {FEATURE.count(len(known))}"
    if len(known) <= FEATURES_NAMED:
        features = listed([printable(name) for name in known])
    of_what = findings.link.response
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
