"""Gradient boosted trees with agent and entity as categories: LightGBM, where it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


def is_installed() -> bool:
    return find_spec("lightgbm") is not None


class BoostedTrees:
    """LightGBM at its defaults, with the interface of the other methods."""

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def get_params(self) -> dict[str, Any]:
        return {"random_state": self.random_state}

    def fit(self, X: NDArray[np.float64], y: NDArray[np.float64], agent: Any, entity: Any) -> Self:
        from lightgbm import LGBMRegressor

        pairs = _pairs(agent, entity)
        self._agents, self._pairs = np.unique(agent), np.unique(pairs)
        n_features = X.shape[1]
        self._model = LGBMRegressor(random_state=self.random_state, n_jobs=1, verbose=-1)
        self._model.fit(self._columns(X, agent, pairs), y, categorical_feature=[n_features, n_features + 1])
        return self

    def predict(self, X: NDArray[np.float64], agent: Any, entity: Any) -> NDArray[np.float64]:
        return np.asarray(self._model.predict(self._columns(X, agent, _pairs(agent, entity))))

    def _columns(self, X: NDArray[np.float64], agent: Any, pairs: NDArray[Any]) -> NDArray[np.float64]:
        codes = [np.searchsorted(known, ids) for known, ids in ((self._agents, agent), (self._pairs, pairs))]
        return np.column_stack([X, *codes])


def _pairs(agent: Any, entity: Any) -> NDArray[Any]:
    return np.array([f"{a}/{e}" for a, e in zip(agent, entity, strict=True)])
