"""The scikit-learn face: `HLCRRegressor`."""

from __future__ import annotations

import copy
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from fedhlcr import alignment, tables
from fedhlcr.arrays import FloatArray
from fedhlcr.diagnostics import R_HAT_LIMIT, Diagnostic, diagnose
from fedhlcr.exceptions import ConvergenceWarning, FitInterruptedWarning
from fedhlcr.gram import GramLayout, Standardization, column_means, entity_grams
from fedhlcr.hierarchy import UNKNOWN, Hierarchy, build_hierarchy, row_agents, row_entities
from fedhlcr.posterior import AgentMemory, Draws, Moments, Posterior, Profiles
from fedhlcr.priors import ModelSpec
from fedhlcr.progress import SweepProgress
from fedhlcr.samplers.chain import ChainPlan, ChainResult, run_chain, trace_table
from fedhlcr.samplers.state import Entities
from fedhlcr.streams import Stream
from fedhlcr.summary import Summary, summarize
from fedhlcr.threads import available_threads


class HLCRRegressor(RegressorMixin, BaseEstimator):
    """Hierarchical latent class regression.

    Every agent–entity pair belongs to one of K clusters, each cluster is a linear regression, and
    agents differ in how common the clusters are among their entities. Fitted by Gibbs sampling; by
    default the number of clusters and all hyperparameters are learned.

    Parameters
    ----------
    n_clusters : int or "auto", default="auto"
        Number of clusters; "auto" starts with `max_clusters` and merges down.
    sampler : {"blocked", "collapsed"}, default="blocked"
        "blocked" runs agents in parallel; "collapsed" is the paper's Algorithm 2.
    label_prior : {"tables", "paper"}, default="tables"
        How common the clusters are, for the collapsed sampler: exactly, by table counts, or by the
        paper's approximate weights.
    noise_scale : float or "learn", default="learn"
        σ, in units of y.
    coef_scale : float or "learn", default="learn"
        δ, in standardised units: standard deviations of y per standard deviation of x. A number is
        the paper's prior N(0, δ²) for every coefficient.
    global_concentration : float or "learn", default="learn"
        α: the larger, the more even the clusters.
    agent_concentration : float or "learn", default="learn"
        β: the larger, the more alike the agents.
    coef_prior : {"common_mean", "zero_mean"}, default="common_mean"
        Prior of the coefficients where `coef_scale` is learned: each coefficient around a learned
        mean with a scale of its own, or all around zero with one scale (the paper).
    standardize : bool, default=True
        Scale features and target to unit spread before fitting. Results are told in the user's units.
    fit_intercept : bool, default=True
        Whether regressions have an intercept; it is a coefficient of the centred target, under the
        same prior as the others. Without one, nothing is centred.
    n_sweeps : int, default=200
        Length of a chain; the second half is kept.
    n_draws : int, default=100
        Draws kept of each chain, at most.
    n_chains : int, default=1
        Independent chains. With more than one, disagreement is detected and warned of.
    max_clusters : int, default=64
        Clusters to start with when `n_clusters="auto"`, and so the most that can be found.
    n_threads : int or None, default=None
        Threads; None is all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=0
        Seed. None draws one, kept in `seed_`.
    verbose : bool, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    coef_ : ndarray (n_clusters_, n_features_in_)
        Posterior mean slopes of each cluster, in the user's units. Clusters, here and below, are
        those of the draw with the best log joint, in order of falling weight.
    intercept_ : ndarray (n_clusters_,)
    cluster_weights_ : ndarray (n_clusters_,)
        How common the clusters are overall, ψ.
    agent_weights_ : ndarray (n_agents, n_clusters_)
        How common they are for each agent, θ, in the order of `agent_ids_`.
    labels_ : ndarray (n_entities,)
        Most frequent cluster of each agent–entity pair, in the order of `pair_ids_`.
    noise_scale_ : float
        Posterior mean of σ, in units of y.
    coef_mean_, coef_scale_ : ndarrays (n_coef,)
        Posterior means of μ and δ, in standardised units; the intercept, if there is one, comes first.
    global_concentration_, agent_concentration_ : float
        Posterior means of α and β.
    n_clusters_ : int
        Clusters reported: all of them if the number was given, else those that hold entities.
    trace_ : structured ndarray
        One record per sweep: chain, sweep, log_joint, noise_scale (units of y),
        global_concentration, agent_concentration, n_clusters, labels_changed, kept.
    diagnostics_ : tuple of (quantity, r_hat, effective_size)
    agent_ids_ : ndarray (n_agents,)
    pair_ids_ : list of (agent id, entity id)
    posterior_ : Posterior
        Draws and the agents' matrices, in standardised units.
    seed_ : int
    n_features_in_, feature_names_in_ : as usual in scikit-learn
    agent_column_, entity_column_ : names of the id columns, or None

    Examples
    --------
    >>> from fedhlcr import HLCRRegressor
    >>> from fedhlcr.datasets import make_hlcr
    >>> table, truth = make_hlcr(n_agents=40, n_clusters=3, random_state=1)
    >>> model = HLCRRegressor().fit(table.X, table.y, agent=table.agent, entity=table.entity)
    >>> model.n_clusters_
    3
    >>> y_known = model.predict(table.X, agent=table.agent, entity=table.entity)
    >>> y_new_agent = model.predict(table.X)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "sampler": [StrOptions({"blocked", "collapsed"})],
        "label_prior": [StrOptions({"tables", "paper"})],
        "noise_scale": [Interval(Real, 0, None, closed="neither"), StrOptions({"learn"})],
        "coef_scale": [Interval(Real, 0, None, closed="neither"), StrOptions({"learn"})],
        "global_concentration": [Interval(Real, 0, None, closed="neither"), StrOptions({"learn"})],
        "agent_concentration": [Interval(Real, 0, None, closed="neither"), StrOptions({"learn"})],
        "coef_prior": [StrOptions({"common_mean", "zero_mean"})],
        "standardize": ["boolean"],
        "fit_intercept": ["boolean"],
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
        "n_draws": [Interval(Integral, 1, None, closed="left")],
        "n_chains": [Interval(Integral, 1, None, closed="left")],
        "max_clusters": [Interval(Integral, 1, None, closed="left")],
        "n_threads": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_clusters="auto",
        *,
        sampler="blocked",
        label_prior="tables",
        noise_scale="learn",
        coef_scale="learn",
        global_concentration="learn",
        agent_concentration="learn",
        coef_prior="common_mean",
        standardize=True,
        fit_intercept=True,
        n_sweeps=200,
        n_draws=100,
        n_chains=1,
        max_clusters=64,
        n_threads=None,
        random_state=0,
        verbose=False,
    ):
        self.n_clusters = n_clusters
        self.sampler = sampler
        self.label_prior = label_prior
        self.noise_scale = noise_scale
        self.coef_scale = coef_scale
        self.global_concentration = global_concentration
        self.agent_concentration = agent_concentration
        self.coef_prior = coef_prior
        self.standardize = standardize
        self.fit_intercept = fit_intercept
        self.n_sweeps = n_sweeps
        self.n_draws = n_draws
        self.n_chains = n_chains
        self.max_clusters = max_clusters
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, agent=None, entity=None, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array or dataframe (n_events, n_features)
        y : array (n_events,)
        agent, entity : array (n_events,) or str, optional
            Ids of any type, or the name of a column of X, which then is no feature and is found
            again by `predict`. `entity=None` makes each row an entity of its own, `agent=None` one
            agent of all rows; both together are the classical latent class regression.
        sample_weight : array (n_events,), optional
            Frequencies of the events.

        Returns
        -------
        self

        Notes
        -----
        Ctrl-C ends the fit early with a warning; the model is then usable with what has been sampled.
        """
        table = tables.take_apart(X, agent, entity)
        matrix = self._features(table, reset=True)
        target = tables.target_vector(y, len(matrix))
        weight = tables.weight_vector(sample_weight, len(matrix))
        hierarchy = build_hierarchy(matrix, target, weight, table.agent, table.entity)
        self.agent_column_, self.entity_column_ = table.columns
        self.seed_ = self._seed()

        layout = GramLayout(matrix.shape[1], self.fit_intercept)
        shift = column_means(hierarchy) if self.fit_intercept else np.zeros(layout.n_features + 1)
        grams = entity_grams(hierarchy, layout, shift, self._threads())
        standardization = Standardization.from_gram(layout, grams.sum(axis=0), shift, scale=self.standardize)
        entities = Entities(layout, hierarchy.index, standardization.rescale(layout, grams), self._threads())
        results = self._run_chains(entities, standardization)
        chains = [result.kept for result in results]
        self.posterior_ = Posterior(
            layout, standardization, Draws.from_states(chains), AgentMemory.from_states(entities, chains)
        )
        self.trace_ = trace_table(results)
        self.trace_["noise_scale"] *= standardization.scale[-1]
        self._describe()
        self._warn(results)
        return self

    def predict(self, X, agent=None, entity=None, return_std=False):
        """Predict the target: the mean over labels and draws.

        Parameters
        ----------
        X : array or dataframe (n_events, n_features)
        agent, entity : array (n_events,) or str, optional
            As in `fit`. An entity that was fitted is predicted by what is known of it, a new entity
            (or `entity=None`) by what is known of its agent, a new agent by the clusters' overall
            weights. `agent=None` is the sole agent if there was only one, else a new one.
        return_std : bool, default=False
            Whether to return the predictive standard deviation too.

        Returns
        -------
        mean : ndarray (n_events,)
        std : ndarray (n_events,), if return_std
        """
        moments = self._moments(X, agent, entity)
        return (moments.mean, moments.std) if return_std else moments.mean

    def predict_interval(self, X, agent=None, entity=None, level=0.9):
        """Central interval that holds the target with probability `level`.

        Its ends are quantiles of the predictive mixture of normals over labels and draws.

        Returns
        -------
        lower, upper : ndarrays (n_events,)
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"`level` must lie between 0 and 1, but is {level}; 0.9 is a usual choice.")
        quantiles = self._moments(X, agent, entity, (0.5 - level / 2, 0.5 + level / 2)).quantiles
        return quantiles[:, 0], quantiles[:, 1]

    def responsibilities(self, agent=None, entity=None):
        """Probability of each cluster for entities.

        Parameters
        ----------
        agent, entity : one id each, or arrays of ids of the same length
            New ones are answered too, as in `predict`.

        Returns
        -------
        ndarray (n_clusters_,) for one entity, (n, n_clusters_) for arrays
        """
        check_is_fitted(self)
        given = [ids for ids in (agent, entity) if ids is not None]
        one = all(np.ndim(ids) == 0 for ids in given)
        n_rows = 1 if one else max(len(ids) for ids in given if np.ndim(ids))
        agent, entity = (
            np.array([ids] * n_rows, dtype=object) if ids is not None and np.ndim(ids) == 0 else ids
            for ids in (agent, entity)
        )
        profiles = self._profiles(agent, entity, n_rows)
        rows = np.concatenate(
            [self._alignment.gather(np.moveaxis(weights, 1, 0)) for _, weights in self.posterior_.blocks(profiles)]
        )[profiles.of_row]
        return rows[0] if one else rows

    def adapt(self, X, y, agent=None, entity=None, sample_weight=None):
        """A model that has seen new events of known or new entities; the clusters are not refitted.

        An agent's events only change what is predicted for that agent. This model stays as it is.

        Parameters
        ----------
        X, y, agent, entity, sample_weight : as in `fit`; `entity` is required

        Returns
        -------
        HLCRRegressor
        """
        check_is_fitted(self)
        table, matrix = self._read(X, agent, entity)
        if table.entity is None:
            raise ValueError("`entity` is missing; pass one entity id per event row, so that the events find theirs.")
        target = tables.target_vector(y, len(matrix))
        weight = tables.weight_vector(sample_weight, len(matrix))
        own_agent = table.agent if table.agent is not None else self._sole_agent(len(matrix))
        if own_agent is None:
            raise ValueError("`agent` is missing and the model has several agents; pass one agent id per event row.")
        hierarchy = build_hierarchy(matrix, target, weight, own_agent, table.entity)
        adapted = copy.copy(self)
        adapted.posterior_ = self.posterior_.adapt(self._standardized(hierarchy), Stream(self.seed_, chain=-1))
        adapted._describe()
        return adapted

    def score(self, X, y, agent=None, entity=None, sample_weight=None):
        """R² of the predictions; `agent` and `entity` as in `predict`."""
        return r2_score(y, self.predict(X, agent=agent, entity=entity), sample_weight=sample_weight)

    def summary(self) -> Summary:
        """What was fitted, to be read in a terminal (print it) or in a notebook."""
        check_is_fitted(self)
        return summarize(self)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    # ------------------------------------------------------------------ fitting

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _threads(self) -> int:
        return available_threads() if self.n_threads is None else int(self.n_threads)

    def _spec(self, standardization: Standardization) -> ModelSpec:
        def fixed(value: Any, unit: float = 1.0) -> float | None:
            return None if isinstance(value, str) else float(value) / unit

        return ModelSpec(
            noise_scale=fixed(self.noise_scale, float(standardization.scale[-1])),
            coef_scale=fixed(self.coef_scale),
            global_concentration=fixed(self.global_concentration),
            agent_concentration=fixed(self.agent_concentration),
            coef_prior=self.coef_prior,
        )

    def _run_chains(self, entities: Entities, standardization: Standardization) -> list[ChainResult]:
        plan = ChainPlan(
            n_sweeps=self.n_sweeps,
            n_draws=self.n_draws,
            n_clusters=None if isinstance(self.n_clusters, str) else int(self.n_clusters),
            max_clusters=self.max_clusters,
            sampler=self.sampler,
            label_prior=self.label_prior,
        )
        spec, results = self._spec(standardization), []
        with SweepProgress(self.n_chains * self.n_sweeps, float(standardization.scale[-1]), self.verbose) as progress:
            for chain in range(self.n_chains):
                results.append(run_chain(entities, spec, plan, Stream(self.seed_, chain), progress))
                if results[-1].interrupted:
                    break
        return results

    def _describe(self) -> None:
        """The fitted attributes, from the posterior."""
        posterior = self.posterior_
        draws, memory, units = posterior.draws, posterior.memory, posterior.standardization
        pooled = posterior.layout.normal_equations(memory.entities.grams.sum(axis=0))
        found = isinstance(self.n_clusters, str)
        aligned = alignment.align(draws, pooled.xx / pooled.n, drop_empty=found)
        self._alignment = aligned
        self.n_clusters_ = aligned.n_clusters
        self.coef_, self.intercept_ = units.to_user_units(posterior.layout, alignment.mean_coef(draws, aligned))
        self.cluster_weights_ = aligned.gather(np.exp(draws.log_weights))
        self.agent_weights_ = alignment.mean_agent_weights(draws, memory, aligned)
        self.labels_ = alignment.voted_labels(memory, aligned)
        self.noise_scale_ = float(draws.noise_scale.mean() * units.scale[-1])
        self.coef_mean_, self.coef_scale_ = draws.coef_mean.mean(axis=0), draws.coef_scale.mean(axis=0)
        self.global_concentration_ = float(draws.global_concentration.mean())
        self.agent_concentration_ = float(draws.agent_concentration.mean())
        index = memory.entities.index
        self.agent_ids_ = index.agent_ids
        self.pair_ids_ = list(zip(index.agent_ids[index.agent_of], index.entity_ids, strict=True))
        self.diagnostics_: tuple[Diagnostic, ...] = diagnose(posterior)

    def _warn(self, results: list[ChainResult]) -> None:
        if results[-1].interrupted:
            done = sum(len(result.trace) for result in results)
            warnings.warn(
                f"The fit was interrupted after {done} of {self.n_chains * self.n_sweeps} sweeps; the model uses "
                f"the {len(self.posterior_.draws)} draws kept so far.",
                FitInterruptedWarning,
                stacklevel=3,
            )
        apart = [d for d in self.diagnostics_ if d.r_hat > R_HAT_LIMIT]
        if len(results) > 1 and apart:
            figures = ", ".join(f"{d.quantity} {d.r_hat:.2f}" for d in apart)
            warnings.warn(
                f"The {len(results)} chains disagree (R-hat above {R_HAT_LIMIT}: {figures}). Predictions average over "
                f"all of them; run longer chains (n_sweeps={2 * self.n_sweeps}), or fix n_clusters.",
                ConvergenceWarning,
                stacklevel=3,
            )

    # --------------------------------------------------------------- predicting

    def _read(self, X: Any, agent: Any, entity: Any) -> tuple[tables.Table, FloatArray]:
        """X taken apart as in `fit`."""
        table = tables.take_apart(X, agent, entity, tables.IdColumns(self.agent_column_, self.entity_column_))
        return table, self._features(table, reset=False)

    def _features(self, table: tables.Table, *, reset: bool) -> FloatArray:
        """The checked features; their names and number are set (reset) or compared with those fitted."""
        matrix = tables.feature_matrix(table.features)
        named = tables.as_frame(table.features) is not None
        validate_data(self, table.features if named else matrix, reset=reset, skip_check_array=True)
        return matrix

    def _moments(self, X: Any, agent: Any, entity: Any, levels: tuple[float, ...] = ()) -> Moments:
        check_is_fitted(self)
        table, matrix = self._read(X, agent, entity)
        return self.posterior_.predict(matrix, self._profiles(table.agent, table.entity, len(matrix)), levels)

    def _sole_agent(self, n_rows: int) -> NDArray[np.object_] | None:
        agents = self.posterior_.memory.entities.index.agent_ids
        return np.repeat(agents, n_rows) if len(agents) == 1 else None

    def _profiles(self, agent: Any, entity: Any, n_rows: int) -> Profiles:
        index = self.posterior_.memory.entities.index
        unknown = np.full(n_rows, UNKNOWN, dtype=np.int64)
        agent = self._sole_agent(n_rows) if agent is None else agent
        agents = unknown if agent is None else index.find_agents(row_agents(agent, n_rows))
        entities = unknown if entity is None else index.find_entities(agents, row_entities(entity, n_rows))
        return Profiles.of(agents, entities)

    def _standardized(self, hierarchy: Hierarchy) -> Entities:
        posterior = self.posterior_
        layout, units = posterior.layout, posterior.standardization
        grams = entity_grams(hierarchy, layout, units.shift, self._threads())
        return Entities(layout, hierarchy.index, units.rescale(layout, grams), self._threads())
