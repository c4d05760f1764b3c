"""The settings that estimators of classes and of counts share; unlike regressors they have no noise to choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from fedhlcr.data.categories import Categories
from fedhlcr.data.frames import MissingName
from fedhlcr.estimators.central import CentralisedPredictor
from fedhlcr.estimators.federated import FederatedPredictor
from fedhlcr.estimators.parameters import CENTRAL_CONSTRAINTS, FEDERATED_CONSTRAINTS, SHARED_CONSTRAINTS
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.run import EngineFactory
from fedhlcr.federation.settings import MIN_COHORT, AggregationName
from fedhlcr.model.priors import CoefPriorKind, EffectsName
from fedhlcr.storage.atomic import PathLike


class CentralisedOutcomes(CentralisedPredictor):
    """Settings of estimators that see all events."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**SHARED_CONSTRAINTS, **CENTRAL_CONSTRAINTS}

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
        missing: MissingName = "raise",
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
        self.n_clusters = n_clusters
        self.coef_scale = coef_scale
        self.global_concentration = global_concentration
        self.agent_concentration = agent_concentration
        self.coef_prior = coef_prior
        self.effects = effects
        self.curves = curves
        self.categories = categories
        self.missing = missing
        self.formula = formula
        self.standardize = standardize
        self.fit_intercept = fit_intercept
        self.n_sweeps = n_sweeps
        self.n_draws = n_draws
        self.n_chains = n_chains
        self.max_clusters = max_clusters
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose


class FederatedOutcomes(FederatedPredictor):
    """Settings of estimators that run a federation."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**SHARED_CONSTRAINTS, **FEDERATED_CONSTRAINTS}

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
        missing: MissingName = "raise",
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
        self.n_clusters = n_clusters
        self.participation = participation
        self.rounds = rounds
        self.failure_rate = failure_rate
        self.patience = patience
        self.coef_scale = coef_scale
        self.global_concentration = global_concentration
        self.agent_concentration = agent_concentration
        self.coef_prior = coef_prior
        self.effects = effects
        self.curves = curves
        self.categories = categories
        self.missing = missing
        self.formula = formula
        self.standardize = standardize
        self.fit_intercept = fit_intercept
        self.n_draws = n_draws
        self.max_clusters = max_clusters
        self.engine = engine
        self.limits = limits
        self.aggregation = aggregation
        self.fixed_point = fixed_point
        self.min_cohort = min_cohort
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose
