"""`fedhlcr demo`: stations of airlines learn from each other, and none of them shows its flights.

An agent is a station: an airline at one airport of New York. The entities are its routes, the events their flights. A
station knows few flights of each route, and some routes are new. What does a federation find, how sure is it, what do a
station alone and models of all flights in one place make of the same flights, and what does the federation cost?
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.console import make_printable
from fedhlcr._support.wording import CLUSTER, ROUND, Noun, byte_size, listed, percent, three_decimals
from fedhlcr.analysis.facts import SURE
from fedhlcr.analysis.regressions import KnownEntities, Predicted, predict_by_entity, predict_by_one
from fedhlcr.analysis.rounds import FederatedRun
from fedhlcr.analysis.scores import scores_of
from fedhlcr.analysis.simpler import MIXED_MODEL, ONE_RIDGE, SimplerModels
from fedhlcr.analysis.summary import text_table
from fedhlcr.analysis.verdict import compare_densities
from fedhlcr.analysis.words import how_sure, members_in_words, mixed_group
from fedhlcr.data.families import REAL
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.datasets import load_airports, load_flights
from fedhlcr.exceptions import FedHLCRWarning
from fedhlcr.kernels import ahead
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.report import HeldOut, render_report
from fedhlcr.report.findings import Findings
from fedhlcr.storage import atomic

STATION = Noun("station", "stations")
ROUTE = Noun("route", "routes")
TARGET = "minutes per 100 miles"
IDS = {"agent": STATION.one, "entity": ROUTE.one}
# Known flights of a route: fewer than the seven coefficients of a regression of its own. Every fifth route is new; of
# the other flights, every fifth is predicted.
N_KNOWN = 6
NEW_EVERY = 5
PREDICTED_EVERY = 5
FEDERATED: dict[str, Any] = {"participation": 0.3, "failure_rate": 0.2}
# Each station's own fits are small, and as accurate as with twice as many sweeps, which is the default.
ALONE: dict[str, Any] = {"n_sweeps": 100}
LEVEL = 0.9
# Fewest and most characters in a line; clusters described, and cities named in each.
NARROWEST = 60
WIDTH = 100
N_DESCRIBED = 3
N_CITIES = 4
# The map: lines and columns, its corners and New York as latitude and longitude.
MAP_SIZE = (16, 66)
NORTH_WEST = (48.0, -125.0)
SOUTH_EAST = (17.5, -64.0)
NEW_YORK = (40.7, -73.9)
TITLE = "Which routes from New York are alike?"


class Prediction(NamedTuple):
    """What a model says of the flights to predict, (flights,) each, and what leaves a station for it."""

    name: str
    mean: FloatArray
    lower: FloatArray
    upper: FloatArray
    sent: str


class Flights(NamedTuple):
    """The flights to predict: their targets and routes, and which of the routes are new."""

    y: FloatArray
    route: NDArray[Any]
    is_new: NDArray[np.bool_]


def load_tables() -> tuple[pa.Table, pa.Table]:
    """Load the flights that the stations know, and the flights to predict: real ones, chosen by a fixed rule.

    The log of a route, in order of date, has six equal parts. The flight in the middle of each is known. Of all other
    flights every fifth is to be predicted. Every fifth route is new: none of its flights is known, unless the station
    has no other route.
    """
    flights = load_flights()
    _, first, sizes = np.unique(flights.entity, return_index=True, return_counts=True)
    n_routes = Counter(flights.agent[first].tolist())
    known = []
    predicted = []
    for n, (start, size) in enumerate(zip(first, sizes, strict=True), start=1):
        middles = start + ((np.arange(N_KNOWN) + 0.5) * size / N_KNOWN).astype(int)
        predicted.append(np.setdiff1d(np.arange(start, start + size), middles)[::PREDICTED_EVERY])
        if n % NEW_EVERY or n_routes[flights.agent[start]] == 1:
            known.append(middles)
    table = flights.to_arrow().rename_columns([*IDS.values(), *flights.feature_names, TARGET])
    train, test = (table.take(pa.array(np.concatenate(rows))) for rows in (known, predicted))
    return train, test


def main(page: Path = Path("demo-report.html"), *, rounds: int | None = None, verbose: bool = True) -> None:
    """Run the demo and write the report to `page`.

    `rounds` is the maximum number of rounds, None for no maximum; `verbose` shows the progress of the federation.
    """
    train, test = load_tables()
    route = test[ROUTE.one].to_numpy()
    flights = Flights(test[TARGET].to_numpy(), route, ~np.isin(route, train[ROUTE.one].to_numpy()))
    _introduce(train, flights)
    # so that the times below are those of the work alone
    ahead.load(ahead.for_fits("mixed, entity noise", federated=True))
    settings = FEDERATED if rounds is None else FEDERATED | {"rounds": rounds}
    federated, seconds = _fit(FedHLCRRegressor(**settings, verbose=verbose), train)
    sys.stderr.flush()
    central, central_seconds = _fit(HLCRRegressor(), train)
    own = _predict("federated HLCR", federated, test, "sums by cluster")
    pooled = _predict("centralised HLCR", central, test, "every flight")
    alone = _predict_alone(train, test)
    ridges, mixed, ridge = _simpler(federated, test)
    _tell_clusters(federated, train)
    _tell_errors([own, alone, ridges, mixed, ridge, pooled], flights)
    _tell_certainty([own, alone, ridges, mixed], flights)
    _tell_cost(federated, (seconds, central_seconds), _against(own, pooled, flights))
    airports = load_airports()

    def places(name: str) -> Any:
        return airports.get(_destination(name))

    code = _code(settings)
    report = render_report(federated, HeldOut(test), title=TITLE, places=places, code=code)
    atomic.replace_file(page, report.encode())
    _say(f"The full report is in {page}, with a map, and code that fits this model again. Open it in a browser.")


def _code(settings: dict[str, Any]) -> str:
    """Python that fits the federation's model."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    ids = ", ".join(f"{role}={column!r}" for role, column in IDS.items())
    return (
        "from fedhlcr import FedHLCRRegressor\n"
        "from fedhlcr.demo import load_tables\n\n"
        "train, test = load_tables()\n"
        f"model = FedHLCRRegressor({arguments})\n"
        f"model.fit(train, {TARGET!r}, {ids})\n"
        'print(model.n_clusters_, "clusters,", model.score(test))'
    )


