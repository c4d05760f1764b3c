"""The report as a page: one HTML file that needs no other."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedhlcr._support.wording import (
    CLUSTER,
    EVENT,
    ROUND,
    amount,
    byte_size,
    capital,
    fine_percent,
    number,
    percent,
    printable,
)
from fedhlcr.analysis.class_scores import ClassScores
from fedhlcr.analysis.count_scores import CountScores
from fedhlcr.analysis.effects import INTERVAL_LEVEL, feature_names
from fedhlcr.analysis.links import Link
from fedhlcr.analysis.rivals import Score
from fedhlcr.estimators.base import HierarchicalPredictor, check_model
from fedhlcr.exceptions import ArgumentTypeError
from fedhlcr.report import charts, listings, story
from fedhlcr.report.differences import describe_differences
from fedhlcr.report.doubts import find_doubts
from fedhlcr.report.findings import SURE, Entities, Findings, gather
from fedhlcr.report.link_scores import LinkScores, score_link, score_section
from fedhlcr.report.rounds import Rounds
from fedhlcr.report.scores import LEVEL, HeldOut, HeldOutScores, score_held_out
from fedhlcr.report.settings import Settings

# Cards of clusters that are open, bars in each card, most agents in the matrix, uncertain entities named.
OPEN_CARDS, CARD_FEATURES, MATRIX_AGENTS, N_UNCERTAIN = 12, 6, 60, 10
# Clusters in the charts of curves: lines have this many colours.
CURVE_CLUSTERS = 4


def render_report(model: HierarchicalPredictor, held_out: HeldOut | None = None, *, title: str | None = None) -> str:
    """Write a report on a fitted model as one HTML page.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    held_out : events that were not fitted, to evaluate the model; None leaves the evaluation out
    title : title of the page

    Returns
    -------
    html : the page; write it to a file as UTF-8

    Examples
    --------
    >>> from fedhlcr import HLCRRegressor
    >>> from fedhlcr.datasets import make_hlcr
    >>> from fedhlcr.report import render_report
    >>> table, truth = make_hlcr(n_agents=40, n_clusters=3, random_state=1)
    >>> model = HLCRRegressor(n_sweeps=50).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    >>> render_report(model).splitlines()[0]
    '<!doctype html>'
    """
    _check(model, held_out)
    findings, rounds = gather(model), Rounds.of(model)
    scores: HeldOutScores | LinkScores | None = None
    if held_out is not None:
        held_out = held_out.read(model)
        linked = findings.link is not None
        scores = score_link(model, held_out, findings.base) if linked else score_held_out(model, held_out)
    doubts = find_doubts(model, findings, rounds, scores)
    script, style = (_text(name) for name in ("report.js", "report.css"))
    context: dict[str, Any] = {
        "title": printable(title) if title else _title(findings),
        "names": findings.names,
        "short": story.in_short(model, findings, scores, rounds, doubts),
        "facts": _facts(model, findings, scores),
        "link": findings.link,
        "scores": None if scores is None else _scores(findings, scores),
        "clusters": _cluster_section(findings),
        "curves": _curves(model),
        "differences": describe_differences(model, findings),
        "agents": _agent_section(findings, scores),
        "entities": None if findings.entities is None else _entity_section(findings, findings.entities),
        "doubts": doubts,
        "rounds": None if rounds is None else _round_section(findings, rounds),
        "traces": _traces(model),
        "settings": Settings.of(model, findings.n_events),
        "event_noun": EVENT,
        "script": Markup(script),
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "style": Markup(style),
    }
    sections = (context["clusters"], context["agents"], context["entities"])
    context["tables"] = [section["listing"] for section in sections if section and section["listing"]]
    return _environment().get_template("report.html").render(context)


def _check(model: Any, held_out: Any) -> None:
    check_model(model)
    if held_out is not None and not isinstance(held_out, HeldOut):
        raise ArgumentTypeError(
            f"`held_out` must be a HeldOut or None, but is of type {type(held_out).__name__}; pass "
            "HeldOut(X, y, agent, entity), and for counts `exposure` behind these."
        )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("fedhlcr.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "percent": lambda share: _tied(percent(share)),
        "capital": capital,
        "breakable": _breakable,
        "r2": _r2,
        "code": _code,
        "tied": _tied,
        "swatch": charts.color_class,
    }
    return environment


def _text(name: str) -> str:
    return (files("fedhlcr.report") / "templates" / name).read_text(encoding="utf-8")


def _code(text: str) -> Markup:
    """Text between backticks as code."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(p) if n % 2 else p for n, p in enumerate(parts))


def _tied(text: str) -> str:
    """Keep a figure and its unit on one line: "18 %"."""
    return re.sub(r"(?<=[0-9]) (?=(?:%|[kMGT]B|bytes?)(?![A-Za-z0-9]))|(?<=under) (?=1 %)", "\N{NO-BREAK SPACE}", text)


