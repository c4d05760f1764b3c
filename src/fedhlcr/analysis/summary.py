"""A fitted model in words and small tables, for a terminal and for a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from shutil import get_terminal_size
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import AGENT, CHAIN, ENTITY, EVENT, FEATURE, Noun, listed, number, percent, printable
from fedhlcr.analysis.axis_lines import target_axis
from fedhlcr.analysis.axis_words import describe_effects
from fedhlcr.analysis.differences import difference_facts, entity_differences, noise_words, tail_words
from fedhlcr.analysis.effects import (
    effect_sizes,
    entity_shares,
    feature_names,
    one_hot,
    target_name,
    typical_levels,
    unit_changes,
)
from fedhlcr.analysis.links import Link, link_of
from fedhlcr.analysis.ratios import cluster_ratios
from fedhlcr.exceptions import Advice
from fedhlcr.posterior.fitted_model import FittedModel

MAX_FEATURES = 6
MAX_CLUSTERS = 30
# Characters of a name where there is little room, and what is between the columns of a table.
NAME_WIDTH = 14
GAP = "  "
# If more than this share of `max_clusters` was found, the limit may be too low.
NEAR_THE_LIMIT = 0.85
# With fewer events per coefficient of a cluster, 90 % intervals of predictions covered 0 to 88 % in simulations, 72 %
# on average; with more they covered 84 to 92 %, for any number of clusters.
EVENTS_PER_COEF = 5
COEFFICIENT = Noun("coefficient", "coefficients")


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
        return "\n".join(["Hierarchical latent class regression", *lines, "", table, *notes])

    __repr__ = __str__

    def _fitting_header(self) -> tuple[str, ...]:
        """The header with names as long as the terminal is wide, but not shorter than `NAME_WIDTH`."""
        columns = list(zip(*self.rows, strict=True)) or [() for _ in self.header]
        bodies = [max(map(len, column), default=0) for column in columns]
        longest = max(map(len, self.header))
        for length in range(longest, NAME_WIDTH - 1, -1):
            header = tuple(shorten(name, length) for name in self.header)
            widths = [max(len(name), body) + len(GAP) for name, body in zip(header, bodies, strict=True)]
            if sum(widths) - len(GAP) <= get_terminal_size().columns:
                return header
        return tuple(shorten(name) for name in self.header)

    def _repr_html_(self) -> str:
        def cells(tag: str, values: tuple[str, ...]) -> str:
            style = "text-align:right;padding:0 .5em"
            return "<tr>" + "".join(f'<{tag} style="{style}">{escape(value)}</{tag}>' for value in values) + "</tr>"

        facts = "".join(f"<tr><td>{escape(what)}</td><td>{escape(str(value))}</td></tr>" for what, value in self.facts)
        notes = "".join(f"<p>{escape(str(note))}</p>" for note in self.notes)
        return (
            f"<h4>Hierarchical latent class regression</h4><table>{facts}</table>"
            f"<table><thead>{cells('th', self.header)}</thead>"
            f"<tbody>{''.join(cells('td', row) for row in self.rows)}</tbody></table>{notes}"
        )


def summarize(model: FittedModel) -> Summary:
    """The summary of a fitted model."""
    names = feature_names(model)
    effects = effect_sizes(model)
    # the features that matter most, in the order of the table
    shown = np.sort(np.argsort(-(effects**2).sum(axis=0), kind="stable")[:MAX_FEATURES])
    link = link_of(model)
    figures = cluster_figures(model)
    holds_entities = len(model.labels_) > 0
    rows = tuple(
        (
            str(k),
            *([f"{own.n_entities:,}"] if holds_entities else []),
            percent(own.share),
            percent(own.weight),
            number(own.level) if link is None else link.in_words(own.level),
            *(number(own.changes[f]) for f in shown),
        )
        for k, own in enumerate(figures[:MAX_CLUSTERS])
    )
    counted = "entities: number of those whose label it is; " if holds_entities else ""
    notes: list[str | Advice] = [
        f"{counted}share: share of the fitted entities, mean over the draws; weight: expected share of a new agent's "
        "entities.",
        _column_note(model, link),
    ]
    if len(shown) < len(names):
        hidden = f"Not shown: {len(names) - len(shown)} of {len(names)} features with weaker effects"
        notes.append(Advice(f"{hidden}; {{coef_}} shows all.", coef_=None))
    if len(rows) < model.n_clusters_:
        notes.append(f"Not shown: the {model.n_clusters_ - len(rows)} smallest of {model.n_clusters_} clusters.")
    if model.n_clusters == "auto" and model.n_clusters_ > NEAR_THE_LIMIT * model.max_clusters:
        advice = "The number of clusters is close to the limit; try {max_clusters}."
        notes.append(Advice(advice, max_clusters=2 * model.max_clusters))
    if scarce := few_events(model):
        notes.append(f"There are only {scarce}. Intervals are too narrow.")
    if model.comparison_ is not None:
        notes.append(f"{model.comparison_.sentence} Each event was predicted from all others.")
    counts = ("entities",) if holds_entities else ()
    header = ("cluster", *counts, "share", "weight", "level", *(one_line(names[f]) for f in shown))
    return Summary(_facts(model), header, rows, tuple(notes))


class ClusterFigures(NamedTuple):
    """A cluster in figures, as terminal, summary and report show them.

    Attributes
    ----------
    n_entities : entities whose label in `labels_` it is; 0 if the model holds none
    share : share of the fitted entities, mean over the draws
    weight : expected share of the entities of a new agent
    level : predicted target at average features; of classes and counts, the probability or the rate
    changes : (features,) change of the target per unit, for a level of a category against all other levels; of classes
        and counts, the odds ratios or rate ratios of `cluster_ratios`
    """

    n_entities: int
    share: float
    weight: float
    level: float
    changes: FloatArray


def cluster_figures(model: FittedModel) -> list[ClusterFigures]:
    """The figures of each cluster."""
    counts = np.bincount(model.labels_, minlength=model.n_clusters_)
    shares = entity_shares(model)
    levels = typical_levels(model)
    changes = unit_changes(model)
    if (link := link_of(model)) is not None:
        levels = link.to_response(levels)
        changes = np.array([[own.ratio for own in cluster] for cluster in cluster_ratios(model)])
    return [
        ClusterFigures(int(counts[k]), float(shares[k]), float(model.cluster_weights_[k]), float(levels[k]), changes[k])
        for k in range(model.n_clusters_)
    ]


def _column_note(model: FittedModel, link: Link | None) -> str:
    category = ", or of a level of a category against all other levels" if one_hot(model) else ""
    if link is None:
        return (
            "level: prediction at average features; other columns: change of the target per unit of the "
            f"feature{category}."
        )
    return (
        f"level: {link.response} at average features, for a typical entity; other columns: {link.ratio} per "
        f"standard deviation of the feature, or of 1 against 0{category}."
    )


def privacy_words(model: Any) -> str | None:
    """What was guaranteed to the agents: "epsilon 3, delta 0.004 for each of 150 agents"; None without a guarantee."""
    plan = getattr(model, "privacy_", None)
    if plan is None:
        return None
    return f"epsilon {plan.epsilon:.6g}, delta {plan.delta:.3g} for each of {plan.n_agents:,} agents"


def _facts(model: FittedModel) -> tuple[tuple[str, str | Advice], ...]:
    posterior = model.posterior_
    store = posterior.memory.entities
    n_events = posterior.layout.n_events(store.grams).sum()
    n_chains = int(posterior.draws.chain.max()) + 1
    found = "found" if isinstance(model.n_clusters, str) else "given"
    known = [d for d in model.diagnostics_ if np.isfinite(d.r_hat)]
    agreement: str | Advice = ", ".join(f"{d.quantity} {d.text} ({d.effective_size:.0f})" for d in known)
    # a federation has only one chain
    if agreement and n_chains == 1 and hasattr(model, "n_chains"):
        halves = "computed from the two halves of one chain; try {n_chains} to compare independent chains"
        agreement = Advice(f"{agreement}; {halves}", n_chains=4)
    held = f"{AGENT.count(store.index.n_agents)}, {ENTITY.count(len(store))}, {EVENT.count(n_events)}"
    features = FEATURE.count(posterior.layout.n_inputs)
    differences = entity_differences(model)
    link = link_of(model)
    scale = None if link is None else link.linear
    return (
        ("data", f"{held if len(store) else 'public model without any agent'}, {features}"),
        ("clusters", f"{model.n_clusters_} ({found})"),
        *_target_facts(model),
        *_curve_facts(model, scale),
        *_scale_facts(model, noise_words(differences) + tail_words(model)),
        *difference_facts(
            differences, posterior.likelihood.name, [one_line(name) for name in feature_names(model)], scale
        ),
        ("concentrations", f"global {model.global_concentration_:.3g}, agent {model.agent_concentration_:.3g}"),
        *([("privacy", words)] if (words := privacy_words(model)) else []),
        ("draws", f"{len(posterior.draws)} from {CHAIN.count(n_chains)}, seed {model.seed_}"),
        ("R-hat (effective size)", agreement or ("too few draws" if model.diagnostics_ else "unknown")),
    )


def _target_facts(model: Any) -> list[tuple[str, str]]:
    """The classes of a classifier, or the dispersion of counts."""
    if (link := link_of(model)) is None:
        return []
    if link.family.has_classes:
        first, second = (printable(name) for name in model.classes_)
        return [("classes", f"{first} and {second}; odds and probabilities are those of {second}")]
    dispersion = number(model.dispersion_)
    return [("dispersion", f"{dispersion}; a count of mean m has variance m + {dispersion} m²")]


def _curve_facts(model: FittedModel, scale: str | None) -> list[tuple[str, str]]:
    """The features with curves, and how far each curve bends the regressions: root mean square over events."""
    posterior = model.posterior_
    if (curves := posterior.standardization.curves) is None:
        return []
    names = feature_names(model)
    shares = entity_shares(model)
    units = scale or "units of the target"
    facts = []
    for curve, column in enumerate(curves.columns):
        squares = (model.curve_coef_[:, curves.span(curve)] ** 2).sum(axis=1)
        facts.append(f"{one_line(names[column])} {number(float(np.sqrt(shares @ squares)))}")
    return [("curves", f"bend by {', '.join(facts)} (root mean square, in {units})")]


def _scale_facts(model: FittedModel, ending: str) -> list[tuple[str, str]]:
    """Learned scales of the likelihood, such as the noise; one for all, or one for each cluster shown."""
    facts = []
    for q in model.posterior_.likelihood.globals_type.traced_scales():
        values = np.atleast_1d(getattr(model, f"{q.name}_"))[:MAX_CLUSTERS]
        facts.append((q.words, f"{', '.join(number(value) for value in values)} in units of the target{ending}"))
    return facts


def few_events(model: FittedModel) -> str | None:
    """A phrase if the fit had too few events for honest intervals: "4 events for the 3 coefficients of a cluster".

    None if there were enough, or if the model does not hold its fitted events.
    """
    posterior = model.posterior_
    # curves shrink as far as the events demand it, so they do not count
    store = posterior.memory.entities
    n_coef = posterior.layout.n_linear
    n_events = posterior.layout.n_events(store.grams).sum()
    if len(store) < posterior.draws.entity_counts[0].sum() or n_events >= EVENTS_PER_COEF * n_coef:
        return None
    return f"{EVENT.count(n_events)} for the {COEFFICIENT.count(n_coef)} of a cluster"


def describe_clusters(
    model: FittedModel, target: str | None = None, n_effects: int = 3, *, entities: str = "entities"
) -> list[str]:
    """Describe each cluster in a sentence: its share, its level, and its strongest effects.

    Effects are in the user's units, strongest first; strength is how much the feature moves the target over the events.
    Columns that belong together, such as sine and cosine of a season or the levels of a category, are one effect.
    Effects below a tenth of the noise are left out, and so are effects whose central 90 % interval includes zero. The
    effects of classifiers are those on the probability, of counts on the rate; `cluster_ratios` has ratios.

    Parameters
    ----------
    model : an estimator of fedhlcr, such as HLCRRegressor or HLCRClassifier, fitted
    target : name of the target; None is the name of its column, if the model knows it
    n_effects : most effects to describe in each cluster
    entities : name of the entities, in the plural
    """
    check_is_fitted(model)
    target = target_name(model) if target is None else target
    shares = entity_shares(model)
    levels = typical_levels(model)
    link = link_of(model, target)
    effects = describe_effects(model, n_effects)
    if link is None:
        # of a logarithm, the values themselves are described, as in the effects
        axis = target_axis(model)
        said = [f"{axis.name if axis.is_log else target} is {axis.text(level)}" for level in levels]
        moved = [f"it {listed(moves)}" if moves else "no feature clearly moves it" for moves in effects]
    else:
        typical = link.to_response(levels)
        said = [f"{link.response} is {link.in_words(value)} for a typical one" for value in typical]
        moved = [f"it {listed(moves)}" if moves else "no feature clearly changes it" for moves in effects]
    return [
        f"Cluster {k}, {percent(shares[k])} of {entities}: {said[k]} at average features; {moved[k]}."
        for k in range(model.n_clusters_)
    ]


def one_line(name: str) -> str:
    """A name without line breaks."""
    return " ".join(name.split())


def shorten(name: str, length: int = NAME_WIDTH) -> str:
    """A name that fits a place: one line, and not too long."""
    name = one_line(name)
    return name if len(name) <= length else name[: length - 1] + "…"


def text_table(header: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    """Columns aligned to the right, a rule under the header."""
    widths = [max(len(line[c]) for line in (header, *rows)) for c in range(len(header))]
    lines = [GAP.join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in (header, *rows)]
    return "\n".join([lines[0], GAP.join("─" * width for width in widths), *lines[1:]])