def _say(text: str) -> None:
    """Print paragraphs, which an empty line separates; a figure and its % stay on one line."""
    for paragraph in text.split("\n\n"):
        words = " ".join(paragraph.split()).replace(" %", "\N{NO-BREAK SPACE}%")
        print(textwrap.fill(words, _width()).replace("\N{NO-BREAK SPACE}", " "), end="\n\n", flush=True)


def _width() -> int:
    return max(NARROWEST, min(WIDTH, shutil.get_terminal_size().columns))


def _introduce(train: pa.Table, flights: Flights) -> None:
    stations, routes = (set(train[column].to_pylist()) for column in IDS.values())
    n_airlines = len({station[:2] for station in stations})
    n_new = len(set(flights.route[flights.is_new].tolist()))
    _say(f"""
        A station is an airline at an airport, and plans how long its flights will take. It has seen few flights of each
        route, and none of new ones. Other stations fly similar routes, but most belong to rivals, and no station shows
        its flights to another. Can they learn from each other all the same?

        Data: real flights from New York in 2013, at {len(stations)} stations of {n_airlines} airlines. To see what can
        be learned from little, we show the models only {N_KNOWN} flights of a route, spread over the year:
        {len(train):,} in all, on {len(routes)} routes. The task: predict the minutes in the air per 100 miles of
        {len(flights.y):,} other flights, {flights.is_new.sum():,} of them on {n_new} new routes. A station is an agent;
        its routes are the entities, its flights the events.

        A federation: every station keeps its flights. In each round a server asks {percent(FEDERATED["participation"])}
        of the stations for sums. Of those asked, {percent(FEDERATED["failure_rate"])} fail: they do not answer, their
        answer is lost, or it comes too late.
    """)


