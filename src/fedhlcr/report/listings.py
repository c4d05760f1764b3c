"""Tables that a reader can sort and search: all values for the page's script, and the first rows as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import capital, number, percent
from fedhlcr.analysis.evaluation import MODEL, Evaluation
from fedhlcr.analysis.facts import SURE, AgentFacts, ClusterFacts, UserNames
from fedhlcr.analysis.links import Link
from fedhlcr.analysis.simpler import RIDGE_PER_ENTITY
from fedhlcr.analysis.words import cluster_table
from fedhlcr.figures.svg import tag
from fedhlcr.report.charts import mix_bar
from fedhlcr.report.findings import Findings, ListedEntities
from fedhlcr.report.packing import MANY_ENTITIES, to_block

# Rows shown at a time.
PAGE_ROWS = 25
# Features with a column in the table of clusters; clusters in an agent's bar, and those named beside it.
MAX_FEATURES = 24
MAX_MIX = 12
NAMED_MIX = 3
# Columns that fit on paper; the style sheet hides the others in print.
PAPER_COLUMNS = 12
# Clusters with a smaller share do not influence the scale of effects.
SMALL_SHARE = 0.02
EFFECTIVE = "effective number of clusters, 1 divided by the sum of the squared shares"


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes
    ----------
    kind : text, count, number, share, cluster, effect or mix: how values are shown and sorted
    values : plain numbers or lists; in a text column, positions in `words`; None if there is no value
    words : distinct texts
    same_as : a table whose first column has the same words, so that they are stored once; empty for none
    tints : 0 to 1, the strength of a cell's shade
    ranges : ends of the interval of each value
    hint : tooltip of the header
    link : what the explorer opens for a text: "entity", by its row, or "agent", by its position; empty for none
    """

    label: str
    kind: str
    values: list[Any]
    words: list[str] = field(default_factory=list)
    same_as: str = ""
    tints: list[float] = field(default_factory=list)
    ranges: list[Any] = field(default_factory=list)
    hint: str = ""
    link: str = ""

    @property
    def is_number(self) -> bool:
        return self.kind in {"count", "number", "share", "effect"}

    def target(self, row: int) -> int:
        """What a link in a row leads to."""
        return row if self.link == "entity" else int(self.values[row])

    def cell(self, row: int) -> Markup:
        """The HTML of a cell, the same as the page's script makes."""
        value = self.values[row]
        if self.kind == "text":
            text = Markup("<bdi>{}</bdi>").format(self.words[value])
            return Markup('<a href="#{}={}">{}</a>').format(self.link, self.target(row), text) if self.link else text
        if self.kind == "mix":
            return Markup("{}<small>{}</small>").format(mix_bar(value), mix_text(value))
        if value is None:
            return Markup("–")
        if self.kind == "cluster":
            return tag(value)
        if self.kind == "share":
            return Markup("{}").format(percent(value))
        text = Markup("{}").format(f"{value:,.0f}" if self.kind == "count" else number(value))
        if not self.ranges:
            return text
        return text + Markup('<small class="range">{} to {}</small>').format(*map(number, self.ranges[row]))


@dataclass(frozen=True)
class Listing:
    """A table.

    Attributes
    ----------
    filters : positions of the columns to filter by cluster
    uncertain : position of the column to filter uncertain rows by, or None
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    filters: tuple[int, ...] = ()
    uncertain: int | None = None
    note: str = ""

    def __len__(self) -> int:
        return len(self.columns[0].values)

    @property
    def first_rows(self) -> range:
        return range(min(len(self), PAGE_ROWS))

    @property
    def n_beyond_paper(self) -> int:
        return max(0, len(self.columns) - PAPER_COLUMNS)

    def to_block(self) -> Markup:
        """The whole table for the page's script."""
        columns = [
            {
                "label": c.label,
                "kind": c.kind,
                "values": c.values,
                "words": c.same_as or c.words,
                "tints": c.tints,
                "ranges": c.ranges,
                "link": c.link,
            }
            for c in self.columns
        ]
        return to_block({"columns": columns, "pageRows": PAGE_ROWS, "uncertain": self.uncertain, "sure": SURE})


