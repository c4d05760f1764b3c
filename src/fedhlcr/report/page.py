"""The report as a page: one HTML file that needs no other."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedhlcr._support.wording import CLUSTER, EVENT, amount, capital, number, percent, printable
from fedhlcr.analysis.axis_lines import target_axis
from fedhlcr.analysis.effects import INTERVAL_LEVEL
from fedhlcr.analysis.evaluation import Evaluation, HeldOut, evaluate
from fedhlcr.analysis.links import NO_TARGET
from fedhlcr.analysis.scores import METRICS, SHOWN
from fedhlcr.analysis.words import how_sure, mixed_group, sure_in_words
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.exceptions import ArgumentTypeError
from fedhlcr.figures import svg
from fedhlcr.kernels import ahead
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.report import sections, story
from fedhlcr.report.checks import calibrate, residual_chart
from fedhlcr.report.doubts import find_doubts
from fedhlcr.report.events import drawn_events, fitted_events
from fedhlcr.report.explorer import explorer_section
from fedhlcr.report.findings import Findings
from fedhlcr.report.map import map_section
from fedhlcr.report.panels import draw_picture
from fedhlcr.report.places import AnyPlaces, locate
from fedhlcr.report.scores import WOULD_SHOW, score_section
from fedhlcr.report.settings import reproduction
from fedhlcr.report.verdict import find_verdict

# Templates of the page's style and script, in their order.
STYLES = ("report.css", "charts.css", "explorer.css", "map.css")
SCRIPTS = (
    "page_data.js", "page_text.js", "report.js", "page.js",
    "explorer_data.js", "explorer_chart.js", "explorer_finder.js", "explorer.js", "map.js",
)  # fmt: skip


def render_report(
    model: HierarchicalPredictor,
    held_out: HeldOut | None = None,
    *,
    title: str | None = None,
    events: HeldOut | None = None,
    places: AnyPlaces | None = None,
    code: str | None = None,
) -> str:
    """Write a report on a fitted model as one HTML page.

    Parameters
    ----------
    model : HLCRRegressor or FedHLCRRegressor, fitted
    held_out : events that were not fitted, to evaluate the model; None leaves the evaluation out
    title : title of the page
    events : events to draw as dots, such as those that were fitted; None draws the held-out ones. Without any,
        classifiers and models of counts draw the events they keep, and other models only lines
    places : where entities are, for a map: a mapping from ids of entities or agents, or from (agent, entity), to
        (latitude, longitude) or (latitude, longitude, name of the place); a function that returns this, or None, for
        the id of an entity; or a dataframe with a column of ids, named as in the fit, and columns latitude and
        longitude. None leaves the map out
    code : Python or a command that loads the table and fits the model, to print under "How to reproduce it". None
        prints what the model knows of its fit, which does not say how its table was loaded

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
    model = check_model(model)
    for name, table in (("held_out", held_out), ("events", events)):
        if table is not None and not isinstance(table, HeldOut):
            raise ArgumentTypeError(
                f"`{name}` must be a HeldOut or None, but is of type {type(table).__name__}; pass "
                "HeldOut(X, y, agent, entity), and for counts `exposure` behind these."
            )
    ahead.prepare(ahead.for_reports(model.posterior_.likelihood.name))
    context = _sections(Findings(model), held_out, events, places)
    script, style = ("\n".join(_text(name) for name in parts) for parts in (SCRIPTS, STYLES))
    listed = (context["clusters"], context["agents"], context["entities"])
    context |= {
        "title": printable(title) if title else _title(context["findings"]),
        "settings": reproduction(context["findings"], code),
        "tables": [section["listing"] for section in listed if section and section["listing"]],
        "event_noun": EVENT,
        "interval": percent(INTERVAL_LEVEL),
        "style": Markup(style),
        "script": Markup(script),
        # the page allows no script but the one with this hash
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return _environment().get_template("report.html").render(context)


def _sections(
    findings: Findings, held_out: HeldOut | None, events: HeldOut | None, places: AnyPlaces | None
) -> dict[str, Any]:
    """What the page shows, by the names that its template uses; None leaves a section out."""
    model = findings.model
    names = findings.names
    agents = findings.agents
    entities = findings.entities
    certainty = findings.certainty
    run = findings.run
    scores = None
    judged = None
    if held_out is not None:
        held_out = held_out.read(model)
        scores = evaluate(model, held_out)
        judged = drawn_events(model, held_out)
    drawn = (judged if events is None else drawn_events(model, events.read(model))) or fitted_events(model)
    doubts = find_doubts(findings, scores)
    # classes have a diagram of their own
    has_curve = held_out is not None and not model.family.has_classes
    return {
        "findings": findings,
        "names": names,
        "link": findings.link,
        "certainty": certainty,
        "verdict": find_verdict(findings, scores),
        "sure": {
            "sentence": how_sure(certainty, names),
            "mixed": mixed_group(certainty, names),
            "meaning": sure_in_words(names),
            "width": 100.0 * certainty.share,
        },
        "short": story.in_short(findings, doubts),
        "picture": draw_picture(model, findings, drawn),
        "facts": _facts(findings, scores),
        "map": None if places is None or entities is None else map_section(model, findings, locate(model, places)),
        "clusters": sections.cluster_section(findings),
        "explorer": explorer_section(model, findings, drawn, judged),
        "effects": sections.effect_section(findings),
        "good": story.goodness(findings, scores),
        "would_show": WOULD_SHOW[model.family.name].format(entity=names.entity.one),
        "scores": None if scores is None else score_section(findings, scores),
        "calibration": calibrate(model, held_out) if has_curve and held_out is not None else None,
        "residuals": None if judged is None or agents is None else residual_chart(judged, agents, names),
        "differences": sections.difference_section(findings),
        "doubts": doubts,
        "traces": sections.traces(model),
        "agents": sections.agent_section(findings, scores),
        "entities": None if entities is None else sections.entity_section(findings, entities),
        "rounds": None if run is None else sections.round_section(findings, run),
    }


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
        "tag": svg.tag,
        "frame": svg.frame,
        "figure": svg.figure,
        "rows": svg.rows,
    }
    return environment


