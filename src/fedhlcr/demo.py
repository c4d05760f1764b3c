"""`make demo`: the bundled flights, fitted and told.

Airlines at an airport are the agents, their routes the entities, flights the events. Which routes fly
alike, and how well does that predict flights not yet seen?
"""

from __future__ import annotations

import sys
import time

import numpy as np

from fedhlcr import HLCRRegressor, hold_out_events
from fedhlcr.arrays import FloatArray
from fedhlcr.baselines import GroupedRidge
from fedhlcr.datasets import load_flights
from fedhlcr.summary import text_table, typical_levels

N_TOLD = 8
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip


def main() -> None:
    flights = load_flights()
    train_rows, test_rows = hold_out_events(flights.agent, flights.entity, random_state=0)
    train, test = flights[train_rows], flights[test_rows]
    print(
        f"{len(flights):,} flights on {len(set(flights.entity))} routes of {len(set(flights.agent))} airlines at an "
        f"airport.\nTarget: minutes in the air per 100 miles. A fifth of each route's flights is held out.\n",
        flush=True,
    )
    hlcr = HLCRRegressor(verbose=True)
    models: dict[str, HLCRRegressor | GroupedRidge] = {
        "one ridge for all": GroupedRidge("all"),
        "one ridge per airline": GroupedRidge("agent"),
        "one ridge per route": GroupedRidge("entity"),
        "HLCR": hlcr,
    }
    rows = []
    for name, model in models.items():
        start = time.perf_counter()
        model.fit(train.X, train.y, agent=train.agent, entity=train.entity)
        r2 = model.score(test.X, test.y, agent=test.agent, entity=test.entity)
        rows.append((name, f"{r2:.3f}", f"{time.perf_counter() - start:.1f}"))
    sys.stderr.flush()
    print("\nShare of the held-out flights' variance explained:")
    print(text_table(("model", "R²", "seconds"), tuple(rows)))
    lower, upper = hlcr.predict_interval(test.X, agent=test.agent, entity=test.entity)
    inside = np.mean((lower <= test.y) & (test.y <= upper))
    print(f"\nHLCR found {hlcr.n_clusters_} clusters of routes.")
    print(f"Of the held-out flights {100 * inside:.1f} % lie in its 90 % intervals.\n")
    _tell_clusters(hlcr)


def _tell_clusters(model: HLCRRegressor) -> None:
    """Sentences on the largest clusters, largest first."""
    n_routes = np.bincount(model.labels_, minlength=model.n_clusters_)
    levels = typical_levels(model)
    largest = np.argsort(-n_routes, kind="stable")[:N_TOLD]
    print(f"The {len(largest)} largest clusters of routes:")
    for place, k in enumerate(largest, start=1):
        # one route of each airline at most, so that the examples tell more
        routes = {
            pair[0][:2]: pair[1] for pair, label in zip(model.pair_ids_, model.labels_, strict=True) if label == k
        }
        print(
            f"\n {place}. {n_routes[k]} routes, such as {', '.join(list(routes.values())[:4])}:\n"
            f"    {levels[k]:.1f} minutes per 100 miles on an average flight.\n    " + _effects(model.coef_[k])
        )
    rest = model.n_clusters_ - len(largest)
    if rest > 0:
        print(f"\n … and {rest} smaller ones. `HLCRRegressor.summary()` shows all.")


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
    return f"{value:+.2f}".replace("-", "−")


if __name__ == "__main__":
    main()
