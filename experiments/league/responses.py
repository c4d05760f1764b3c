"""One cell of a table whose target is yes or no, or a count."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.study import Figures

if TYPE_CHECKING:
    from fedhlcr.datasets.hierarchical import HierarchicalData

# What each model is called, and its settings.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("default", {}),
    "one": ("one cluster", {"n_clusters": 1}),
}
# Bins of equal width, whose sums can be added over splits.
N_BINS = 10


def measure_classes(train: HierarchicalData, test: HierarchicalData, model: str, seed: int) -> Figures:
    """Held-out log loss and AUC, and sums of predicted and observed ones in bins of the predicted probability."""
    from sklearn.metrics import log_loss, roc_auc_score

    from fedhlcr import HLCRClassifier

    fitted, seconds = _fit(HLCRClassifier, train, model, seed)
    predicted = fitted.predict_proba(test.X, test.agent, test.entity)[:, 1]
    place = np.minimum((predicted * N_BINS).astype(int), N_BINS - 1)
    sums = [np.bincount(place, weights=of, minlength=N_BINS).tolist() for of in (predicted, test.y)]
    return {
        "log_loss": float(log_loss(test.y, predicted)),
        "auc": float(roc_auc_score(test.y, predicted)),
        "predicted_ones": sums[0],
        "observed_ones": sums[1],
        "n_events": len(test.y),
        "n_clusters": fitted.n_clusters_,
        "seconds": seconds,
    }


def measure_counts(train: HierarchicalData, test: HierarchicalData, model: str, seed: int) -> Figures:
    """Held-out Poisson deviance, and coverage of 90 % intervals."""
    from sklearn.metrics import mean_poisson_deviance

    from fedhlcr import HLCRCountRegressor

    fitted, seconds = _fit(HLCRCountRegressor, train, model, seed)
    lower, upper = fitted.predict_interval(test.X, test.agent, test.entity)
    return {
        "deviance": float(mean_poisson_deviance(test.y, fitted.predict(test.X, test.agent, test.entity))),
        "coverage": float(((lower <= test.y) & (test.y <= upper)).mean()),
        "n_events": len(test.y),
        "n_clusters": fitted.n_clusters_,
        "seconds": seconds,
    }


def _fit(kind: Any, train: HierarchicalData, model: str, seed: int) -> tuple[Any, float]:
    """The fitted model, and seconds of one core."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        fitted = kind(random_state=seed, n_threads=1, **MODELS[model][1])
        fitted.fit(train.X, train.y, agent=train.agent, entity=train.entity)
    return fitted, round(time.process_time() - start, 3)
