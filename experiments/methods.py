"""The methods that are compared: each at its defaults, which are stated grids where there is something to choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Method(NamedTuple):
    """What a method is called, what tells its predictions apart, and whether events may stay with agents."""

    title: str
    level: str
    federated: bool
    make: Callable[[int], Any]  # seed → estimator


def _rival(name: str, **parameters: Any) -> Callable[[int], Any]:
    """How to make a rival; those that draw random numbers get the seed."""

    def make(seed: int) -> Any:
        from fedhlcr import baselines

        estimator = getattr(baselines, name)(**parameters)
        return estimator.set_params(random_state=seed) if "random_state" in estimator.get_params() else estimator

    return make


def _hlcr(seed: int) -> Any:
    from fedhlcr import HLCRRegressor

    return HLCRRegressor(random_state=seed, n_threads=1)


def _fed_hlcr(seed: int) -> Any:
    from fedhlcr import FedHLCRRegressor

    return FedHLCRRegressor(random_state=seed, n_threads=1)


# what a prediction depends on beside x
LEVELS = ("all", "agent", "entity")
MOST_EVENT_CLASSES = 16

METHODS = {
    "ridge": Method("one ridge", "all", False, _rival("GroupedRidge")),
    "lcr-event": Method("LCR, class per event", "all", False, _rival("LCRRegressor", max_classes=MOST_EVENT_CLASSES)),
    "fedavg": Method("FedAvg, linear", "all", True, _rival("FedAvgRegressor")),
    "fedprox": Method("FedProx, linear", "all", True, _rival("FedAvgRegressor", proximal="auto")),
    "fedavg-mlp": Method("FedAvg, network", "all", True, _rival("FedAvgNetworkRegressor")),
    "fedprox-mlp": Method("FedProx, network", "all", True, _rival("FedAvgNetworkRegressor", proximal="auto")),
    "ridge-agent": Method("ridge per agent", "agent", True, _rival("GroupedRidge", level="agent")),
    "ifca-agent": Method("IFCA by agent", "agent", True, _rival("IFCARegressor")),
    "fedem": Method("soft federated EM", "agent", True, _rival("FedEMRegressor")),
    "ridge-entity": Method("ridge per entity", "entity", True, _rival("GroupedRidge", level="entity")),
    "ifca-entity": Method("IFCA by entity", "entity", True, _rival("IFCARegressor", level="entity")),
    "lcr-entity": Method("LCR, class per entity", "entity", False, _rival("LCRRegressor", label="entity")),
    "mixed": Method("mixed model", "entity", False, _rival("MixedModelRegressor")),
    "hlcr": Method("HLCR", "entity", False, _hlcr),
    "fedhlcr": Method("FedHLCR", "entity", True, _fed_hlcr),
}
