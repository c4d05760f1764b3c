"""A penalised regression of classes or counts for each entity on its own: what a ridge per entity is for real targets.

Slopes are drawn towards 0 with a penalty that all entities share; it is cross-validated. Intercepts are drawn towards
the rate of all events, as strongly as by one event: an entity whose events are all of one class has no estimate else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.regressions import CoefLaw
from fedhlcr.analysis.response_laws import NormalLaws, Responses, find_modes

# Penalties to try, in standardised units; after so many in a row that are no better, no more.
PENALTIES = np.logspace(3, -2, 11)
PATIENCE = 2
# Parts of the events, each of which is predicted from the others.
N_FOLDS = 5


@dataclass(frozen=True)
class EntityRegressions:
    """Regressions of entities that share the penalty.

    Attributes
    ----------
    penalty : of slopes
    centre : log odds, or log rate, of all events
    intercept_penalty : of an intercept's deviation from `centre`
    """

    penalty: float
    centre: float
    intercept_penalty: float

    @classmethod
    def fit(cls, entities: Responses) -> EntityRegressions:
        """Choose the penalty; `entities` have a group for each entity, with the constant first."""
        exposed = entities.weight * np.exp(entities.offset)
        # half an event of either class, so that the rate is not 0 or 1
        rate = float((entities.weight @ entities.y + 0.5) / (exposed.sum() + 1.0))
        is_binary = entities.log_size is None
        centre = np.log(rate / (1.0 - rate)) if is_binary else np.log(rate)
        # what one event tells about the intercept
        information = rate * (1.0 - rate) if is_binary else rate * exposed.mean()
        found = [cls(float(penalty), float(centre), float(information)) for penalty in PENALTIES]
        starts = [NormalLaws.standard(entities.n_groups, entities.n_coef)] * N_FOLDS
        best = found[0]
        best_score = -np.inf
        n_worse = 0
        for candidate in found:
            score, starts = candidate._predict_folds(entities, starts)
            n_worse = 0 if score > best_score else n_worse + 1
            if score > best_score:
                best = candidate
                best_score = score
            if n_worse == PATIENCE:
                break
        return best

    def _predict_folds(self, entities: Responses, starts: list[NormalLaws]) -> tuple[float, list[NormalLaws]]:
        """The log density of all events, each predicted without those of its fold, and the laws of each fold."""
        own = self._centred(entities)
        laws = []
        score = 0.0
        fold_of = np.arange(len(own.y)) % N_FOLDS
        for fold, start in enumerate(starts):
            left = replace(own, weight=np.where(fold_of == fold, 0.0, own.weight))
            found, _ = find_modes(left, self._penalties(own.n_coef), start)
            densities = own.expect(own.linear(found.mean)).log_density
            score += float(densities[fold_of == fold].sum())
            laws.append(found)
        return score, laws

    def _centred(self, entities: Responses) -> Responses:
        return replace(entities, offset=entities.offset + self.centre)

    def _penalties(self, n_coef: int) -> FloatArray:
        return np.array([self.intercept_penalty, *np.full(n_coef - 1, self.penalty)])

    def law(self, entities: Responses) -> CoefLaw:
        """The regressions of entities, as estimates without uncertainty."""
        start = NormalLaws.standard(entities.n_groups, entities.n_coef)
        found, _ = find_modes(self._centred(entities), self._penalties(entities.n_coef), start)
        coef = found.mean + self.centre * (np.arange(entities.n_coef) == 0)
        return CoefLaw(coef, np.zeros_like(found.covariance))
