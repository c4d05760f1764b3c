"""What tells clusters of writers apart: what the writers write, how the network reads them, what a cluster answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from experiments.femnist.loaders import N_CLASSES, N_DIGITS, Images
from experiments.femnist.stages import Features, Task
from experiments.study import Figures

DIGITS = 3  # of figures in records


def describe(model: Any, task: Task, images: Images, probabilities: Features) -> Figures:
    """Of training images only; lists by writer, and by cluster and character.

    `letters` is the share of letters among a writer's images, `read` the share that the network reads as the right
    sort, letter or digit. `answers` are mean probabilities of a letter for all images of a character, whoever wrote
    them, by the cluster's regression.
    """
    rows = task.train
    writer, is_letter, y = task.writer[rows], task.is_letter[rows], images.y[rows]
    said = probabilities[rows]
    right = (said.argmax(axis=1) >= N_DIGITS) == is_letter
    names = np.array([agent for agent, _ in model.pair_ids_]).astype(str)
    of_cluster = expit(model.intercept_ + said @ model.coef_.T)
    return {
        "label": model.labels_.tolist(),
        "certainty": _rounded(model.responsibilities(names, names).max(axis=1)),
        "letters": _rounded(np.array([is_letter[writer == name].mean() for name in names])),
        "read": _rounded(np.array([right[writer == name].mean() for name in names])),
        "answers": _rounded(np.array([of_cluster[y == c].mean(axis=0) for c in range(N_CLASSES) if (y == c).any()]).T),
        "characters": [c for c in range(N_CLASSES) if (y == c).any()],
    }


def _rounded(values: NDArray[np.float64]) -> list[Any]:
    return np.round(values, DIGITS).tolist()
