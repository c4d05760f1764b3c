"""Bundled and synthetic tables."""

from fedhlcr.datasets.flights import Airport, load_airports, load_flights
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.datasets.synthetic import HLCRTruth, make_hlcr

__all__ = ["Airport", "HLCRTruth", "HierarchicalData", "load_airports", "load_flights", "make_hlcr"]
