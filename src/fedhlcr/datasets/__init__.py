"""Bundled and synthetic tables."""

from fedhlcr.datasets.clinic import make_clinic
from fedhlcr.datasets.flights import Airport, load_airports, load_flights
from fedhlcr.datasets.growth import make_growth
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.datasets.sales import make_sales
from fedhlcr.datasets.synthetic import HLCRTruth, make_hlcr

__all__ = [
    "Airport",
    "HLCRTruth",
    "HierarchicalData",
    "load_airports",
    "load_flights",
    "make_clinic",
    "make_growth",
    "make_hlcr",
    "make_sales",
]
