"""The scikit-learn face of logistic regressions: `HLCRClassifier` and `FedHLCRClassifier`."""

from __future__ import annotations

from typing import Any, Self

from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.data.frames import Given
from fedhlcr.estimators.outcomes import CentralisedOutcomes, FederatedOutcomes
from fedhlcr.estimators.parameters import checking_parameters, documented
from fedhlcr.estimators.targets import BinaryEstimator


@documented
class HLCRClassifier(CentralisedOutcomes, BinaryEstimator):
    """Hierarchical latent class regression for two classes.

    Every agent–entity pair belongs to one of K clusters, each cluster is a logistic regression, and entities of one
    cluster may differ, as in a logistic mixed model. Fitted by Gibbs sampling with Pólya–Gamma weights; by default the
    number of clusters and all hyperparameters are learned. For more than two classes wrap it in scikit-learn's
    `OneVsRestClassifier`.

    Parameters
    ----------
    {parameters}

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
    n_features_in_, feature_names_in_, feature_means_, feature_spreads_, feature_quantiles_, agent_column_,
    entity_column_, sole_agent_, recipe_, provenance_, fit_seconds_
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

    @checking_parameters
    @single_threaded_blas
    def fit(self, X: Any, y: Any = None, agent: Any = None, entity: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X, agent, entity, sample_weight : as in `HLCRRegressor.fit`
        y : array (n_events,) or str
            Two classes: numbers, texts or booleans; or the name of their column of X.

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the fit early with a warning. The model then uses the draws kept so far.
        """
        return self._fit(Given(X, y, agent, entity, sample_weight))


@documented
class FedHLCRClassifier(FederatedOutcomes, BinaryEstimator):
    """`HLCRClassifier` where every agent's events stay with the agent.

    `fit` simulates a federation in this process, as `FedHLCRRegressor` does: only sums by cluster travel. Agents keep
    their events until the end of the run.

    Parameters
    ----------
    {parameters}

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
        X, y, agent, entity, sample_weight : as in `HLCRClassifier.fit`
        validation, resume : as in `FedHLCRRegressor.fit`

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the run early with a warning. The model then uses the draws kept so far.
        """
        return self._fit(Given(X, y, agent, entity, sample_weight), validation, resume)
