"""The scikit-learn face of regressions for counts: `HLCRCountRegressor` and `FedHLCRCountRegressor`."""

from __future__ import annotations

from typing import Any, Self

from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.data.frames import Given
from fedhlcr.estimators.outcomes import CentralisedOutcomes, FederatedOutcomes
from fedhlcr.estimators.parameters import checking_parameters, documented
from fedhlcr.estimators.targets import CountEstimator


@documented
class HLCRCountRegressor(CentralisedOutcomes, CountEstimator):
    """Hierarchical latent class regression for counts.

    Every agent–entity pair belongs to one of K clusters, each cluster is a negative binomial regression with a log
    link, and entities of one cluster may differ, as in a mixed model. The dispersion is learned, for each agent its
    own; where it vanishes, counts follow nearly a Poisson law. Fitted by Gibbs sampling with Pólya–Gamma weights.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_, intercept_ : ndarrays (n_clusters_, n_features_in_) and (n_clusters_,)
        Posterior mean slopes of each cluster on the scale of the log mean, and log means where all features are 0.
        `numpy.exp(coef_)` are rate ratios.
    dispersion_ : float
        How much counts vary more than by a Poisson law: one of mean μ has variance μ + dispersion·μ². Posterior mean
        for a typical agent. The model never goes below two per cent more variance than that of a Poisson law, and
        `dispersion_` is what comes on top of these.
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

    @checking_parameters
    @single_threaded_blas
    def fit(
        self,
        X: Any,
        y: Any = None,
        agent: Any = None,
        entity: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X, agent, entity, sample_weight : as in `HLCRRegressor.fit`
        y : array (n_events,) or str
            Counts: 0, 1, 2, …; or the name of their column of X.
        exposure : array (n_events,), number or str, optional
            How long, or how many, each event was exposed: days of observation, persons at risk. Means are proportional
            to it. None is 1 for every event.

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the fit early with a warning. The model then uses the draws kept so far.
        """
        return self._fit(Given(X, y, agent, entity, sample_weight, exposure))


@documented
class FedHLCRCountRegressor(FederatedOutcomes, CountEstimator):
    """`HLCRCountRegressor` where every agent's events stay with the agent.

    `fit` simulates a federation in this process, as `FedHLCRRegressor` does: only sums by cluster travel. Agents keep
    their events until the end of the run.

    Parameters
    ----------
    {parameters}

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
        exposure: Any = None,
    ) -> Self:
        """Run a federation of the table's agents.

        Parameters
        ----------
        X, y, agent, entity, sample_weight, exposure : as in `HLCRCountRegressor.fit`
        validation : tuple (X, y), (X, y, agent), (X, y, agent, entity) or (X, y, agent, entity, exposure), optional
            As in `FedHLCRRegressor.fit`.
        resume : as in `FedHLCRRegressor.fit`

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the run early with a warning. The model then uses the draws kept so far.
        """
        return self._fit(Given(X, y, agent, entity, sample_weight, exposure), validation, resume)
