"""Figure (a): error against noise, all agents in every round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments import markdown
from experiments.figures import BLACK, BLUE, GREEN, GREY, ORANGE, band, legend_below, picture
from experiments.study import FAILS, HOLDS, PARTLY, Finding, Record, Report, Settings, Study
from experiments.synthetic.data import LAW, Size
from experiments.synthetic.federations import RULE_NAMES, RULES
from experiments.synthetic.measuring import LIMIT, cell, ends, measure

SIZES = (Size(4, 5, 4), Size(4, 5, 8), Size(4, 5, 16), Size(8, 10, 16))
NOISE_SCALES = (0.1, 0.2, 0.5, 1.0, 2.0)
LEARNING_RATE, N_ROUNDS = 0.2, 100
# one style for a rule in every picture; the dashes show where one line covers another
STYLES = {
    "published": {"color": ORANGE, "marker": "o"},
    "corrected": {"color": GREEN, "marker": "s", "linestyle": (0, (3, 2))},
    "delta": {"color": BLUE, "marker": "^"},
}


def settings(full: bool) -> list[Settings]:
    federation = {"learning_rate": LEARNING_RATE, "n_rounds": N_ROUNDS if full else 40}
    sizes, scales = (SIZES, NOISE_SCALES) if full else (SIZES[1:3], (0.1, 0.5, 2.0))
    cells = []
    for size in sizes:
        for scale in scales:
            for seed in range(6 if full else 2):
                cells.append(cell(size, scale, LIMIT, seed))
                cells += [cell(size, scale, rule, seed, **federation) for rule in RULES]
    return cells


def report(records: Sequence[Record], gallery: markdown.Gallery) -> Report:
    sizes = list(dict.fromkeys(Size(*(r.settings[name] for name in Size._fields)) for r in records))
    scales = sorted({record.settings["noise_scale"] for record in records})
    draw(records, gallery, sizes, scales)
    seeds = sorted({record.settings["seed"] for record in records})
    rounds = max(record.settings["n_rounds"] for record in records)
    caption = "Held-out mean squared error against the noise, and the same over the limit; bands are one standard error"
    text = (
        f"{LAW}. All agents take part in each of {rounds} rounds, γ = {LEARNING_RATE}; data and algorithm seeds "
        f"{seeds[0]}–{seeds[-1]}. Blend is given the true K, σ, δ, α and β; delta learns all of them. With all agents "
        "there is nothing to scale, so blend as published and corrected are the same. *The limit* is the error of a "
        "chain that starts at the true labels and is given the true hyperparameters. An error is that of the mean over "
        "draws of the second half of the rounds, and over labels."
    )
    parts = [text, gallery.show("figure-a", caption), table(records, sizes, scales)]
    return Report("\n\n".join(parts), (near_optimal(records, scales), misclustering(records, scales)))


def draw(records: Sequence[Record], gallery: markdown.Gallery, sizes: Sequence[Size], scales: Sequence[float]) -> None:
    with picture(gallery.path("figure-a"), 2, len(sizes), figsize=(7.2, 4.2), sharex=True, sharey="row") as (
        figure,
        axes,
    ):
        for size, (top, bottom) in zip(sizes, axes.T, strict=True):
            limit = runs_of(records, size, scales, LIMIT)
            top.plot(scales, np.square(scales), color=GREY, linestyle=":", label="σ²")
            band(top, scales, limit, color=BLACK, label="limit")
            bottom.axhline(1.0, color=BLACK)
            for rule in RULES:
                runs = runs_of(records, size, scales, rule)
                band(top, scales, runs, label=RULE_NAMES[rule], **STYLES[rule])
                band(bottom, scales, runs / limit, **STYLES[rule])
            top.set(title=str(size).replace("_", ""), xscale="log", yscale="log")
            bottom.set(xlabel="noise σ", xticks=scales, xticklabels=[f"{scale:g}" for scale in scales])
            bottom.minorticks_off()
        axes[0, 0].set_ylabel("MSE")
        axes[1, 0].set_ylabel("MSE / limit")
        legend_below(figure, axes[0, 0], 5)


def runs_of(records: Sequence[Record], size: Size, scales: Sequence[float], rule: str) -> np.ndarray:
    """(seeds, scales)"""
    return np.array([ends(records, **size._asdict(), noise_scale=scale, rule=rule) for scale in scales]).T


def table(records: Sequence[Record], sizes: Sequence[Size], scales: Sequence[float]) -> str:
    rows = []
    for size in sizes:
        limit = runs_of(records, size, scales, LIMIT)
        for rule in RULES:
            ratios = runs_of(records, size, scales, rule) / limit
            figures = [markdown.mean_and_error(ratios[:, s]) for s in range(len(scales))]
            rows.append((size, RULE_NAMES[rule], *figures))
        above = limit.mean(axis=0) / np.square(scales)
        rows.append((size, "limit / σ²", *(f"{ratio:.3f}" for ratio in above)))
    return markdown.table(("size", "MSE / limit", *(f"σ = {scale:g}" for scale in scales)), rows)


def near_optimal(records: Sequence[Record], scales: Sequence[float]) -> Finding:
    """Over σ² and over the limit, with 4 × 5 events per agent and 8 clusters, at the highest noise."""
    size, scale = Size(4, 5, 8), scales[-1]
    runs, limit = (runs_of(records, size, [scale], rule) for rule in ("published", LIMIT))
    over_noise, over_limit = runs.mean() / scale**2, runs.mean() / limit.mean()
    verdict = HOLDS if over_noise < 1.1 else PARTLY if over_limit < 1.1 else FAILS
    why = (
        f"at σ = {scale:g} with {size.clusters} clusters its error is {over_noise:.2f} σ² and {over_limit:.2f} times the "
        "limit: what is above σ² is what nobody can know from so few events"
    )
    return Finding("near the optimal σ² at high noise, with 20 events per agent", verdict, why)


def misclustering(records: Sequence[Record], scales: Sequence[float]) -> Finding:
    size, scale = Size(4, 5, 16), scales[-1]
    runs, limit, delta = (runs_of(records, size, [scale], rule) for rule in ("published", LIMIT, "delta"))
    over_noise, over_limit = runs.mean() / scale**2, runs.mean() / limit.mean()
    verdict = HOLDS if over_noise > 1.1 else FAILS
    why = (
        f"at σ = {scale:g} its error is {over_noise:.2f} σ²; but the limit is {limit.mean() / scale**2:.2f} σ² already, "
        f"so most of it is no fault of the algorithm ({over_limit:.2f} times the limit; delta "
        f"{delta.mean() / limit.mean():.2f})"
    )
    return Finding("entities are put into wrong clusters at N_* = 4, N_** = 5, K = 16 and high σ", verdict, why)


FIGURE_A = Study("figure-a", "Figure (a): error against noise", settings, measure, report)
