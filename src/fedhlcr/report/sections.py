"""Sections of the report page: what the template shows of clusters, differences, agents and the run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedhlcr._support.wording import ROUND, byte_size, capital, number, percent
from fedhlcr.analysis.axes import axis_of, feature_axes
from fedhlcr.analysis.axis_lines import target_axis
from fedhlcr.analysis.contrasts import contrasts_of
from fedhlcr.analysis.evaluation import Evaluation
from fedhlcr.analysis.facts import SURE
from fedhlcr.analysis.rounds import FederatedRun
from fedhlcr.analysis.words import effect_columns, members_in_words, noise_words, without_effects
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.figures.agents import by_main_cluster
from fedhlcr.figures.estimates import contrast_panel, contrast_unit
from fedhlcr.figures.figure import Panel
from fedhlcr.figures.lines import mean_strengths
from fedhlcr.figures.runs import run_panel, trace_panel
from fedhlcr.model.likelihood import GAUSSIAN
from fedhlcr.report import charts, listings, story
from fedhlcr.report.findings import Findings, ListedEntities

# Cards that are open.
OPEN_CARDS = 6
# Most agents in the matrix, uncertain entities named, and features in the table of differences.
MATRIX_AGENTS = 60
N_UNCERTAIN = 10
MOST_ROWS = 12
# Charts of effects, those shown at once, and clusters in each of them.
MOST_CHARTS = 12
FIRST_CHARTS = 6
MOST_CLUSTERS = 16


def cluster_section(findings: Findings) -> dict[str, Any]:
    """The clusters: clear ones as cards, the others together."""
    certainty = findings.certainty
    entities = findings.entities
    target = target_axis(findings.model)
    typical = findings.link.if_typical(f" for a typical {findings.names.entity.one}")
    cards = [
        {
            "cluster": cluster,
            "level": f"{target.text(cluster.level)}{typical}",
            "who": members_in_words(findings, cluster),
            "examples": [] if entities is None else entities.examples(cluster.number),
            "moves": findings.moves[cluster.number],
            "is_faded": cluster.number in certainty.blurred,
        }
        for cluster in findings.clusters
    ]
    clear, faded = ([card for card in cards if card["is_faded"] == side] for side in (False, True))
    if not clear or not certainty.is_finding:
        clear = []
        faded = cards
    elif len(faded) == 1:
        clear = cards
        faded = []
    listing = listings.cluster_listing(findings)
    return {
        "cards": clear[:OPEN_CARDS],
        "more": clear[OPEN_CARDS:],
        "faded": faded,
        "shares": charts.share_bar([(c.number, c.share) for c in findings.clusters], certainty.blurred),
        "listing": listing,
        "has_intervals": any(column.ranges for column in listing.columns),
        "meanings": [
            f"{column.label}: {column.hint}" for column in listing.columns if column.kind not in ("cluster", "effect")
        ],
        "effect_columns": effect_columns(findings),
        "target": target.name,
    }


def effect_section(findings: Findings) -> dict[str, Any] | None:
    """Charts of the strongest features; None without features that vary."""
    model = findings.model
    axes = feature_axes(model)
    strength = mean_strengths(model, axes)
    order = [axes[a] for a in np.argsort(-strength, kind="stable") if strength[a] > 0.0][:MOST_CHARTS]
    contrasts = [contrast for axis in order for contrast in contrasts_of(model, axis)][:MOST_CHARTS]
    if not contrasts:
        return None
    charts = [contrast_panel(model, contrast, MOST_CLUSTERS, findings.certainty.blurred) for contrast in contrasts]
    return {
        "charts": charts[:FIRST_CHARTS],
        "more": charts[FIRST_CHARTS:],
        "unit": contrast_unit(target_axis(model)),
        "n_hidden": max(0, model.n_clusters_ - MOST_CLUSTERS),
    }


def agent_section(findings: Findings, scores: Evaluation | None) -> dict[str, Any] | None:
    agents = findings.agents
    if agents is None:
        return None
    words = story.agents_in_words(agents, (findings.names.agent, findings.names.entity))
    section: dict[str, Any] = {"words": words, "matrix": None, "picture": None, "listing": None}
    if len(agents) > 1:
        section["listing"] = listings.agent_listing(agents, findings.names, scores)
        if agents.weights.shape[1] > 1:
            if len(agents) <= MATRIX_AGENTS:
                order, _ = by_main_cluster(agents.weights)
                section["matrix"] = [(agents.ids[i], agents.weights[i].tolist(), int(i)) for i in order]
            else:
                section["picture"] = charts.agent_picture(agents.weights)
    return section


def entity_section(findings: Findings, entities: ListedEntities) -> dict[str, Any]:
    doubtful = np.argsort(entities.certainty, kind="stable")[:N_UNCERTAIN]
    return {
        "all": entities,
        "listing": listings.entity_listing(entities, findings.names, findings.link),
        "doubtful": [row for row in doubtful.tolist() if entities.certainty[row] < SURE],
        "sure": percent(SURE),
    }


def difference_section(findings: Findings) -> dict[str, Any] | None:
    """How entities of one cluster differ; None if the likelihood says nothing about that."""
    model = findings.model
    names = findings.names
    found = findings.differences
    if found is None:
        if model.posterior_.likelihood.name != GAUSSIAN:
            return None
        equal = f"This is the model of the paper: all {names.entity.many} of a cluster have the same regression"
        return {"paragraphs": [f"{equal}, and the noise is the same everywhere, {number(findings.noise)}."], "rows": []}
    has = found.has_entity_effect | found.has_agent_effect
    order = [0, *(1 + np.argsort(-found.typical_effect[1:], kind="stable"))]
    titles = ["level at average features", *(f"slope of {name}" for name in names.features)]
    sides = ((found.entity_scales, found.has_entity_effect), (found.agent_scales, found.has_agent_effect))
    rows = [
        (titles[place], *(number(scales[place]) if own[place] else "–" for scales, own in sides))
        for place in order
        if has[place]
    ]
    without = without_effects(has, list(names.features))
    scatter = _scatter(findings)
    return {
        "paragraphs": [_regressions_differ(findings), *([scatter] if scatter else [])],
        "rows": rows[:MOST_ROWS],
        "has_agents": bool(found.has_agent_effect.any()),
        "note": f"No effects on {without}." if without else "",
        "scale": findings.link.family.linear,
    }


def _regressions_differ(findings: Findings) -> str:
    """How regressions of entities differ."""
    names = findings.names
    found = findings.differences
    link = findings.link
    assert found is not None
    alone = len(findings.clusters) == 1
    members = names.entity.many if alone else f"{names.entity.many} of one cluster"
    if not (found.has_entity_effect | found.has_agent_effect).any():
        return f"The model has no differences between the regressions of {members}."
    sentences = [
        f"{capital(members)} are alike, not equal: each has its own regression around "
        f"{'the common one' if alone else 'that of its cluster'}. About two thirds of them are within one standard "
        "deviation."
    ]
    scale = float(found.entity_scales[0])
    if found.has_entity_effect[0] and not link.family.has_link:
        sentences.append(f"At average features, {names.target} differs between {members} by {number(scale)}.")
    elif found.has_entity_effect[0]:
        factor = number(math.exp(scale))
        sentences.append(
            f"At average features, one standard deviation is {number(scale)} in {link.linear}: it multiplies "
            f"{link.subject} by {factor}, or divides {link.verb('them', 'it')} by {factor}."
        )
    if found.has_entity_effect[1:].any():
        axis = axis_of(feature_axes(findings.model), int(np.argmax(found.typical_effect[1:])))
        sentences.append(f"Of the effects, that of {axis.name} differs most between them.")
    if found.has_agent_effect.any():
        whole = "the common regression" if alone else "their clusters"
        sentences.append(f"All {names.entity.many} of one {names.agent.one} also share a deviation from {whole}.")
    return " ".join(sentences)


def _scatter(findings: Findings) -> str:
    """How much events scatter around the regressions; empty for classes, which have no noise."""
    model = findings.model
    if model.family.has_classes:
        return ""
    if not model.family.has_link:
        found = findings.differences
        entities = findings.names.entity.many
        differs = found is not None and found.noise_range is not None
        first = f"The noise is the same for all {entities}. Its scale is"
        if differs:
            first = f"Some {entities} are noisier than others. The typical noise is"
        heavy = model.posterior_.likelihood.has_heavy_tails
        return f"{first} {number(model.noise_scale_ if heavy else findings.noise)}{noise_words(findings)}."
    mean = 1.0 if findings.base is None else findings.base
    spread = math.sqrt(mean + model.dispersion_ * mean**2)
    return (
        f"Counts scatter around their mean with dispersion {number(model.dispersion_)}: at an exposure of 1, a count "
        f"whose mean is {number(mean)} has standard deviation {number(spread)}. Pure chance, a Poisson law, would give "
        f"{number(math.sqrt(mean))}."
    )


def round_section(findings: Findings, run: FederatedRun) -> dict[str, Any]:
    agents = findings.names.agent.many
    n = len(run.rounds)
    up, down = run.traffic
    asked, per_round = (
        float(sum(run.column(name).sum() for name in names)) / max(n, 1)
        for names in (("n_asked",), ("bytes_up", "bytes_down"))
    )
    facts = [
        (ROUND.of(run.n_rounds), f"{run.n_rounds:,}"),
        (f"{agents} asked per round, mean", number(asked)),
        ("of the requests were answered in time", percent(run.answered)),
        ("requests were not answered in time", f"{run.n_silent:,}"),
        ("answers were refused", f"{run.n_refused:,}"),
        ("sums up", up),
        ("coefficients down", down),
        ("up and down per round", byte_size(per_round)),
    ]
    drawn = [
        (f"{agents} that answered", {"answered": run.column("n_accepted"), "asked": run.column("n_asked")}, True),
        ("kB up and down", {"up": run.column("bytes_up") / 1e3, "down": run.column("bytes_down") / 1e3}, True),
        ("clusters in use", {"clusters": run.column("n_clusters")}, True),
        ("labels changed", {"labels": run.column("labels_changed")}, True),
        *((name, {name: values}, False) for name, values in run.scales.items()),
        ("error on the validation set", {"error": run.column("validation_mse")}, False),
    ]
    steps = np.arange(1.0, n + 1.0)
    pictures = [
        run_panel(title, [(name, steps, values) for name, values in lines.items()], "round", is_count=zero)
        for title, lines, zero in drawn
        if any(np.isfinite(values).any() for values in lines.values())
    ]
    return {"facts": facts, "pictures": pictures, "all": run, "sent": story.what_is_sent(findings, run)}


def traces(model: HierarchicalPredictor) -> list[Panel]:
    """Charts of a centralised fit, sweep by sweep, with a line for each chain."""
    trace = getattr(model, "trace_", None)
    if trace is None or not len(trace):
        return []
    scales = [(q.heading, q.name) for q in model.posterior_.likelihood.globals_type.traced_scales()]
    quantities = [("log joint", "log_joint"), ("clusters in use", "n_clusters"), *scales]
    return [trace_panel(model, name, title=title) for title, name in quantities]
