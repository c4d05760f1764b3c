"""Plots that commands write."""

from __future__ import annotations

import io
from pathlib import Path

from fedhlcr.analysis.comparison import Comparison
from fedhlcr.cli.output import check_output, write_output
from fedhlcr.exceptions import OutputError

SUFFIXES = (".png", ".svg", ".pdf")


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
