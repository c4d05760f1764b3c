"""Descriptions of models, for people and for programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedhlcr._support.wording import number
from fedhlcr.analysis import facts
from fedhlcr.analysis.comparison import Comparison
from fedhlcr.analysis.summary import describe_model
from fedhlcr.cli.descriptions import show_description
from fedhlcr.cli.shell import Shell, plural
from fedhlcr.storage.model_file import provenance_of

# Length of the longest bar, in characters.
BAR_WIDTH = 20


def model_facts(model: Any) -> dict[str, Any]:
    """Return a description of a model for programs."""
    return facts.model_facts(model, provenance_of(model))


def history_table(history: NDArray[np.void]) -> pa.Table:
    """Return a table of the rounds of a federation, without the names of the participants."""
    columns = [name for name in history.dtype.names or () if name != "participants"]
    return pa.table({name: np.ascontiguousarray(history[name]) for name in columns})


def tell_model(shell: Shell, model: Any) -> None:
    """Print a few facts, the table of clusters, and a sentence on each of the largest clusters."""
    show_description(shell, describe_model(model))


def tell_comparison(shell: Shell, comparison: Comparison) -> None:
    """Print a table that compares numbers of clusters, with bars."""
    rows = (*comparison.rows, comparison.auto)
    low, high = (end(row.log_density for row in rows) for end in (min, max))
    cells = []
    for row in rows:
        length = BAR_WIDTH * (row.log_density - low) / (high - low) if high > low else BAR_WIDTH
        marks = [
            name
            for name, count in (("best", comparison.best), ("suggested", comparison.suggested))
            if row.n_clusters == count
        ]
        cells.append(
            (
                str(row.n_clusters),
                number(float(np.mean(row.occupied))),
                f"{row.log_density:.4f}",
                "" if row.n_clusters == comparison.best else f"{row.difference:+.4f} ± {row.difference_se:.4f}",
                *([f"{row.evidence:,.1f}"] if comparison.has_evidence else []),
                f"{row.r2:.4f}",
                f"{'█' * round(length)} {', '.join(marks)}".strip(),
            )
        )
    evidence = ("evidence",) if comparison.has_evidence else ()
    header = ("clusters", "in use", "log density", "vs best", *evidence, "R²", "")
    shell.table(header, cells, left=(0, len(header) - 1))
    events = plural(comparison.n_held_out, "held-out event")
    splits = plural(comparison.n_splits, "split")
    shell.say(f"Log density: mean over {events} from {splits}, in nats.")
    shell.say(comparison.verdict)
