"""The result of comparing numbers of clusters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedhlcr._support.html import block, paragraph, rows_html
from fedhlcr._support.wording import CLUSTER, Noun
from fedhlcr.analysis.summary import text_table

AUTO = "auto"
# Evidence within this many nats, odds of 20 to 1, counts as equal.
SAME_EVIDENCE = 3.0
EVENT = Noun("held-out event", "held-out events")


@dataclass(frozen=True)
class CountResult:
    """Scores of one number of clusters, over all splits.

    Attributes
    ----------
    n_clusters : the number, or "auto" if the model chose it
    log_density, log_density_se : mean log predictive density of the held-out events, in nats for y in its own
        units, and its standard error
    difference, difference_se : mean difference of the log density from that of the best ("auto" may be the best),
        event by event, and its standard error
    evidence : log p(y, partition | n_clusters) of the fitted events, mean over the splits; NaN if it is not known
    r2, mse : on the held-out events, mean over the splits
    occupied : number of clusters with entities in the most probable draw, for each split
    """

    n_clusters: int | str
    log_density: float
    log_density_se: float
    difference: float
    difference_se: float
    evidence: float
    r2: float
    mse: float
    occupied: tuple[int, ...]

    @property
    def size(self) -> tuple[float, bool]:
        """Sorts results by their number of clusters: as asked for, or as "auto" found it on average."""
        is_auto = self.n_clusters == AUTO
        return (float(np.mean(self.occupied)) if is_auto else float(self.n_clusters), is_auto)


@dataclass(frozen=True)
class Comparison:
    """Scores of several numbers of clusters. Print it, or draw it with `fedhlcr.plot.cluster_counts`.

    Attributes
    ----------
    rows : a result for each number of clusters, ascending
    auto : the result with `n_clusters="auto"`
    n_splits, n_held_out : number of splits, and of events held out in all splits together
    """

    rows: tuple[CountResult, ...]
    auto: CountResult
    n_splits: int
    n_held_out: int

    @property
    def candidates(self) -> tuple[CountResult, ...]:
        """All results, from the fewest clusters to the most; "auto" has the number that it found.

        Where both have the same number, the number comes before "auto".
        """
        return tuple(sorted((*self.rows, self.auto), key=lambda row: row.size))

    @property
    def best(self) -> int | str:
        """The number of clusters with the highest held-out log density, or "auto"."""
        return max(self.candidates, key=lambda row: row.log_density).n_clusters

    @property
    def suggested(self) -> int | str:
        """The smallest number whose log density is within one standard error of their difference from the best.

        It is "auto" if that found fewer clusters than any other number that is good enough.
        """
        return next(
            row.n_clusters
            for row in self.candidates
            if row.n_clusters == self.best or -row.difference <= row.difference_se
        )

    @property
    def has_evidence(self) -> bool:
        """Whether the evidence is known: for plain clusters only, as in the paper."""
        return all(np.isfinite(row.evidence) for row in self.candidates)

    @property
    def most_evident(self) -> int | str | None:
        """The smallest number, or "auto", whose evidence is within `SAME_EVIDENCE` of the highest; None if not known.

        Empty clusters hardly change the evidence, so it is flat above the number that the data need.
        """
        if not self.has_evidence:
            return None
        enough = max(row.evidence for row in self.candidates) - SAME_EVIDENCE
        return next(row.n_clusters for row in self.candidates if row.evidence >= enough)

    def in_words(self, n_clusters: int | str) -> str:
        """A number of clusters in words: "4 clusters"; for "auto" with the numbers found: "auto (3 to 5 clusters)"."""
        return CLUSTER.count(int(n_clusters)) if n_clusters != AUTO else f"{AUTO} ({self.found_by_auto})"

    @property
    def found_by_auto(self) -> str:
        """The numbers that "auto" found in the splits: "4 clusters", or "3 to 5 clusters"."""
        low = min(self.auto.occupied)
        high = max(self.auto.occupied)
        return CLUSTER.count(low) if low == high else f"{low} to {CLUSTER.count(high)}"

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain values for JSON; None for unknown values."""

        def record(row: CountResult) -> dict[str, Any]:
            plain = {name: None if value != value else value for name, value in asdict(row).items()}
            return {**plain, "occupied": list(row.occupied)}

        return {
            "rows": [record(row) for row in self.rows],
            "auto": record(self.auto),
            "n_splits": self.n_splits,
            "n_held_out": self.n_held_out,
            "best": self.best,
            "suggested": self.suggested,
            "most_evident": self.most_evident,
        }

    @property
    def verdict(self) -> str:
        """The numbers of clusters that are best and suggested, in words; "auto" counts as one of them."""
        words = (
            f"Best: {self.in_words(self.best)}. Suggested: {self.in_words(self.suggested)}, the smallest number within "
            "one standard error of the best."
        )
        if (evident := self.most_evident) is None:
            return words
        smallest = f"the smallest number within {SAME_EVIDENCE:g} nats of the highest"
        return f"{words} By evidence: {self.in_words(evident)}, {smallest}."

    def _lines(self) -> list[tuple[str, ...]]:
        """The table: its header, and a line for each number of clusters."""
        header = ("clusters", "in use", "log density", "vs best", "± s.e.", "evidence", "R²", "MSE")
        lines = [header, *(_cells(row, row.n_clusters == self.best) for row in (*self.rows, self.auto))]
        if self.has_evidence:
            return lines
        return [tuple(cell for cell, name in zip(line, header, strict=True) if name != "evidence") for line in lines]

    def _scores_in_words(self) -> str:
        splits = "one split" if self.n_splits == 1 else f"{self.n_splits} splits"
        return f"Log density: mean over {EVENT.count(self.n_held_out)} from {splits}."

    def __str__(self) -> str:
        header, *lines = self._lines()
        return "\n".join([text_table(header, tuple(lines)), self._scores_in_words(), self.verdict])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        header, *lines = self._lines()
        return block([paragraph(self.verdict), rows_html(header, lines), paragraph(self._scores_in_words())])


def _cells(row: CountResult, best: bool) -> tuple[str, ...]:
    return (
        str(row.n_clusters),
        f"{np.mean(row.occupied):.4g}",
        f"{row.log_density:.4f}",
        "best" if best else f"{row.difference:+.4f}",
        "" if best else f"{row.difference_se:.4f}",
        f"{row.evidence:,.1f}",
        f"{row.r2:.4f}",
        f"{row.mse:.4g}",
    )
