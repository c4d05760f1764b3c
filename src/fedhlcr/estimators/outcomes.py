"""The settings that estimators of classes and of counts share; unlike regressors they have no noise to choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhlcr.data.categories import Categories
from fedhlcr.estimators.base import Found, FoundIfAny
from fedhlcr.estimators.parameters import parameter_constraints, store
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.run import EngineFactory
from fedhlcr.federation.server import Server
from fedhlcr.privacy.differential_privacy import PrivacyPlan
from fedhlcr.settings import MIN_COHORT, AggregationName, CoefPriorKind, EffectsName, MissingPolicy
from fedhlcr.storage.atomic import PathLike


class CentralisedOutcomes:
    """Settings of estimators that see all events."""

    trace_ = FoundIfAny[NDArray[np.void]]()
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = parameter_constraints("binary", federated=False)

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        coef_scale: float | str = "learn",
        global_concentration: float | str = "learn",
        agent_concentration: float | str = "learn",
        coef_prior: CoefPriorKind = "adaptive",
        effects: EffectsName = "auto",
        curves: str | Sequence[str | int] = "none",
        categories: Categories = "auto",
        missing: MissingPolicy = "refuse",
        formula: str | None = None,
        standardize: bool = True,
        fit_intercept: bool = True,
        n_sweeps: int = 300,
        n_draws: int = 100,
        n_chains: int = 1,
        max_clusters: int = 64,
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        store(self, locals())


class FederatedOutcomes:
    """Settings of estimators that run a federation."""

    _is_federated: ClassVar[bool] = True
    history_ = FoundIfAny[NDArray[np.void]]()
    stop_reason_ = FoundIfAny[str]()
    n_rounds_ = FoundIfAny[int]()
    privacy_ = Found[PrivacyPlan | None]()
    server_: Server | PrivateServer
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = parameter_constraints("binary", federated=True)

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        participation: float = 1.0,
        rounds: int | None = None,
        failure_rate: float = 0.0,
        patience: int | None = 10,
        coef_scale: float | str = "learn",
        global_concentration: float | str = "learn",
        agent_concentration: float | str = "learn",
        coef_prior: CoefPriorKind = "adaptive",
        effects: EffectsName = "auto",
        curves: str | Sequence[str | int] = "none",
        categories: Categories = "auto",
        missing: MissingPolicy = "refuse",
        formula: str | None = None,
        standardize: bool = True,
        fit_intercept: bool = True,
        n_draws: int = 100,
        max_clusters: int = 64,
        engine: str | EngineFactory = "in_process",
        limits: ReplyLimits | None = None,
        aggregation: AggregationName = "plain",
        fixed_point: bool = False,
        min_cohort: int = MIN_COHORT,
        checkpoint: PathLike | None = None,
        checkpoint_every: int = 1,
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        store(self, locals())
