"""`fedhlcr demo`: fit a federation of airlines, show what it found, and compare it with other models.

The agents are airlines at an airport, the entities their routes, the events their flights. Which routes behave alike?
How well does the model predict held-out flights if no airline shares its flights, and what does that cost?
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedhlcr import FedHLCRRegressor, HLCRRegressor, hold_out_events
from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.console import make_printable
from fedhlcr._support.wording import CLUSTER, ROUND, Noun, byte_size, fine_percent, percent, three_decimals
from fedhlcr.analysis.effects import typical_levels
from fedhlcr.analysis.evaluation import Errors
from fedhlcr.analysis.rounds import describe_run, tabulate_rounds
from fedhlcr.analysis.summary import text_table
from fedhlcr.baselines import GroupedRidge, MixedModelRegressor
from fedhlcr.data.recipe import Recipe
from fedhlcr.datasets import HierarchicalData, load_airports, load_flights
from fedhlcr.exceptions import FedHLCRWarning
from fedhlcr.report import HeldOut, render_report
from fedhlcr.storage import atomic

PARTICIPATION, FAILURE_RATE = 0.3, 0.2
AIRLINE, ROUTE, TARGET = Noun("airline", "airlines"), Noun("route", "routes"), "minutes per 100 miles"
IDS = {"agent": AIRLINE.one, "entity": ROUTE.one}
# A route with fewer training flights is small.
FEW_FLIGHTS = 30
# Airlines, and rounds, with which everything is compiled before anything is timed: enough to run every kernel.
N_WARM_UP, WARM_UP_ROUNDS = 3, 61
# Clusters described, and routes named in each.
N_DESCRIBED, N_EXAMPLES = 4, 4
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip


class Method(NamedTuple):
    """A model to compare, and what leaves an airline when it is fitted."""

    name: str
    model: Any
    sent: str


class Result(NamedTuple):
    """How a method did: R² on all held-out flights and on those of small routes, and seconds to fit and predict."""

    name: str
    r2: float
    r2_small: float
    seconds: float
    sent: str


class Flights(NamedTuple):
    """Flights as a user's table has them: ids and features by name, and the target."""

    table: pa.Table
    y: FloatArray
    is_small: NDArray[np.bool_]

    @classmethod
    def of(cls, flights: HierarchicalData, small_routes: set[str]) -> Flights:
        ids = {AIRLINE.one: flights.agent, ROUTE.one: flights.entity}
        features = flights.to_arrow().select(flights.feature_names)
        columns = {**ids, **{name: features[name] for name in features.column_names}}
        return cls(pa.table(columns), flights.y, np.isin(flights.entity, sorted(small_routes)))


def main(page: Path = Path("demo-report.html"), *, rounds: int | None = None) -> None:
    """Run the demo and write the report to `page`; `rounds` is the maximum number of rounds, None for no maximum."""
    flights = load_flights()
    train_rows, test_rows = hold_out_events(flights.agent, flights.entity, random_state=0)
    routes, sizes = np.unique(flights.entity[train_rows], return_counts=True)
    small = set(routes[sizes < FEW_FLIGHTS].tolist())
    train, test = (Flights.of(flights[rows], small) for rows in (train_rows, test_rows))
    _introduce(flights)
    _warm_up(flights)
    federated, own = _fit_federation(train, test, rounds)
    results = [own, *(_measure(method, train, test) for method in _rivals())]
    _compare(results, sizes)
    _tell_cost(federated, own, results[1])
    lower, upper = federated.predict_interval(test.table)
    inside = float(np.mean((lower <= test.y) & (test.y <= upper)))
    print(f"\nThe federation found {CLUSTER.count(federated.n_clusters_)} of routes.")
    print(f"{fine_percent(inside)} of the held-out flights are inside its 90 % intervals.")
    _describe_clusters(federated)
    federated.recipe_ = Recipe(TARGET, AIRLINE.one, ROUTE.one, flights.feature_names)
    ids = test.table[AIRLINE.one].to_numpy(), test.table[ROUTE.one].to_numpy()
    held_out, airports = HeldOut(test.table.select(flights.feature_names), test.y, *ids), load_airports()
    # the last three letters of a route are its destination
    report = render_report(federated, held_out, places=lambda route: airports.get(route[-3:]))
    atomic.replace_file(page, report.encode())
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


def _warm_up(flights: HierarchicalData) -> None:
    """Compile the kernels on a few flights, so that the times below are those of the work alone."""
    print("Warming up. The first time it compiles, which may take a minute or two ...", end=" ", flush=True)
    start = time.perf_counter()
    few = flights[np.isin(flights.agent, np.unique(flights.agent)[:N_WARM_UP])]
    sample = Flights.of(few, set())
    with _silently():
        for model in (FedHLCRRegressor(rounds=WARM_UP_ROUNDS), *(method.model for method in _rivals())):
            model.fit(sample.table, sample.y, **IDS).predict(sample.table, **_ids_for(model))
            if hasattr(model, "predict_interval"):
                model.predict_interval(sample.table)
    print(f"done in {time.perf_counter() - start:.0f} s. The times below are without it.\n", flush=True)