def cluster_listing(findings: Findings) -> Listing:
    """The table of clusters, with a column for each of the strongest features."""
    clusters = findings.clusters
    scale = effect_scale(clusters)
    columns = []
    for column in cluster_table(findings, MAX_FEATURES, findings.names):
        f = column.feature
        shown = column.values
        if column.kind in ("share", "number"):
            shown = _rounded(column.kind, shown)
        if f is None:
            columns.append(Column(column.label, column.kind, shown, hint=column.meaning))
            continue
        tints = np.abs([c.effects[f] / scale for c in clusters]).clip(max=1.0).round(2).tolist()
        ends = [(c.lower[f], c.upper[f]) for c in clusters]
        # a model of one draw has no intervals
        ranges = [_figures(pair) for pair in ends] if np.isfinite(ends).all() else []
        columns.append(Column(column.label, "effect", shown, tints=tints, ranges=ranges, hint=column.meaning))
    n_features = len(findings.names.features)
    hidden = max(0, n_features - MAX_FEATURES)
    note = f"{hidden} of {n_features} features with weaker effects are not shown; see coef_." if hidden else ""
    return Listing("clusters", f"All clusters: {len(clusters)}", tuple(columns), note=note)


def agent_listing(agents: AgentFacts, names: UserNames, scores: Evaluation | None) -> Listing:
    columns = [
        Column(names.agent.one, "text", list(range(len(agents))), words=agents.ids, link="agent"),
        Column(names.entity.many, "count", agents.n_entities.tolist()),
        Column("events", "count", _figures(agents.n_events)),
    ]
    notes: list[str] = []
    filters: tuple[int, ...] = ()
    if agents.weights.shape[1] > 1:
        filters = (len(columns),)
        columns += [
            Column(
                "main cluster",
                "cluster",
                agents.main_cluster.tolist(),
                hint="the cluster with the largest share",
            ),
            Column("effective clusters", "number", _figures(agents.effective_clusters()), hint=EFFECTIVE),
            Column("mix", "mix", mixes(agents.weights)),
        ]
        notes.append(f"Effective clusters: {EFFECTIVE}.")
    if scores is not None and scores.agent_errors:
        added, note = _error_columns(scores, names)
        columns += added
        notes.append(note)
    caption = f"All {names.agent.many}: {len(agents):,}"
    return Listing("agents", caption, tuple(columns), filters=filters, note=" ".join(notes))


def _error_columns(scores: Evaluation, names: UserNames) -> tuple[list[Column], str]:
    """Columns of errors by agent, and a note that explains them."""
    of = "its fitted events" if scores.was_fitted else "its held-out events"
    columns = []
    if not scores.was_fitted:
        columns.append(Column("held out", "count", scores.agent_events.tolist(), hint="events held out"))
    columns.append(
        Column("error", "number", _figures(scores.agent_errors[MODEL]), hint=f"root mean squared error on {of}")
    )
    note = f"Error: root mean squared error on {of}."
    if (ridge := scores.agent_errors.get(RIDGE_PER_ENTITY)) is not None:
        hint = f"error of a ridge per {names.entity.one}"
        columns.append(Column("ridge’s error", "number", _figures(ridge), hint=hint))
        note = f"{note} Ridge’s error: {hint}."
    return columns, note


def _target_columns(entities: ListedEntities, names: UserNames, link: Link) -> tuple[list[Column], str]:
    """Columns of what was observed of each entity, and a note that explains them."""
    kind = link.family.kind
    if entities.scatter is None or entities.noise is None:
        what = f"observed {link.family.observed}"
        column = Column(what, kind, _rounded(kind, entities.observed), hint=link.observed)
        return [column], f"{capital(what)}: {link.observed} among its fitted events."
    columns = [Column("scatter", "number", _figures(entities.scatter), hint="of its events around its regression")]
    if np.ptp(entities.noise) > 0.0:
        columns.append(Column("noise", "number", _figures(entities.noise), hint="of its events, in the model"))
    return columns, f"Scatter: root mean square of the residuals from its regression, in units of {names.target}."


