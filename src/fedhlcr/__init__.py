"""Regression on hierarchical data: agent → entity → event.

The model is hierarchical latent class regression (HLCR). Every entity of an agent belongs to one of K clusters, and
each cluster is a regression. Start with `HLCRRegressor`, or with `FedHLCRRegressor` where events must stay with their
agent. `HLCRClassifier` and `HLCRCountRegressor`, and their federated twins, are for two classes and for counts.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedhlcr._support.version import __version__

if TYPE_CHECKING:
    from fedhlcr.analysis.selection import compare_cluster_counts
    from fedhlcr.analysis.words import describe_clusters
    from fedhlcr.data.hold_out import hold_out_events
    from fedhlcr.data.ids import NEW
    from fedhlcr.estimators.classifiers import FedHLCRClassifier, HLCRClassifier
    from fedhlcr.estimators.counts import FedHLCRCountRegressor, HLCRCountRegressor
    from fedhlcr.estimators.fedhlcr import FedHLCRRegressor
    from fedhlcr.estimators.hlcr import HLCRRegressor
    from fedhlcr.estimators.loading import load
    from fedhlcr.exceptions import ConvergenceWarning, FitInterruptedWarning
    from fedhlcr.privacy.differential_privacy import DifferentialPrivacy


__all__ = [
    "NEW",
    "ConvergenceWarning",
    "DifferentialPrivacy",
    "FedHLCRClassifier",
    "FedHLCRCountRegressor",
    "FedHLCRRegressor",
    "FitInterruptedWarning",
    "HLCRClassifier",
    "HLCRCountRegressor",
    "HLCRRegressor",
    "__version__",
    "compare_cluster_counts",
    "describe_clusters",
    "hold_out_events",
    "load",
]

# Imported when first asked for: a node of a federation starts a process for every round, and needs no estimator.
_HOMES = {
    "NEW": "data.ids",
    "ConvergenceWarning": "exceptions",
    "DifferentialPrivacy": "privacy.differential_privacy",
    "FedHLCRClassifier": "estimators.classifiers",
    "FedHLCRCountRegressor": "estimators.counts",
    "FedHLCRRegressor": "estimators.fedhlcr",
    "FitInterruptedWarning": "exceptions",
    "HLCRClassifier": "estimators.classifiers",
    "HLCRCountRegressor": "estimators.counts",
    "HLCRRegressor": "estimators.hlcr",
    "compare_cluster_counts": "analysis.selection",
    "describe_clusters": "analysis.words",
    "hold_out_events": "data.hold_out",
    "load": "estimators.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
