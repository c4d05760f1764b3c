"""Bundled and synthetic tables."""

from fedhlcr.datasets.flights import load_flights
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.datasets.synthetic import HLCRTruth, make_hlcr

__all__ = ["HLCRTruth", "HierarchicalData", "load_flights", "make_hlcr"]
