"""The public face: scikit-learn estimators."""

from fedhlcr.estimators.classifiers import FedHLCRClassifier, HLCRClassifier
from fedhlcr.estimators.counts import FedHLCRCountRegressor, HLCRCountRegressor
from fedhlcr.estimators.fedhlcr import FedHLCRRegressor
from fedhlcr.estimators.hlcr import HLCRRegressor

__all__ = [
    "FedHLCRClassifier",
    "FedHLCRCountRegressor",
    "FedHLCRRegressor",
    "HLCRClassifier",
    "HLCRCountRegressor",
    "HLCRRegressor",
]
