"""Methods to compare HLCR with. All have the same `fit` and `predict`, with `agent` and `entity`."""

from fedhlcr.baselines.averaging import FedAvgNetworkRegressor, FedAvgRegressor
from fedhlcr.baselines.clustered import IFCARegressor
from fedhlcr.baselines.linear import GroupedRidge, MixedModelRegressor
from fedhlcr.baselines.mixtures import FedEMRegressor, LCRRegressor

__all__ = [
    "FedAvgNetworkRegressor",
    "FedAvgRegressor",
    "FedEMRegressor",
    "GroupedRidge",
    "IFCARegressor",
    "LCRRegressor",
    "MixedModelRegressor",
]
