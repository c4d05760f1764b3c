"""What a fitted model says, in words and small tables, for a terminal and for a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedhlcr.arrays import FloatArray

if TYPE_CHECKING:
    from fedhlcr.estimators import HLCRRegressor

MAX_FEATURES = 6
MAX_CLUSTERS = 30
NAME_WIDTH = 14


@dataclass(frozen=True)
class Summary:
    """A model in a few lines; `str()` for the terminal, HTML in a notebook.

    Attributes
    ----------
    facts : (what, value) pairs
    header, rows : the table of clusters
    notes : what a reader should know of them
    """

    facts: tuple[tuple[str, str], ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        width = max(len(what) for what, _ in self.facts)
        lines = [f"{what:<{width}}  {value}" for what, value in self.facts]
        return "\n".join(
            ["Hierarchical latent class regression", *lines, "", text_table(self.header, self.rows), *self.notes]
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def cells(tag: str, values: tuple[str, ...]) -> str:
            style = "text-align:right;padding:0 .5em"
            return "<tr>" + "".join(f'<{tag} style="{style}">{escape(value)}</{tag}>' for value in values) + "</tr>"

        facts = "".join(f"<tr><td>{escape(what)}</td><td>{escape(value)}</td></tr>" for what, value in self.facts)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f"<h4>Hierarchical latent class regression</h4><table>{facts}</table>"
            f"<table><thead>{cells('th', self.header)}</thead>"
            f"<tbody>{''.join(cells('td', row) for row in self.rows)}</tbody></table>{notes}"
        )


def summarize(model: HLCRRegressor) -> Summary:
    """The summary of a fitted model."""
    names, effects = feature_names(model), effect_sizes(model)
    # the features that matter most, in the order of the table
    shown = np.sort(np.argsort(-(effects**2).sum(axis=0), kind="stable")[:MAX_FEATURES])
    counts = np.bincount(model.labels_, minlength=model.n_clusters_)
    levels = typical_levels(model)
    rows = tuple(
        (
            str(k),
            f"{model.cluster_weights_[k]:.3f}",
            str(counts[k]),
            f"{levels[k]:.4g}",
            *(f"{model.coef_[k, f]:.3g}" for f in shown),
        )
        for k in range(min(model.n_clusters_, MAX_CLUSTERS))
    )
    notes = ["level: predicted target where every feature is at its mean; then change of the target per unit."]
    if len(shown) < len(names):
        notes.append(f"Not shown, of less effect: {len(names) - len(shown)} of {len(names)} features; see coef_.")
    if len(rows) < model.n_clusters_:
        notes.append(f"Not shown, of less weight: {model.n_clusters_ - len(rows)} of {model.n_clusters_} clusters.")
    if model.n_clusters == "auto" and model.n_clusters_ > 0.85 * model.max_clusters:
        notes.append(f"This is near the most that could be found; try max_clusters={2 * model.max_clusters}.")
    header = ("cluster", "weight", "entities", "level", *(shorten(names[f]) for f in shown))
    return Summary(_facts(model), header, rows, tuple(notes))


def _facts(model: HLCRRegressor) -> tuple[tuple[str, str], ...]:
    posterior = model.posterior_
    store = posterior.memory.entities
    n_events = posterior.layout.n_events(store.grams).sum()
    chains = int(posterior.draws.chain.max()) + 1
    found = "found" if isinstance(model.n_clusters, str) else "given"
    known = [d for d in model.diagnostics_ if np.isfinite(d.r_hat)]
    agreement = ", ".join(f"{d.quantity} {d.r_hat:.2f} ({d.effective_size:.0f})" for d in known)
    return (
        (
            "data",
            f"{store.index.n_agents:,} agents, {len(store):,} entities, {n_events:,.6g} events, "
            f"{posterior.layout.n_features} features",
        ),
        ("clusters", f"{model.n_clusters_} ({found})"),
        ("noise scale", f"{model.noise_scale_:.4g} in units of the target"),
        ("concentrations", f"global {model.global_concentration_:.3g}, agent {model.agent_concentration_:.3g}"),
        ("draws", f"{len(posterior.draws)} from {chains} chain{'s' if chains > 1 else ''}, seed {model.seed_}"),
        ("R-hat (effective size)", agreement or "too few draws to tell"),
    )


def describe_clusters(model: HLCRRegressor, target: str = "the target", n_effects: int = 3) -> list[str]:
    """One sentence for each cluster: how common it is, its level, and what moves it most.

    Effects are told in the user's units, strongest first, where strength is the effect of one standard
    deviation of the feature; those below a tenth of the noise are passed over.
    """
    check_is_fitted(model)
    names, effects, levels = feature_names(model), effect_sizes(model), typical_levels(model)
    counts = np.bincount(model.labels_, minlength=model.n_clusters_)
    sentences = []
    for k in range(model.n_clusters_):
        strongest = np.argsort(-np.abs(effects[k]), kind="stable")[:n_effects]
        told = [f for f in strongest if abs(effects[k, f]) > 0.1 * model.noise_scale_]
        moves = ", ".join(
            f"{'rises' if model.coef_[k, f] > 0 else 'falls'} {abs(model.coef_[k, f]):.3g} per unit of {names[f]}"
            for f in told
        )
        share = 100.0 * counts[k] / len(model.labels_)
        sentences.append(
            f"Cluster {k}, {share:.0f} % of entities: {target} is {levels[k]:.3g} at average features; "
            f"it {moves or 'hardly moves with any feature'}."
        )
    return sentences


def feature_names(model: HLCRRegressor) -> list[str]:
    given = getattr(model, "feature_names_in_", None)
    return [f"x{f}" for f in range(model.n_features_in_)] if given is None else [str(name) for name in given]


def feature_means(model: HLCRRegressor) -> FloatArray:
    """Means of the features over all events, in the user's units."""
    posterior = model.posterior_
    pooled = posterior.layout.unpack(posterior.memory.entities.grams.sum(axis=0))
    units = posterior.standardization
    scale = np.where(np.isfinite(units.scale), units.scale, 0.0)
    return units.shift[:-1] + scale[:-1] * pooled[0, 1:-1] / pooled[0, 0]


def effect_sizes(model: HLCRRegressor) -> FloatArray:
    """(clusters, features): change of the target by one spread of each feature; 0 for one without."""
    scale = model.posterior_.standardization.scale[:-1]
    return model.coef_ * np.where(np.isfinite(scale), scale, 0.0)


def typical_levels(model: HLCRRegressor) -> FloatArray:
    """(clusters,): predicted target at the features' means."""
    return model.intercept_ + model.coef_ @ feature_means(model)


def shorten(name: str) -> str:
    """A name that fits a column: one line, and not too long."""
    name = " ".join(name.split())
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"


def text_table(header: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    """Columns aligned to the right, a rule under the header."""
    widths = [max(len(line[c]) for line in (header, *rows)) for c in range(len(header))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in (header, *rows)]
    return "\n".join([lines[0], "  ".join("─" * width for width in widths), *lines[1:]])