def _fit(model: Any, train: pa.Table) -> tuple[Any, float]:
    """Return the fitted model, and the seconds of computing that the fit took."""
    model.fit(train, TARGET, **IDS)
    return model, model.fit_seconds_.computing


def _predict(name: str, model: Any, test: pa.Table, sent: str) -> Prediction:
    lower, upper = model.predict_interval(test, level=LEVEL)
    return Prediction(name, model.predict(test), lower, upper, sent)


def _predict_alone(train: pa.Table, test: pa.Table) -> Prediction:
    """The same model, fitted by each station alone."""
    columns = np.empty((3, len(test)))
    of_known, of_predicted = (table[STATION.one].to_numpy() for table in (train, test))
    with warnings.catch_warnings():
        # stations with few routes have too little, as they are warned
        warnings.simplefilter("ignore", FedHLCRWarning)
        for station in np.unique(of_known):
            model, _ = _fit(HLCRRegressor(**ALONE), train.filter(pa.array(of_known == station)))
            rows = of_predicted == station
            columns[:, rows] = _predict("", model, test.filter(pa.array(rows)), "")[1:4]
    mean, lower, upper = columns
    return Prediction("alone: HLCR", mean, lower, upper, "nothing")


def _simpler(model: FedHLCRRegressor, test: pa.Table) -> list[Prediction]:
    """A ridge per route of each station alone; a mixed model and one ridge of all flights."""
    posterior = model.posterior_
    events = check_model(model).read_events(test)
    agents, entities = (ids[events.profiles.of_row] for ids in (events.profiles.agents, events.profiles.entities))
    units = posterior.standardization
    everybody = SimplerModels.of(posterior)
    features, (layout, grams) = units.apply(events.matrix), everybody.known
    design = np.column_stack([np.ones(len(features)), features])
    pooled = everybody.predict(features, entities)
    alone = Predicted(*np.empty((3, len(features))))
    for station, (first, last) in enumerate(pairwise(posterior.memory.entities.index.agent_start)):
        rows = agents == station
        routes = np.where(entities[rows] == UNKNOWN, UNKNOWN, entities[rows] - first)
        own = SimplerModels(KnownEntities(layout, grams[first:last]))
        new = predict_by_one(own.law_of_all(), own.one_ridge.noise_variance, design[rows])
        predicted = predict_by_entity(own.ridge_per_entity, own.known, design[rows], routes, new)
        for column, values in zip(alone, predicted, strict=True):
            column[rows] = values
    out = []
    for name, predicted, sent in (
        ("alone: ridge per route", alone, "nothing"),
        ("mixed model, as lme4", pooled[MIXED_MODEL], "every flight"),
        ("one ridge", pooled[ONE_RIDGE], "every flight"),
    ):
        mean = units.restore_target(predicted.mean)
        variance = predicted.noise_variance * (1.0 + predicted.leverage)
        reach = NormalDist().inv_cdf(0.5 + LEVEL / 2) * units.scale[-1] * np.sqrt(variance)
        out.append(Prediction(name, mean, mean - reach, mean + reach, sent))
    return out


