"""Targets as numbers: real numbers and counts as they are, two classes as 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data import inputs
from fedhlcr.data.families import Family
from fedhlcr.data.recipe import wrong_counts
from fedhlcr.exceptions import ArgumentError

CLASS_CURE = "drop these rows; the estimators leave them out with missing='drop'"


def read_target(family: Family, classes: NDArray[Any] | None, y: Any, n_rows: int) -> FloatArray:
    """(n_rows,) a target as numbers: 1 for the second of two classes, 0 for the first."""
    if classes is not None:
        labels = class_labels(y, n_rows)
        if unknown := int((~np.isin(labels, classes)).sum()):
            raise ArgumentError(
                f"`y` has {unknown} of {n_rows} events whose class is not one of the two that were fitted; leave these "
                "events out, or fit the model again."
            )
        return (labels == classes[1]).astype(np.float64)
    target = inputs.target_vector(y, n_rows)
    if faults := family.faults(target):
        name = getattr(y, "name", None)
        raise wrong_counts(f"column {name!r}" if isinstance(name, str) else "`y`", faults, n_rows, in_fit=True)
    return target


def learn_classes(y: Any, n_rows: int) -> NDArray[Any]:
    """The two classes of a target, sorted; others than two are refused."""
    from sklearn.utils.multiclass import check_classification_targets, type_of_target

    labels = class_labels(y, n_rows)
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
        raise one_class()
    return classes


def one_class() -> ArgumentError:
    return ArgumentError(
        "`y` has only one class; a classifier needs events of two classes (least 2 classes). Check the target, or that "
        "the events were not filtered by it."
    )


def class_labels(y: Any, n_rows: int) -> NDArray[Any]:
    """(n_rows,) the class of each event, as the user wrote it."""
    from sklearn.utils.validation import column_or_1d

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


def read_exposure(family: Family, exposure: Any, n_rows: int) -> FloatArray | None:
    """(n_rows,) what is added to the linear part of each event, the logarithm of its exposure; only counts have one."""
    if not family.has_exposure and exposure is not None:
        raise ArgumentError("`exposure` is for counts; leave it out, or use a model of counts.")
    return inputs.log_exposure(exposure, n_rows)
