"""Cards of clusters: who is in them, how sure, and what they are like, in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedhlcr._support.wording import percent
from fedhlcr.analysis.axis_lines import TargetAxis
from fedhlcr.report import charts, listings
from fedhlcr.report.certainty import Certainty
from fedhlcr.report.findings import Cluster, Findings

# Cards that are open.
OPEN_CARDS = 6


@dataclass(frozen=True)
class Card:
    """A cluster as a card; a faded one has mostly uncertain members."""

    cluster: Cluster
    level: str
    who: str
    is_faded: bool

    @property
    def moves(self) -> tuple[str, ...]:
        return self.cluster.moves


def cluster_section(findings: Findings, certainty: Certainty, target: TargetAxis) -> dict[str, Any]:
    """What the page shows of the clusters: clear ones as cards, the others together."""
    cards = [
        Card(c, _level(findings, c, target), _who(findings, c), c.number in certainty.blurred)
        for c in findings.clusters
    ]
    clear, faded = ([card for card in cards if card.is_faded == side] for side in (False, True))
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
        "has_levels": bool(findings.category_levels),
        "target": target.name,
    }


def _level(findings: Findings, cluster: Cluster, target: TargetAxis) -> str:
    """The typical target in a cluster."""
    typical = "" if findings.link is None else f" for a typical {findings.names.entity.one}"
    return f"{target.text(cluster.level)}{typical}"


def _who(findings: Findings, cluster: Cluster) -> str:
    """How many entities are in a cluster, and how sure that is; empty if that is nothing to tell."""
    names = findings.names
    if cluster.n_entities is None or len(findings.clusters) == 1:
        return ""
    if not cluster.n_entities:
        return f"No {names.entity.one} is in it in most draws"
    own = names.entity.count(cluster.n_entities)
    if cluster.n_sure == cluster.n_entities:
        return f"{own}, surely" if cluster.n_entities == 1 else f"{own}, all of them surely"
    if not cluster.n_sure:
        return f"{own}, not surely" if cluster.n_entities == 1 else f"{own}, none of them surely"
    return f"{own}, {percent(cluster.n_sure / cluster.n_entities)} of them surely"
