"""Numbers of clusters compared: what each achieved, and which to take."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedhlcr._support.wording import Noun
from fedhlcr.analysis.summary import text_table

# Nats between two numbers of clusters of which neither is more evident: odds of 20 to 1.
SAME_EVIDENCE = 3.0
EVENT = Noun("held-out event", "held-out events")


@dataclass(frozen=True)
class CountResult:
    """What a number of clusters achieved, over all splits.

    Attributes
    ----------
    n_clusters : the number, or "auto" where it was found
    log_density, log_density_se : mean log predictive density of the held-out events, in nats for y in its own
        units, and its standard error
    difference, difference_se : the same of the difference to the best number, event by event
    evidence : log p(y, partition | n_clusters) of the fitted events, mean over the splits
    r2, mse : of the held-out events, mean over the splits
    occupied : clusters that hold entities in the most probable draw, for each split
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
    """Numbers of clusters compared; `print` it, draw it with `fedhlcr.plot.cluster_counts`.

    Attributes
    ----------
    rows : a result for each number of clusters, ascending
    auto : what the estimator achieved with a number it found by itself
    n_splits, n_held_out : splits, and events held out in all of them together
    """

    rows: tuple[CountResult, ...]
    auto: CountResult
    n_splits: int
    n_held_out: int

    @property
    def best(self) -> int:
        """The number of clusters that predicts best: of the highest held-out log density."""
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
    def most_evident(self) -> int:
        """The smallest number whose evidence is the highest, or so near that the odds are less than 20 to 1.

        Clusters that stay empty hardly change the evidence, which is flat above what the data need.
        """
        enough = max(row.evidence for row in self.rows) - SAME_EVIDENCE
        return next(int(row.n_clusters) for row in self.rows if row.evidence >= enough)

    def to_dict(self) -> dict[str, Any]:
        """All of it in numbers, texts, lists and None (for what is not known), as JSON has them."""

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

    def __str__(self) -> str:
        header = ("clusters", "in use", "log density", "vs best", "± s.e.", "evidence", "R²", "MSE")
        table = text_table(header, tuple(_cells(row, row.n_clusters == self.best) for row in (*self.rows, self.auto)))
        splits = "one split" if self.n_splits == 1 else f"{self.n_splits} splits"
        return "\n".join(
            [
                table,
                f"Log density: mean over {EVENT.count(self.n_held_out)} from {splits}.",
                f"Best number of clusters: {self.best}. Suggested: {self.suggested}, the smallest within one standard "
                f"error of the best. By evidence: {self.most_evident}, the smallest within {SAME_EVIDENCE:g} nats of "
                "the highest.",
            ]
        )

    __repr__ = __str__


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
