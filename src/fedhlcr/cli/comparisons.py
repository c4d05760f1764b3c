"""How numbers of clusters compare: the table and the plot of `fedhlcr select`."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from fedhlcr._support.wording import number
from fedhlcr.analysis.comparison import Comparison
from fedhlcr.cli.output import check_output, write_output
from fedhlcr.cli.shell import Shell, plural
from fedhlcr.exceptions import OutputError

SUFFIXES = (".png", ".svg", ".pdf")
# Length of the longest bar, in characters.
BAR_WIDTH = 20


def check_picture(path: Path | None, data: str) -> None:
    """Refuse, before the work, a path to which no plot can be written."""
    if path is None:
        return
    check_output(path, data)
    if path.suffix.lower() not in SUFFIXES:
        raise OutputError(f"cannot draw {str(path)!r}: its name must end in {', '.join(SUFFIXES)}.")
    # raises an error that names the cure if matplotlib is not installed
    import fedhlcr.plot  # noqa: F401


def draw_comparison(comparison: Comparison, path: Path) -> None:
    """Plot held-out log density and, if it is known, evidence against the number of clusters."""
    from matplotlib.figure import Figure

    from fedhlcr.plot import cluster_counts

    n_plots = 2 if comparison.has_evidence else 1
    figure = Figure(figsize=(4.5 * n_plots, 3.6), layout="constrained")
    left, *right = figure.subplots(1, n_plots, squeeze=False)[0]
    cluster_counts(comparison, left)
    for axes in right:
        cluster_counts(comparison, axes, quantity="evidence")
    sink = io.BytesIO()
    figure.savefig(sink, format=path.suffix[1:].lower(), dpi=200)
    write_output(path, sink.getvalue())


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
