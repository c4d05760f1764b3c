"""Regression on hierarchical data: agent → entity → event.

Hierarchical latent class regression (HLCR) gives every agent–entity pair one of K latent classes, each
a linear regression. Start with `HLCRRegressor`, or with `FedHLCRRegressor` where events must stay with their agent.
"""

from fedhlcr.estimators import HLCRRegressor
from fedhlcr.exceptions import ConvergenceWarning, FitInterruptedWarning
from fedhlcr.federated import FedHLCRRegressor
from fedhlcr.splitting import hold_out_events
from fedhlcr.summary import describe_clusters

__version__ = "0.1.0"

__all__ = [
    "ConvergenceWarning",
    "FedHLCRRegressor",
    "FitInterruptedWarning",
    "HLCRRegressor",
    "describe_clusters",
    "hold_out_events",
]
