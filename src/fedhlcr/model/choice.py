"""Which likelihood follows from the effects and the noise that a user asks for."""

from __future__ import annotations

from fedhlcr.exceptions import ArgumentError
from fedhlcr.model.binary import Logistic
from fedhlcr.model.counts import NegativeBinomial
from fedhlcr.model.likelihood import AUTO, GAUSSIAN
from fedhlcr.model.mixed import MixedCommonNoise, MixedEntityNoise
from fedhlcr.model.student import MixedStudentNoise
from fedhlcr.settings import EffectsName, NoiseName

# What else a user may ask for together with a likelihood of this package; the defaults stand for "as it is".
EFFECTS_OF = {GAUSSIAN: ("auto", "none")}
NOISE_OF = {
    GAUSSIAN: ("entity", "common"),
    MixedCommonNoise.name: ("entity", "common"),
    MixedEntityNoise.name: ("entity",),
    MixedStudentNoise.name: ("entity", "student"),
    Logistic.name: ("entity",),
    NegativeBinomial.name: ("entity",),
}


def chosen_likelihood(likelihood: str, effects: EffectsName, noise: NoiseName) -> str:
    """The name of the likelihood: the one given, or, if that is "auto", the one of the effects and the noise.

    A likelihood that is given must have the effects and the noise that are asked for.
    """
    if likelihood != AUTO:
        for name, value, possible in (("effects", effects, EFFECTS_OF), ("noise", noise, NOISE_OF)):
            if value not in possible.get(likelihood, (value,)):
                raise ArgumentError(
                    f"likelihood={likelihood!r} has its own {name}, but `{name}` is {value!r}. Leave out `likelihood`: "
                    "it follows from `effects` and `noise`."
                )
        return likelihood
    if noise == "common":
        return GAUSSIAN if effects == "none" else MixedCommonNoise.name
    return MixedEntityNoise.name if noise == "entity" else MixedStudentNoise.name
