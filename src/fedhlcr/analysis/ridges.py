"""Ridge regressions from Gram matrices.

If the events themselves are gone, the penalty cannot be cross-validated; the one with the highest evidence is taken.
For a group of n events let S be the sums of squares and products around the group's means. Slopes are w ~ N(0, σ²/λ),
the intercept is free. With d the eigenvalues of S_xx and c the components of S_xy along its eigenvectors, and σ at its
maximum,

    log p(y | λ) = −½ Σ(n − 1) · log Σ(S_yy − Σ c²/(d + λ)) + ½ ΣΣ log(λ / (d + λ)) + const,

where the outer sums run over groups, which share λ and σ.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.regressions import CoefLaw, KnownEntities, blocks
from fedhlcr.model.gram import GramLayout, NormalEquations

# Penalties to try, in standardised units; all groups of a level share one.
PENALTIES = np.logspace(-3, 4, 22)
# Penalty of a constant feature, which makes its slope 0.
INFINITE = 1e12
# The intercept is free, except for a tiny penalty that keeps the equations regular.
INTERCEPT_PENALTY = 1e-9


class Ridge(NamedTuple):
    """Ridges of groups that share the penalty and the noise, in the units of their Gram matrices.

    Attributes
    ----------
    penalty : of slopes per standard deviation of the feature
    penalties : (n_features,) of slopes per unit
    noise_variance : σ², at which the evidence is highest
    """

    penalty: float
    penalties: FloatArray
    noise_variance: float

    @classmethod
    def of(cls, groups: KnownEntities) -> Ridge:
        """The ridge with the highest evidence. Features are scaled by their standard deviation over all groups."""
        spread = _centred(groups.layout, groups.grams.sum(axis=0)[None]).spread[0]
        evidence, noise_variance = _evidence(groups, spread)
        best = int(evidence.argmax())
        penalty = float(PENALTIES[best])
        return cls(penalty, np.minimum(penalty * spread**2, INFINITE), float(noise_variance[best]))

    def law(self, entities: NormalEquations) -> CoefLaw:
        """The regression of each group: with A = G + diag(penalties) it is N(A⁻¹g, σ²A⁻¹)."""
        covariance = np.asarray(np.linalg.inv(entities.xx + np.diag([INTERCEPT_PENALTY, *self.penalties])), np.float64)
        return CoefLaw((covariance @ entities.xy[..., None])[..., 0], covariance)


def solve_ridge(layout: GramLayout, grams: FloatArray, penalty: float | FloatArray) -> FloatArray:
    """Regressions (..., n_coef) from Gram matrices (..., packed), with one penalty for all slopes or one for each."""
    normal = layout.normal_equations(grams)
    penalties = np.diag([INTERCEPT_PENALTY, *np.broadcast_to(penalty, layout.n_features)])
    return np.asarray(np.linalg.solve(normal.xx + penalties, normal.xy[..., None])[..., 0])


class _Centred(NamedTuple):
    """Sums of groups around the groups' own means."""

    n: FloatArray  # (groups,)
    mean: FloatArray  # (groups, n_features + 1), the target last
    sums: FloatArray  # (groups, n_features + 1, n_features + 1)

    @property
    def spread(self) -> FloatArray:
        """(groups, n_features): standard deviations of the features; infinite for a constant feature."""
        variance = np.diagonal(self.sums, axis1=1, axis2=2)[:, :-1] / self.n[:, None]
        # rounding errors of a constant feature are not a spread
        floor = 1e-18 * (1.0 + self.mean[:, :-1] ** 2)
        return np.sqrt(np.where(variance > floor, variance, np.inf))


def _centred(layout: GramLayout, grams: FloatArray) -> _Centred:
    full = layout.unpack(grams)
    n = full[:, 0, 0]
    mean = full[:, 0, 1:] / np.maximum(n, 1e-300)[:, None]
    return _Centred(n, mean, full[:, 1:, 1:] - n[:, None, None] * mean[:, :, None] * mean[:, None, :])


def _evidence(groups: KnownEntities, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of each penalty: the log evidence up to a constant, and the noise variance."""
    unexplained = np.zeros(len(PENALTIES))
    shrinkage = np.zeros(len(PENALTIES))
    freedom = 0.0
    total = 0.0
    for part in blocks(groups.layout, len(groups.grams)):
        group = _centred(groups.layout, groups.grams[part])
        roots, vectors = np.linalg.eigh(group.sums[:, :-1, :-1] / (spread[:, None] * spread))
        along = np.einsum("gfe,gf->ge", vectors, group.sums[:, :-1, -1] / spread) ** 2
        denominators = np.maximum(roots, 0.0) + PENALTIES[:, None, None]
        unexplained += (group.sums[:, -1, -1].sum() - (along / denominators).sum(axis=(1, 2))).clip(min=0.0)
        shrinkage += np.log(PENALTIES[:, None, None] / denominators).sum(axis=(1, 2))
        freedom += np.maximum(group.n - 1.0, 0.0).sum()
        total += group.sums[:, -1, -1].sum()
    # after a perfect fit only rounding errors are left, which are not evidence
    unexplained = np.maximum(unexplained, 1e-12 * total if total > 0.0 else 1.0)
    return -0.5 * freedom * np.log(unexplained) + 0.5 * shrinkage, unexplained / max(freedom, 1.0)
