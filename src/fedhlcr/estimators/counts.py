"""The scikit-learn face of regressions for counts: `HLCRCountRegressor` and `FedHLCRCountRegressor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.estimators.central import CentralisedPredictor
from fedhlcr.estimators.federated import FederatedPredictor
from fedhlcr.estimators.parameters import CENTRAL_CONSTRAINTS, FEDERATED_CONSTRAINTS, SHARED_CONSTRAINTS
from fedhlcr.estimators.regressor import checking_parameters
from fedhlcr.estimators.targets import CountTarget
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.run import EngineFactory
from fedhlcr.model.counts import NegativeBinomial
from fedhlcr.model.priors import CoefPriorKind, EffectsName
from fedhlcr.storage.atomic import PathLike


class HLCRCountRegressor(CountTarget, CentralisedPredictor):
    """Hierarchical latent class regression for counts.

    Every agent–entity pair belongs to one of K clusters, each cluster is a negative binomial regression with a log
    link, and entities of one cluster may differ, as in a mixed model. The dispersion is learned, for each agent its
    own; where it vanishes, counts follow nearly a Poisson law. Fitted by Gibbs sampling with Pólya–Gamma weights.

    Parameters
    ----------
    n_clusters, coef_prior, effects, curves, standardize, fit_intercept, max_clusters : as in `HLCRRegressor`
    coef_scale : float or "learn", default="learn"
        δ, in logs of the mean count per standard deviation of x. A number is the prior N(0, δ²) for every coefficient.
    global_concentration, agent_concentration : as in `HLCRRegressor`
    n_sweeps : int, default=300
        As in `HLCRRegressor`; more by default, because single events say less.
    n_draws, n_chains, n_threads, random_state, verbose : as in `HLCRRegressor`

    Attributes
    ----------
    coef_, intercept_ : ndarrays (n_clusters_, n_features_in_) and (n_clusters_,)
        Posterior mean slopes of each cluster on the scale of the log mean, and log means where all features are 0.
        `numpy.exp(coef_)` are rate ratios.
    dispersion_ : float
        How much counts vary more than by a Poisson law: one of mean μ has variance μ + dispersion·μ². Posterior mean
        for a typical agent. The model never goes below two per cent more variance than that of a Poisson law.
    entity_coef_, entity_intercept_, entity_coef_std_, entity_intercept_std_, entity_effects_, effect_scales_,
    agent_effect_scales_
        As in `HLCRRegressor`, on the scale of the log mean.
    cluster_weights_, agent_weights_, labels_, … : as in `HLCRClassifier`

    Examples
    --------
    >>> from fedhlcr import HLCRCountRegressor
    >>> from fedhlcr.datasets import make_hlcr
    >>> table, truth = make_hlcr(n_agents=40, n_clusters=3, target="count", random_state=1)
    >>> model = HLCRCountRegressor().fit(table.X, table.y, agent=table.agent, entity=table.entity)
    >>> lower, upper = model.predict_interval(table.X, agent=table.agent, entity=table.entity)
    >>> bool((lower % 1 == 0).all())
    True
    """

    saved_as: ClassVar[str] = "HLCRCountRegressor"
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
    def fit(
        self, X: Any, y: Any, agent: Any = None, entity: Any = None, sample_weight: Any = None, exposure: Any = None
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X, agent, entity, sample_weight : as in `HLCRRegressor.fit`
        y : array (n_events,)
            Counts: 0, 1, 2, …
        exposure : array (n_events,) or number, optional
            How long, or how many, each event was exposed: days of observation, persons at risk. Means are proportional
            to it. None is 1 for every event.

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the fit early with a warning. The model then uses the draws kept so far.
        """
        return self._fit(X, y, agent, entity, sample_weight, exposure)

    def likelihood_name(self) -> str:
        """The name of the likelihood that `fit` uses."""
        return NegativeBinomial.name


class FedHLCRCountRegressor(CountTarget, FederatedPredictor):
    """`HLCRCountRegressor` where every agent's events stay with the agent.

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
        δ, in logs of the mean count per standard deviation of x. A number is the prior N(0, δ²) for every coefficient.
    global_concentration, agent_concentration : as in `HLCRRegressor`

    Attributes
    ----------
    history_, stop_reason_, n_rounds_, server_ : as in `FedHLCRRegressor`
    coef_, dispersion_, … : as in `HLCRCountRegressor`

    Examples
    --------
    >>> from fedhlcr import FedHLCRCountRegressor
    >>> from fedhlcr.datasets import make_hlcr
    >>> table, truth = make_hlcr(n_agents=40, n_clusters=3, target="count", random_state=1)
    >>> model = FedHLCRCountRegressor(participation=0.5)
    >>> model = model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    >>> bool(model.dispersion_ > 0)
    True
    """

    saved_as: ClassVar[str] = "FedHLCRCountRegressor"
    likelihood = NegativeBinomial.name
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
        exposure: Any = None,
    ) -> Self:
        """Run a federation of the table's agents.

        Parameters
        ----------
        X, y, agent, entity, sample_weight, exposure : as in `HLCRCountRegressor.fit`
        validation : tuple (X, y), (X, y, agent) or (X, y, agent, entity), optional
            As in `FedHLCRRegressor.fit`; with exposures of 1.
        resume : as in `FedHLCRRegressor.fit`

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the run early with a warning. The model then uses the draws kept so far.
        """
        return self._fit(X, y, agent, entity, sample_weight, validation, resume, exposure)
