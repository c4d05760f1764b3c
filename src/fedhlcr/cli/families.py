"""Which estimator fits a target, and what its events are as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from fedhlcr import (
    FedHLCRClassifier,
    FedHLCRCountRegressor,
    FedHLCRRegressor,
    HLCRClassifier,
    HLCRCountRegressor,
    HLCRRegressor,
)
from fedhlcr._support.arrays import FloatArray
from fedhlcr.cli.options import Noise
from fedhlcr.data.families import FamilyName
from fedhlcr.estimators.targets import BinaryTarget

CENTRALISED = {"real": HLCRRegressor, "binary": HLCRClassifier, "count": HLCRCountRegressor}
FEDERATED = {"real": FedHLCRRegressor, "binary": FedHLCRClassifier, "count": FedHLCRCountRegressor}


def make_estimator(family: FamilyName, *, noise: Noise, federated: bool = False, **settings: Any) -> Any:
    """Return the estimator for a family of targets. Only real targets have noise."""
    if settings.get("n_sweeps", 0) is None:
        del settings["n_sweeps"]
    if family == "real":
        settings["noise"] = noise.value
    elif noise is not Noise.entity:
        raise typer.BadParameter(
            f"is for real targets, but the target is {family}; leave it out, or add --family real.",
            param_hint="--noise",
        )
    return (FEDERATED if federated else CENTRALISED)[family](**settings)


def outcomes(model: Any, y: NDArray[Any]) -> FloatArray:
    """Return targets as numbers: 1 for the second class of a classifier and 0 for the first."""
    return np.asarray(y == model.classes_[1] if isinstance(model, BinaryTarget) else y, dtype=np.float64)