def _breakable(name: str) -> Markup:
    """A name that may be broken over two lines after _, = and similar characters."""
    return Markup("<wbr>").join(re.split(r"(?<=[_=/.:-])(?=\w)", name))


def _r2(value: float) -> str:
    """Three decimals, so that a column of them lines up."""
    return f"{value:.3f}".replace("-", "−") if math.isfinite(value) else number(value)


def _title(findings: Findings) -> str:
    target = "" if findings.names.target == "the target" else f" of {findings.names.target}"
    return f"Clusters of {findings.names.entity.many}: a latent class regression{target}"


def _facts(model: Any, findings: Findings, scores: HeldOutScores | LinkScores | None) -> list[tuple[str, str]]:
    """The figures a reader looks for first: (name, value)."""
    names, agents, entities = findings.names, findings.agents, findings.entities
    facts = [(CLUSTER.of(len(findings.clusters)), f"{len(findings.clusters):,}")]
    if agents is not None and entities is not None:
        facts += [
            (names.agent.of(len(agents)), f"{len(agents):,}"),
            (names.entity.of(entities.n_all), f"{entities.n_all:,}"),
            (EVENT.of(findings.n_events) + " fitted", amount(findings.n_events)),
        ]
    if findings.link is None:
        facts.append((f"{findings.noise_name}, in units of {names.target}", number(findings.noise)))
    else:
        facts += _response_facts(model, findings, findings.link)
    if scores is not None:
        name, value = _first_score(scores.model)
        facts.append((f"{name} on {'fitted' if scores.was_fitted else 'held-out'} events", _r2(value)))
    return facts


def _response_facts(model: Any, findings: Findings, link: Link) -> list[tuple[str, str]]:
    """What was observed of classes or counts."""
    facts = [] if link.is_binary else [("dispersion of the counts", number(model.dispersion_))]
    if findings.base is not None:
        facts.insert(0, (f"{link.observed} among fitted events", link.in_words(findings.base)))
    return facts


def _first_score(score: Score | ClassScores | CountScores) -> tuple[str, float]:
    """The score that readers look for first: its name and value."""
    if isinstance(score, ClassScores):
        return "AUC", score.auc
    return ("D²", score.d2) if isinstance(score, CountScores) else ("R²", score.r2)


def _scores(findings: Findings, scores: HeldOutScores | LinkScores) -> dict[str, Any]:
    return score_section(scores) if isinstance(scores, LinkScores) else _score_section(findings, scores)


def _score_section(findings: Findings, scores: HeldOutScores) -> dict[str, Any]:
    picture, ends = charts.density(scores.observed, scores.predicted)
    return {
        "all": scores,
        "rows": [
            (
                score.name.replace("entity", findings.names.entity.one),
                score,
                100.0 * min(1.0, score.r2) if score.r2 > 0.0 else 0.0,
            )
            for score in scores.scores
        ],
        "level": percent(LEVEL),
        "coverage": fine_percent(scores.coverage),
        "by_agent": _by_agent(findings, scores),
        "picture": picture,
        "ends": ends,
    }


def _by_agent(findings: Findings, scores: HeldOutScores) -> str:
    """For how many agents the model beats the ridges; empty for fitted events, where this means nothing."""
    by_agent = scores.by_agent
    if by_agent is None or by_agent.ridge_per_entity is None or len(by_agent.n_events) < 2 or scores.was_fitted:
        return ""
    seen = by_agent.n_events > 0
    better = int((by_agent.model[seen] < by_agent.ridge_per_entity[seen]).sum())
    agent, entity = findings.names.agent, findings.names.entity
    return f"HLCR has a smaller error than a ridge per {entity.one} for {better:,} of {agent.count(int(seen.sum()))}."


def _cluster_section(findings: Findings) -> dict[str, Any]:
    clusters = findings.clusters
    scale, listing = listings.effect_scale(clusters), listings.cluster_listing(findings)
    cards = []
    for cluster in clusters:
        # its own strongest features, since those are the ones described in words
        features = listings.strongest_features([cluster], CARD_FEATURES)
        moves = story.describe_moves(cluster, story.subject(findings))
        told = [cluster.sentences[f] for f in features] if cluster.sentences else []
        cards.append((cluster, moves, listings.effect_rows(cluster, findings.names, features, scale), told))
    return {
        "open": cards[:OPEN_CARDS],
        "more": cards[OPEN_CARDS:],
        "shares": charts.mix_bar([(c.number, 100.0 * c.share) for c in clusters]),
        "listing": listing,
        "has_intervals": any(column.ranges for column in listing.columns),
        "has_levels": bool(findings.category_levels),
        "interval": percent(INTERVAL_LEVEL),
    }


