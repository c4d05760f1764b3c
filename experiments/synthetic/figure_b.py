"""Figure (b): error by round, 15 % of the agents in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import markdown
from experiments.figures import BLACK, GREY, band, legend_below, picture, plain_ticks
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
    federation = {"participation": PARTICIPATION, "n_rounds": 120 if full else 60, "by_round": True}
    cells = []
    for seed in range(8 if full else 2):
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
    return Report("\n\n".join([text, gallery.show("figure-b", caption), table(records)]), judge(records))


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
            plain_ticks(panel.yaxis)
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


class Course(NamedTuple):
    """How runs of one rule and learning rate went, one number for each seed."""

    reached: NDArray[np.float64]
    roughness: NDArray[np.float64]
    end: NDArray[np.float64]

    @property
    def n_reached(self) -> int:
        return int(np.isfinite(self.reached).sum())

    def tell_reached(self) -> str:
        told = f"{self.n_reached} of {len(self.reached)}"
        return f"{told}, median {np.median(self.reached[np.isfinite(self.reached)]):.0f}" if self.n_reached else told


def course(records: Sequence[Record], rule: str, rate: float) -> Course:
    limit, errors = ends(records, rule=LIMIT), errors_by_round(records, rule, rate)
    return Course(first_within(errors, limit), roughness(errors), ends(records, **key(rule, rate)) / limit)


def table(records: Sequence[Record]) -> str:
    rows = []
    for rule in RULES:
        for rate in LEARNING_RATES if rule != "delta" else (0.0,):
            runs = course(records, rule, rate)
            rough, end = f"{np.median(runs.roughness):.3f}", markdown.mean_and_error(runs.end)
            rows.append((RULE_NAMES[rule], f"{rate:g}" if rate else "", runs.tell_reached(), rough, end))
    return markdown.table(("rule", "γ", "within 10 % of the limit (rounds)", "roughness", "end / limit"), rows)


def judge(records: Sequence[Record]) -> tuple[Finding, ...]:
    """The paper's words on four learning rates, put to the test with its own rule."""
    runs = {rate: course(records, "published", rate) for rate in LEARNING_RATES}
    rough = {rate: float(np.median(each.roughness)) for rate, each in runs.items()}
    told = ", ".join(f"{figure:.3f} with γ = {rate:g}" for rate, figure in rough.items())
    smooth = HOLDS if rough[0.1] <= 1.1 * min(rough.values()) else FAILS
    speed = {rate: float(np.median(runs[rate].reached)) for rate in (0.1, 0.2)}
    faster = HOLDS if speed[0.2] < speed[0.1] else FAILS
    half, most = runs[0.5], runs[0.75]
    no_guarantee = HOLDS if half.n_reached < runs[0.2].n_reached else PARTLY if half.end.mean() > 1.02 else FAILS
    rougher = rough[0.75] / rough[0.1]
    unstable = HOLDS if most.n_reached < len(most.end) / 2 else PARTLY if rougher > 1.3 else FAILS
    return (
        Finding("γ = .1 is smooth (15 % of the agents)", smooth, f"roughness {told}"),
        Finding(
            "γ = .2 is faster",
            faster,
            f"within 10 % of the limit: {runs[0.2].tell_reached()} rounds; with γ = .1 {runs[0.1].tell_reached()}",
        ),
        Finding("γ = .5 does not guarantee convergence", no_guarantee, tell_end(half)),
        Finding("γ = .75 is unstable", unstable, f"{rougher:.1f} times as rough as γ = .1; {tell_end(most)}"),
    )


def tell_end(runs: Course) -> str:
    return (
        f"{runs.n_reached} of {len(runs.end)} runs get within 10 % of the limit, and averaged predictions end at "
        f"{runs.end.mean():.3f} times the limit"
    )


FIGURE_B = Study("figure-b", "Figure (b): error by round", settings, measure, report)
