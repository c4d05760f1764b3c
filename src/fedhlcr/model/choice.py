"""Which likelihood follows from the effects and the noise that a user asks for."""

from __future__ import annotations

from fedhlcr.model.likelihood import AUTO, GAUSSIAN
from fedhlcr.model.mixed import MixedCommonNoise, MixedEntityNoise
from fedhlcr.model.priors import EffectsName, NoiseName
from fedhlcr.model.student import MixedStudentNoise


def chosen_likelihood(likelihood: str, effects: EffectsName, noise: NoiseName) -> str:
    """The name of the likelihood: the one given, or, if that is "auto", the one of the effects and the noise."""
    if likelihood != AUTO:
        return likelihood
    if noise == "common":
        return GAUSSIAN if effects == "none" else MixedCommonNoise.name
    return MixedEntityNoise.name if noise == "entity" else MixedStudentNoise.name
