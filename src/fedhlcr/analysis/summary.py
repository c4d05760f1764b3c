"""A fitted model in lines and a small table, for a terminal, a notebook and the description in model files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from shutil import get_terminal_size
from typing import Any

import numpy as np

from fedhlcr._support.html import bar, block, cells_html, heading, paragraph, rows_html, shortened, table_html
from fedhlcr._support.wording import AGENT, CHAIN, ENTITY, EVENT, FEATURE, listed, number, percent
from fedhlcr.analysis.axis_lines import target_axis
from fedhlcr.analysis.axis_words import describe_effects
from fedhlcr.analysis.effects import feature_names
from fedhlcr.analysis.facts import Facts
from fedhlcr.analysis.words import (
    ClusterColumn,
    classes_in_words,
    cluster_table,
    describe_clusters,
    effect_columns,
    few_events,
    how_sure,
    mixed_group,
    noise_words,
    privacy_words,
    scales_in_words,
)
from fedhlcr.exceptions import Advice
from fedhlcr.model.likelihood import GAUSSIAN

TITLE = "Hierarchical latent class regression"
MAX_FEATURES = 6
MAX_CLUSTERS = 30
# The most clusters to describe in words.
N_SENTENCES = 8
# Characters of a name where there is little room, and what is between the columns of a table.
NAME_WIDTH = 14
GAP = "  "
# Most clusters and effects of each to show.
CLUSTERS_IN_NOTEBOOK = 12
EFFECTS_IN_NOTEBOOK = 2
# The facts of the summary that are shown, by their names.
FACTS_IN_NOTEBOOK = (
    "data",
    "clusters",
    "classes",
    "dispersion",
    "noise scale",
    "entities differ",
    "draws",
    "R-hat (effective size)",
)
NEXT_STEPS = ("summary()", "coef_table()", "cluster_table()", "entity_table()", "to_inference_data()")
PAPER = "the paper's: entities of one cluster are equal, and all have the same noise"


@dataclass(frozen=True)
class Summary:
    """A model in a few lines; `str()` for the terminal, HTML in a notebook.

    Attributes
    ----------
    facts : (name, value) pairs; a value or a note that advises something is an `Advice`
    header, rows : the table of clusters
    notes : what the columns mean, and cautions
    """

    facts: tuple[tuple[str, str | Advice], ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str | Advice, ...]

    def __str__(self) -> str:
        width = max(len(what) for what, _ in self.facts)
        lines = [f"{what:<{width}}  {value}" for what, value in self.facts]
        table = text_table(self._fitting_header(), self.rows)
        notes = [str(note) for note in self.notes]
        return "\n".join([TITLE, *lines, "", table, *notes])

    __repr__ = __str__

    def _fitting_header(self) -> tuple[str, ...]:
        """The header with names as long as the terminal is wide, but not shorter than `NAME_WIDTH`."""
        bodies = [max(map(len, column), default=0) for column in zip(*self.rows, strict=True)]
        longest = max(map(len, self.header))
        for length in range(longest, NAME_WIDTH - 1, -1):
            header = tuple(shorten(name, length) for name in self.header)
            widths = [max(len(name), body) + len(GAP) for name, body in zip(header, bodies, strict=True)]
            if sum(widths) - len(GAP) <= get_terminal_size().columns:
                return header
        return tuple(shorten(name) for name in self.header)

    def _repr_html_(self) -> str:
        tables = [rows_html((), self.facts), rows_html(self.header, self.rows)]
        return block([heading(TITLE), *tables, *map(paragraph, self.notes)])


def summarize(model: Any) -> Summary:
    """The summary of a fitted model."""
    facts = Facts(model)
    columns = cluster_table(facts, MAX_FEATURES, facts.names._replace(agent=AGENT, entity=ENTITY))
    n_shown = min(len(facts.clusters), MAX_CLUSTERS)
    rows = tuple(tuple(column.text(row) for column in columns) for row in range(n_shown))
    return Summary(fact_lines(facts), tuple(column.label for column in columns), rows, _notes(facts, columns))


def describe_model(model: Any) -> dict[str, Any]:
    """A description of a model for people, which model files hold ready and `cli.descriptions` prints.

    It has a few facts, the header and the rows of the table of clusters, notes, a sentence on each of the largest
    clusters, and how many more there are.
    """

    def words(text: str | Advice) -> Any:
        # commands word advice as options
        return {"text": text.text, "settings": text.settings} if isinstance(text, Advice) else text

    summary = summarize(model)
    return {
        "facts": [[what, words(value)] for what, value in summary.facts],
        "header": list(summary.header),
        "rows": [list(row) for row in summary.rows],
        "notes": [words(note) for note in summary.notes],
        "sentences": describe_clusters(model)[:N_SENTENCES],
        "more": max(0, model.n_clusters_ - N_SENTENCES),
    }


def fact_lines(facts: Facts) -> tuple[tuple[str, str | Advice], ...]:
    """Names and values of what is said above the table."""
    model = facts.model
    posterior = model.posterior_
    store = posterior.memory.entities
    family = facts.link.family
    data = "public model without any agent"
    if facts.holds_entities:
        data = f"{AGENT.count(store.index.n_agents)}, {ENTITY.count(len(store))}, {EVENT.count(facts.n_events)}"
    lines: list[tuple[str, str | Advice]] = [
        ("data", f"{data}, {FEATURE.count(posterior.layout.n_inputs)}"),
        ("clusters", f"{model.n_clusters_} ({'found' if facts.finds_clusters else 'given'})"),
    ]
    if family.has_classes:
        lines.append(("classes", classes_in_words(model)))
    if family.has_exposure:
        dispersion = number(model.dispersion_)
        lines.append(("dispersion", f"{dispersion}; a count of mean m has variance m + {dispersion} m²"))
    names = [one_line(name) for name in feature_names(model)]
    if (curves := posterior.standardization.curves) is not None:
        shares = np.array([cluster.share for cluster in facts.clusters])
        bends = [
            f"{names[column]} {number(np.sqrt(shares @ (model.curve_coef_[:, curves.span(curve)] ** 2).sum(axis=1)))}"
            for curve, column in enumerate(curves.columns)
        ]
        lines.append(("curves", f"bend by {', '.join(bends)} (root mean square, in {family.units})"))
    for q in posterior.likelihood.globals_type.traced_scales():
        # one for all, or one for each cluster shown
        values = np.atleast_1d(getattr(model, f"{q.name}_"))[:MAX_CLUSTERS]
        lines.append((q.words, f"{', '.join(map(number, values))} in units of the target{noise_words(facts)}"))
    found = facts.differences
    if found is not None:
        deviations = f"standard deviations of {family.linear}" if family.linear else "standard deviations"
        size = found.typical_effect
        words = scales_in_words(found.entity_scales, found.has_entity_effect, size, names, deviations)
        lines.append(("entities differ", words))
        if found.has_agent_effect.any():
            words = scales_in_words(found.agent_scales, found.has_agent_effect, size, names, deviations)
            lines.append(("agents differ", words))
    elif posterior.likelihood.name == GAUSSIAN:
        lines.append(("model", PAPER))
    lines.append(
        ("concentrations", f"global {model.global_concentration_:.3g}, agent {model.agent_concentration_:.3g}")
    )
    if privacy := privacy_words(model):
        lines.append(("privacy", privacy))
    lines.append(("draws", f"{len(posterior.draws)} from {CHAIN.count(facts.n_chains)}, seed {model.seed_}"))
    lines.append(("R-hat (effective size)", _agreement(facts)))
    return tuple(lines)


def _agreement(facts: Facts) -> str | Advice:
    """Whether the chains agree."""
    model = facts.model
    known = [d for d in model.diagnostics_ if np.isfinite(d.r_hat)]
    if not known:
        return "too few draws" if model.diagnostics_ else "unknown"
    agreement = ", ".join(f"{d.quantity} {d.text} ({d.effective_size:.0f})" for d in known)
    # a federation has only one chain
    if facts.n_chains > 1 or not hasattr(model, "n_chains"):
        return agreement
    halves = "computed from the two halves of one chain; try {n_chains} to compare independent chains"
    return Advice(f"{agreement}; {halves}", n_chains=4)


def _notes(facts: Facts, columns: list[ClusterColumn]) -> tuple[str | Advice, ...]:
    """What the columns of the table mean, and cautions."""
    model = facts.model
    meanings = [f"{column.label}: {column.meaning}" for column in columns[1:] if column.feature is None]
    notes: list[str | Advice] = [
        f"{'; '.join(meanings[:-1])}.",
        f"{meanings[-1]}; other columns: {effect_columns(facts)}.",
    ]
    if n_hidden := model.n_features_in_ - sum(column.feature is not None for column in columns):
        hidden = f"Not shown: {n_hidden} of {model.n_features_in_} features with weaker effects"
        notes.append(Advice(f"{hidden}; {{coef_}} shows all.", coef_=None))
    if model.n_clusters_ > MAX_CLUSTERS:
        notes.append(f"Not shown: the {model.n_clusters_ - MAX_CLUSTERS} smallest of {model.n_clusters_} clusters.")
    notes += filter(None, (how_sure(facts.certainty, facts.names), mixed_group(facts.certainty, facts.names)))
    if facts.is_near_limit:
        advice = "The number of clusters is close to the limit; try {max_clusters}."
        notes.append(Advice(advice, max_clusters=2 * model.max_clusters))
    if scarce := few_events(facts):
        notes.append(f"There are only {scarce}. Intervals are too narrow.")
    if model.comparison_ is not None:
        notes.append(model.comparison_.told)
    return tuple(notes)


def model_html(model: Any) -> str:
    """A fitted model: key facts, clusters, the verdict against simpler models, and what to do next."""
    facts = Facts(model)
    shown = [(what, value) for what, value in fact_lines(facts) if what in FACTS_IN_NOTEBOOK]
    parts = [heading(f"{model.saved_as}, fitted"), rows_html((), shown), _clusters_html(facts)]
    if model.comparison_ is not None:
        parts.append(paragraph(model.comparison_.told))
        if model.comparison_.verdict == "worse":
            is_alone = model.n_clusters_ == 1
            parts.append(
                paragraph(model.comparison_.advice(fit_intercept=model.fit_intercept, has_one_cluster=is_alone))
            )
    codes = ", ".join(f"<code>{escape(step)}</code>" for step in NEXT_STEPS)
    parts.append(f"<p>Go on with {codes}, or make a page with <code>fedhlcr.report.render_report</code>.</p>")
    return block(parts)


def _clusters_html(facts: Facts) -> str:
    """A table of the largest clusters, with a bar for the share of each."""
    shown = facts.clusters[:CLUSTERS_IN_NOTEBOOK]
    target = target_axis(facts.model)
    largest = max(cluster.share for cluster in shown) or 1.0
    effects = describe_effects(facts.model, EFFECTS_IN_NOTEBOOK)
    lines = [
        cells_html(
            "td",
            (
                str(cluster.number),
                f'<span style="white-space:nowrap">{bar(cluster.share / largest)} {percent(cluster.share)}</span>',
                escape(target.text(cluster.level)),
                escape(shortened(listed(moves) if moves else "no clear effect")),
            ),
        )
        for cluster, moves in zip(shown, effects, strict=False)
    ]
    names = ("cluster", "share of entities", f"{target.name} at average features", "strongest effects")
    n_more = len(facts.clusters) - len(shown)
    return table_html(names, lines) + (paragraph(f"And {n_more} smaller clusters.") if n_more else "")


def one_line(name: str) -> str:
    """A name without line breaks."""
    return " ".join(name.split())


def shorten(name: str, length: int = NAME_WIDTH) -> str:
    """A name that fits a place: one line, and not too long."""
    name = one_line(name)
    return name if len(name) <= length else name[: length - 1] + "…"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned to the right, a rule under the header."""
    widths = [max(len(line[c]) for line in (header, *rows)) for c in range(len(header))]
    lines = [GAP.join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in (header, *rows)]
    return "\n".join([lines[0], GAP.join("─" * width for width in widths), *lines[1:]])
