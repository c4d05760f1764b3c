"""Plots of fitted models. Every function takes an Axes or makes one, draws on it only, and returns it.

They need matplotlib, the extra `plot`. A cluster has the same colour in every plot and in the report. The
first colours are Okabe and Ito's, which colour-blind readers can distinguish; from the ninth cluster on, line styles
and markers differ. No setting of matplotlib is changed.
"""

from fedhlcr._support.extras import missing_extra as _missing_extra

try:
    import matplotlib as _matplotlib  # noqa: F401
except ModuleNotFoundError as missing:
    raise _missing_extra("fedhlcr.plot needs matplotlib", "plot") from missing

from fedhlcr.plot.agents import agent_map, label_certainty
from fedhlcr.plot.clusters import cluster_weights, coefficients
from fedhlcr.plot.convergence import traces
from fedhlcr.plot.curves import curves
from fedhlcr.plot.effects import effects
from fedhlcr.plot.entities import entity
from fedhlcr.plot.events import calibration, predicted_against_observed
from fedhlcr.plot.predictive import posterior_predictive
from fedhlcr.plot.ratios import ratios
from fedhlcr.plot.reliability import reliability
from fedhlcr.plot.selection import cluster_counts

__all__ = [
    "agent_map",
    "calibration",
    "cluster_counts",
    "cluster_weights",
    "coefficients",
    "curves",
    "effects",
    "entity",
    "label_certainty",
    "posterior_predictive",
    "predicted_against_observed",
    "ratios",
    "reliability",
    "traces",
]
