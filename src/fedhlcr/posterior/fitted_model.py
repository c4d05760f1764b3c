"""The attributes that summaries and files read of a fitted estimator, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data.recipe import Recipe
from fedhlcr.posterior.alignment import Alignment
from fedhlcr.posterior.diagnostics import Diagnostic
from fedhlcr.posterior.prediction import Posterior


class FittedModel(Protocol):
    """The attributes of a fitted `HLCRRegressor` or `FedHLCRRegressor`; their docstrings explain them."""

    saved_as: str
    n_clusters: int | str
    max_clusters: int
    n_features_in_: int
    n_clusters_: int
    seed_: int
    posterior_: Posterior
    alignment_: Alignment
    diagnostics_: tuple[Diagnostic, ...]
    comparison_: Any  # analysis.verdict.FitComparison, or None
    curve_coef_: FloatArray
    cluster_weights_: FloatArray
    labels_: NDArray[np.int64]
    feature_means_: FloatArray
    feature_spreads_: FloatArray
    feature_quantiles_: FloatArray | None
    global_concentration_: float
    agent_concentration_: float
    agent_column_: str | None
    entity_column_: str | None
    sole_agent_: NDArray[np.object_] | None
    recipe_: Recipe | None
    provenance_: Mapping[str, Any]

    @property
    def coef_(self) -> FloatArray: ...

    @property
    def intercept_(self) -> FloatArray: ...

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...
