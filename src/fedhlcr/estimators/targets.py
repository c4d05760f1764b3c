"""What estimators do that depends on their target: real numbers or two classes; `count_target` has counts."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data import inputs
from fedhlcr.data.categories import class_values
from fedhlcr.data.families import BINARY, REAL, Family
from fedhlcr.data.frames import Given
from fedhlcr.data.ids import canonical_text
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.scarcity import TableShape
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.regressor import HierarchicalRegressor
from fedhlcr.estimators.score import Score, score_events
from fedhlcr.exceptions import ArgumentError

CLASS_CURE = "drop these rows; the estimators leave them out with missing='drop'"


class RealTarget(HierarchicalRegressor, HierarchicalPredictor):
    """Targets that are real numbers."""

    family: ClassVar[Family] = REAL

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


class BinaryTarget(ClassifierMixin, HierarchicalPredictor):
    """Targets with two classes."""

    family: ClassVar[Family] = BINARY
    classes_: NDArray[Any]

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

    def _learn_target(self, y: Any, n_rows: int) -> FloatArray:
        labels = _class_labels(y, n_rows)
        check_classification_targets(labels)
        classes = np.unique(labels)
        if len(classes) > 2:
            # scikit-learn's own checks look for the first words
            raise ArgumentError(
                f"Only binary classification is supported. The type of the target is {type_of_target(labels)}: `y` has "
                f"{len(classes)} classes, but this model is for two. Wrap it: "
                "sklearn.multiclass.OneVsRestClassifier fits one model for each class against all others; the how-to "
                "'More than two classes' shows it with agents and entities."
            )
        if len(classes) < 2:
            raise _one_class()
        self.classes_ = classes
        return (labels == classes[1]).astype(np.float64)

    def _learn_classes(self, recipe: Recipe, shape: TableShape) -> None:
        if recipe.classes is None:
            raise ArgumentError("the table's target is a number, but a classifier needs two classes.")
        if not shape.target_varies:
            raise _one_class()
        self.classes_ = class_values(recipe.classes)

    def _streamed_target(self, target: FloatArray) -> FloatArray:
        return target

    def _target(self, y: Any, n_rows: int) -> FloatArray:
        labels = _class_labels(y, n_rows)
        if unknown := int((~np.isin(labels, self.classes_)).sum()):
            raise ArgumentError(
                f"`y` has {unknown} of {n_rows} events whose class is not one of the two that were fitted; leave these "
                "events out, or fit the model again."
            )
        return (labels == self.classes_[1]).astype(np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def _one_class() -> ArgumentError:
    return ArgumentError(
        "`y` has only one class; a classifier needs events of two classes (least 2 classes). Check the target, or that "
        "the events were not filtered by it."
    )


def _class_labels(y: Any, n_rows: int) -> NDArray[Any]:
    if y is None:
        raise ArgumentError("requires y to be passed, but the target y is None; pass one class per event row.")
    labels = column_or_1d(inputs.native_array(y), warn=True)
    inputs.require_length(labels, "y", "class", n_rows)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        missing = int((~np.isfinite(labels)).sum())
        raise ArgumentError(
            f"`y` has {missing} missing or infinite classes (NaN or inf) in {n_rows} rows; {CLASS_CURE}."
        )
    if labels.dtype.kind == "O" and (missing := sum(inputs.is_missing(label) for label in labels)):
        raise ArgumentError(f"`y` has {missing} missing classes (NaN) in {n_rows} rows; {CLASS_CURE}.")
    if labels.dtype.kind == "O" and all(isinstance(label, bool | np.bool_) for label in labels):
        labels = labels.astype(bool)
    return np.asarray(labels)
