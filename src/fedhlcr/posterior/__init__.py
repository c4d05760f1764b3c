"""Kept draws, and what they predict."""

from fedhlcr.posterior.prediction import AgentMemory, Draws, Posterior, Profiles, PublicModel

__all__ = ["AgentMemory", "Draws", "Posterior", "Profiles", "PublicModel"]