@contextmanager
def _silently() -> Iterator[None]:
    """Without warnings about a table that is too small, and without the note about compiling, which was printed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FedHLCRWarning)
            yield
    finally:
        logging.disable(before)


def _fit_federation(train: Flights, test: Flights, rounds: int | None) -> tuple[FedHLCRRegressor, Result]:
    """Fit it, show its rounds, and return it with its result."""
    model = FedHLCRRegressor(participation=PARTICIPATION, failure_rate=FAILURE_RATE, rounds=rounds, verbose=True)
    result = _measure(Method("federated HLCR", model, "sums by cluster"), train, test, validation=(test.table, test.y))
    sys.stderr.flush()
    print("\n" + text_table(*tabulate_rounds(model, float(np.var(test.y)))) + "\n")
    print(describe_run(model)[0])
    return model, result


def _rivals() -> tuple[Method, ...]:
    return (
        Method("centralised HLCR", HLCRRegressor(), "every flight"),
        Method("mixed model, as lme4", MixedModelRegressor(), "every flight"),
        Method("one ridge for all", GroupedRidge("all"), "every flight"),
        Method("one ridge per airline", GroupedRidge("agent"), "nothing"),
        Method("one ridge per route", GroupedRidge("entity"), "nothing"),
    )


def _measure(method: Method, train: Flights, test: Flights, **more: Any) -> Result:
    """Fit a model and score it on the held-out flights."""
    start = time.perf_counter()
    method.model.fit(train.table, train.y, **IDS, **more)
    predicted = method.model.predict(test.table, **_ids_for(method.model))
    seconds = time.perf_counter() - start
    r2, small = (Errors.of(test.y[rows], predicted[rows]).r2 for rows in (slice(None), test.is_small))
    return Result(method.name, r2, small, seconds, method.sent)


def _ids_for(model: Any) -> dict[str, str]:
    """Models of fedhlcr remember the columns with ids; its rivals are told again."""
    return {} if hasattr(model, "agent_column_") else IDS


def _compare(results: list[Result], sizes: NDArray[np.int64]) -> None:
    """The table of all models, and what it says about these flights."""
    rows = [(r.name, three_decimals(r.r2), three_decimals(r.r2_small), f"{r.seconds:.1f}", r.sent) for r in results]
    header = ("model", "R²", f"R², routes under {FEW_FLIGHTS} flights", "seconds", "what left the airlines")
    print("\nShare of the held-out flights' variance explained:")
    print(text_table(header, tuple(rows)))
    own, best = results[0], max(results, key=lambda r: r.r2)
    of_small = max(results, key=lambda r: r.r2_small)
    # differences are those of the figures in the table
    print(f"\n{_best_in_words(best, own, round(best.r2, 3) - round(own.r2, 3), 'Best on all flights')}")
    print(
        f"Half of the routes have {np.median(sizes):.0f} flights or more to train on, enough for a regression of their "
        "own."
    )
    ahead = round(of_small.r2_small, 3) - round(own.r2_small, 3)
    print(_best_in_words(of_small, own, ahead, "Best on small routes"))


def _best_in_words(best: Result, own: Result, gap: float, where: str) -> str:
    if best is own:
        return f"{where}: the federation."
    return f"{where}: {best.name}, {three_decimals(gap)} of R² ahead of the federation."


def _tell_cost(model: FedHLCRRegressor, own: Result, central: Result) -> None:
    """What the federation cost, what it saved, and what it does not hide."""
    n_airlines, gap = len(model.agent_ids_), round(own.r2, 3) - round(central.r2, 3)
    up, down = (byte_size(model.history_[name].sum() / n_airlines) for name in ("bytes_up", "bytes_down"))
    accuracy = f"{_signed(gap, 3)} of R² against the centralised fit of the same model"
    print(
        "\nWhat the federation costs:\n"
        f"  {ROUND.count(model.n_rounds_)}; {up} up and {down} down for each airline, on average\n"
        f"  {own.seconds:.1f} s of computing here, where the centralised fit took {central.seconds:.1f} s; a network "
        "adds its delays\n"
        f"  {accuracy}\n"
        "Why federate: a mixed model or the centralised fit needs every flight in one place. A ridge per route needs\n"
        "  no exchange, but it cannot predict a new route and does not show which routes are alike.\n"
        "Privacy: flights never leave their airline, but sums do, and a curious server can infer much about single\n"
        "  routes from them (`fedhlcr audit` shows how much). Secure aggregation hides the sums of single airlines;\n"
        "  differential privacy adds noise to them, at a price in accuracy."
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
        print(f"\n  … and {rest} smaller ones. The report shows all of them.")


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


def _signed(value: float, decimals: int = 2) -> str:
    return f"{value:+z.{decimals}f}".replace("-", "−")


if __name__ == "__main__":
    make_printable()
    main()
