"""What every fitted model can do: summarise, adapt, save, and predict by `predictions`. Subclasses add `fit`."""

from __future__ import annotations

import copy
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr._support.threads import available_threads, single_threaded_blas
from fedhlcr.analysis.axis_lines import FeatureCurve, feature_curve, usual_values
from fedhlcr.analysis.effects import feature_position
from fedhlcr.analysis.frames import library_of
from fedhlcr.analysis.memberships import cluster_probabilities
from fedhlcr.analysis.summary import Summary, summarize
from fedhlcr.analysis.verdict import FitComparison
from fedhlcr.data import inputs
from fedhlcr.data.encoded import header_of
from fedhlcr.data.frames import Given
from fedhlcr.data.hierarchy import EntityIndex, Hierarchy, build_hierarchy
from fedhlcr.data.ids import NEW
from fedhlcr.data.scarcity import TableShape, find_scarcity
from fedhlcr.estimators import saving
from fedhlcr.estimators.entity_figures import EntityFigures
from fedhlcr.estimators.inference_data import InferenceExport
from fedhlcr.estimators.notebook import NotebookResults
from fedhlcr.estimators.parameters import warn_of_deprecated
from fedhlcr.estimators.predictions import Predictions
from fedhlcr.estimators.reading import LEFT_OUT
from fedhlcr.estimators.seconds import FitSeconds
from fedhlcr.estimators.streamed import StreamedEvents
from fedhlcr.estimators.tidy_tables import TidyTables, check_probability
from fedhlcr.estimators.training import EventsInMemory
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError, give_warning
from fedhlcr.kernels import ahead
from fedhlcr.model.gram import entity_grams
from fedhlcr.posterior import Posterior, Profiles, alignment
from fedhlcr.posterior.alignment import Alignment
from fedhlcr.posterior.diagnostics import Diagnostic, diagnose
from fedhlcr.samplers.state import EntityData
from fedhlcr.settings import EffectsName
from fedhlcr.storage.atomic import PathLike


