"""A federation on a Ray cluster: each worker holds consecutive agents, and the driver is the federation's server.

Ray itself is imported only when an engine is made; it needs the extra `ray`.
"""

from fedhlcr.engines.ray.cluster import RayCluster

__all__ = ["RayCluster"]
