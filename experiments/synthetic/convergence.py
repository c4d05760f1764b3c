"""Rounds and bytes that federated methods take to within 5 % of where they end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import markdown
from experiments.study import FAILS, HOLDS, PARTLY, Figures, Finding, Record, Report, Settings, Study
from experiments.synthetic.data import N_FOLDS, SAME, Fold, folds, synth_hlcr
from experiments.synthetic.federations import RULE_NAMES, RULES, Watched, settings_of, watch
from experiments.synthetic.figure_b import LEARNING_RATES, NOISE_SCALE, SIZE
from experiments.synthetic.measuring import LIMIT, cell, ends, select
from experiments.synthetic.measuring import measure as measure_limit

RIVALS = {
    "ifca-agent": "IFCA by agent",
    "ifca-entity": "IFCA by entity",
    "fedem": "soft federated EM",
    "fedavg": "FedAvg, linear",
    "fedprox": "FedProx, linear",
    "fedavg-network": "FedAvg, network",
    "fedprox-network": "FedProx, network",
}
PARTICIPATIONS = (1.0, 0.15)
CLOSE = 1.05
# networks have long settled by then
MOST_NETWORK_ROUNDS = 50


class Convergence(NamedTuple):
    """Where a run ended, when it first stayed within 5 % of that, and what had travelled by then."""

    end: float
    rounds: int
    bytes: int


def settings(full: bool) -> list[Settings]:
    shared: dict[str, Any] = {"n_rounds": 150 if full else 60}
    cells = []
    for seed in range(3 if full else 1):
        cells.append({"method": LIMIT, "learning_rate": 0.0, "participation": 1.0, "seed": seed, **shared})
        for share in PARTICIPATIONS:
            methods = [("delta", 0.0), *((name, 0.0) for name in RIVALS)]
            methods += [(rule, rate) for rule in RULES[:2] for rate in LEARNING_RATES]
            cells += [
                {"method": name, "learning_rate": rate, "participation": share, "seed": seed, **shared}
                for name, rate in methods
            ]
    return cells


def measure(*, method: str, learning_rate: float, participation: float, seed: int, n_rounds: int) -> Figures:
    """Means over the five folds."""
    if method == LIMIT:
        return measure_limit(**cell(SIZE, NOISE_SCALE, LIMIT, seed))
    table, _ = synth_hlcr(SIZE, NOISE_SCALE, seed)
    if method in RULES:
        settings = settings_of(method, SIZE, NOISE_SCALE, learning_rate)
        runs = [
            watch(fold, settings, participation=participation, n_rounds=n_rounds, seed=seed)
            for fold in folds(table, seed)
        ]
        figures = means([converged(run.running, run.traffic) for run in runs])
        # the paper looks at a round's own state, not at the mean over rounds
        return {**figures, "states": [first_close_state(run) for run in runs]}
    rivals = (make_rival(method, participation, n_rounds, seed) for _ in range(N_FOLDS))
    return means([converged(*watch_rival(rival, fold)) for rival, fold in zip(rivals, folds(table, seed), strict=True)])


def means(found: Sequence[Convergence]) -> Figures:
    return dict(zip(Convergence._fields, np.mean(found, axis=0).tolist(), strict=True))


def first_close_state(run: Watched) -> int:
    """The first round whose own state is within 10 % of where averaged predictions end; the last if there is none."""
    close = np.array(run.each) < 1.1 * run.running[-1]
    return 1 + int(close.argmax()) if close.any() else len(close)


def converged(errors: Sequence[float], traffic: Sequence[int]) -> Convergence:
    """From the error after each round, and the bytes up to each."""
    far = np.flatnonzero(np.array(errors) > CLOSE * errors[-1])
    first = 0 if not len(far) else int(far[-1]) + 1
    return Convergence(errors[-1], first + 1, int(traffic[first]))


def watch_rival(rival: Any, fold: Fold) -> tuple[list[float], list[int]]:
    train, test = fold
    rival.fit(train.X, train.y, agent=train.agent, entity=train.entity)
    staged: Iterator[np.ndarray] = rival.staged_predict(test.X, agent=test.agent, entity=test.entity)
    errors = [float(np.mean((predicted - test.y) ** 2)) for predicted in staged]
    return errors, np.cumsum(rival.bytes_per_round_).tolist()


def make_rival(name: str, participation: float, n_rounds: int, seed: int) -> Any:
    """Clustered rivals are given the true number of clusters, as blend is."""
    from fedhlcr.baselines import FedAvgNetworkRegressor, FedAvgRegressor, FedEMRegressor, IFCARegressor

    shared: dict[str, Any] = {"participation": participation, "random_state": seed}
    proximal = "auto" if name.startswith("fedprox") else 0.0
    if name.startswith("ifca"):
        return IFCARegressor(SIZE.clusters, level=name.removeprefix("ifca-"), max_iter=n_rounds, **shared)
    if name == "fedem":
        return FedEMRegressor(SIZE.clusters, max_iter=n_rounds, **shared)
    if name.endswith("network"):
        return FedAvgNetworkRegressor(n_rounds=min(n_rounds, MOST_NETWORK_ROUNDS), proximal=proximal, **shared)
    return FedAvgRegressor(n_rounds=n_rounds, proximal=proximal, **shared)


def report(records: Sequence[Record], gallery: markdown.Gallery) -> Report:  # noqa: ARG001
    seeds = sorted({record.settings["seed"] for record in records})
    n_rounds = records[0].settings["n_rounds"]
    text = (
        f"{SAME}. {SIZE}, σ = {NOISE_SCALE}; at most {n_rounds} rounds, data and algorithm seeds "
        f"{seeds[0]}–{seeds[-1]}. *Rounds* is the first round after which the held-out error stays within 5 % of its "
        "final value. *MB* is what has travelled until then, up and down, for all agents together: for FedHLCR whole "
        "messages and the survey before the first round; for the other methods only their numbers, eight bytes each "
        "(four in a network), and no survey. Blend is given the true K and hyperparameters, clustered baselines the "
        "true K; delta learns all of them. For baselines with several starts only the best start is counted, and no "
        f"search for settings. Networks take {MOST_NETWORK_ROUNDS} rounds at most."
    )
    parts = [text]
    for share in PARTICIPATIONS:
        who = "All agents in every round" if share == 1.0 else f"{share:.0%} of the agents in every round"
        parts += [f"{who}:", table(records, share)]
    return Report("\n\n".join(parts), (ten_rounds(records),))


def table(records: Sequence[Record], share: float) -> str:
    limit = ends(records, method=LIMIT)
    methods = dict.fromkeys(
        (record.settings["method"], record.settings["learning_rate"])
        for record in records
        if record.settings["method"] != LIMIT
    )
    rows = []
    for method, rate in methods:
        if share == 1.0 and method == "published":
            continue  # with all agents there is nothing to correct
        runs = [record.figures for record in select(records, method=method, learning_rate=rate, participation=share)]
        name = "blend" if share == 1.0 and method == "corrected" else RULE_NAMES.get(method) or RIVALS[method]
        rows.append(
            (
                f"{name}, γ = {rate:g}" if rate else name,
                markdown.mean_and_error([run["end"] for run in runs] / limit),
                f"{np.mean([run['rounds'] for run in runs]):.0f}",
                f"{np.mean([run['bytes'] for run in runs]) / 1e6:.3g}",
            )
        )
    return markdown.table(("method", "MSE at the end / limit", "rounds", "MB"), rows)


def ten_rounds(records: Sequence[Record]) -> Finding:
    limit = ends(records, method=LIMIT)
    n_good, counts = 0, []
    for rate in LEARNING_RATES:
        runs = select(records, method="published", learning_rate=rate, participation=1.0)
        rounds = np.concatenate([run.figures["states"] for run in runs])
        end = float(np.mean([run.figures["end"] for run in runs] / limit))
        quick = f"{(rounds < 10).sum()} of {len(rounds)}"
        counts.append(
            f"with γ = {rate:g} {quick} (median {np.median(rounds):.0f} rounds; the end is {end:.2f} times the limit)"
        )
        # to be quick is not enough: a run may be stuck at once
        n_good += np.median(rounds) < 10 and end < 1.1
    verdict = HOLDS if n_good == len(LEARNING_RATES) else PARTLY if n_good else FAILS
    why = f"runs that have a state within 10 % of their end in fewer than 10 rounds: {', '.join(counts)}"
    return Finding("fewer than 10 rounds are enough with all agents", verdict, why)


CONVERGENCE = Study("convergence", "Rounds and bytes of federated methods", settings, measure, report)
