"""`make demo`: fit a federation of airlines, and show what it found.

The agents are airlines at an airport, the entities their routes, the events their flights. Which routes behave alike?
How well does the model predict held-out flights if no airline shares its flights?
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedhlcr import FedHLCRRegressor, HLCRRegressor, hold_out_events
from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import CLUSTER, ROUND, Noun, byte_size, fine_percent, listed, percent
from fedhlcr.analysis.effects import typical_levels
from fedhlcr.analysis.rounds import describe_run, tabulate_rounds
from fedhlcr.analysis.summary import text_table
from fedhlcr.baselines import GroupedRidge, MixedModelRegressor
from fedhlcr.data.recipe import Recipe
from fedhlcr.datasets import HierarchicalData, load_airports, load_flights
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT
from fedhlcr.report import HeldOut, render_report
from fedhlcr.storage import atomic

PARTICIPATION, FAILURE_RATE = 0.3, 0.2
ROUTE = Noun("route", "routes")
# Clusters described, and routes named in each.
N_DESCRIBED, N_EXAMPLES = 4, 4
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip


class Method(NamedTuple):
    """A model to compare, and what leaves an airline when it is fitted."""

    name: str
    model: Any
    sent: str


def main(page: Path = Path("demo-report.html")) -> None:
    flights = load_flights()
    train_rows, test_rows = hold_out_events(flights.agent, flights.entity, random_state=0)
    train, test = flights[train_rows], flights[test_rows]
    _introduce(flights)
    federated, r2, seconds = _fit_federation(train, test)
    sent = f"sums by cluster, {byte_size(federated.history_['bytes_up'].sum())}"
    rows = [("federated HLCR", f"{r2:.3f}", f"{seconds:.1f}", sent), *_fit_rivals(train, test)]
    print("\nShare of the held-out flights' variance explained:")
    print(text_table(("model", "R²", "seconds", "what left the airlines"), tuple(rows)))
    flights_per_route = np.median(np.unique(train.entity, return_counts=True)[1])
    print(f"Half of the routes have {flights_per_route:.0f} flights or more to train on.")
    X_test = _features(test)
    lower, upper = federated.predict_interval(X_test, agent=test.agent, entity=test.entity)
    inside = float(np.mean((lower <= test.y) & (test.y <= upper)))
    print(f"\nThe federation found {CLUSTER.count(federated.n_clusters_)} of routes.")
    print(f"{fine_percent(inside)} of the held-out flights are inside its 90 % intervals.")
    _warn_of_disagreement(federated)
    _describe_clusters(federated)
    federated.recipe_ = Recipe("minutes per 100 miles", "airline", "route", flights.feature_names)
    airports = load_airports()
    html = render_report(
        federated,
        HeldOut(X_test, test.y, test.agent, test.entity),
        # the last three letters of a route are its destination
        places=lambda route: airports.get(route[-3:]),
    )
    atomic.replace_file(page, html.encode())
    print(f"\nThe full report is in {page}. Open it in a browser.")


def _introduce(flights: HierarchicalData) -> None:
    print(
        f"Data: {len(flights):,} flights on {len(set(flights.entity))} routes of {len(set(flights.agent))} airlines.\n"
        "An agent is one airline at one airport of New York; its routes are the entities, its flights the events.\n"
        "Target: minutes in the air per 100 miles. A fifth of each route's flights is held out.\n\n"
        "A federation: every airline keeps its flights. In each round a server asks "
        f"{percent(PARTICIPATION)} of the airlines for sums.\nOf the airlines asked, {percent(FAILURE_RATE)} fail: "
        "they do not answer, their answer is lost, or it comes too late.\n",
        flush=True,
    )


def _features(table: HierarchicalData) -> Any:
    return table.to_arrow().select(table.feature_names)


def _fit_federation(train: HierarchicalData, test: HierarchicalData) -> tuple[FedHLCRRegressor, float, float]:
    """Fit it, show its rounds, and return it with its R² and the seconds it took."""
    model = FedHLCRRegressor(participation=PARTICIPATION, failure_rate=FAILURE_RATE, verbose=True)
    validation = (_features(test), test.y, test.agent, test.entity)
    start = time.perf_counter()
    model.fit(_features(train), train.y, agent=train.agent, entity=train.entity, validation=validation)
    r2 = model.score(_features(test), test.y, agent=test.agent, entity=test.entity)
    seconds = time.perf_counter() - start
    sys.stderr.flush()
    print("\n" + text_table(*tabulate_rounds(model, float(np.var(test.y)))) + "\n")
    print("\n".join(describe_run(model)) + " The flights stayed with the airlines.")
    return model, r2, seconds


def _fit_rivals(train: HierarchicalData, test: HierarchicalData) -> list[tuple[str, ...]]:
    """A row of the comparison for each other model."""
    rows: list[tuple[str, ...]] = []
    for name, model, sent in (
        Method("centralised HLCR", HLCRRegressor(), "every flight"),
        Method("mixed model, as lme4", MixedModelRegressor(), "every flight"),
        Method("one ridge for all", GroupedRidge("all"), "every flight"),
        Method("one ridge per airline", GroupedRidge("agent"), "nothing"),
        Method("one ridge per route", GroupedRidge("entity"), "nothing"),
    ):
        start = time.perf_counter()
        model.fit(_features(train), train.y, agent=train.agent, entity=train.entity)
        r2 = model.score(_features(test), test.y, agent=test.agent, entity=test.entity)
        rows.append((name, f"{r2:.3f}", f"{time.perf_counter() - start:.1f}", sent))
    return rows


def _warn_of_disagreement(model: FedHLCRRegressor) -> None:
    """Say which quantities had not settled, as the report does."""
    apart = [f"{d.quantity} {d.r_hat:.2f}" for d in model.diagnostics_ if d.r_hat > R_HAT_LIMIT]
    if apart:
        print(
            f"Not everything had settled after {ROUND.count(model.n_rounds_)}. R-hat is above {R_HAT_LIMIT} for: "
            f"{listed(apart)}.\nA larger `patience` lets the run go on for longer."
        )


def _describe_clusters(model: FedHLCRRegressor) -> None:
    """Describe the largest clusters, which have the lowest numbers."""
    n_routes, levels = np.bincount(model.labels_, minlength=model.n_clusters_), typical_levels(model)
    n_shown = min(N_DESCRIBED, model.n_clusters_)
    print(f"\nThe {n_shown} largest clusters:" if n_shown > 1 else "\nThe cluster:")
    for k in range(n_shown):
        own = [pair for pair, label in zip(model.pair_ids_, model.labels_, strict=True) if label == k]
        # at most one route of each airline, for variety
        examples = list({agent[:2]: route for agent, route in own}.values())[:N_EXAMPLES]
        print(
            f"\n  Cluster {k}: {ROUTE.count(n_routes[k])}, such as {', '.join(examples)}.\n"
            f"    {levels[k]:.1f} minutes per 100 miles on an average flight.\n    " + _describe_effects(model.coef_[k])
        )
    rest = model.n_clusters_ - n_shown
    if rest > 0:
        print(f"\n  … and {rest} smaller ones. `model.summary()` shows all of them.")


def _describe_effects(coef: FloatArray) -> str:
    """The coefficients of one cluster in words, in the order of `load_flights`' features."""
    delay, sin_hour, cos_hour, sin_year, cos_year, log_distance = coef
    hour = np.arctan2(sin_hour, cos_hour) / (2 * np.pi) % 1.0
    month = MONTHS[int(12 * (np.arctan2(sin_year, cos_year) / (2 * np.pi) % 1.0))]
    return (
        f"Slowest in {month} ({_signed(np.hypot(sin_year, cos_year))}) and at {24 * hour:02.0f}:00 "
        f"({_signed(np.hypot(sin_hour, cos_hour))}).\n    "
        f"Twice the distance: {_signed(np.log(2) * log_distance)}. A delay of one hour: {_signed(60 * delay)}."
    )


def _signed(value: float) -> str:
    return f"{value:+z.2f}".replace("-", "−")


if __name__ == "__main__":
    main()