def entity_listing(entities: ListedEntities, names: UserNames, link: Link) -> Listing:
    others = [k if k >= 0 else None for k in entities.runner_up.tolist()]
    # if another cluster is possible, certainty is below 1, even if rounding made it 1
    digits = 3 if entities.n_all > MANY_ENTITIES else 4
    certainty = np.where(entities.runner_up_probability > 0.0, entities.certainty.clip(max=1.0 - 1e-9), 1.0)
    columns = [
        Column(names.entity.one, "text", entities.entity.tolist(), words=entities.entities, link="entity"),
        Column("events", "count", _figures(entities.n_events)),
        Column("cluster", "cluster", entities.label.tolist()),
    ]
    several = bool((entities.runner_up >= 0).any())
    if several:
        columns += [
            Column("certainty", "share", _shares(certainty, digits), hint="probability of the cluster"),
            Column("other", "cluster", others, hint="the most probable of the other clusters"),
            Column(
                "its probability", "share", _shares(entities.runner_up_probability, digits), hint="of the other cluster"
            ),
        ]
    added, note = _target_columns(entities, names, link)
    columns += added
    if len(entities.agents) > 1:
        of_agent = entities.agent.tolist()
        agent = Column(names.agent.one, "text", of_agent, words=entities.agents, same_as="agents", link="agent")
        columns.insert(0, agent)
    cluster = next(n for n, column in enumerate(columns) if column.kind == "cluster")
    listed = "All"
    if len(entities) < entities.n_all:
        some = f"{len(entities):,} of {names.entity.count(entities.n_all)}"
        which = f"the {some} whose cluster is least certain" if several else some
        note = f"To keep this page small, the table lists {which}. {note}"
        listed = "Least certain" if several else "Some"
    caption = f"{listed} {names.entity.many}: {len(entities):,}"
    if not several:
        return Listing("entities", caption, tuple(columns), note=note)
    return Listing("entities", caption, tuple(columns), filters=(cluster,), uncertain=cluster + 1, note=note)


def mixes(weights: FloatArray) -> list[list[list[float]]]:
    """For each agent its clusters and their shares in per cent, largest first; shares under 1 % are left out."""
    order = np.argsort(-weights, axis=1, kind="stable")[:, :MAX_MIX]
    shares = (100.0 * np.take_along_axis(weights, order, axis=1)).round(1)
    return [
        [[k, share] for k, share in zip(clusters, own, strict=True) if share >= 1.0]
        for clusters, own in zip(order.tolist(), shares.tolist(), strict=True)
    ]


def mix_text(mix: Sequence[Sequence[float]]) -> str:
    """The largest shares: "3: 45 %, 0: 20 %"."""
    text = ", ".join(f"{k:.0f}: {percent(share / 100.0)}" for k, share in mix[:NAMED_MIX])
    return f"{text}, …" if len(mix) > NAMED_MIX else text


def effect_scale(clusters: Sequence[ClusterFacts]) -> float:
    """The largest effect in any cluster that is not small, so that outliers do not make all other bars tiny."""
    large = [cluster for cluster in clusters if cluster.share >= SMALL_SHARE] or clusters
    return max((float(np.abs(cluster.effects).max(initial=0.0)) for cluster in large), default=0.0) or 1.0


def _shares(values: Any, digits: int = 4) -> list[float]:
    """Rounded, but to 0 or 1 only if exactly so."""
    shares = np.asarray(values, dtype=np.float64)
    rounded = np.round(shares, digits)
    least = 0.1**digits
    return np.where((shares > 0.0) & (shares < 1.0), rounded.clip(least, 1.0 - least), rounded).round(digits).tolist()


def _rounded(kind: str, values: Any) -> list[Any]:
    """Shares or other numbers as they are kept on the page."""
    return _shares(values) if kind == "share" else _figures(values)


def _figures(values: Any) -> list[float | None]:
    """Rounded to the digits shown, so that values that look equal also sort as equal; None for unknown values."""

    def rounded(value: float) -> float | None:
        if not math.isfinite(value):
            return None
        shown = float(f"{value:.3g}") if abs(value) < 1000.0 else round(value)
        return int(shown) if shown == int(shown) else shown

    return [rounded(value) for value in np.asarray(values, dtype=np.float64).tolist()]
