"""The words that come before the numbers."""

from __future__ import annotations

import math

from fedhlcr._support.wording import EVENT, FEATURE, Noun, byte_size, capital, fine_percent, listed, number, percent
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.report.doubts import Doubt
from fedhlcr.report.findings import NO_NAME, Agents, Cluster, Findings, named
from fedhlcr.report.rounds import ROUND, Rounds
from fedhlcr.report.scores import LEVEL, HeldOutScores

KIND = Noun("kind", "kinds")
NUMERALS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
# An agent whose main cluster has this share of its entities has hardly any other.
ALMOST_ALL = 0.9


def in_short(
    model: HierarchicalPredictor,
    findings: Findings,
    scores: HeldOutScores | None,
    rounds: Rounds | None,
    doubts: tuple[Doubt, ...],
) -> list[str]:
    """The report in a few paragraphs."""
    told = [f"{_what(model, findings)} {_largest(findings)}".strip(), _goodness(findings, scores)]
    if rounds is not None:
        told.append(_federation(findings, rounds))
    serious = [doubt.headline for doubt in doubts if doubt.serious]
    if serious:
        told.append(f"Read on with care: {'; '.join(_lower_first(headline) for headline in serious)}.")
    return told


def _what(model: HierarchicalPredictor, findings: Findings) -> str:
    names, n_clusters = findings.names, len(findings.clusters)
    # a category is one feature to the reader, however many columns stand for it
    n_features = len(names.features if model.recipe_ is None else model.recipe_.features)
    features = f"the {FEATURE.count(n_features)}" if n_features > 1 else "the one feature"
    line = f"{names.target} depends on {features} in a way of its own"
    kinds = f"{_small(n_clusters)} {KIND.of(n_clusters)}"
    found = "found by the model" if isinstance(model.n_clusters, str) else "a number that was given"
    if findings.agents is None or findings.entities is None:
        return (
            f"This model knows {kinds} of {names.entity.many}, or clusters, {found}; in each, {line}. "
            f"It holds nothing about any {names.agent.one}: no {names.entity.one} can be looked up here."
        )
    n_agents, n_entities = len(findings.agents), findings.entities.n_all
    owners = names.agent.count(n_agents) if n_agents > 1 else f"one {names.agent.one}"
    if n_clusters == 1:
        all_of = f"All {names.entity.count(n_entities)}" if n_entities > 1 else f"The one {names.entity.one}"
        alike = "are of one kind" if n_entities > 1 else "is a kind of its own"
        return f"{all_of} of {owners} {alike}: {names.target} depends on {features} in the same way for all."
    entities = names.entity.count(n_entities)
    return f"The {entities} of {owners} fall into {kinds}, or clusters, {found}; in each, {line}."


def _largest(findings: Findings) -> str:
    if len(findings.clusters) == 1:
        return f"For all of them {describe_moves(findings.clusters[0], findings.names.target)}."
    largest = max(findings.clusters, key=lambda cluster: cluster.share)
    moves = describe_moves(largest, findings.names.target)
    of_all = f"{percent(largest.share)} of the {findings.names.entity.many}"
    return f"The largest, cluster {largest.number}, has {of_all}: {moves}."


def describe_moves(cluster: Cluster, target: str) -> str:
    """What moves the target in a cluster: "y rises 0.7 per unit of price and falls …"."""
    if not cluster.moves:
        return f"no feature clearly moves {target}"
    return f"{target} {listed([cluster.moves[0].removeprefix('it '), *cluster.moves[1:]])}"


def _goodness(findings: Findings, scores: HeldOutScores | None) -> str:
    if scores is None:
        fitted = ""
        if findings.explained is not None:
            fitted = (
                f"It explains {percent(findings.explained)} of the variance of the events it was fitted with, an "
                "optimistic figure. "
            )
        return f"{fitted}No held-out events were given to evaluate it on."
    inside = f"Of these events {fine_percent(scores.coverage)} lie in their {percent(LEVEL)} intervals."
    if not math.isfinite(scores.model.r2):
        return f"The targets of the {EVENT.count(scores.n_events)} to evaluate it on do not differ. {inside}"
    kind = "the events it was fitted with" if scores.was_fitted else f"{EVENT.count(scores.n_events)} held out"
    verb = "explains " if scores.model.r2 < 0.0 else ""
    rivals = listed([f"{_rival(score.name, findings)} {verb}{explained(score.r2)}" for score in scores.ridges])
    flattered = ", figures that are optimistic for every method" if scores.was_fitted else ""
    target = findings.names.target
    if scores.model.r2 < 0.0:
        does = f"predicts {target} worse than its mean would"
        against = f". Of the variance {rivals}" if rivals else ""
    else:
        does = f"explains {explained(scores.model.r2)} of the variance of {target}"
        against = f", against {rivals}" if rivals else ""
    return f"On {kind} it {does}{against}{flattered}. {inside}"


def _rival(name: str, findings: Findings) -> str:
    return "one ridge for all" if name == "one ridge" else f"a ridge per {findings.names.entity.one}"


def explained(r2: float) -> str:
    """R² as a share of the variance, to a tenth of a per cent."""
    return fine_percent(r2) if r2 >= 0.0 else "less than nothing"


def _federation(findings: Findings, rounds: Rounds) -> str:
    agents = findings.names.agent
    ended = ", its limit" if rounds.stop_reason.startswith("reached") else f" ({rounds.stop_reason})"
    return (
        f"It was fitted in {ROUND.count(rounds.n_rounds)}{ended}: {byte_size(rounds.total_up)} of sums went up, "
        f"{byte_size(rounds.total_down)} of coefficients came down, and {percent(rounds.answered)} of the "
        f"{agents.many} asked answered in time. {what_is_sent(findings, rounds)}"
    )


def what_is_sent(findings: Findings, rounds: Rounds) -> str:
    """What leaves an agent, by the protocol. A model that knows its rounds was fitted in one process."""
    agents = findings.names.agent.many
    validated = " A validation set was scored there after each round." if rounds.was_validated else ""
    return f"{capital(agents)} send sums, never an event; here all were simulated in one process.{validated}"


def agents_in_words(agents: Agents, names: tuple[Noun, Noun]) -> list[str]:
    """Which agents mix which clusters."""
    agent, entity = names
    n_clusters, main = agents.weights.shape[1], agents.main_cluster
    if len(agents) == 1:
        name = "" if agents.ids[0] == NO_NAME else f", {agents.ids[0]}"
        return [f"All {entity.many} are of one {agent.one}{name}: its mix is that of all clusters above."]
    if n_clusters == 1:
        return [f"There is one cluster, which all {agent.many} share."]
    pure = int((agents.weights.max(axis=1) >= ALMOST_ALL).sum())
    counts = [(int((main == k).sum()), k) for k in range(n_clusters)]
    most, k = max(counts, key=lambda pair: (pair[0], -pair[1]))
    effective = agents.effective_clusters()
    mixed = int(effective.argmax())
    has = "has" if most == 1 else "have"
    nearly_all = agent.count(pure) if pure else f"no {agent.one}"
    return [
        f"{agent.count(most)} of {len(agents):,} {has} more of cluster {k} than of any other. "
        f"For {nearly_all} one cluster makes up nine tenths or more. "
        f"The one that mixes most is {named(agents.ids[mixed], agent)}, about as if it had "
        f"{number(effective[mixed], 2)} clusters in equal parts."
    ]


def _small(n: int) -> str:
    return NUMERALS[n] if n < len(NUMERALS) else f"{n:,}"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
