"""The picture of clusters of writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from experiments.figures import BLUE, GREEN, GREY, ORANGE, PAGE_WIDTH, PURPLE, RED, SKY, legend_below, picture

LOOKS = list(zip((BLUE, ORANGE, GREEN, RED, SKY, PURPLE), "osD^vP", strict=True))
CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
N_SHOWN = 18


def draw_clusters(figures: dict[str, Any], path: Path) -> None:
    """`figures` are those of `clusters.describe`."""
    with picture(path, 1, 2, figsize=(PAGE_WIDTH, 3.1), width_ratios=(1, 1.4)) as (figure, axes):
        _writers(axes[0, 0], figures)
        _answers(axes[0, 1], figures)
        legend_below(figure, axes[0, 0], len(figures["answers"]))


def _writers(axes: Axes, figures: dict[str, Any]) -> None:
    label, letters, read = (np.array(figures[name]) for name in ("label", "letters", "read"))
    for cluster in range(len(figures["answers"])):
        own = label == cluster
        color, marker = LOOKS[cluster % len(LOOKS)]
        name = f"cluster {cluster}: {own.sum()} writers"
        axes.plot(letters[own], read[own], marker, color=color, label=name, alpha=0.75, markeredgewidth=0, markersize=4)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set(xlabel="letters among a writer's images", ylabel="read as the right sort by the CNN", title="writers")


def _answers(axes: Axes, figures: dict[str, Any]) -> None:
    """The characters about which clusters differ most, in the order of the largest cluster's answers."""
    answers, characters = np.array(figures["answers"]), np.array(figures["characters"])
    widest = np.sort(np.argsort(-np.ptp(answers, axis=0), kind="stable")[:N_SHOWN])
    order = widest[np.argsort(answers[0, widest], kind="stable")]
    place = np.arange(len(order))
    axes.vlines(place, answers[:, order].min(axis=0), answers[:, order].max(axis=0), color=GREY, linewidth=0.7)
    for cluster, row in enumerate(answers):
        color, marker = LOOKS[cluster % len(LOOKS)]
        axes.plot(place, row[order], marker, color=color, markersize=4, markeredgewidth=0)
    axes.axhline(0.5, color=GREY, linewidth=0.7, linestyle=":")
    axes.set_xticks(place, [CHARACTERS[characters[c]] for c in order])
    axes.tick_params(axis="x", length=0, labelsize=8)
    axes.grid(axis="x", visible=False)
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set(
        ylim=(-0.02, 1.02), xlabel="character", ylabel="probability of a letter", title="the same images, by cluster"
    )
