"""The scikit-learn face of the federation: `FedHLCRRegressor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.data.categories import Categories
from fedhlcr.data.frames import Given
from fedhlcr.estimators.base import Found, FoundIfAny
from fedhlcr.estimators.parameters import checking_parameters, documented, parameter_constraints, store
from fedhlcr.estimators.targets import RealEstimator
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.run import EngineFactory
from fedhlcr.federation.server import Server
from fedhlcr.model.likelihood import AUTO
from fedhlcr.privacy.differential_privacy import DifferentialPrivacy, PrivacyPlan
from fedhlcr.settings import MIN_COHORT, AggregationName, CoefPriorKind, EffectsName, MissingPolicy, NoiseName, RuleName
from fedhlcr.storage.atomic import PathLike


@documented
class FedHLCRRegressor(RealEstimator):
    """Hierarchical latent class regression where every agent's events stay with the agent.

    The model is that of `HLCRRegressor`. `fit` simulates a federation in this process: each agent of the table holds
    its own events, a server asks some agents in each round, and only sums by cluster travel. By default the number of
    clusters and all hyperparameters are learned, and the run ends when its log joint is stable.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    history_ : structured ndarray
        One record per round, the survey (round 0) first: round, participants (ids of the agents whose contribution
        was accepted), n_asked, n_accepted, n_refused, bytes_down, bytes_up, labels_changed, log_joint, noise_scale
        (units of y), global_concentration, agent_concentration, n_clusters (in use), validation_mse (NaN without a
        validation set), kept (whether its draw was kept).
    stop_reason_ : str
        Why the run ended. It begins with "converged" only if the log joint was stable and R-hat of everything in
        `diagnostics_` is at most 1.1; with "stopped" if the log joint was stable but R-hat is higher, or unknown.
    n_rounds_ : int
    privacy_ : PrivacyPlan or None
        What was released under differential privacy: epsilon, delta, mu, releases. None without `privacy`.
    server_ : Server
        The server at the end of the run. To withdraw an agent from a model, fit again without its rows.
    coef_, intercept_, cluster_weights_, agent_weights_, labels_, noise_scale_, coef_mean_, coef_scale_,
    global_concentration_, agent_concentration_, n_clusters_, diagnostics_, agent_ids_, pair_ids_, posterior_,
    alignment_, seed_, n_features_in_, feature_names_in_, feature_means_, feature_spreads_, agent_column_,
    entity_column_, sole_agent_, recipe_, provenance_, curves_, curve_coef_, noise_shape_, entity_coef_,
    entity_intercept_, entity_coef_std_, entity_intercept_std_, entity_effects_, entity_noise_, effect_scales_,
    agent_effect_scales_, comparison_, fit_seconds_
        As in `HLCRRegressor`.

    Examples
    --------
    >>> from fedhlcr import FedHLCRRegressor
    >>> from fedhlcr.datasets import make_hlcr
    >>> table, truth = make_hlcr(n_agents=40, n_clusters=3, random_state=1)
    >>> model = FedHLCRRegressor(participation=0.5, failure_rate=0.1)
    >>> model = model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    >>> model.n_clusters_
    3
    """

    _is_federated: ClassVar[bool] = True
    history_ = FoundIfAny[NDArray[np.void]]()
    stop_reason_ = FoundIfAny[str]()
    n_rounds_ = FoundIfAny[int]()
    privacy_ = Found[PrivacyPlan | None]()
    server_: Server | PrivateServer
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = parameter_constraints("real", federated=True)

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        rule: RuleName = "delta",
        learning_rate: float = 0.2,
        participation_scaling: bool = True,
        participation: float = 1.0,
        rounds: int | None = None,
        failure_rate: float = 0.0,
        patience: int | None = 10,
        noise_scale: float | str = "learn",
        coef_scale: float | str = "learn",
        global_concentration: float | str = "learn",
        agent_concentration: float | str = "learn",
        coef_prior: CoefPriorKind = "adaptive",
        effects: EffectsName = "auto",
        noise: NoiseName = "entity",
        likelihood: str = AUTO,
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
        privacy: DifferentialPrivacy | None = None,
        checkpoint: PathLike | None = None,
        checkpoint_every: int = 1,
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        store(self, locals())

    @checking_parameters
    @single_threaded_blas
    def fit(
        self,
        X: Any,
        y: Any = None,
        agent: Any = None,
        entity: Any = None,
        sample_weight: Any = None,
        validation: tuple[Any, ...] | None = None,
        resume: bool = False,
    ) -> Self:
        """Run a federation of the table's agents.

        Parameters
        ----------
        X, y, agent, entity, sample_weight : as in `HLCRRegressor.fit`
        validation : tuple (X, y), (X, y, agent) or (X, y, agent, entity), optional
            Events that are not fitted. `history_` contains their mean squared error for each round; the time that this
            takes is `fit_seconds_.scoring`.
        resume : bool, default=False
            Continue from the file `checkpoint`, with the same table and settings. The result is the same, to the
            last digit, as that of an uninterrupted run.

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the run early with a warning. The model then uses the draws kept so far.
        """
        return self._fit(Given(X, y, agent, entity, sample_weight), validation, resume)
