"""What estimators do that depends on their target: real numbers, two classes, or counts."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.effects import entity_noise
from fedhlcr.data.families import BINARY, COUNT, REAL, Family
from fedhlcr.data.frames import Given
from fedhlcr.data.ids import canonical_text
from fedhlcr.estimators.base import Found, HierarchicalEstimator, check_model
from fedhlcr.estimators.score import Score, score_events


class RealEstimator(RegressorMixin, HierarchicalEstimator):
    """Targets that are real numbers."""

    family: ClassVar[Family] = REAL
    noise_scale_ = Found[float]()
    noise_shape_ = Found[float]()

    @property
    def entity_noise_(self) -> FloatArray:
        """(n_entities,) posterior mean noise of each entity, in units of y: its standard deviation."""
        return single_threaded_blas(entity_noise)(check_model(self))

    @overload
    def predict(
        self, X: Any, agent: Any = None, entity: Any = None, return_std: Literal[False] = False, output: None = None
    ) -> FloatArray: ...

    @overload
    def predict(
        self, X: Any, agent: Any = None, entity: Any = None, *, return_std: Literal[True], output: None = None
    ) -> tuple[FloatArray, FloatArray]: ...

    @overload
    def predict(
        self, X: Any, agent: Any = None, entity: Any = None, return_std: bool = False, output: str | None = None
    ) -> Any: ...

    def predict(
        self, X: Any, agent: Any = None, entity: Any = None, return_std: bool = False, output: str | None = None
    ) -> Any:
        """Predict the target: the mean over labels and draws.

        Parameters
        ----------
        X : array or dataframe (n_events, n_features)
            An array has the features in the order of `fit`. A dataframe has the columns of `fit` in any order; other
            columns are ignored. Categories are encoded as in `fit`. Rows with missing values are treated as `missing`
            says: refused, filled, or predicted as NaN.
        agent, entity : array (n_events,), str or fedhlcr.NEW, optional
            As in `fit`; None takes the columns that `fit` used, if X has them. A known entity is predicted from its
            own events, a new entity from the weights and effects of its agent, and a new agent from the overall
            weights. The effects and the noise of a new entity, and the effects of a new agent, may be any that their
            laws allow; this widens intervals. `agent=None` without such a column means the agent that was fitted, if
            there was only one; else a new agent, and a warning says so. `fedhlcr.NEW` means new ones on purpose.
        return_std : bool, default=False
            Whether to return the predictive standard deviation too.
        output : {"pandas", "polars", "default"}, optional
            What to return: a series or frame with the index of a pandas `X`, or arrays. None is as `set_output` says.

        Returns
        -------
        mean : ndarray (n_events,)
        std : ndarray (n_events,), if return_std
        """
        if not return_std:
            return self._answer({"prediction": self._mean(Given(X, agent=agent, entity=entity))}, X, output)
        moments = self.predict_moments(X, agent, entity)
        return self._answer({"prediction": moments.mean, "std": moments.std}, X, output)

    def predict_interval(
        self, X: Any, agent: Any = None, entity: Any = None, level: float = 0.9, output: str | None = None
    ) -> Any:
        """Central interval that holds the target with probability `level`.

        Its ends are quantiles of the predictive mixture of normals over labels and draws.

        Returns
        -------
        lower, upper : ndarrays (n_events,), or one frame, as `output` says
        """
        return self._interval(Given(X, agent=agent, entity=entity), level, output)

    def log_density(self, X: Any, y: Any = None, agent: Any = None, entity: Any = None) -> FloatArray:
        """Log of the predictive density of each event's target, in nats, for y in its original units.

        The predictive distribution is the mixture of normals over labels and draws, as in `predict_interval`. The
        mean over held-out events measures how good a model is, including its uncertainty.

        Parameters
        ----------
        X, agent, entity : as in `predict`
        y : array (n_events,) or str, optional
            Targets, or the name of their column; None is the column that `fit` used.

        Returns
        -------
        ndarray (n_events,)
        """
        return self._log_density(Given(X, y, agent, entity))

    def score(self, X: Any, y: Any = None, agent: Any = None, entity: Any = None, sample_weight: Any = None) -> Score:
        """R² of the predictions.

        Parameters
        ----------
        X, agent, entity : as in `predict`
        y : array (n_events,) or str, optional
            Targets, or the name of their column; None is the column that `fit` used.
        sample_weight : array (n_events,) or str, optional
            How often each event counts.

        Returns
        -------
        Score
            A float that also says how many events of known and new agents and entities were scored.
        """
        return score_events(self.family, *self._scored(Given(X, y, agent, entity, sample_weight)))


class BinaryEstimator(ClassifierMixin, HierarchicalEstimator):
    """Targets with two classes."""

    family: ClassVar[Family] = BINARY
    classes_ = Found[NDArray[Any]]()

    def predict_proba(self, X: Any, agent: Any = None, entity: Any = None, output: str | None = None) -> Any:
        """Probability of each class: the mean over labels, effects and draws, not that of a mean score.

        Parameters
        ----------
        X, agent, entity, output : as in `HLCRRegressor.predict`

        Returns
        -------
        ndarray (n_events, 2)
            In the order of `classes_`. A frame has the classes as names of its columns.
        """
        second = self._mean(Given(X, agent=agent, entity=entity))
        if self._output_name(output) == "default":
            return np.column_stack([1.0 - second, second])
        names = map(canonical_text, self.classes_)
        return self._answer(dict(zip(names, (1.0 - second, second), strict=True)), X, output)

    def predict_log_proba(self, X: Any, agent: Any = None, entity: Any = None) -> FloatArray:
        """Logarithms of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X, agent, entity, "default")))

    def decision_function(self, X: Any, agent: Any = None, entity: Any = None) -> FloatArray:
        """Log odds of the second class, from `predict_proba`; positive where `predict` returns this class.

        Returns
        -------
        ndarray (n_events,)
        """
        probabilities = self.predict_proba(X, agent, entity, "default")
        return np.asarray(np.log(probabilities[:, 1]) - np.log(probabilities[:, 0]))

    def predict(self, X: Any, agent: Any = None, entity: Any = None, output: str | None = None) -> Any:
        """The more probable class of each event; arguments as in `predict_proba`.

        Returns
        -------
        ndarray (n_events,)
            With `missing="drop"`, rows with missing values have NaN, or None if classes are texts or booleans.
        """
        second = self._mean(Given(X, agent=agent, entity=entity))
        classes = np.asarray(self.classes_[(second > 0.5).astype(np.int64)])
        if (unknown := np.isnan(second)).any():
            is_number = classes.dtype.kind in "iuf"
            classes = classes.astype(np.float64 if is_number else object)
            classes[unknown] = np.nan if is_number else None
        return self._answer({"prediction": classes}, X, output)

    def predict_interval(
        self, X: Any, agent: Any = None, entity: Any = None, level: float = 0.9, output: str | None = None
    ) -> Any:
        """Central interval that holds the probability of the second class with probability `level`.

        It says how well the probability is known: wide for a new entity, narrow for one with many events.

        Returns
        -------
        lower, upper : ndarrays (n_events,), or one frame, as `output` says
        """
        return self._interval(Given(X, agent=agent, entity=entity), level, output)

    def log_density(self, X: Any, y: Any = None, agent: Any = None, entity: Any = None) -> FloatArray:
        """Log of the probability of each event's class, in nats. Minus its mean is the log loss.

        Parameters
        ----------
        X, agent, entity : as in `predict_proba`
        y : array (n_events,) or str, optional
            Classes, or the name of their column; None is the column that `fit` used.

        Returns
        -------
        ndarray (n_events,)
        """
        return self._log_density(Given(X, y, agent, entity))

    def score(self, X: Any, y: Any = None, agent: Any = None, entity: Any = None, sample_weight: Any = None) -> Score:
        """Accuracy of the predicted classes.

        Parameters
        ----------
        X, y, agent, entity, sample_weight : as in `HLCRRegressor.score`

        Returns
        -------
        Score
        """
        return score_events(self.family, *self._scored(Given(X, y, agent, entity, sample_weight)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class CountEstimator(RegressorMixin, HierarchicalEstimator):
    """Targets that are counts."""

    family: ClassVar[Family] = COUNT
    dispersion_ = Found[float]()

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
