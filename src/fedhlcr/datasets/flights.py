"""The bundled example: how long a flight takes, by airline and route."""

from __future__ import annotations

from importlib.resources import as_file, files

from fedhlcr.datasets.hierarchical import HierarchicalData

FEATURES = ("dep_delay", "sin_h", "cos_h", "sin_y", "cos_y", "log_dist")


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
