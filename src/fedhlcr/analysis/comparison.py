"""The result of comparing numbers of clusters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedhlcr._support.html import block, paragraph, rows_html
from fedhlcr._support.wording import Noun
from fedhlcr.analysis.summary import text_table

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
    difference, difference_se : mean difference of the log density from that of the best number, event by event, and
        its standard error
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
    def best(self) -> int:
        """The number of clusters with the highest held-out log density."""
        return int(max(self.rows, key=lambda row: row.log_density).n_clusters)

    @property
    def suggested(self) -> int:
        """The smallest number whose log density is within one standard error of their difference from the best."""
        return next(
            int(row.n_clusters)
            for row in self.rows
            if row.n_clusters == self.best or -row.difference <= row.difference_se
        )

    @property
    def has_evidence(self) -> bool:
        """Whether the evidence is known: for plain clusters only, as in the paper."""
        return all(np.isfinite(row.evidence) for row in (*self.rows, self.auto))

    @property
    def most_evident(self) -> int | None:
        """The smallest number whose evidence is within `SAME_EVIDENCE` of the highest; None if it is not known.

        Empty clusters hardly change the evidence, so it is flat above the number that the data need.
        """
        if not self.has_evidence:
            return None
        enough = max(row.evidence for row in self.rows) - SAME_EVIDENCE
        return next(int(row.n_clusters) for row in self.rows if row.evidence >= enough)

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
        """The numbers of clusters that are best and suggested, in words."""
        words = (
            f"Best number of clusters: {self.best}. Suggested: {self.suggested}, the smallest within one standard "
            "error of the best."
        )
        if not self.has_evidence:
            return words
        return f"{words} By evidence: {self.most_evident}, the smallest within {SAME_EVIDENCE:g} nats of the highest."

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
