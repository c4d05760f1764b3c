"""Simpler models to compare a fitted model with, from the Gram matrices it holds.

One ridge for all events, a ridge for each entity, and a mixed model. All of them have an intercept. Scales and
penalties have the highest evidence or (restricted) likelihood; coefficients are integrated out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.mixed_model import MixedModel
from fedhlcr.analysis.regressions import CoefLaw, KnownEntities, Predicted, predict_by_entity, predict_by_one
from fedhlcr.analysis.ridges import Ridge
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.model.gram import GramLayout
from fedhlcr.posterior.prediction import Posterior

ONE_RIDGE = "one ridge"
RIDGE_PER_ENTITY = "ridge per entity"
MIXED_MODEL = "mixed model"
ONE_RATE = "one rate"
RATE_PER_ENTITY = "rate per entity"
ONE_LOGISTIC = "one logistic regression"
ONE_POISSON = "one Poisson regression"
LOGISTIC_PER_ENTITY = "logistic regression per entity"
POISSON_PER_ENTITY = "Poisson regression per entity"
# Beyond this number of coefficients the mixed model's random deviations are independent. Covariances of so many slopes
# take long to fit and are seldom identified.
MOST_CORRELATED = 10
# Of the mixed model's likelihood: far below what is worth a second look.
TOLERANCE = 1e-7
# Numbers in the matrices of the entities that the mixed model is fitted to, if there are more.
NUMBERS_FOR_MIXED = 1 << 19


@dataclass(frozen=True)
class SimplerModels:
    """The simpler models of some entities, each fitted when it is first used.

    Attributes
    ----------
    known : the entities
    numbers_for_mixed : the mixed model is fitted to so many entities that their matrices have about this many numbers
    """

    known: KnownEntities
    numbers_for_mixed: int = NUMBERS_FOR_MIXED

    @classmethod
    def of(cls, posterior: Posterior, numbers_for_mixed: int = NUMBERS_FOR_MIXED) -> SimplerModels:
        """Those of the entities that a model holds. Curves are left out."""
        # the matrices have a row for the constant, whether the model has an intercept or not
        layout = GramLayout(posterior.layout.n_inputs)
        return cls(
            KnownEntities(layout, posterior.layout.without_curves(posterior.memory.entities.grams)), numbers_for_mixed
        )

    @property
    def can_be_mixed(self) -> bool:
        """Whether a mixed model is defined: there are two entities or more, and some have several events."""
        n_events = self.known.layout.n_events(self.known.grams)
        return len(n_events) > 1 and bool(n_events.sum() > len(n_events))

    @cached_property
    def _pooled(self) -> KnownEntities:
        return self.known._replace(grams=self.known.grams.sum(axis=0)[None])

    @cached_property
    def one_ridge(self) -> Ridge:
        return Ridge.of(self._pooled)

    @cached_property
    def ridge_per_entity(self) -> Ridge:
        return Ridge.of(self.known)

    @cached_property
    def mixed_model(self) -> MixedModel:
        """Fitted to every second, third, … entity if there are very many: its few numbers need no more."""
        layout, grams = self.known
        step = -(-len(grams) * layout.width**2 // self.numbers_for_mixed)
        part = layout.normal_equations(grams[::step])
        return MixedModel.fit(part, diagonal=layout.n_coef > MOST_CORRELATED, tolerance=TOLERANCE)

    def predict(self, features: FloatArray, entities: IndexArray) -> dict[str, Predicted]:
        """Predictions of standardised rows by each model that is defined for them, by its name.

        Parameters
        ----------
        features : (rows, n_features)
        entities : (rows,) positions of the rows' entities among the known ones, or UNKNOWN

        Notes
        -----
        A row of an unknown entity is predicted by the one ridge, or by the mixed model's law of a new entity. If all
        entities are unknown, there is no ridge per entity: it would be the one ridge again.
        """
        design = np.column_stack([np.ones(len(features)), features])
        one = predict_by_one(self.law_of_all(), self.one_ridge.noise_variance, design)
        predicted = {ONE_RIDGE: one}
        if (entities != UNKNOWN).any():
            predicted[RIDGE_PER_ENTITY] = predict_by_entity(self.ridge_per_entity, self.known, design, entities, one)
        if self.can_be_mixed:
            mixed = self.mixed_model
            new = predict_by_one(mixed.law_of_new(), mixed.noise_variance, design)
            predicted[MIXED_MODEL] = predict_by_entity(mixed, self.known, design, entities, new)
        return predicted

    def law_of_all(self) -> CoefLaw:
        """The regression of the one ridge."""
        layout, grams = self._pooled
        return self.one_ridge.law(layout.normal_equations(grams))
