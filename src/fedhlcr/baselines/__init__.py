"""What HLCR is measured against, each with the same face: fit and predict with agent and entity."""

from fedhlcr.baselines.ridge import GroupedRidge

__all__ = ["GroupedRidge"]
