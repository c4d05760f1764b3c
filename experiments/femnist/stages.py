"""What comes after the network: scores of being a letter, from what the network says of an image."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.femnist.loaders import N_DIGITS, Images
from fedhlcr import HLCRClassifier, HLCRRegressor, hold_out_events

Features = NDArray[np.float64]
Scores = NDArray[np.float64]

# Models by name: regressions of 0 and 1, as in the paper, and classifiers. Writers of one cluster are equal.
EQUAL: dict[str, Any] = {"effects": "none", "noise": "common"}
MODELS: dict[str, tuple[type[HLCRRegressor | HLCRClassifier], dict[str, Any]]] = {
    "hlcr_4": (HLCRRegressor, {"n_clusters": 4, **EQUAL}),
    "hlcr_8": (HLCRRegressor, {"n_clusters": 8, **EQUAL}),
    "hlcr_auto": (HLCRRegressor, EQUAL),
    "class_4": (HLCRClassifier, {"n_clusters": 4, "effects": "none"}),
    "class_8": (HLCRClassifier, {"n_clusters": 8, "effects": "none"}),
    "class_auto": (HLCRClassifier, {"effects": "none"}),
}


@dataclass(frozen=True)
class Task:
    """Letters against digits for all writers; `train` and `test` are rows, a fifth of each writer's held out."""

    is_letter: NDArray[np.bool_]
    writer: NDArray[np.str_]
    train: NDArray[np.intp]
    test: NDArray[np.intp]


def make_task(images: Images, seed: int) -> Task:
    train, test = hold_out_events(images.writer, images.writer, fraction=0.2, random_state=seed)
    return Task(images.is_letter, images.writer, train, test)


def argmax_scores(task: Task, probabilities: Features) -> Scores:
    """1 where the likeliest class is a letter, else 0."""
    return (probabilities[task.test].argmax(axis=1) >= N_DIGITS).astype(float)


def letter_scores(task: Task, probabilities: Features) -> Scores:
    """How likely all letters are together."""
    return probabilities[task.test, N_DIGITS:].sum(axis=1)


def logistic_scores(task: Task, features: Features) -> Scores:
    """One logistic regression for all writers, on standardised features, with scikit-learn's weak ridge (C = 1)."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(features[task.train], task.is_letter[task.train])
    return model.decision_function(features[task.test])


def linear_scores(task: Task, features: Features) -> Scores:
    """One least-squares regression of 0 and 1 for all writers: HLCR with a single cluster."""
    model = LinearRegression().fit(features[task.train], task.is_letter[task.train].astype(float))
    return model.predict(features[task.test])


def fit_hlcr(task: Task, features: Features, name: str, seed: int) -> HLCRRegressor | HLCRClassifier:
    """The model of this name in MODELS; a writer is an agent with one entity."""
    kind, parameters = MODELS[name]
    model = kind(**parameters, random_state=seed, n_threads=1)
    writer = task.writer[task.train]
    with warnings.catch_warnings():
        # of simpler models that predict as well; the table shows them
        warnings.simplefilter("ignore")
        return model.fit(features[task.train], task.is_letter[task.train].astype(float), agent=writer, entity=writer)


def scores_of(model: HLCRRegressor | HLCRClassifier, task: Task, features: Features) -> Scores:
    """Predicted means of 0 and 1, or probabilities of a letter."""
    writer = task.writer[task.test]
    if isinstance(model, HLCRClassifier):
        return model.predict_proba(features[task.test], agent=writer, entity=writer)[:, 1]
    return model.predict(features[task.test], agent=writer, entity=writer)


def principal_components(task: Task, hidden: NDArray[np.float32], n_components: int) -> Features:
    """Of the hidden layer on all writers' training images; from its covariance, which is a sum over writers."""
    pca = PCA(n_components, svd_solver="covariance_eigh").fit(hidden[task.train])
    return pca.transform(hidden).astype(float)


def pooled_auc(task: Task, scores: Scores) -> float:
    """Of all held-out images together."""
    return float(roc_auc_score(task.is_letter[task.test], scores))


def mean_auc_by_writer(task: Task, scores: Scores) -> float:
    """Mean over the writers who have both letters and digits among their held-out images."""
    writer, is_letter = task.writer[task.test], task.is_letter[task.test]
    order = np.argsort(writer, kind="stable")
    starts = np.unique(writer[order], return_index=True)[1][1:]
    lots = np.split(order, starts)
    both = [rows for rows in lots if is_letter[rows].any() and not is_letter[rows].all()]
    return float(np.mean([roc_auc_score(is_letter[rows], scores[rows]) for rows in both]))
