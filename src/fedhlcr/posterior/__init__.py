"""The posterior: kept draws, predictions from them, and how draws and chains are compared."""

from fedhlcr.posterior.draws import Draws
from fedhlcr.posterior.prediction import AgentMemory, Posterior, Profiles
from fedhlcr.posterior.public_model import PublicModel

__all__ = ["AgentMemory", "Draws", "Posterior", "Profiles", "PublicModel"]
