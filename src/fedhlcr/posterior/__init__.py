"""The posterior: kept draws, predictions from them, and how draws and chains are compared."""

from fedhlcr.posterior.draws import Draws
from fedhlcr.posterior.memory import AgentMemory
from fedhlcr.posterior.prediction import Posterior, Profiles
from fedhlcr.posterior.public_model import PublicModel

__all__ = ["AgentMemory", "Draws", "Posterior", "Profiles", "PublicModel"]
