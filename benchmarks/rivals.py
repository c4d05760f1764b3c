"""Default fits against other tools, on S and M: seconds of the fit, and error on held-out events."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

import numpy as np

from benchmarks import rivals_python, rivals_r
from benchmarks.cost import fit
from benchmarks.problems import Split, draw_m, draw_s
from benchmarks.report import Contender, Findings, Options, Row, at_least, below, say, skipped
from benchmarks.rival_methods import Outcome, Rival, UnavailableError
from benchmarks.timing import seconds_of
from fedhlcr import HLCRRegressor
from fedhlcr.datasets import make_hlcr

SPEED_BOUND = 8
OURS, PAPERS = "fedhlcr", "fedhlcr, the paper's model"
FLEXMIX = "flexmix"
ON_S: dict[str, Rival] = {
    FLEXMIX: rivals_r.flexmix,
    "lme4": rivals_r.lme4,
    "LightGBM": rivals_python.lightgbm,
    "statsmodels": rivals_python.statsmodels,
    "NumPyro NUTS": rivals_python.nuts,
}
# On M the mixed models have 16 correlated slopes of 16,000 entities, and NUTS 16,000 weights: they take too long.
ON_M: dict[str, Rival] = {FLEXMIX: rivals_r.flexmix, "LightGBM": rivals_python.lightgbm}


def run(options: Options) -> Findings:
    compile_kernels()
    contenders = list(contest("S", draw_s(options.seed), ON_S, options))
    if not options.quick:
        contenders += contest("M", draw_m(options.seed), ON_M, options)
    return Findings(rows=rows_of(contenders), contenders=contenders)


def contest(name: str, split: Split, rivals: dict[str, Rival], options: Options) -> Iterator[Contender]:
    """Our fits before, between and after the rivals', so that a slow minute does not hit one side only."""
    models = {OURS: HLCRRegressor(), PAPERS: HLCRRegressor(effects="none", noise="common")}
    times: dict[str, list[float]] = {own: [] for own in models}

    def fit_ours() -> None:
        for own, model in models.items():
            times[own].append(seconds_of(partial(fit, model, split.train)))

    fit_ours()
    for rival, method in rivals.items():
        contender = met(name, rival, method, split, options.seed)
        say("rivals", f"{name}: {describe(contender)}")
        yield contender
        fit_ours()
    for own, model in models.items():
        predicted = model.predict(split.test.X, split.test.agent, split.test.entity)
        mse = float(np.mean((predicted - split.test.y) ** 2))
        contender = Contender(name, own, median(times[own]), mse, f"{model.n_clusters_} clusters found")
        say("rivals", f"{name}: {describe(contender)}")
        yield contender


def met(table: str, name: str, method: Rival, split: Split, seed: int) -> Contender:
    """A rival's outcome, or why there is none."""
    try:
        outcome: Outcome = method(split, seed)
    except UnavailableError as reason:
        return Contender(table, name, None, None, f"skipped: {reason}")
    return Contender(table, name, *outcome)


def describe(contender: Contender) -> str:
    if contender.seconds is None:
        return f"{contender.name} {contender.note}"
    return f"{contender.name} {contender.seconds:.2f} s, held-out MSE {contender.mse:.4f}; {contender.note}"


def rows_of(contenders: list[Contender]) -> list[Row]:
    """Against flexmix, where it ran; on S too little time is measured for a bound."""
    rows = []
    for table in dict.fromkeys(one.table for one in contenders):
        by_name = {one.name: one for one in contenders if one.table == table}
        ours, theirs = by_name[OURS], by_name[FLEXMIX]
        what = f"default fit on {table}, faster than one start of flexmix"
        if theirs.seconds is None or theirs.mse is None or ours.seconds is None or ours.mse is None:
            rows.append(skipped(what, theirs.note.removeprefix("skipped: ")))
            continue
        if table == "M":
            rows.append(at_least(what, theirs.seconds / ours.seconds, SPEED_BOUND))
        rows.append(below(f"default fit on {table}, held-out MSE against flexmix", ours.mse, theirs.mse))
    return rows


def compile_kernels() -> None:
    table, _ = make_hlcr(8, 3, 4, 2, 2, random_state=0)
    for model in (HLCRRegressor(), HLCRRegressor(effects="none", noise="common")):
        fit(model, table).predict(table.X, table.agent, table.entity)
