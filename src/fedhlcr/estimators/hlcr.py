"""The scikit-learn face: `HLCRRegressor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.data.categories import Categories
from fedhlcr.data.frames import Given
from fedhlcr.estimators.base import FoundIfAny
from fedhlcr.estimators.parameters import checking_parameters, documented, parameter_constraints, store
from fedhlcr.estimators.targets import RealEstimator
from fedhlcr.model.likelihood import AUTO
from fedhlcr.settings import CoefPriorKind, EffectsName, LabelPrior, MissingPolicy, NoiseName, SamplerName


@documented
class HLCRRegressor(RealEstimator):
    """Hierarchical latent class regression.

    Every agent–entity pair belongs to one of K clusters, each cluster is a linear regression, and
    agents differ in how common the clusters are among their entities. Fitted by Gibbs sampling; by
    default the number of clusters and all hyperparameters are learned.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    coef_ : ndarray (n_clusters_, n_features_in_)
        Posterior mean slopes of each cluster, in the user's units. Clusters are numbered from 0 by size, largest
        first: by their number of entities, mean over the draws. Every attribute, table and plot uses these numbers.
        The coefficient of a level of a category with three or more levels is its difference from the average event;
        with two levels, that from the other one.
    intercept_ : ndarray (n_clusters_,)
    cluster_weights_ : ndarray (n_clusters_,)
        Overall weights of the clusters, ψ: the expected shares of a new agent's entities.
    agent_weights_ : ndarray (n_agents, n_clusters_)
        Weights of the clusters for each agent, θ, in the order of `agent_ids_`.
    labels_ : ndarray (n_entities,)
        Cluster that each agent–entity pair was in most often over the draws, in the order of `pair_ids_`. In close
        cases another cluster may have a slightly higher probability in `responsibilities`.
    noise_scale_ : float
        Posterior mean of σ, in units of y; the typical noise s if every entity has its own.
    noise_shape_ : float
        Posterior mean of ν: the larger, the more alike the noise of the entities; infinite if it is the same for all.
        With `noise="student"` the degrees of freedom; then the standard deviation of the noise exceeds `noise_scale_`.
        Not with `effects="none", noise="common"`.
    entity_coef_, entity_intercept_ : ndarrays (n_entities, n_features_in_) and (n_entities,)
        Posterior mean slopes and intercept of each entity, in the user's units and in the order of `pair_ids_`: lme4's
        `coef`. They average over draws and labels. With curves they are the straight part. These attributes, their
        standard deviations and `entity_effects_` are computed when they are first used.
    entity_coef_std_, entity_intercept_std_ : ndarrays, as `entity_coef_` and `entity_intercept_`
        Posterior standard deviations.
    entity_effects_ : ndarray (n_entities, 1 + n_features_in_)
        How each entity deviates from its cluster, with the effects of its agent: lme4's `ranef`, if there is one
        cluster. First the level, which is the prediction at `feature_means_`; then each slope.
    entity_noise_ : ndarray (n_entities,)
        Posterior mean noise of each entity, in units of y; with `noise="student"` the standard deviation, as for all.
    effect_scales_, agent_effect_scales_ : ndarrays (1 + n_features_in_,)
        Standard deviations of the effects of entities and of agents, in the user's units: of the level at
        `feature_means_`, then of each slope; 0 where there is no effect. Posterior means; lme4's `VarCorr`.
    coef_mean_, coef_scale_ : ndarrays (n_coef,)
        Posterior means of μ and δ, in standardised units; the intercept, if there is one, comes first.
    global_concentration_, agent_concentration_ : float
        Posterior means of α and β.
    curves_ : Curves or None
        The columns with a curve and their knots. `coef_` holds the slopes of the straight lines alone; `curve` returns
        a feature's whole effect.
    curve_coef_ : ndarray (n_clusters_, columns that curves append)
        Posterior mean coefficients of the columns that `curves_.expand` appends to the features, in units of y.
    n_clusters_ : int
        Number of clusters: `n_clusters` if it was given, else the number of clusters with entities.
    trace_ : structured ndarray
        One record per sweep: chain, sweep, log_joint, noise_scale (units of y),
        global_concentration, agent_concentration, n_clusters, labels_changed, kept.
    diagnostics_ : tuple of (quantity, r_hat, effective_size)
    fit_seconds_ : FitSeconds(computing, scoring, compiling) or None
        How long `fit` took by the clock. `computing` means the same in a centralised and a federated fit: all but
        predicting for the `validation` of a federated one, and compiling kernels. `fit_files` does not count reading
        the files. None in a model from a file.
    comparison_ : FitComparison or None
        Whether one ridge or a mixed model predicts the fitted events better, each event from all others. `fit` warns
        if one of them does. None with fewer than five entities, with weighted events (a `sample_weight` other than 1),
        with a constant target, and with `noise="student"`; also if the densities cannot be computed, as with a target
        without any noise.
    agent_ids_ : ndarray (n_agents,)
    pair_ids_ : list of (agent id, entity id)
    posterior_ : Posterior
        Draws and the agents' matrices, in standardised units.
    alignment_ : Alignment
        For every cluster of every draw, the number it has in `coef_` and `labels_`.
    seed_ : int
    n_features_in_, feature_names_in_ : as usual in scikit-learn
    feature_means_, feature_spreads_ : ndarrays (n_features_in_,)
        Means and standard deviations of the features over the fitted events.
    feature_quantiles_ : ndarray (n_features_in_, 33) or None
        Quantiles of the features at (i + 0.5) / 33, over up to 10,000 of the fitted events, evenly spaced. Sentences
        and axes take usual values from them. None in a public model, whose file has no values of single events.
    agent_column_, entity_column_ : names of the id columns, or None
    sole_agent_ : ndarray (1,) or None
        Id of the agent if there was only one.
    frame_library_ : {"pandas", "polars", "pyarrow"} or None
        The dataframe library of X, in which tables such as `coef_table` are returned; None if X was an array.
    family : Family
        What the target is: its `name` is "real", "binary" or "count".
    own_likelihood : str
        Of the class: "auto", or the name of the registered likelihood that a subclass uses.
    recipe_ : Recipe or None
        How a raw table becomes features, if the model was fitted to a dataframe or by the command line.
    provenance_ : mapping
        Origin of a loaded model: versions, the time it was saved, and the table and command it was fitted with. Empty
        for a model that was not loaded.

    Examples
    --------
    >>> from fedhlcr import NEW, HLCRRegressor
    >>> from fedhlcr.datasets import make_hlcr
    >>> table, truth = make_hlcr(n_agents=40, n_clusters=3, random_state=1)
    >>> model = HLCRRegressor().fit(table.X, table.y, agent=table.agent, entity=table.entity)
    >>> model.n_clusters_
    3
    >>> y_known = model.predict(table.X, agent=table.agent, entity=table.entity)
    >>> y_new_agent = model.predict(table.X, agent=NEW)
    """

    trace_ = FoundIfAny[NDArray[np.void]]()
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = parameter_constraints("real", federated=False)

    def __init__(
        self,
        n_clusters: int | str = "auto",
        *,
        sampler: SamplerName = "blocked",
        label_prior: LabelPrior = "tables",
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
        n_sweeps: int = 200,
        n_draws: int = 100,
        n_chains: int = 1,
        max_clusters: int = 64,
        precision: str = "double",
        n_threads: int | None = None,
        random_state: Any = 0,
        verbose: bool = False,
    ) -> None:
        store(self, locals())

    @checking_parameters
    @single_threaded_blas
    def fit(self, X: Any, y: Any = None, agent: Any = None, entity: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array or dataframe (n_events, n_features)
            A dataframe may hold categories and columns with other roles; `categories` and `missing` say how it is read.
        y : array (n_events,) or str
            Targets, or the name of their column of X. Left out if there is a formula.
        agent, entity : array (n_events,) or str, optional
            Ids of any type, or the name of a column of X. That column is then not a feature, and `predict` looks for
            it again. `entity=None` makes each row its own entity, and `agent=None` makes all rows one agent; both
            together are the classical latent class regression. Ids are compared by their text: 1, 1.0 and "1" are the
            same id.
        sample_weight : array (n_events,) or str, optional
            How often each event occurred: 2 is the event twice, 0 leaves it out, fractions are allowed. With
            `noise="student"` weights must be 0 or 1. With other weights there is no `comparison_`.

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the fit early with a warning. The model then uses the draws kept so far.
        """
        return self._fit(Given(X, y, agent, entity, sample_weight))