def _text(name: str) -> str:
    return (files("fedhlcr.report") / "templates" / name).read_text(encoding="utf-8")


def _code(text: str) -> Markup:
    """Text between backticks as code."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(p) if n % 2 else p for n, p in enumerate(parts))


def _tied(text: str) -> str:
    """Keep a figure and its unit on one line, "18 %", and the end of a range beside its "to"."""
    places = r"(?<=[0-9]) (?=(?:%|[kMGT]B|bytes?)(?![A-Za-z0-9]))|(?<=under) (?=1 %)|(?<= to) (?=[−0-9])"
    return re.sub(places, "\N{NO-BREAK SPACE}", text)


def _breakable(name: str) -> Markup:
    """A name that may be broken over two lines after _, = and similar characters."""
    return Markup("<wbr>").join(re.split(r"(?<=[_=/.:-])(?=\w)", name))


def _r2(value: float) -> str:
    """Three decimals, so that a column of them lines up."""
    return f"{value:.3f}".replace("-", "−") if math.isfinite(value) else number(value)


def _title(findings: Findings) -> str:
    names = findings.names
    target = target_axis(findings.model).name
    if len(findings.clusters) == 1:
        return f"What moves {target}, and how {names.entity.many} differ"
    return f"Clusters of {names.entity.many}{'' if names.target == NO_TARGET else f' by {target}'}"


def _facts(findings: Findings, scores: Evaluation | None) -> list[tuple[str, str]]:
    """The figures a reader looks for first: (name, value)."""
    names = findings.names
    agents = findings.agents
    entities = findings.entities
    link = findings.link
    facts = [(CLUSTER.of(len(findings.clusters)), f"{len(findings.clusters):,}")]
    if agents is not None and entities is not None:
        if findings.has_agents:
            facts.append((names.agent.of(len(agents)), f"{len(agents):,}"))
        facts += [
            (names.entity.of(entities.n_all), f"{entities.n_all:,}"),
            (EVENT.of(findings.n_events) + " fitted", amount(findings.n_events)),
        ]
    if not link.family.has_link:
        facts.append((f"{findings.noise_name}, in units of {names.target}", number(findings.noise)))
    if findings.base is not None:
        facts.append((f"{link.observed} among fitted events", link.family.in_words(findings.base)))
    if link.family.has_exposure:
        facts.append(("dispersion of the counts", number(findings.model.dispersion_)))
    if scores is not None:
        first = SHOWN[scores.family.name].first
        events = "fitted" if scores.was_fitted else "held-out"
        facts.append((f"{METRICS[first].heading} on {events} events", _r2(scores.model[first])))
    return facts
