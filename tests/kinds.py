"""All estimators, by their target: that of a whole table, and its federated twin."""

from __future__ import annotations

from fedhlcr import (
    FedHLCRClassifier,
    FedHLCRCountRegressor,
    FedHLCRRegressor,
    HLCRClassifier,
    HLCRCountRegressor,
    HLCRRegressor,
)

KINDS = {
    "real": (HLCRRegressor, FedHLCRRegressor),
    "binary": (HLCRClassifier, FedHLCRClassifier),
    "count": (HLCRCountRegressor, FedHLCRCountRegressor),
}


def is_federated(kind: type) -> bool:
    return kind.__name__.startswith("Fed")
