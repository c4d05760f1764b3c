"""What a notebook shows of a fitted model."""

from __future__ import annotations

from html import escape
from typing import Any

from fedhlcr._support.html import bar, block, cells_html, heading, paragraph, rows_html, shortened, table_html
from fedhlcr._support.wording import listed, percent
from fedhlcr.analysis.axis_lines import target_axis
from fedhlcr.analysis.axis_words import describe_effects
from fedhlcr.analysis.facts import Facts
from fedhlcr.analysis.summary import fact_lines

# Most clusters and effects of each to show.
MAX_CLUSTERS = 12
MAX_EFFECTS = 2
# The facts of the summary that are shown, by their names.
FACTS = (
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


def model_html(model: Any) -> str:
    """A fitted model: key facts, clusters, the verdict against simpler models, and what to do next."""
    facts = Facts(model)
    shown = [(what, value) for what, value in fact_lines(facts) if what in FACTS]
    parts = [heading(f"{type(model).__name__}, fitted"), rows_html((), shown), _clusters(facts)]
    if model.comparison_ is not None:
        parts.append(paragraph(model.comparison_.told))
        if model.comparison_.verdict == "worse":
            parts.append(paragraph(model.comparison_.advice(fit_intercept=model.fit_intercept)))
    codes = ", ".join(f"<code>{escape(step)}</code>" for step in NEXT_STEPS)
    parts.append(f"<p>Go on with {codes}, or make a page with <code>fedhlcr.report.render_report</code>.</p>")
    return block(parts)


def _clusters(facts: Facts) -> str:
    """A table of the largest clusters, with a bar for the share of each."""
    clusters = facts.clusters
    target = target_axis(facts.model)
    largest = max(cluster.share for cluster in clusters) or 1.0
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
        for cluster, moves in zip(clusters[:MAX_CLUSTERS], describe_effects(facts.model, MAX_EFFECTS), strict=False)
    ]
    names = ("cluster", "share of entities", f"{target.name} at average features", "strongest effects")
    n_more = len(clusters) - len(lines)
    return table_html(names, lines) + (paragraph(f"And {n_more} smaller clusters.") if n_more else "")
