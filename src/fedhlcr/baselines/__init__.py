"""Methods to compare HLCR with. All have the same `fit` and `predict`, with `agent` and `entity`."""

from fedhlcr.baselines.averaging import FedAvgRegressor
from fedhlcr.baselines.clustered import IFCARegressor
from fedhlcr.baselines.lcr import LCRRegressor
from fedhlcr.baselines.mixed import MixedModelRegressor
from fedhlcr.baselines.network import FedAvgNetworkRegressor
from fedhlcr.baselines.ridge import GroupedRidge
from fedhlcr.baselines.soft import FedEMRegressor

__all__ = [
    "FedAvgNetworkRegressor",
    "FedAvgRegressor",
    "FedEMRegressor",
    "GroupedRidge",
    "IFCARegressor",
    "LCRRegressor",
    "MixedModelRegressor",
]
