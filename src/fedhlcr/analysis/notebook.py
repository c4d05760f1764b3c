"""What a notebook shows of a fitted model. Only what the draws say, nothing that takes a pass over the labels."""

from __future__ import annotations

from html import escape
from typing import Any

from fedhlcr._support.html import bar, block, cells_html, heading, paragraph, rows_html, shortened, table_html
from fedhlcr._support.wording import listed, number, percent
from fedhlcr.analysis.effects import entity_shares, target_name, typical_levels
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.summary import describe_effects, summarize

# Most clusters and effects of each to show.
MAX_CLUSTERS = 12
MAX_EFFECTS = 2
# The facts of the summary that are shown, by their names.
FACTS = (
    *("data", "clusters", "classes", "dispersion", "noise scale", "entities differ", "draws"),
    "R-hat (effective size)",
)


def model_html(model: Any) -> str:
    """A fitted model: key facts, clusters, the verdict against simpler models, and what to do next."""
    facts = [(what, str(value)) for what, value in summarize(model).facts if what in FACTS]
    parts = [
        heading(f"{type(model).__name__}, fitted"),
        rows_html((), facts),
        _clusters(model),
    ]
    if model.comparison_ is not None:
        parts.append(paragraph(f"{model.comparison_.sentence} Each event was predicted from all others."))
        if model.comparison_.verdict == "worse":
            parts.append(paragraph(model.comparison_.advice(fit_intercept=model.fit_intercept)))
    steps = ("summary()", "coef_table()", "cluster_table()", "entity_table()", "to_inference_data()")
    codes = ", ".join(f"<code>{escape(step)}</code>" for step in steps)
    parts.append(f"<p>Go on with {codes}, or make a page with <code>fedhlcr.report.render_report</code>.</p>")
    return block(parts)


def _clusters(model: Any) -> str:
    """A table of the largest clusters, with a bar for the share of each."""
    shares = entity_shares(model)
    levels = typical_levels(model)
    link = link_of(model)
    if link is not None:
        levels = link.to_response(levels)
    moves = describe_effects(model, MAX_EFFECTS)
    n_shown = min(model.n_clusters_, MAX_CLUSTERS)
    what = target_name(model) if link is None else link.response
    largest = float(shares.max())
    lines = [
        cells_html(
            "td",
            (
                str(k),
                _beside(bar(shares[k] / largest if largest else 0.0), percent(float(shares[k]))),
                escape(number(float(levels[k])) if link is None else link.in_words(float(levels[k]))),
                escape(shortened(listed(moves[k]) if moves[k] else "no clear effect")),
            ),
        )
        for k in range(n_shown)
    ]
    names = ("cluster", "share of entities", f"{what} at average features", "strongest effects")
    more = paragraph(f"And {model.n_clusters_ - n_shown} smaller clusters.") if n_shown < model.n_clusters_ else ""
    return table_html(names, lines) + more


def _beside(drawn: str, text: str) -> str:
    """A bar and its number, in one line."""
    return f'<span style="white-space:nowrap">{drawn} {escape(text)}</span>'