class HierarchicalPredictor(NotebookResults, InferenceExport, TidyTables, EntityFigures, Predictions):
    """An estimator with a posterior.

    A subclass adds `fit`, which sets the fitted attributes, and what belongs to its target (`estimators.targets`).
    """

    # the name of the class in model files
    saved_as: ClassVar[str]
    # the likelihood of a class of estimators; "auto" is that of the effects and the noise
    own_likelihood: ClassVar[str] = "auto"
    n_clusters: int | str
    max_clusters: int
    n_threads: int | None
    random_state: Any
    effects: EffectsName
    fit_intercept: bool
    seed_: int
    posterior_: Posterior
    alignment_: Alignment
    diagnostics_: tuple[Diagnostic, ...] = ()
    fit_seconds_: FitSeconds | None = None
    comparison_: FitComparison | None = None
    feature_quantiles_: FloatArray | None = None

    @single_threaded_blas
    def responsibilities(self, agent: Any = None, entity: Any = None) -> FloatArray:
        """Probability of each cluster for entities.

        Parameters
        ----------
        agent, entity : one id each, or arrays of ids of the same length
            They may be new, as in `predict`.

        Returns
        -------
        ndarray (n_clusters_,) for one entity, (n, n_clusters_) for arrays
        """
        check_is_fitted(self)
        agent, entity = (None if ids is NEW else ids for ids in (agent, entity))
        sizes = {len(ids) for ids in (agent, entity) if ids is not None and np.ndim(ids)}
        if len(sizes) > 1 or 0 in sizes:
            raise ArgumentError(
                "`agent` and `entity` must be one id each, or lists of the same length and not empty; "
                f"their lengths are {sorted(sizes)}."
            )
        one = not sizes
        n_rows = 1 if one else sizes.pop()
        agent, entity = (
            np.array([ids] * n_rows, dtype=object) if ids is not None and np.ndim(ids) == 0 else ids
            for ids in (agent, entity)
        )
        rows = self.profile_responsibilities(self._profiles(agent, entity, n_rows))
        return rows[0] if one else rows

    @single_threaded_blas
    def curve(self, feature: str | int, cluster: int = 0, x: Any = None, level: float = 0.9) -> FeatureCurve:
        """The effect of one feature in one cluster: its straight line and, if it has one, its curve.

        Parameters
        ----------
        feature : name or position
        cluster : number of the cluster, as in `coef_`
        x : array (points,), optional
            Values of the feature; None takes 101 over most of the fitted range.
        level : probability of the interval over the draws

        Returns
        -------
        FeatureCurve
            Named tuple of x, effect, lower and upper, each (points,). The effect is the change of the target against
            that at the feature's mean, in units of y.
        """
        check_is_fitted(self)
        check_probability(level)
        position = feature_position(feature, self.n_features_in_, getattr(self, "feature_names_in_", None), "feature")
        if cluster not in range(self.n_clusters_):
            raise ArgumentError(f"`cluster` must be a number from 0 to {self.n_clusters_ - 1}, but is {cluster!r}.")
        values = usual_values(self, position) if x is None else inputs.number_vector(x, "x")
        return feature_curve(self, position, int(cluster), values, level)

    @single_threaded_blas
    def _adapt(self, given: Given) -> Self:
        check_is_fitted(self)
        ahead.prepare(ahead.for_adapting(self.posterior_.likelihood.name))
        new = self._entities(given)
        adapted = copy.copy(self)
        adapted.posterior_ = self.posterior_.adapt(new, Stream(self.seed_, ReservedChain.ADAPTATION))
        adapted.set_fitted_attributes()
        adapted.set_diagnostics()
        return adapted

    def adapt(self, X: Any, y: Any = None, agent: Any = None, entity: Any = None, sample_weight: Any = None) -> Self:
        """A copy of the model that also knows new events of known or new entities; the clusters are not refitted.

        In every draw, labels, effects and noise of the agents with new events and of their entities are drawn again. An
        agent's events change the predictions for that agent only. The meaning of `agent=None` stays the same.

        Parameters
        ----------
        X, y, agent, entity, sample_weight : as in `fit`; `entity` is required

        Returns
        -------
        the same type of estimator
        """
        return self._adapt(Given(X, y, agent, entity, sample_weight))

    def entities_of(
        self,
        X: Any,
        y: Any,
        agent: Any = None,
        entity: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
    ) -> EntityData:
        """The entities of a table and their Gram matrices, in the model's units.

        Parameters
        ----------
        X, y, agent, entity, sample_weight, exposure : as in `adapt`

        Returns
        -------
        Entities
        """
        return self._entities(Given(X, y, agent, entity, sample_weight, exposure))

    def _entities(self, given: Given) -> EntityData:
        check_is_fitted(self)
        events = self._events(given, LEFT_OUT, target=True, needs_ids=True)
        self._require_rows(events)
        if events.entity is None:
            raise ArgumentError(
                "`entity` is missing; pass one entity id per event row, so that the events find theirs."
            )
        matrix = events.matrix
        given = events.read.given
        target = self._target(given.y, len(matrix))
        offset = self._own_offset(events)
        weight = inputs.weight_vector(given.sample_weight, len(matrix))
        own_agent = None if given.agent is NEW else self._agents_or_sole(events.agent, len(matrix))
        if own_agent is None:
            raise ArgumentError("`agent` is missing and the model has several agents; pass one agent id per event row.")
        layout = self.posterior_.layout
        units = self.posterior_.standardization
        n_threads = self.thread_count()
        expanded = units.expand(matrix)
        hierarchy = build_hierarchy(expanded, target, weight, own_agent, events.entity, offset, n_threads)
        grams = entity_grams(hierarchy, layout, units.shift, n_threads)
        likelihood = self.posterior_.likelihood
        own_events = None
        if likelihood.needs_events:
            own_events = likelihood.events_in(replace(hierarchy.events, X=hierarchy.X[:, : layout.n_inputs]), units)
        return EntityData(likelihood, hierarchy.index, units.rescale(layout, grams, n_threads), n_threads, own_events)

    def numeric_target(self, y: Any, n_rows: int) -> FloatArray:
        """Targets (n_rows,) as numbers, as in `fit`: 1 for the second of two classes, 0 for the first."""
        return self._target(y, n_rows)

    def profile_responsibilities(self, profiles: Profiles) -> FloatArray:
        """Probability of each cluster for rows that were already looked up, (rows, n_clusters_)."""
        return cluster_probabilities(self, profiles)

    def thread_count(self) -> int:
        """Number of threads to run with: `n_threads`, or all cores if it is None."""
        return available_threads() if self.n_threads is None else int(self.n_threads)

    def save(self, path: PathLike, *, public: bool = False) -> None:
        """Write the fitted model to one file, whole or not at all; `fedhlcr.load` reads it.

        Parameters
        ----------
        path : str or path
        public : bool, default=False
            Leave out everything that is private to agents: ids, Gram matrices, labels. A public model predicts for
            new agents, and for known ones after `adapt`.
        """
        check_is_fitted(self)
        saving.save(self, path, public=public)

    def summary(self) -> Summary:
        """A summary of the model: print it, or show it in a notebook."""
        check_is_fitted(self)
        return summarize(self)

    def _training_events(self, given: Given) -> Hierarchy:
        hierarchy = super()._training_events(given)
        self.frame_library_ = library_of(given.X)
        self._begin_fit(EventsInMemory(hierarchy).shape(), hierarchy.index, has_entity_ids=given.entity is not None)
        return hierarchy

    def _begin_fit(self, shape: TableShape, index: EntityIndex, *, has_entity_ids: bool = True) -> None:
        """Set the seed, and warn of a table that is too small or too plain."""
        self.seed_ = self._seed()
        lacks_agents = index.n_agents == 1 and self.effects == "entity+agent"
        for warning in find_scarcity(shape._replace(has_entity_ids=has_entity_ids, lacks_agents=lacks_agents)):
            give_warning(warning)

    def _begin_streamed(self, data: StreamedEvents) -> None:
        """Set what `fit` learns from a table before it samples, for one in a work folder."""
        recipe = data.recipe
        self.recipe_ = None
        self.provenance_ = {}
        self.frame_library_ = None
        self._has_intercept = True
        validate_data(self, header_of(recipe.encoded_features), reset=True, skip_check_array=True)
        self._learn_classes(recipe, data.shape())
        self.agent_column_ = recipe.agent
        self.entity_column_ = recipe.entity
        self.sole_agent_ = data.index.agent_ids if data.index.n_agents == 1 else None
        data.read_target = self._streamed_target
        data.read_offset = self._offset
        self._begin_fit(data.shape(), data.index)

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def check_parameters(self) -> None:
        """Refuse constructor arguments that are out of range, as `fit` does."""
        super()._validate_params()

    def _validate_params(self) -> None:
        """What scikit-learn calls before `fit`: check the arguments, and warn of those that are deprecated."""
        self.check_parameters()
        warn_of_deprecated(self)

    def _settle_clusters(self) -> None:
        """Number the clusters, and set the features' means and spreads. `adapt` changes neither."""
        posterior = self.posterior_
        pooled = posterior.memory.entities.pooled_gram
        normal = posterior.layout.normal_equations(pooled)
        found = isinstance(self.n_clusters, str)
        self.alignment_ = alignment.align(posterior.draws, normal.xx / normal.n, drop_empty=found)
        means, spreads = posterior.standardization.column_moments(posterior.layout, pooled)
        n_inputs = posterior.layout.n_inputs
        self.feature_means_ = means[:n_inputs]
        self.feature_spreads_ = spreads[:n_inputs]

    def _warn_of_simpler_model(self) -> None:
        found = self.comparison_
        if found is not None and (warning := found.warning(fit_intercept=self.fits_intercept)) is not None:
            give_warning(warning)

    def set_fitted_attributes(self) -> None:
        """Set all attributes that follow from `posterior_` and `alignment_`.

        Those of agents and entities are computed on first access.
        """
        posterior = self.posterior_
        aligned = self.alignment_
        draws = posterior.draws
        units = posterior.standardization
        self.n_clusters_ = aligned.n_clusters
        self.forget_entity_figures()
        self._mean_coef = alignment.mean_coef(draws, aligned)
        self.curve_coef_ = units.feature_slopes(posterior.layout, self._mean_coef)[:, posterior.layout.n_inputs :]
        self.cluster_weights_ = aligned.gather(np.exp(draws.log_weights))
        self.curves_ = units.curves
        means = alignment.mean_quantities(draws, aligned, float(units.scale[-1]), posterior.layout.n_linear)
        for name, value in means.items():
            setattr(self, f"{name}_", value)

    def set_diagnostics(self) -> None:
        """Set `diagnostics_`, unless the model is public: then those of the fit stay."""
        if len(self.posterior_.memory.entities):
            self.diagnostics_ = diagnose(self.posterior_)

    def _profiles(self, agent: Any, entity: Any, n_rows: int) -> Profiles:
        return Profiles.of(*self._find(self.posterior_.memory.entities.index, agent, entity, n_rows))


def check_model(model: Any) -> None:
    """Refuse anything but a fitted model of this package."""
    if not isinstance(model, HierarchicalPredictor):
        raise ArgumentTypeError(
            f"`model` must be an estimator of fedhlcr, such as HLCRRegressor, but is of type {type(model).__name__}; "
            "for a pipeline pass its last step, `pipeline[-1]`."
        )
    check_is_fitted(model)