def _tell_clusters(model: FedHLCRRegressor, train: pa.Table) -> None:
    """A map of the clusters, and each cluster in words."""
    airports = load_airports()
    routes = np.array([route for _, route in model.pair_ids_])
    findings = Findings(model)
    certainty = findings.certainty
    if sure := how_sure(certainty, findings.names):
        sure += f"""
            {mixed_group(certainty, findings.names)} "Surely" means with a probability of {percent(SURE)} or more.
            Predictions weigh all clusters that a route may be in. This is one run: with another seed, a route that is
            not surely in its cluster may be in another, and small clusters may come or go.
        """
    _say(f"""
        What it found: {CLUSTER.count(model.n_clusters_)} of routes that behave alike. {_describe_search(model)} {sure}

        On this map each airport shows the cluster of most routes to it; * is New York. The model itself knows no map.
    """)
    print(_draw_map([airports[_destination(route)][:2] for route in routes], model.labels_), end="\n\n")
    minutes = train[TARGET].to_numpy()
    route_of_flight = train[ROUTE.one].to_numpy()
    held = [cluster for cluster in findings.clusters if cluster.n_entities]
    for cluster in held[:N_DESCRIBED]:
        k = cluster.number
        own = routes[model.labels_ == k]
        cities = Counter(airports[_destination(route)].city for route in own).most_common(N_CITIES)
        name = f"Cluster {k}, of the mixed group" if k in certainty.mixed_group else f"Cluster {k}"
        who = members_in_words(findings, cluster) or ROUTE.count(len(own))
        moves = findings.moves[k]
        _say(f"""
            {name}: {who}, for example to {listed([city for city, _ in cities])}. Their flights take
            {minutes[np.isin(route_of_flight, own)].mean():.1f} {TARGET} on average. With all else the same, this
            {listed(moves) if moves else "does not clearly change with any feature"}.
        """)
    if more := len(held[N_DESCRIBED:]):
        n_routes = sum(cluster.n_entities or 0 for cluster in held[N_DESCRIBED:])
        _say(f"{more} more {CLUSTER.of(more)} {'has' if more == 1 else 'have'} {ROUTE.count(n_routes)}.")
    if n_empty := len(findings.clusters) - len(held):
        _say(f"No route is in the other {CLUSTER.count(n_empty) if n_empty > 1 else 'cluster'} in most draws.")


def _describe_search(model: FedHLCRRegressor) -> str:
    """How it came to its clusters: what was merged, and whether one cluster was tried."""
    in_use = model.history_["n_clusters"][model.history_["round"] > 0]
    if model.n_clusters_ == 1:
        return ""
    n_tried = int(np.count_nonzero(in_use == 1))
    merged = f"It began with up to {in_use.max()} and merged those alike." if in_use.max() > model.n_clusters_ else ""
    tried = f"In {ROUND.count(n_tried)} it tried one cluster for all routes, which was worse." if n_tried else ""
    return f"{merged} {tried}".strip()


def _draw_map(places: list[tuple[float, float]], labels: NDArray[np.integer]) -> str:
    """A map in characters: at each place the cluster of most routes to it."""
    clusters = dict[tuple[int, ...], Counter[int]]()
    for place, label in zip(places, labels, strict=True):
        clusters.setdefault(_cell(place), Counter())[int(label)] += 1
    marks = {cell: np.base_repr(found.most_common(1)[0][0], 36) for cell, found in clusters.items()}
    marks[_cell(NEW_YORK)] = "*"
    lines = ("".join(marks.get((row, column), " ") for column in range(MAP_SIZE[1])) for row in range(MAP_SIZE[0]))
    return "\n".join(line.rstrip() for line in lines)


def _cell(place: tuple[float, float]) -> tuple[int, ...]:
    """Line and column on the map; places beyond its edges have those of no cell."""
    edges = zip(place, NORTH_WEST, SOUTH_EAST, MAP_SIZE, strict=True)
    return tuple(round((at - first) / (last - first) * (size - 1)) for at, first, last, size in edges)


def _destination(route: str) -> str:
    """The airport that a route leads to: its last three letters."""
    return route[-3:]


def _error(prediction: Prediction, flights: Flights, *, new: bool = False) -> float:
    """Mean absolute error on known or on new routes."""
    return float(np.abs(flights.y - prediction.mean)[flights.is_new == new].mean())


def _compared(figure: float, other: float) -> str:
    """5 % larger"""
    return f"{percent(abs(figure / other - 1.0))} {'larger' if figure > other else 'smaller'}"


