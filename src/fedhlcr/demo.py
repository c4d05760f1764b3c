"""`make demo`: a federation of airlines, fitted and told.

Airlines at an airport are the agents, their routes the entities, flights the events. Which routes fly alike, and how
well does that predict flights not yet seen, if no airline shows its flights to anyone?
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from fedhlcr import FedHLCRRegressor, HLCRRegressor, hold_out_events
from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import CLUSTER, ROUND
from fedhlcr.analysis.summary import text_table, typical_levels
from fedhlcr.baselines import GroupedRidge
from fedhlcr.data.recipe import Recipe
from fedhlcr.datasets import load_flights
from fedhlcr.report import HeldOut, render_report
from fedhlcr.storage import atomic

PARTICIPATION, FAILURE_RATE = 0.3, 0.2
TRAVELLED = {
    "federated HLCR": "",
    "centralised HLCR": "every flight",
    "one ridge for all": "every flight",
    "one ridge per airline": "nothing",
}
N_TOLD = 4
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip


def main(page: Path = Path("demo-report.html")) -> None:
    flights = load_flights()
    train_rows, test_rows = hold_out_events(flights.agent, flights.entity, random_state=0)
    train, test = flights[train_rows], flights[test_rows]
    n_agents = len(set(flights.agent))
    print(
        f"{len(flights):,} flights on {len(set(flights.entity))} routes. "
        f"Agents: {n_agents} airlines, each at one airport of New York.\n"
        "Target: minutes in the air per 100 miles. A fifth of each route's flights is held out.\n\n"
        "A federation of the airlines: each keeps its flights. "
        f"Every round a server asks {100 * PARTICIPATION:.0f} % of them;\nof these {100 * FAILURE_RATE:.0f} % fail: "
        "they do not answer, or their answer is lost, or it comes too late.\n",
        flush=True,
    )
    federated = FedHLCRRegressor(participation=PARTICIPATION, failure_rate=FAILURE_RATE, verbose=True)
    X_train, X_test = (part.to_arrow().select(part.feature_names) for part in (train, test))
    held_out = {"validation": (X_test, test.y, test.agent, test.entity)}
    models: dict[str, tuple[Any, dict[str, Any]]] = {
        "federated HLCR": (federated, held_out),
        "centralised HLCR": (HLCRRegressor(), {}),
        "one ridge for all": (GroupedRidge("all"), {}),
        "one ridge per airline": (GroupedRidge("agent"), {}),
    }
    rows = []
    for name, (model, more) in models.items():
        start = time.perf_counter()
        model.fit(X_train, train.y, agent=train.agent, entity=train.entity, **more)
        r2 = model.score(X_test, test.y, agent=test.agent, entity=test.entity)
        rows.append([name, f"{r2:.3f}", f"{time.perf_counter() - start:.1f}", TRAVELLED[name]])
        if model is federated:
            sys.stderr.flush()
            rows[-1][-1] = _tell_rounds(federated, float(np.var(test.y)))
    print("\nShare of the held-out flights' variance explained:")
    print(text_table(("model", "R²", "seconds", "what left the airlines"), tuple(tuple(row) for row in rows)))
    lower, upper = federated.predict_interval(X_test, agent=test.agent, entity=test.entity)
    inside = np.mean((lower <= test.y) & (test.y <= upper))
    print(f"\nThe federation found {CLUSTER.count(federated.n_clusters_)} of routes.")
    print(f"Of the held-out flights {100 * inside:.1f} % lie in its 90 % intervals.\n")
    _tell_clusters(federated)
    federated.recipe_ = Recipe("minutes per 100 miles", "airline", "route", flights.feature_names)
    atomic.replace_file(page, render_report(federated, HeldOut(X_test, test.y, test.agent, test.entity)).encode())
    print(f"\nAll of it on a page, to be opened in a browser: {page}")


def _tell_rounds(model: FedHLCRRegressor, variance: float) -> str:
    """A line for some of the rounds, and what travelled in all of them."""
    history = model.history_
    last = len(history) - 1
    shown = sorted({*range(1, min(last, 5)), *range(5, last, max(5, last // 8)), last})
    rows = tuple(
        (
            str(record["round"]),
            f"{record['n_accepted']} of {record['n_asked']}",
            str(record["n_clusters"]),
            f"{record['noise_scale']:.3f}",
            str(record["labels_changed"]),
            f"{(record['bytes_down'] + record['bytes_up']) / 1e3:,.0f}",
            f"{1.0 - record['validation_mse'] / variance:.3f}",
        )
        for record in history[shown]
    )
    print("\n" + text_table(("round", "answered", "clusters", "noise", "labels changed", "kB", "held-out R²"), rows))
    up, down = history["bytes_up"].sum() / 1e6, history["bytes_down"].sum() / 1e6
    print(f"\nEnded after {ROUND.count(model.n_rounds_)}: {model.stop_reason_}.")
    print(f"Travelled: {up:.1f} MB of sums up, {down:.1f} MB of coefficients down; the flights stayed where they are.")
    return f"sums by cluster, {up:.1f} MB"


def _tell_clusters(model: FedHLCRRegressor) -> None:
    """Sentences on the largest clusters, which come first."""
    n_routes, levels = np.bincount(model.labels_, minlength=model.n_clusters_), typical_levels(model)
    n_shown = min(N_TOLD, model.n_clusters_)
    print(f"The {n_shown} largest clusters of routes:")
    for k in range(n_shown):
        # one route of each airline at most, so that the examples tell more
        routes = {
            pair[0][:2]: pair[1] for pair, label in zip(model.pair_ids_, model.labels_, strict=True) if label == k
        }
        print(
            f"\n Cluster {k}: {n_routes[k]} routes, such as {', '.join(list(routes.values())[:4])}.\n"
            f"    {levels[k]:.1f} minutes per 100 miles on an average flight.\n    " + _effects(model.coef_[k])
        )
    rest = model.n_clusters_ - n_shown
    if rest > 0:
        print(f"\n … and {rest} smaller ones. `FedHLCRRegressor.summary()` shows all of them.")


def _effects(coef: FloatArray) -> str:
    """The coefficients of one cluster in words, in the order of `load_flights`' features."""
    delay, sin_hour, cos_hour, sin_year, cos_year, log_distance = coef
    hour = np.arctan2(sin_hour, cos_hour) / (2 * np.pi) % 1.0
    month = MONTHS[int(12 * (np.arctan2(sin_year, cos_year) / (2 * np.pi) % 1.0))]
    return (
        f"Slowest in {month} (by {np.hypot(sin_year, cos_year):.2f} over the year's mean) and at "
        f"{24 * hour:02.0f} h (by {np.hypot(sin_hour, cos_hour):.2f});\n    "
        f"{_signed(np.log(2) * log_distance)} for twice the distance, {_signed(60 * delay)} for a delay of an hour."
    )


def _signed(value: float) -> str:
    return f"{value:+z.2f}".replace("-", "−")


if __name__ == "__main__":
    main()
