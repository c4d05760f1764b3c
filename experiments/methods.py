"""The methods that are compared, and what is measured of them.

Each is at its defaults, which are stated grids where there is something to choose.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments import boosting
from experiments.study import Figures

if TYPE_CHECKING:
    from fedhlcr.datasets.hierarchical import HierarchicalData


class Method(NamedTuple):
    """A method: its name, what its predictions depend on, and whether events may stay with agents."""

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


def _ours(name: str, **parameters: Any) -> Callable[[int], Any]:
    """How to make an estimator of ours."""

    def make(seed: int) -> Any:
        import fedhlcr

        return getattr(fedhlcr, name)(**parameters, random_state=seed, n_threads=1)

    return make


def _boosted_trees(seed: int) -> Any:
    from experiments.boosting import BoostedTrees

    return BoostedTrees(seed)


# The studies of the paper's algorithms compare its own model. The others add today's default, which has effects.
PAPER: dict[str, Any] = {"effects": "none", "noise": "common"}
DEFAULT, FEDERATED_DEFAULT, BOOSTED = "hlcr-default", "fedhlcr-default", "lightgbm"
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
    BOOSTED: Method("boosted trees", "entity", False, _boosted_trees),
    "hlcr": Method("HLCR, the paper's model", "entity", False, _ours("HLCRRegressor", **PAPER)),
    "fedhlcr": Method("FedHLCR, the paper's model", "entity", True, _ours("FedHLCRRegressor", **PAPER)),
    DEFAULT: Method("HLCR, the default", "entity", False, _ours("HLCRRegressor")),
    "hlcr-entity": Method("HLCR, effects of entities", "entity", False, _ours("HLCRRegressor", effects="entity")),
    "hlcr-agent": Method(
        "HLCR, effects of entities and agents", "entity", False, _ours("HLCRRegressor", effects="entity+agent")
    ),
    "hlcr-common": Method("HLCR, common noise", "entity", False, _ours("HLCRRegressor", noise="common")),
    "hlcr-student": Method("HLCR, Student-t noise", "entity", False, _ours("HLCRRegressor", noise="student")),
    "hlcr-curves": Method("HLCR, curves", "entity", False, _ours("HLCRRegressor", curves="auto")),
    FEDERATED_DEFAULT: Method("FedHLCR, the default", "entity", True, _ours("FedHLCRRegressor")),
}


def available_methods() -> list[str]:
    """All methods; without boosted trees where LightGBM is not installed."""
    return [method for method in METHODS if method != BOOSTED or boosting.is_installed()]


def fit_and_score(method: str, train: HierarchicalData, test: HierarchicalData, *, seed: int) -> Figures:
    """Held-out R² and mean squared error, and the seconds a fit takes of one core."""
    from sklearn.metrics import mean_squared_error, r2_score
    from threadpoolctl import threadpool_limits

    if method.endswith("mlp"):
        # its threads are limited only if they are there
        import torch  # noqa: F401
    compile_kernels()
    model = METHODS[method].make(seed)
    with threadpool_limits(1):
        start = time.process_time()
        model.fit(train.X, train.y, agent=train.agent, entity=train.entity)
        seconds = time.process_time() - start
        predicted = model.predict(test.X, agent=test.agent, entity=test.entity)
    return {
        "r2": float(r2_score(test.y, predicted)),
        "mse": float(mean_squared_error(test.y, predicted)),
        "seconds": round(seconds, 3),
    }


@cache
def compile_kernels() -> None:
    """Fit a small table once per process, so that timings do not include compilation."""
    from fedhlcr.datasets import make_hlcr

    toy, _ = make_hlcr(n_agents=6, entities_per_agent=2, n_features=2, n_clusters=2, random_state=0)
    for method in ("hlcr", "fedhlcr", DEFAULT):
        METHODS[method].make(0).fit(toy.X, toy.y, agent=toy.agent, entity=toy.entity)
