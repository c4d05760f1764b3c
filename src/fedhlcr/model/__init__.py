"""The model: Gram matrices, one Bayesian regression, the priors, and the likelihood behind which all of it stands."""

from fedhlcr.model.gaussian import Gaussian, GaussianGlobals
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import Likelihood, Summands, register
from fedhlcr.model.schema import Block, Globals, SummedScalar, quantity

__all__ = [
    "Block",
    "Gaussian",
    "GaussianGlobals",
    "Globals",
    "GramLayout",
    "Likelihood",
    "Summands",
    "SummedScalar",
    "quantity",
    "register",
]
