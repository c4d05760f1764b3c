"""The picture of the study on FEMNIST: AUC, HLCR's gain over LR, seconds by stage."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.femnist.results import Results, label, percent
from experiments.figures import BLACK, BLUE, GREEN, GREY, ORANGE, PAGE_WIDTH, RED, SKY, legend_below, picture
from experiments.figures import standard_error as error_of


class Look(NamedTuple):
    color: str
    marker: str
    line: Literal["-", "--"] = "-"


CURVES = {
    "argmax": Look(GREY, "v"),
    "soft": Look(BLACK, "^"),
    "lr": Look(ORANGE, "s"),
    "hlcr_4": Look(SKY, "o"),
    "hlcr_8": Look(BLUE, "D"),
    "lr_hidden": Look(RED, "s", "--"),
    "hlcr_8_hidden": Look(GREEN, "D", "--"),
}
GAINS = {"hlcr_4": "lr", "hlcr_8": "lr", "hlcr_8_hidden": "lr_hidden"}
BARS = {"cnn": GREY, "outputs": GREY, "lr": ORANGE, "hlcr_4": SKY, "hlcr_8": BLUE}
# neighbouring curves stand a little apart, so that their error bars do not overlap
APART = 0.03


def draw(results: Results, path: Path) -> None:
    with picture(path, 1, 3, figsize=(PAGE_WIDTH, 2.7), width_ratios=(1.25, 1, 0.9)) as (figure, axes):
        auc, gain, seconds = axes[0]
        for place, name in enumerate(CURVES):
            runs = [results.figures(fraction, name) for fraction in results.fractions]
            _curve(auc, name, results.fractions, runs, place - len(CURVES) // 2)
        auc.set(ylabel="AUC on held-out images", title="letters against digits")
        for place, (name, rival) in enumerate(GAINS.items()):
            runs = [results.gains(fraction, name, rival) for fraction in results.fractions]
            _curve(gain, name, results.fractions, runs, 2 * (place - 1))
        gain.axhline(0, color=BLACK, linewidth=0.7)
        gain.set(ylabel="AUC less that of LR", title="gain over LR, same features")
        _bars(seconds, results)
        legend_below(figure, auc, 4)


def _curve(axes: Axes, name: str, fractions: list[float], runs: list[np.ndarray], place: int) -> None:
    look = CURVES[name]
    x = np.array(fractions) * np.exp(APART * place)
    mean, error = [run.mean() for run in runs], [float(error_of(run)) for run in runs]
    axes.errorbar(
        x,
        mean,
        error,
        color=look.color,
        marker=look.marker,
        linestyle=look.line,
        label=label(name),
        capsize=1.2,
        capthick=0.7,
        elinewidth=0.7,
    )
    axes.set_xscale("log")
    axes.set_xticks(fractions)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda fraction, _: percent(fraction)))
    axes.set_xlabel("writers who trained the CNN")


def _bars(axes: Axes, results: Results) -> None:
    mean = [results.every(name, "seconds").mean() for name in BARS]
    axes.barh(list(map(label, BARS)), mean, color=list(BARS.values()), height=0.6)
    for place, value in enumerate(mean):
        axes.text(value * 1.2, place, f"{value:.2g}", va="center", fontsize=7)
    axes.set_xscale("log")
    axes.set_xlim(min(mean) / 3, max(mean) * 6)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel="seconds of one core", title="time by stage")