def _tell_errors(predictions: list[Prediction], flights: Flights) -> None:
    """How far off the predictions are; those of the federation come first, then two alone and a mixed model."""
    own, alone, ridges, mixed = predictions[:4]
    r2 = {p.name: scores_of(REAL, flights.y, p.mean).explained for p in predictions}
    rows = []
    for p in predictions:
        figures = (_error(p, flights), _error(p, flights, new=True), r2[p.name])
        rows.append((p.name, *map(three_decimals, figures), p.sent))
    _say(f"""
        What it is good for: the mean absolute error, in {TARGET}, on known routes and on new ones, and the share of the
        variance that is explained (R²) on both together.
    """)
    print(text_table(("", "known routes", "new routes", "R²", "what leaves it"), tuple(rows)), end="\n\n")
    _say(f"""
        Alone, a station with the same model has an error that is {_against(own, alone, flights)}; with a ridge per
        route, {_against(own, ridges, flights)}. The error of a mixed model, which needs every flight in one place, is
        {_against(own, mixed, flights)}. By R², where few large errors count most, the best is:
        {max(r2, key=r2.__getitem__)}. (The report also has a ridge per route, with one ridge of all flights for new
        routes.)
    """)


def _against(own: Prediction, other: Prediction, flights: Flights) -> str:
    """How the error of a model compares with that of the federation, on known and on new routes."""
    words = []
    for new, where in ((False, "on known routes"), (True, "on new ones")):
        rows = flights.is_new == new
        routes = np.unique(flights.route[rows], return_inverse=True)[1]
        ours, theirs = (-np.abs(flights.y - p.mean)[rows] for p in (own, other))
        verdict = compare_densities(ours, {other.name: theirs}, routes).verdict
        chance = " (may be chance)" if verdict == "about the same" else ""
        words.append(f"{_compared(_error(other, flights, new=new), _error(own, flights, new=new))} {where}{chance}")
    return listed(words)


def _tell_certainty(predictions: list[Prediction], flights: Flights) -> None:
    """How often the intervals hold, and how wide they are; the federation's come first, and a mixed model's last."""
    rows = []
    widths = []
    for p in predictions:
        inside = (p.lower <= flights.y) & (flights.y <= p.upper)
        widths.append(float(np.median(p.upper - p.lower)))
        shares = (percent(inside[flights.is_new == new].mean()) for new in (False, True))
        rows.append((p.name, *shares, f"{widths[-1]:.1f}"))
    _say(f"""
        How sure it is: the share of the flights inside its intervals, which should be {percent(LEVEL)}, on known routes
        and on new ones, and the usual (median) width of the intervals in {TARGET}.
    """)
    print(text_table(("", "known routes", "new routes", "width"), tuple(rows)), end="\n\n")
    _say(f"""
        Where shares are alike, narrower is better. A mixed model has one spread for all routes, HLCR one for each
        route: the usual width of a mixed model's intervals is {_compared(widths[-1], widths[0])}.
    """)


def _tell_cost(model: FedHLCRRegressor, seconds: tuple[float, float], central: str) -> None:
    """What the federation cost, and what it does not hide; `central` compares the centralised fit's error."""
    up, down = (byte_size(model.history_[name].sum() / len(model.agent_ids_)) for name in ("bytes_up", "bytes_down"))
    _say(f"""
        What it cost: {ROUND.count(model.n_rounds_)}, with {up} up and {down} down for each station, on average. The fit
        took {seconds[0]:.1f} s here, with all stations in one process; a network adds its delays. With every flight in
        one place the same model takes {seconds[1]:.1f} s, and its error is {central}. {FederatedRun(model).ending()}

        Privacy: flights never leave their station, but sums do, and a curious server can infer much about single routes
        from them (`fedhlcr audit` shows how much). Secure aggregation hides the sums of single stations; differential
        privacy adds noise to them, at a price in accuracy.
    """)


if __name__ == "__main__":
    make_printable()
    main()
