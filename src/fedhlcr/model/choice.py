"""Which likelihood follows from the effects and the noise that a user asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedhlcr.data.families import Family
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


def likelihood_of(family: Family, settings: Mapping[str, Any]) -> str:
    """The name of the likelihood that these settings of an estimator mean; the paper's algorithms have the paper's."""
    if family.likelihood is not None:
        return family.likelihood
    likelihood = settings.get("likelihood", AUTO)
    effects = settings["effects"]
    if settings.get("rule") == "blend" or settings.get("privacy") is not None:
        return GAUSSIAN
    if settings.get("sampler") == "collapsed" and likelihood == AUTO:
        if effects not in ("auto", "none"):
            raise ArgumentError(
                f"sampler='collapsed' is the paper's algorithm, without effects; `effects` is {effects!r}. Use "
                "sampler='blocked', or effects='none'."
            )
        if settings["noise"] == "student":
            raise ArgumentError(
                "sampler='collapsed' is the paper's algorithm, with one noise scale; `noise` is 'student'. Use "
                "sampler='blocked', or noise='common'."
            )
        return GAUSSIAN
    return chosen_likelihood(likelihood, effects, settings["noise"])
