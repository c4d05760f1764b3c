"""Figure (b): error by round, 15 % of the agents in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import markdown
from experiments.figures import BLACK, GREY, band, legend_below, picture
from experiments.study import FAILS, HOLDS, PARTLY, Finding, Record, Report, Settings, Study
from experiments.synthetic.data import LAW, Size
from experiments.synthetic.federations import RULE_NAMES, RULES
from experiments.synthetic.figure_a import STYLES
from experiments.synthetic.measuring import LIMIT, cell, ends, measure, select

SIZE, NOISE_SCALE, PARTICIPATION = Size(8, 5, 8), 0.5, 0.15
LEARNING_RATES = (0.1, 0.2, 0.5, 0.75)
# rounds after which a run is taken to have settled, or not
SETTLED = 0.5


def settings(full: bool) -> list[Settings]:
    federation = {"participation": PARTICIPATION, "n_rounds": 120 if full else 60}
    cells = []
    for seed in range(10 if full else 2):
        cells += [cell(SIZE, NOISE_SCALE, LIMIT, seed), cell(SIZE, NOISE_SCALE, "delta", seed, **federation)]
        for rule in ("published", "corrected"):
            cells += [cell(SIZE, NOISE_SCALE, rule, seed, learning_rate=rate, **federation) for rate in LEARNING_RATES]
    return cells


def report(records: Sequence[Record], gallery: markdown.Gallery) -> Report:
    draw(records, gallery)
    seeds = sorted({record.settings["seed"] for record in records})
    n_rounds = max(record.settings["n_rounds"] for record in records)
    text = (
        f"{LAW}. {SIZE}, σ = {NOISE_SCALE}; {PARTICIPATION:.0%} of the agents in each of {n_rounds} rounds; data and "
        f"algorithm seeds {seeds[0]}–{seeds[-1]}. The error after a round is that of this round's state alone. *Within "
        "10 %* is the first round whose error is below 1.1 times the limit, *roughness* the standard deviation of the "
        "change of log error from round to round in the second half, *end* the error over the limit of predictions "
        "averaged over the second half."
    )
    caption = "Held-out mean squared error after each round, for four learning rates; delta has none"
    findings = (smooth(records), faster(records), not_guaranteed(records), unstable(records))
    return Report("\n\n".join([text, gallery.show("figure-b", caption), table(records)]), findings)


def draw(records: Sequence[Record], gallery: markdown.Gallery) -> None:
    limit = ends(records, rule=LIMIT).mean()
    n_panels = len(LEARNING_RATES)
    with picture(gallery.path("figure-b"), 1, n_panels, figsize=(7.2, 2.5), sharey=True) as (figure, axes):
        for rate, panel in zip(LEARNING_RATES, axes[0], strict=True):
            panel.axhline(NOISE_SCALE**2, color=GREY, linestyle=":", label="σ²")
            panel.axhline(limit, color=BLACK, label="limit")
            for rule in RULES:
                runs = errors_by_round(records, rule, rate)
                style = {key: value for key, value in STYLES[rule].items() if key != "marker"}
                band(panel, 1 + np.arange(runs.shape[1]), runs, label=RULE_NAMES[rule], **style)
            panel.set(title=f"γ = {rate:g}", xlabel="round", yscale="log")
        axes[0, 0].set_ylabel("MSE")
        legend_below(figure, axes[0, 0], 5)


def errors_by_round(records: Sequence[Record], rule: str, rate: float) -> NDArray[np.float64]:
    """(seeds, rounds)"""
    return np.array([record.figures["each"] for record in select(records, **key(rule, rate))])


def key(rule: str, rate: float) -> dict[str, Any]:
    return {"rule": rule} if rule == "delta" else {"rule": rule, "learning_rate": rate}


def first_within(errors: NDArray[np.float64], limit: NDArray[np.float64]) -> NDArray[np.float64]:
    """(seeds,) the first round within 10 % of the limit; infinite if there is none."""
    below = errors < 1.1 * limit[:, None]
    return np.where(below.any(axis=1), 1.0 + below.argmax(axis=1), np.inf)


def roughness(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(seeds,)"""
    later = errors[:, round(SETTLED * errors.shape[1]) :]
    return np.diff(np.log(later), axis=1).std(axis=1)


