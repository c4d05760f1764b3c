"""What estimators of counts do that depends on their target."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data import inputs
from fedhlcr.data.families import COUNT, Family
from fedhlcr.data.frames import Given
from fedhlcr.data.recipe import wrong_counts
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.regressor import HierarchicalRegressor
from fedhlcr.estimators.score import Score, score_events
from fedhlcr.model.counts import CountGlobals


class CountTarget(HierarchicalRegressor, HierarchicalPredictor):
    """Targets that are counts."""

    family: ClassVar[Family] = COUNT
    dispersion_: float

    def predict(
        self, X: Any, agent: Any = None, entity: Any = None, exposure: Any = None, output: str | None = None
    ) -> Any:
        """Predict the mean count of each event: the mean over labels, effects and draws.

        Parameters
        ----------
        X, agent, entity, output : as in `HLCRRegressor.predict`
        exposure : array (n_events,), number or str, optional
            As in `fit`: how long, or how many, each event was exposed. None is the column that `fit` used, if X has it;
            otherwise 1, so that predictions are rates.

        Returns
        -------
        ndarray (n_events,)
        """
        mean = self._mean(Given(X, agent=agent, entity=entity, exposure=exposure))
        return self._answer({"prediction": mean}, X, output)

    def predict_interval(
        self,
        X: Any,
        agent: Any = None,
        entity: Any = None,
        level: float = 0.9,
        exposure: Any = None,
        output: str | None = None,
    ) -> Any:
        """Whole numbers between which the count lies with probability `level`, both ends included.

        Counts are coarse, so the probability is as near to `level` as they allow. The lower end leaves out at most half
        of the rest. Where zeros are common nothing lies below it, and the upper end leaves out the whole rest.

        Returns
        -------
        lower, upper : ndarrays (n_events,) of whole numbers, or one frame, as `output` says
        """
        return self._interval(Given(X, agent=agent, entity=entity, exposure=exposure), level, output)

    def log_density(
        self, X: Any, y: Any = None, agent: Any = None, entity: Any = None, exposure: Any = None
    ) -> FloatArray:
        """Log of the probability of each event's count, in nats.

        Parameters
        ----------
        X, agent, entity, exposure : as in `predict`
        y : array (n_events,) or str, optional
            Targets, or the name of their column; None is the column that `fit` used.

        Returns
        -------
        ndarray (n_events,)
        """
        return self._log_density(Given(X, y, agent, entity, exposure=exposure))

    def adapt(
        self,
        X: Any,
        y: Any = None,
        agent: Any = None,
        entity: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
    ) -> Self:
        """A copy of the model that also knows new events of known or new entities; the clusters are not refitted.

        Parameters
        ----------
        X, y, agent, entity, sample_weight, exposure : as in `fit`; `entity` is required

        Returns
        -------
        the same type of estimator
        """
        return self._adapt(Given(X, y, agent, entity, sample_weight, exposure))

    def score(
        self,
        X: Any,
        y: Any = None,
        agent: Any = None,
        entity: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
    ) -> Score:
        """D², the share of the Poisson deviance that is explained, as in scikit-learn's `PoissonRegressor`.

        Parameters
        ----------
        X, y, agent, entity, sample_weight : as in `HLCRRegressor.score`
        exposure : as in `predict`

        Returns
        -------
        Score
        """
        return score_events(self.family, *self._scored(Given(X, y, agent, entity, sample_weight, exposure)))

    def _target(self, y: Any, n_rows: int) -> FloatArray:
        counts = inputs.target_vector(y, n_rows)
        if faults := self.family.faults(counts):
            name = getattr(y, "name", None)
            raise wrong_counts(f"column {name!r}" if isinstance(name, str) else "`y`", faults, n_rows, in_fit=True)
        return counts

    def _offset(self, exposure: Any, n_rows: int) -> FloatArray | None:
        return inputs.log_exposure(exposure, n_rows)

    def set_fitted_attributes(self) -> None:
        """Also set the dispersion: a count of mean μ has variance μ + dispersion·μ²."""
        super().set_fitted_attributes()
        check_is_fitted(self)
        draws = self.posterior_.draws.stacked
        assert isinstance(draws, CountGlobals)
        self.dispersion_ = float(np.exp(-np.asarray(draws.log_size_centre)).mean())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
