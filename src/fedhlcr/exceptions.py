"""Warnings of fedhlcr."""

from __future__ import annotations


class ConvergenceWarning(UserWarning):
    """Chains disagree: what they found is not yet the posterior."""


class FitInterruptedWarning(UserWarning):
    """The user ended a fit early; the model uses the draws made so far."""
