"""The public face: scikit-learn estimators."""

from fedhlcr.estimators.fedhlcr import FedHLCRRegressor
from fedhlcr.estimators.hlcr import HLCRRegressor

__all__ = ["FedHLCRRegressor", "HLCRRegressor"]
