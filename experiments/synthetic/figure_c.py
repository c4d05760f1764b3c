"""Figure (c): error after a fixed number of rounds, against the learning rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments import markdown
from experiments.figures import BLACK, BLUE, GREY, band, legend_below, picture
from experiments.study import FAILS, HOLDS, PARTLY, Finding, Record, Report, Settings, Study
from experiments.synthetic.data import SAME
from experiments.synthetic.federations import RULE_NAMES
from experiments.synthetic.figure_a import STYLES
from experiments.synthetic.figure_b import NOISE_SCALE, SIZE
from experiments.synthetic.measuring import LIMIT, cell, clearly_above, ends, measure, tell_excess

LEARNING_RATES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
PARTICIPATIONS = (0.05, 0.15, 0.5, 1.0)
ERROR_TICKS = (0.25, 0.3, 0.4, 0.5, 0.6)
BLENDS = ("published", "corrected")


def settings(full: bool) -> list[Settings]:
    rates, shares = (LEARNING_RATES, PARTICIPATIONS) if full else ((0.1, 0.35, 1.0), (0.15, 1.0))
    cells = []
    for seed in range(5 if full else 2):
        cells.append(cell(SIZE, NOISE_SCALE, LIMIT, seed))
        for share in shares:
            federation = {"participation": share, "n_rounds": 100 if full else 40}
            cells.append(cell(SIZE, NOISE_SCALE, "delta", seed, **federation))
            for rule in BLENDS:
                cells += [cell(SIZE, NOISE_SCALE, rule, seed, learning_rate=rate, **federation) for rate in rates]
    return cells


def report(records: Sequence[Record], gallery: markdown.Gallery) -> Report:
    blends = [record.settings for record in records if record.settings["rule"] in BLENDS]
    rates = sorted({each["learning_rate"] for each in blends})
    shares = sorted({each["participation"] for each in blends})
    n_rounds = blends[0]["n_rounds"]
    draw(records, gallery, rates, shares)
    seeds = sorted({record.settings["seed"] for record in records})
    text = (
        f"{SAME}. {SIZE}, σ = {NOISE_SCALE}; data and algorithm seeds {seeds[0]}–{seeds[-1]}. Predictions are averaged "
        f"over the second half of {n_rounds} rounds."
    )
    caption = f"Held-out mean squared error after {n_rounds} rounds, by learning rate and share of the agents per round"
    parts = [
        text,
        gallery.show("figure-c", caption),
        table(records, rates, shares),
        delta_beside_blend(records, shares),
    ]
    return Report("\n\n".join(parts), (optimum(records, rates, shares),))


def draw(records: Sequence[Record], gallery: markdown.Gallery, rates: Sequence[float], shares: Sequence[float]) -> None:
    limit = ends(records, rule=LIMIT)
    with picture(gallery.path("figure-c"), 1, len(shares), figsize=(7.2, 2.6), sharey=True) as (figure, axes):
        for share, panel in zip(shares, axes[0], strict=True):
            panel.axhline(NOISE_SCALE**2, color=GREY, linestyle=":", label="σ²")
            panel.axhline(limit.mean(), color=BLACK, label="limit")
            for rule in BLENDS:
                band(panel, rates, runs_of(records, rule, share, rates), label=RULE_NAMES[rule], **STYLES[rule])
            delta = ends(records, rule="delta", participation=share)
            band(panel, rates, np.tile(delta, (len(rates), 1)).T, color=BLUE, label=RULE_NAMES["delta"])
            panel.set(title=f"{share:.0%} of the agents", xlabel="learning rate γ", xscale="log", yscale="log")
            ticks = [rate for rate in (0.05, 0.1, 0.2, 0.5, 1.0) if rates[0] <= rate <= rates[-1]]
            panel.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
            panel.set_yticks(ERROR_TICKS, [f"{tick:g}" for tick in ERROR_TICKS])
            panel.minorticks_off()
        axes[0, 0].set_ylabel("MSE")
        legend_below(figure, axes[0, 0], 5)


def runs_of(records: Sequence[Record], rule: str, share: float, rates: Sequence[float]) -> NDArray[np.float64]:
    """(seeds, rates)"""
    return np.array([ends(records, rule=rule, participation=share, learning_rate=rate) for rate in rates]).T


def table(records: Sequence[Record], rates: Sequence[float], shares: Sequence[float]) -> str:
    limit = ends(records, rule=LIMIT)
    rows = []
    for share in shares:
        # with all agents there is nothing to correct
        blends = {rule: RULE_NAMES[rule] for rule in BLENDS} if share < 1 else {"corrected": "blend"}
        for rule, name in blends.items():
            ratios = runs_of(records, rule, share, rates) / limit[:, None]
            figures = (markdown.mean_and_error(each) for each in ratios.T)
            rows.append((f"{share:.0%}", name, *figures, ""))
        delta = markdown.mean_and_error(ends(records, rule="delta", participation=share) / limit)
        rows.append((f"{share:.0%}", RULE_NAMES["delta"], *[""] * len(rates), delta))
    header = ("agents", "MSE / limit", *(f"γ = {rate:g}" for rate in rates), "no γ")
    return markdown.table(header, rows)


def optimum(records: Sequence[Record], rates: Sequence[float], shares: Sequence[float]) -> Finding:
    """Whether a learning rate inside the range is better than both ends, judged on seeds that did not choose it."""
    inside, chosen = 0, []
    for share in shares:
        runs = runs_of(records, "published", share, rates)
        chosen.append(f"{rates[int(runs.mean(axis=0).argmin())]:g} at {share:.0%}")
        best = errors_at_best(runs)
        inside += all(clearly_above(runs[:, end], best) for end in (0, -1))
    verdict = HOLDS if inside == len(shares) else PARTLY if inside else FAILS
    why = (
        f"best γ: {', '.join(chosen)}; better than both γ = {rates[0]:g} and γ = {rates[-1]:g} by more than two "
        f"standard errors at {inside} of {len(shares)} shares"
    )
    return Finding("each fraction of agents has an optimal γ", verdict, why)


def errors_at_best(runs: NDArray[np.float64]) -> NDArray[np.float64]:
    """(seeds,) the error of each seed at the rate that is best for all the others; of one seed, at its own best."""
    if len(runs) == 1:
        return runs.min(axis=1)
    others = (runs.sum(axis=0) - runs) / (len(runs) - 1)
    return runs[np.arange(len(runs)), others.argmin(axis=1)]


def delta_beside_blend(records: Sequence[Record], shares: Sequence[float]) -> str:
    """At each share, with the learning rate that is best for it."""
    rates = sorted({record.settings["learning_rate"] for record in records if record.settings["rule"] in BLENDS})
    pairs = {}
    for share in shares:
        best = min((errors_at_best(runs_of(records, rule, share, rates)) for rule in BLENDS), key=np.mean)
        pairs[f"{share:.0%} of the agents"] = (ends(records, rule="delta", participation=share), best)
    return tell_excess("the better of the two blends at its best γ", pairs)


FIGURE_C = Study("figure-c", "Figure (c): error against the learning rate", settings, measure, report)