def _curves(model: HierarchicalPredictor) -> list[charts.LineChart]:
    """A chart for each feature with a curve: its effect in the largest clusters, with intervals."""
    if model.curves_ is None:
        return []
    names, pictures = feature_names(model), []
    for column in model.curves_.columns.tolist():
        shown = [model.curve(column, k, level=INTERVAL_LEVEL) for k in range(min(CURVE_CLUSTERS, model.n_clusters_))]
        lines = [(f"cluster {k}", curve.effect) for k, curve in enumerate(shown)]
        bands = [(curve.lower, curve.upper) for curve in shown]
        pictures.append(
            charts.line_chart(printable(names[column]), shown[0].x, lines, "value", zero=False, bands=bands)
        )
    return pictures


def _agent_section(findings: Findings, scores: HeldOutScores | LinkScores | None) -> dict[str, Any] | None:
    agents = findings.agents
    if agents is None:
        return None
    words = story.agents_in_words(agents, (findings.names.agent, findings.names.entity))
    section: dict[str, Any] = {"words": words, "matrix": None, "picture": None, "listing": None}
    if len(agents) > 1:
        real = scores if isinstance(scores, HeldOutScores) else None
        section["listing"] = listings.agent_listing(agents, findings.names, real)
        if agents.weights.shape[1] > 1:
            if len(agents) <= MATRIX_AGENTS:
                order = np.lexsort((-agents.weights.max(axis=1), agents.main_cluster))
                section["matrix"] = [(agents.ids[i], agents.weights[i].tolist()) for i in order]
            else:
                section["picture"] = charts.agent_picture(agents.weights)
    return section


def _entity_section(findings: Findings, entities: Entities) -> dict[str, Any]:
    doubtful = np.argsort(entities.certainty, kind="stable")[:N_UNCERTAIN]
    return {
        "all": entities,
        "listing": listings.entity_listing(entities, findings.names, findings.link),
        "doubtful": [row for row in doubtful.tolist() if entities.certainty[row] < SURE],
        "sure": percent(SURE),
    }


def _round_section(findings: Findings, rounds: Rounds) -> dict[str, Any]:
    x = np.arange(1.0, len(rounds.asked) + 1.0)
    n = max(len(rounds.asked), 1)
    facts = [
        (ROUND.of(rounds.n_rounds), f"{rounds.n_rounds:,}"),
        (f"{findings.names.agent.many} asked per round, mean", number(rounds.asked.sum() / n)),
        ("of the requests were answered in time", percent(rounds.answered)),
        ("requests were not answered in time", f"{rounds.n_silent:,}"),
        ("answers were refused", f"{rounds.refused.sum():,.0f}"),
        ("sums up", byte_size(rounds.total_up)),
        ("coefficients down", byte_size(rounds.total_down)),
        ("up and down per round", byte_size((rounds.bytes_up.sum() + rounds.bytes_down.sum()) / n)),
    ]
    pictures = []
    if len(x):
        drawn = [
            (
                f"{findings.names.agent.many} that answered",
                [("answered", rounds.accepted), ("asked", rounds.asked)],
                True,
            ),
            ("kB up and down", [("up", rounds.bytes_up / 1e3), ("down", rounds.bytes_down / 1e3)], True),
            ("clusters in use", [("clusters", rounds.n_clusters)], True),
            ("labels changed", [("labels", rounds.labels_changed)], True),
            *((name, [(name, values)], False) for name, values in rounds.scales.items()),
            ("error on the validation set", [("error", rounds.validation)], False),
        ]
        pictures = [
            charts.line_chart(title, x, lines, "round", zero)
            for title, lines, zero in drawn
            if np.isfinite(lines[0][1]).any()
        ]
    return {"facts": facts, "pictures": pictures, "all": rounds, "sent": story.what_is_sent(findings, rounds)}


def _traces(model: HierarchicalPredictor) -> list[charts.LineChart]:
    """Charts of a centralised fit, sweep by sweep, with a line for each chain."""
    trace: Any = getattr(model, "trace_", None)
    if trace is None or not len(trace):
        return []
    chains = [trace[trace["chain"] == chain] for chain in np.unique(trace["chain"])]
    shortest = min(len(chain) for chain in chains)
    x = np.arange(1.0, shortest + 1.0)
    # the steep rise in the first sweeps would flatten the rest of the chart
    start = shortest // 10
    kept = np.flatnonzero(chains[0]["kept"][:shortest])
    mark = float(x[kept[0]]) if len(kept) and kept[0] > start else None
    return [
        charts.line_chart(
            title,
            x[start:],
            [
                (f"chain {number_of}", chain[name][start:shortest].astype(float))
                for number_of, chain in enumerate(chains)
            ],
            "sweep",
            zero,
            mark,
        )
        for title, name, zero in (
            ("log joint", "log_joint", False),
            ("clusters in use", "n_clusters", True),
            *((q.heading, q.name, False) for q in model.posterior_.likelihood.globals_type.traced_scales()),
        )
    ]
