"""The model: Gram matrices, Bayesian regression, priors, and likelihoods. To add one, read `likelihood.py`."""

from fedhlcr.model.arguments import Summands
from fedhlcr.model.gaussian import Gaussian, GaussianGlobals
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import Likelihood, register
from fedhlcr.model.regression import LinearGlobals
from fedhlcr.model.schema import Block, Globals, SummedScalar, quantity

__all__ = [
    "Block",
    "Gaussian",
    "GaussianGlobals",
    "Globals",
    "GramLayout",
    "Likelihood",
    "LinearGlobals",
    "Summands",
    "SummedScalar",
    "quantity",
    "register",
]
