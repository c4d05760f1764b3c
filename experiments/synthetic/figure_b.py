"""Figure (b): error by round, 15 % of the agents in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from experiments import markdown
from experiments.figures import BLACK, GREY, band, legend_below, picture
from experiments.study import FAILS, HOLDS, PARTLY, Finding, Record, Report, Settings, Study
from experiments.synthetic.data import SAME, Size
from experiments.synthetic.federations import RULE_NAMES, RULES
from experiments.synthetic.figure_a import STYLES
from experiments.synthetic.measuring import LIMIT, cell, clearly_above, ends, measure, select, tell_excess

SIZE, NOISE_SCALE, PARTICIPATION = Size(8, 5, 8), 0.5, 0.15
LEARNING_RATES = (0.1, 0.2, 0.5, 0.75)


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
        f"{SAME}. {SIZE}, σ = {NOISE_SCALE}; {PARTICIPATION:.0%} of the agents in each of {n_rounds} rounds; data and "
        f"algorithm seeds {seeds[0]}–{seeds[-1]}. The error after a round is that of this round's state alone. *Within "
        "10 %* is the first round whose error is below 1.1 times the limit, *roughness* the standard deviation of the "
        "change of log error from round to round in the second half, *late* the median error of the second half's "
        "states over the limit, *end* the same for predictions averaged over the second half."
    )
    caption = "Held-out mean squared error after each round, for four learning rates; delta has none"
    return Report(
        "\n\n".join([text, gallery.show("figure-b", caption), table(records), delta_beside_blend(records)]),
        judge(records),
    )


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
            panel.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
            panel.yaxis.set_minor_formatter(NullFormatter())
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
    return np.diff(np.log(second_half(errors)), axis=1).std(axis=1)


def second_half(errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(seeds, rounds)"""
    return errors[:, errors.shape[1] // 2 :]


class Course(NamedTuple):
    """How runs of one rule and learning rate went, one number for each seed.

    Attributes
    ----------
    reached : the first round within 10 % of the limit, or infinity
    roughness : of the second half
    late : median error of the second half's states, over the limit
    end : error of predictions averaged over the second half, over the limit
    """

    reached: NDArray[np.float64]
    roughness: NDArray[np.float64]
    late: NDArray[np.float64]
    end: NDArray[np.float64]

    @property
    def n_missed(self) -> int:
        """Runs whose averaged predictions end more than 10 % above the limit."""
        return int((self.end > 1.1).sum())

    def tell_reached(self) -> str:
        finite = self.reached[np.isfinite(self.reached)]
        share = f"{len(finite)} of {len(self.reached)}"
        return f"{share}, median {np.median(finite):.0f}" if len(finite) else share


def course(records: Sequence[Record], rule: str, rate: float) -> Course:
    limit, errors = ends(records, rule=LIMIT), errors_by_round(records, rule, rate)
    late = np.median(second_half(errors), axis=1) / limit
    return Course(first_within(errors, limit), roughness(errors), late, ends(records, **key(rule, rate)) / limit)


def table(records: Sequence[Record]) -> str:
    rows = []
    for rule in RULES:
        for rate in LEARNING_RATES if rule != "delta" else (0.0,):
            runs = course(records, rule, rate)
            figures = (f"{np.median(runs.roughness):.3f}", *map(markdown.mean_and_error, (runs.late, runs.end)))
            rows.append((RULE_NAMES[rule], f"{rate:g}" if rate else "", runs.tell_reached(), *figures))
    header = ("rule", "γ", "within 10 % of the limit (rounds)", "roughness", "late / limit", "end / limit")
    return markdown.table(header, rows)


def judge(records: Sequence[Record]) -> tuple[Finding, ...]:
    """The paper's words on four learning rates, put to the test with its own rule; rates are compared seed by seed."""
    runs = {rate: course(records, "published", rate) for rate in LEARNING_RATES}
    return (is_smooth(runs), is_faster(runs), is_not_guaranteed(runs), is_unstable(runs))


def is_smooth(runs: dict[float, Course]) -> Finding:
    rough = {rate: float(np.median(each.roughness)) for rate, each in runs.items()}
    figures = ", ".join(f"{figure:.3f} with γ = {rate:g}" for rate, figure in rough.items())
    smoother = clearly_above(runs[0.75].roughness, runs[0.1].roughness)
    return Finding("γ = .1 is smooth (15 % of the agents)", HOLDS if smoother else FAILS, f"roughness {figures}")


def is_faster(runs: dict[float, Course]) -> Finding:
    # a run that never comes close counts as if it did in the round after a thousand
    slow, quick = (np.minimum(runs[rate].reached, 1000.0) for rate in (0.1, 0.2))
    verdict = HOLDS if clearly_above(slow, quick) else PARTLY if np.median(quick) < np.median(slow) else FAILS
    why = f"rounds to within 10 % of the limit: {runs[0.2].tell_reached()}; with γ = .1: {runs[0.1].tell_reached()}"
    return Finding("γ = .2 is faster", verdict, why)


def is_not_guaranteed(runs: dict[float, Course]) -> Finding:
    half, small = runs[0.5], runs[0.2]
    worse = clearly_above(half.late, small.late) or half.n_missed > small.n_missed
    why = (
        f"its later states are {half.late.mean():.3f} times the limit, those with γ = .2 {small.late.mean():.3f}; "
        f"averaged predictions end more than 10 % above the limit in {half.n_missed} of {len(half.end)} runs, with "
        f"γ = .2 in {small.n_missed}"
    )
    return Finding("γ = .5 does not guarantee convergence", HOLDS if worse else FAILS, why)


def is_unstable(runs: dict[float, Course]) -> Finding:
    most, best = runs[0.75], min((runs[rate] for rate in LEARNING_RATES[:-1]), key=lambda each: each.late.mean())
    rougher = clearly_above(most.roughness, runs[0.1].roughness)
    worse = clearly_above(most.late, best.late)
    verdict = HOLDS if rougher and worse else PARTLY if rougher or worse else FAILS
    why = (
        f"{np.median(most.roughness) / np.median(runs[0.1].roughness):.1f} times as rough as γ = .1; its later states "
        f"are {most.late.mean():.3f} times the limit, those of the best γ {best.late.mean():.3f}; averaged predictions "
        f"end at {most.end.mean():.3f}"
    )
    return Finding("γ = .75 is unstable", verdict, why)


def delta_beside_blend(records: Sequence[Record]) -> str:
    delta = ends(records, rule="delta")
    pairs = {f"γ = {rate:g}": (delta, ends(records, **key("corrected", rate))) for rate in LEARNING_RATES}
    return tell_excess("corrected blend", pairs)


FIGURE_B = Study("figure-b", "Figure (b): error by round", settings, measure, report)
