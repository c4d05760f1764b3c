"""The scikit-learn face of logistic regressions: `HLCRClassifier` and `FedHLCRClassifier`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.estimators.central import CentralisedPredictor
from fedhlcr.estimators.federated import FederatedPredictor
from fedhlcr.estimators.parameters import CENTRAL_CONSTRAINTS, FEDERATED_CONSTRAINTS, SHARED_CONSTRAINTS
from fedhlcr.estimators.regressor import checking_parameters
from fedhlcr.estimators.targets import BinaryTarget
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.run import EngineFactory
from fedhlcr.model.binary import Logistic
from fedhlcr.model.priors import CoefPriorKind, EffectsName
from fedhlcr.storage.atomic import PathLike


class HLCRClassifier(BinaryTarget, CentralisedPredictor):
    """Hierarchical latent class regression for two classes.

    Every agent–entity pair belongs to one of K clusters, each cluster is a logistic regression, and entities of one
    cluster may differ, as in a logistic mixed model. Fitted by Gibbs sampling with Pólya–Gamma weights; by default the
    number of clusters and all hyperparameters are learned. For more than two classes wrap it in scikit-learn's
    `OneVsRestClassifier`.

    Parameters
    ----------
    n_clusters, coef_prior, effects, curves, standardize, fit_intercept, max_clusters : as in `HLCRRegressor`
    coef_scale : float or "learn", default="learn"
        δ, in log odds per standard deviation of x. A number is the prior N(0, δ²) for every coefficient.
    global_concentration, agent_concentration : as in `HLCRRegressor`
    n_sweeps : int, default=300
        As in `HLCRRegressor`; more by default, because single events say less.
    n_draws, n_chains, n_threads, random_state, verbose : as in `HLCRRegressor`

    Attributes
    ----------
    classes_ : ndarray (2,)
        The two classes, sorted. Coefficients and probabilities without further words belong to the second one.
    coef_, intercept_ : ndarrays (n_clusters_, n_features_in_) and (n_clusters_,)
        Posterior mean log odds ratios of each cluster per unit of each feature, and log odds where all features are 0.
        `numpy.exp(coef_)` are odds ratios.
    entity_coef_, entity_intercept_, entity_coef_std_, entity_intercept_std_, entity_effects_, effect_scales_,
    agent_effect_scales_
        As in `HLCRRegressor`, on the scale of log odds.
    cluster_weights_, agent_weights_, labels_, coef_mean_, coef_scale_, global_concentration_, agent_concentration_,
    curves_, curve_coef_, n_clusters_, trace_, diagnostics_, agent_ids_, pair_ids_, posterior_, alignment_, seed_,
    n_features_in_, feature_names_in_, feature_means_, feature_spreads_, agent_column_, entity_column_, sole_agent_,
    recipe_, provenance_
        As in `HLCRRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedhlcr import HLCRClassifier
    >>> from fedhlcr.datasets import make_hlcr
    >>> table, truth = make_hlcr(n_agents=40, n_clusters=3, target="binary", random_state=1)
    >>> model = HLCRClassifier().fit(table.X, table.y, agent=table.agent, entity=table.entity)
    >>> probabilities = model.predict_proba(table.X, agent=table.agent, entity=table.entity)
    >>> probabilities.shape == (len(table.y), 2)
    True
    """

    saved_as: ClassVar[str] = "HLCRClassifier"
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
        self.standardize = standardize
        self.fit_intercept = fit_intercept
        self.n_sweeps = n_sweeps
        self.n_draws = n_draws
        self.n_chains = n_chains
        self.max_clusters = max_clusters
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    @checking_parameters
    @single_threaded_blas
    def fit(self, X: Any, y: Any, agent: Any = None, entity: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X, agent, entity, sample_weight : as in `HLCRRegressor.fit`
        y : array (n_events,)
            Two classes: numbers, texts or booleans.

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the fit early with a warning. The model then uses the draws kept so far.
        """
        return self._fit(X, y, agent, entity, sample_weight)

    def likelihood_name(self) -> str:
        """The name of the likelihood that `fit` uses."""
        return Logistic.name


class FedHLCRClassifier(BinaryTarget, FederatedPredictor):
    """`HLCRClassifier` where every agent's events stay with the agent.

    `fit` simulates a federation in this process, as `FedHLCRRegressor` does: only sums by cluster travel. Agents keep
    their events until the end of the run.

    Parameters
    ----------
    patience : int or None, default=10
        As in `FedHLCRRegressor`; windows are three times as long, because single events say less.
    participation, rounds, failure_rate, n_draws, engine, limits, checkpoint, checkpoint_every, n_threads, random_state,
    verbose : as in `FedHLCRRegressor`
    n_clusters, coef_prior, effects, curves, standardize, fit_intercept, max_clusters : as in `HLCRRegressor`
    coef_scale : float or "learn", default="learn"
        δ, in log odds per standard deviation of x. A number is the prior N(0, δ²) for every coefficient.
    global_concentration, agent_concentration : as in `HLCRRegressor`

    Attributes
    ----------
    history_, stop_reason_, n_rounds_, server_ : as in `FedHLCRRegressor`
        In `history_`, `validation_mse` is the Brier score of the held-out events.
    classes_, coef_, … : as in `HLCRClassifier`

    Examples
    --------
    >>> from fedhlcr import FedHLCRClassifier
    >>> from fedhlcr.datasets import make_hlcr
    >>> table, truth = make_hlcr(n_agents=40, n_clusters=3, target="binary", random_state=1)
    >>> model = FedHLCRClassifier(participation=0.5)
    >>> model = model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    >>> model.classes_
    array([0, 1])
    """

    saved_as: ClassVar[str] = "FedHLCRClassifier"
    likelihood = Logistic.name
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
        standardize: bool = True,
        fit_intercept: bool = True,
        n_draws: int = 100,
        max_clusters: int = 64,
        engine: str | EngineFactory = "in_process",
        limits: ReplyLimits | None = None,
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
        self.standardize = standardize
        self.fit_intercept = fit_intercept
        self.n_draws = n_draws
        self.max_clusters = max_clusters
        self.engine = engine
        self.limits = limits
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    @checking_parameters
    @single_threaded_blas
    def fit(
        self,
        X: Any,
        y: Any,
        agent: Any = None,
        entity: Any = None,
        sample_weight: Any = None,
        validation: tuple[Any, ...] | None = None,
        resume: bool = False,
    ) -> Self:
        """Run a federation of the table's agents.

        Parameters
        ----------
        X, y, agent, entity, sample_weight : as in `HLCRClassifier.fit`
        validation, resume : as in `FedHLCRRegressor.fit`

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the run early with a warning. The model then uses the draws kept so far.
        """
        return self._fit(X, y, agent, entity, sample_weight, validation, resume)