def table(records: Sequence[Record]) -> str:
    limit = ends(records, rule=LIMIT)
    rows = []
    for rule in RULES:
        for rate in LEARNING_RATES if rule != "delta" else (0.0,):
            errors = errors_by_round(records, rule, rate)
            reached = first_within(errors, limit)
            n_reached = int(np.isfinite(reached).sum())
            when = f"{n_reached} of {len(reached)}" + (
                f", median {np.median(reached[np.isfinite(reached)]):.0f}" if n_reached else ""
            )
            end = markdown.mean_and_error(ends(records, **key(rule, rate)) / limit)
            gamma = f"{rate:g}" if rate else ""
            rows.append((RULE_NAMES[rule], gamma, when, f"{np.median(roughness(errors)):.3f}", end))
    return markdown.table(("rule", "γ", "within 10 % of the limit (rounds)", "roughness", "end / limit"), rows)


def smooth(records: Sequence[Record]) -> Finding:
    rough = {rate: float(np.median(roughness(errors_by_round(records, "published", rate)))) for rate in LEARNING_RATES}
    verdict = HOLDS if rough[0.1] <= min(rough.values()) * 1.1 else FAILS
    return Finding("γ = .1 is smooth (15 % of the agents)", verdict, f"roughness {tell(rough)}")


def faster(records: Sequence[Record]) -> Finding:
    limit = ends(records, rule=LIMIT)
    reached = {
        rate: float(np.median(first_within(errors_by_round(records, "published", rate), limit))) for rate in (0.1, 0.2)
    }
    verdict = HOLDS if reached[0.2] < reached[0.1] else FAILS
    why = f"within 10 % of the limit after {reached[0.2]:.0f} rounds (median), with γ = .1 after {reached[0.1]:.0f}"
    return Finding("γ = .2 is faster", verdict, why)


def not_guaranteed(records: Sequence[Record]) -> Finding:
    limit = ends(records, rule=LIMIT)
    reached = {rate: first_within(errors_by_round(records, "published", rate), limit) for rate in (0.2, 0.5)}
    missed, n_runs = int(np.isinf(reached[0.5]).sum()), len(limit)
    end = float(np.mean(ends(records, rule="published", learning_rate=0.5) / limit))
    verdict = HOLDS if missed > np.isinf(reached[0.2]).sum() else PARTLY if end > 1.02 else FAILS
    why = f"{n_runs - missed} of {n_runs} runs get within 10 % of the limit; averaged predictions end at {end:.3f} times the limit"
    return Finding("γ = .5 does not guarantee convergence", verdict, why)


def unstable(records: Sequence[Record]) -> Finding:
    limit = ends(records, rule=LIMIT)
    rough = {rate: float(np.median(roughness(errors_by_round(records, "published", rate)))) for rate in (0.1, 0.75)}
    reached = first_within(errors_by_round(records, "published", 0.75), limit)
    missed = int(np.isinf(reached).sum())
    end = float(np.mean(ends(records, rule="published", learning_rate=0.75) / limit))
    rougher = rough[0.75] / rough[0.1]
    verdict = HOLDS if missed > len(limit) / 2 else PARTLY if rougher > 1.3 else FAILS
    why = (
        f"{rougher:.1f} times as rough as γ = .1; {len(limit) - missed} of {len(limit)} runs get within 10 % of the limit all "
        f"the same, and averaged predictions end at {end:.3f} times the limit"
    )
    return Finding("γ = .75 is unstable", verdict, why)


def tell(figures: dict[float, float]) -> str:
    return ", ".join(f"{figure:.3f} with γ = {rate:g}" for rate, figure in figures.items())


FIGURE_B = Study("figure-b", "Figure (b): error by round", settings, measure, report)
