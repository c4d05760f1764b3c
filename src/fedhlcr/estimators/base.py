"""What all estimators share: they fit a model, keep it as plain data, and hand their methods on to it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.axis_lines import FeatureCurve, feature_curve, usual_values
from fedhlcr.analysis.effects import entity_differences, feature_position
from fedhlcr.analysis.frames import Columns, LibraryName, chosen_library, library_of, make_frame
from fedhlcr.analysis.summary import Summary, model_html, summarize
from fedhlcr.analysis.tables import agent_columns, cluster_columns, coef_columns, entity_columns, long_entity_columns
from fedhlcr.analysis.verdict import FitComparison
from fedhlcr.data import inputs
from fedhlcr.data.categories import Categories
from fedhlcr.data.families import Family
from fedhlcr.data.formula import parse_formula
from fedhlcr.data.frames import Given
from fedhlcr.data.inputs import read_exposure
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.recipe_plan import plan_recipe
from fedhlcr.data.table_files import open_table
from fedhlcr.estimators.central import fit_central, warn_of_chains
from fedhlcr.estimators.federated import (
    cluster_for_files,
    fit_federated,
    fit_federated_files,
    warn_of_interruption,
    with_diagnostics,
)
from fedhlcr.estimators.files import open_work, read_table
from fedhlcr.estimators.inference_data import inference_data
from fedhlcr.estimators.parameters import model_settings, warn_of_deprecated
from fedhlcr.estimators.progress import FitClock, FitSeconds
from fedhlcr.estimators.score import Counts
from fedhlcr.estimators.streamed import StreamedEvents
from fedhlcr.estimators.tables import (
    OutputName,
    answer,
    check_features,
    check_output_name,
    missing_policy,
    read_training,
    streamed_training,
)
from fedhlcr.exceptions import ArgumentError, give_warning
from fedhlcr.kernels import ahead
from fedhlcr.model.choice import likelihood_of
from fedhlcr.model.curves import Curves
from fedhlcr.posterior import Posterior
from fedhlcr.posterior.alignment import Alignment
from fedhlcr.posterior.diagnostics import Diagnostic
from fedhlcr.posterior.event_rows import LEFT_OUT, UNPREDICTED, UNSCORED, EventRows
from fedhlcr.posterior.fitted_model import FittedModel, check_model
from fedhlcr.posterior.responses import Moments
from fedhlcr.settings import EffectsName, MissingPolicy
from fedhlcr.storage import model_writer
from fedhlcr.storage.atomic import PathLike

# A fitted estimator or its model: reports and plots ask both for the same attributes.
HierarchicalPredictor = Any
Value = TypeVar("Value")
Estimator = TypeVar("Estimator", bound="HierarchicalEstimator")


class Found(Generic[Value]):
    """An attribute of an estimator that its model has. Setting it changes the model."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, estimator: None, owner: type) -> Found[Value]: ...

    @overload
    def __get__(self, estimator: HierarchicalEstimator, owner: type) -> Value: ...

    def __get__(self, estimator: HierarchicalEstimator | None, owner: type) -> Any:
        return self if estimator is None else getattr(check_model(estimator), self._name)

    def __set__(self, estimator: HierarchicalEstimator, value: Value) -> None:
        set_found(estimator, **{self._name: value})


class FoundIfAny(Found[Value]):
    """An attribute that some models do not have."""

    def __get__(self, estimator: HierarchicalEstimator | None, owner: type) -> Any:
        value = super().__get__(estimator, owner)
        if value is None:
            raise AttributeError(f"this model has no `{self._name}`.")
        return value


class HierarchicalEstimator(BaseEstimator):
    """An estimator on tables of agents, entities and events. A subclass has a target and settings."""

    family: ClassVar[Family]
    # the likelihood of a class of estimators; "auto" is that of the effects and the noise
    own_likelihood: ClassVar[str] = "auto"
    _is_federated: ClassVar[bool] = False
    n_clusters: int | str
    max_clusters: int
    categories: Categories
    missing: MissingPolicy
    formula: str | None
    effects: EffectsName
    fit_intercept: bool
    n_threads: int | None
    random_state: Any
    verbose: bool
    _model: FittedModel
    # scikit-learn's `clone` copies this attribute
    _sklearn_output_config: dict[str, str]

    n_features_in_: int
    n_clusters_ = Found[int]()
    coef_ = Found[FloatArray]()
    intercept_ = Found[FloatArray]()
    cluster_weights_ = Found[FloatArray]()
    agent_weights_ = Found[FloatArray]()
    labels_ = Found[NDArray[np.int64]]()
    entity_coef_ = Found[FloatArray]()
    entity_intercept_ = Found[FloatArray]()
    entity_coef_std_ = Found[FloatArray]()
    entity_intercept_std_ = Found[FloatArray]()
    entity_effects_ = Found[FloatArray]()
    coef_mean_ = Found[FloatArray]()
    coef_scale_ = Found[FloatArray]()
    global_concentration_ = Found[float]()
    agent_concentration_ = Found[float]()
    curves_ = Found[Curves | None]()
    curve_coef_ = Found[FloatArray]()
    diagnostics_ = Found[tuple[Diagnostic, ...]]()
    comparison_ = Found[FitComparison | None]()
    agent_ids_ = Found[NDArray[np.object_]]()
    pair_ids_ = Found[list[tuple[Any, Any]]]()
    posterior_ = Found[Posterior]()
    alignment_ = Found[Alignment]()
    seed_ = Found[int]()
    feature_means_ = Found[FloatArray]()
    feature_spreads_ = Found[FloatArray]()
    feature_quantiles_ = Found[FloatArray | None]()
    agent_column_ = Found[str | None]()
    entity_column_ = Found[str | None]()
    sole_agent_ = Found[NDArray[np.object_] | None]()
    recipe_ = Found[Recipe | None]()
    provenance_ = Found[Any]()
    fit_seconds_: FitSeconds | None = None
    # pandas, polars or pyarrow; None if X was an array, or if the model was loaded
    frame_library_: str | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # called only for names that are not found: a likelihood that users have added may have such quantities
            model = self.__dict__.get("_model")
            if model is not None and name.endswith("_") and not name.startswith("_"):
                return model.__getattr__(name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def effect_scales_(self) -> FloatArray:
        """(1 + n_features_in_,) standard deviations of `entity_effects_` in the model, within a cluster."""
        found = entity_differences(check_model(self))
        return np.zeros(1 + self.n_features_in_) if found is None else found.entity_scales

    @property
    def agent_effect_scales_(self) -> FloatArray:
        """(1 + n_features_in_,) the same for the effects of agents."""
        found = entity_differences(check_model(self))
        return np.zeros(1 + self.n_features_in_) if found is None else found.agent_scales

    @classmethod
    def from_formula(cls, formula: str, **parameters: Any) -> Self:
        """An estimator whose `fit` takes target, features and groups from a formula. It needs the extra `formula`.

        Parameters
        ----------
        formula : str
            As in R, with the groups behind a bar: `"sales ~ price + C(brand) | store/product"` has the agent `store`
            and the entity `product`; `"… | product"` has one agent. Terms may be columns, categories such as C(brand),
            log, log10, log2, log1p, exp, sqrt, sin and cos of columns, arithmetic in I(…), and interactions a:b or a*b.
            A dot stands for all other columns; 0 or -1 leaves out the intercept.
        **parameters
            Those of the constructor.

        Returns
        -------
        estimator
            Its `fit`, `predict`, `score` and `adapt` take a dataframe with the formula's columns.
        """
        parse_formula(formula)
        make: Any = cls
        model: Self = make(formula=formula, **parameters)
        return model

    def _check_parameters(self) -> None:
        """Refuse constructor arguments that are out of range."""
        super()._validate_params()

    def _validate_params(self) -> None:
        """What scikit-learn calls before `fit`: check the arguments, and warn of those that are deprecated."""
        self._check_parameters()
        warn_of_deprecated(self)

    def _likelihood_name(self) -> str:
        """The name of the likelihood that `fit` uses."""
        return likelihood_of(self.family, model_settings(self))

    def _fit(self, given: Given, validation: tuple[Any, ...] | None = None, resume: bool = False) -> Self:
        """Fit the model to a table in memory."""
        clock = FitClock()
        if resume and getattr(self, "checkpoint", None) is None:
            raise ArgumentError("`resume` needs the file to go on from; pass its path as `checkpoint`.")
        ahead.prepare(ahead.for_fits(self._likelihood_name(), federated=self._is_federated))
        if self._is_federated:
            fitted = fit_federated(self, read_training(self, given), validation, resume, clock)
            return self._settle(fitted.model, clock, library_of(given.X), fitted.server)
        return self._settle(fit_central(self, read_training(self, given)), clock, library_of(given.X))

    @single_threaded_blas
    def _fit_streamed(self, data: StreamedEvents) -> Self:
        """Fit the model to a table that has been read into a work folder; see `fit_files`."""
        clock = FitClock()
        ahead.prepare(ahead.for_fits(self._likelihood_name(), federated=self._is_federated))
        table = streamed_training(self, data)
        if self._is_federated:
            fitted = fit_federated_files(self, table)
            return self._settle(fitted.model, clock, None, fitted.server)
        return self._settle(fit_central(self, table), clock)

    def _settle(self, model: FittedModel, clock: FitClock, library: str | None = None, server: Any = None) -> Self:
        """Keep what a fit found, and warn of what the user should know."""
        self._model = model
        self.frame_library_ = library
        self.fit_seconds_ = clock.seconds()
        if server is not None:
            self.server_ = server
            warn_of_interruption(model, server)
        found = model.comparison_
        if found is not None:
            one = model.n_clusters_ == 1
            warning = found.warning(fit_intercept=model.posterior_.layout.fit_intercept, has_one_cluster=one)
            if warning is not None:
                give_warning(warning)
        if model.trace_ is not None:
            warn_of_chains(self, model)
        return self

    def fit_files(
        self,
        path: str | Path,
        *,
        target: str,
        entity: str,
        agent: str | None = None,
        features: Sequence[str] = (),
        categorical: Categories | None = None,
        missing: MissingPolicy | None = None,
        exposure: str | None = None,
        folder: str | Path | None = None,
    ) -> Self:
        """Fit the model to a table in files that may be larger than memory, as `fedhlcr fit` does.

        The table is read once, and its events are sorted by entity in files. The model is the same as that of `fit` for
        the same rows, bit for bit. Ids that are neither texts nor whole numbers below 2⁶³ are known by their texts.

        Parameters
        ----------
        path : file, or folder of Parquet files
            Parquet and CSV are read in pieces, other formats at once.
        target, entity, agent, exposure : names of columns; without `agent` all rows are of one agent; `exposure` is for
            counts
        features : names of columns; by default all others
        categorical : names of features that are categories, or their levels by name; each level becomes a feature.
            None takes those of the parameter `categories`; there is no "auto" for files
        missing : {"refuse", "drop", "impute"}, optional
            What to do about rows with missing values: refuse the table, drop them, or replace missing features by the
            median or the most common level. None takes the parameter `missing`.
        folder : path, optional
            Folder for temporary files, about twice the size of the table in memory. If the process is killed, the
            same call goes on where it stopped. At the end the folder is removed. None takes one of the system's, and
            starts again.

        Returns
        -------
        self
        """
        self._validate_params()
        likelihood = self._likelihood_name()
        if self._is_federated:
            cluster_for_files(self)
        if self.formula is not None:
            raise ArgumentError(
                "`formula` is for tables in memory; pass the table to `fit`, or leave `formula` out and name columns."
            )
        if exposure is not None:
            # only models of counts have exposures
            read_exposure(self.family, 1.0, 1)
        named: Categories = () if isinstance(self.categories, str) else self.categories
        file = open_table(path)
        plan = plan_recipe(
            file,
            target=target,
            agent=agent,
            entity=entity,
            features=features,
            categorical=named if categorical is None else categorical,
            missing=missing_policy(self) if missing is None else missing,
            has_classes=self.family.has_classes,
            has_counts=self.family.has_exposure,
            exposure=exposure,
        )
        names = ("curves", "fit_intercept", "standardize")
        settings = {"model": type(self).__name__, "likelihood": likelihood}
        settings |= {name: str(getattr(self, name)) for name in names}
        with ExitStack() as at_end:
            if folder is None:
                folder = Path(at_end.enter_context(TemporaryDirectory(prefix="fedhlcr-"))) / "fit"
            work = at_end.enter_context(open_work(Path(folder), file, plan, settings))
            ahead.prepare(ahead.for_files(likelihood, federated=self._is_federated))
            fit_streamed(self, read_table(file, plan, work, shows_progress=self.verbose).events)
            work.remove()
        return self

    def set_output(self, *, predict: OutputName | None = None) -> Self:
        """Choose what `predict`, `predict_interval` and `predict_proba` return, like scikit-learn's `set_output`.

        Parameters
        ----------
        predict : {"pandas", "polars", "default"} or None
            "pandas" returns series and frames, with the index of a pandas `X`; "polars" those of polars; "default"
            arrays. None changes nothing. The argument `output` of a method has priority.

        Returns
        -------
        self
        """
        if predict is not None:
            check_output_name(predict, "predict")
            self._sklearn_output_config = {**getattr(self, "_sklearn_output_config", {}), "predict": predict}
        return self

    def _answer(self, columns: dict[str, NDArray[Any]], X: Any, output: str | None) -> Any:
        """Columns of predictions as the user wants them: a single one as an array or series."""
        return answer(columns, X, self._output_name(output))

    def _output_name(self, output: str | None) -> str:
        """What to return: as the argument says, or else as `set_output` did."""
        if output is not None:
            check_output_name(output, "output")
        return output or getattr(self, "_sklearn_output_config", {}).get("predict", "default")

    def _read(self, given: Given, fate: str, *, target: bool = False, needs_ids: bool = False) -> EventRows:
        """Read a table for the fitted model; arguments as in `read_rows`."""
        return check_model(self).read(
            given,
            fate,
            missing=missing_policy(self),
            target=target,
            needs_ids=needs_ids,
            check=partial(check_features, self),
        )

    def predict_moments(
        self, X: Any, agent: Any = None, entity: Any = None, levels: tuple[float, ...] = (), exposure: Any = None
    ) -> Moments:
        """Mean, standard deviation and quantiles at once.

        Parameters
        ----------
        X, agent, entity : as in `predict`
        levels : tuple of float
            Probabilities of the quantiles.
        exposure : as in `predict`, for models of counts

        Returns
        -------
        Moments
            Named tuple of mean (n_events,), std (n_events,) and quantiles (n_events, levels). Of a classifier, the mean
            is the probability of the second class, and the quantiles are those of this probability.
        """
        rows = self._read(Given(X, agent=agent, entity=entity, exposure=exposure), UNPREDICTED)
        return self._model.moments(rows, levels)

    def _mean(self, given: Given) -> FloatArray:
        """The means of `predict_moments` alone, which take less time."""
        rows = self._read(given, UNPREDICTED)
        return self._model.means(rows)

    def _ends(self, given: Given, level: float) -> tuple[FloatArray, FloatArray]:
        check_model(self)
        check_probability(level)
        return self._model.interval(self._read(given, UNPREDICTED), level)

    def _interval(self, given: Given, level: float, output: str | None) -> Any:
        """`interval_of`, as the user wants it."""
        lower, upper = self._ends(given, level)
        return self._answer({"lower": lower, "upper": upper}, given.X, output)

    def _log_density(self, given: Given) -> FloatArray:
        rows = self._read(given, UNPREDICTED, target=True)
        return self._model.log_density(rows)

    def _scored(self, given: Given) -> tuple[FloatArray, FloatArray, FloatArray | None, Counts]:
        """Observed and predicted targets of events without missing values, their weights, and what they are."""
        rows = self._read(given, UNSCORED, target=True).required()
        rows.warn_of_forgotten_exposure()
        weight = None if rows.read.given.sample_weight is None else rows.weight
        posterior = self._model.posterior_
        predicted = single_threaded_blas(posterior.mean)(rows.matrix, rows.profiles, rows.offset)
        return rows.target, predicted, weight, Counts.of(rows.profiles)

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
        return check_model(self).responsibilities(agent, entity)

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
        model = check_model(self)
        check_probability(level)
        names = None if model.feature_names_in_ is None else list(model.feature_names_in_)
        position = feature_position(feature, model.n_features_in_, names, "feature")
        if cluster not in range(model.n_clusters_):
            raise ArgumentError(f"`cluster` must be a number from 0 to {model.n_clusters_ - 1}, but is {cluster!r}.")
        values = usual_values(model, position) if x is None else inputs.number_vector(x, "x")
        return feature_curve(model, position, int(cluster), values, level)

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

    def _adapt(self, given: Given) -> Self:
        rows = self._read(given, LEFT_OUT, target=True, needs_ids=True).required()
        model = self._model.adapted(rows)
        adapted = copy.copy(self)
        adapted._model = with_diagnostics(model)
        return adapted

    def save(self, path: PathLike, *, public: bool = False) -> None:
        """Write the fitted model to one file, whole or not at all; `fedhlcr.load` reads it.

        Parameters
        ----------
        path : str or path
        public : bool, default=False
            Leave out everything that is private to agents: ids, Gram matrices, labels. A public model predicts for
            new agents, and for known ones after `adapt`.
        """
        model_writer.save(model_to_save(self), path, public=public)

    def summary(self) -> Summary:
        """A summary of the model: print it, or show it in a notebook."""
        return summarize(check_model(self))

    @single_threaded_blas
    def to_inference_data(
        self, X: Any = None, y: Any = None, agent: Any = None, entity: Any = None, exposure: Any = None
    ) -> Any:
        """The draws as ArviZ's `InferenceData`, for `az.summary`, `az.loo` and plots. Needs the extra `arviz`.

        Parameters
        ----------
        X, y, agent, entity, exposure : as in `fit`, optional
            The events of the fit, or all events of some of its entities. Only with events there is a log likelihood.
            The model finds the columns that `fit` used by their names, and treats gaps as `fit` did.
            Models of classes and counts, and those with `noise="student"`, keep their events and need none.

        Returns
        -------
        InferenceData, or DataTree with ArviZ 1
            posterior : `coef` (cluster, feature) and `intercept` (cluster) in the user's units, clusters numbered as in
            `coef_`; `cluster_weights`; `cluster_sizes`, the number of entities in each draw; noise, concentrations and
            scales of effects, as the attributes of these names.
            sample_stats : `lp`, the log joint, and `n_clusters`, the number of clusters with entities.
            log_likelihood : `y` (event), log p(y | draw) with the label, the effects and the noise that the event's
            entity has in the draw.
            posterior_predictive : `y` (event), new targets from the same laws.
            observed_data, constant_data : the targets, and features, ids and exposures.

        Notes
        -----
        Chains of different lengths are cut to the last draws of each. Where a cluster is empty in a draw, its
        coefficients are NaN; then `az.summary(…, skipna=True)` gives means, and no R-hat. `coef_` weights draws by the
        size of the cluster, ArviZ does not. Events that the model keeps are sorted by agent and entity. Effects of
        entities are drawn from their law given all else, with random numbers that depend on `seed_` only.
        """
        model = check_model(self)
        given = Given(X, y, agent, entity, exposure=exposure)
        if X is None and any(column is not None for column in given):
            raise ArgumentError("`X` is missing; pass all columns of the events, or none.")
        rows = None
        if X is not None:
            rows = self._read(given, LEFT_OUT, target=True, needs_ids=True).required()
        return inference_data(model, rows, type(self).__name__)

    def coef_table(self, level: float = 0.9, *, library: LibraryName | None = None) -> Any:
        """Coefficients of the clusters: one row for each cluster and feature, the intercept included.

        Parameters
        ----------
        level : float, default=0.9
            Probability of the intervals.
        library : {"pandas", "polars", "pyarrow"}, optional
            Dataframe library of the table. None is that of the X given to `fit`; for arrays and loaded models the first
            of these three that is installed.

        Returns
        -------
        dataframe with the columns
            cluster, feature : number of the cluster, and name of the feature or "intercept".
            mean, std : posterior mean, as in `coef_` and `intercept_`, and standard deviation, in the user's units.
            lower, upper : ends of the central interval; NaN if the model has only one draw.
            is_clear : whether the interval leaves out zero.
            change, change_lower, change_upper : of real targets, the change of the target per unit, as in the report.
            It differs from the coefficient for levels of categories, which are compared with all other levels here, and
            with the average event there.
            odds_ratio or rate_ratio, with _lower and _upper : of classes and counts, per unit, as in the summary.
            step, step_ratio, step_ratio_lower, step_ratio_upper : of classes and counts, the ratio for a step of the
            feature, as in the report and in `fedhlcr.plot.ratios`.
        """
        return self._table(coef_columns, level, library)

    def cluster_table(self, level: float = 0.9, *, library: LibraryName | None = None) -> Any:
        """The clusters: one row for each.

        Parameters
        ----------
        level, library : as in `coef_table`

        Returns
        -------
        dataframe with the columns
            cluster : its number.
            share, share_lower, share_upper : share of the fitted entities, mean over the draws, and interval.
            weight, weight_lower, weight_upper : `cluster_weights_`, the expected share of a new agent's entities.
            level, level_lower, level_upper : prediction at average features; of classes and counts the probability or
            the rate of a typical entity.
            n_entities : number of entities with this label in `labels_`; NaN in a public model.
            certainty : mean probability of the label of these entities; NaN where there are none.
        """
        return self._table(cluster_columns, level, library)

    def entity_table(self, level: float = 0.9, *, long: bool = False, library: LibraryName | None = None) -> Any:
        """The entities: one row for each, in the order of `labels_`. `fedhlcr inspect --entities` writes the same.

        Parameters
        ----------
        level, library : as in `coef_table`
        long : bool, default=False
            Whether to return one row for each entity and coefficient: ids, cluster, feature, mean, std, lower, upper.

        Returns
        -------
        dataframe with the columns
            agent, entity : the ids, under the names of their columns if `fit` had columns. A single agent without a
            name has no column.
            cluster, probability : the label in `labels_`, and its probability.
            second_cluster, second_probability : the most probable other cluster; −1 and 0 if there is only one cluster.
            n_events : number of events.
            intercept, and one column for each feature : posterior means, `entity_intercept_` and `entity_coef_`.
            the same with _std, _lower and _upper : standard deviations, and ends of the intervals. These are quantiles
            over draws and labels: where the label is in doubt, they may reach from one cluster to another.
            noise : of real targets, `entity_noise_`.

        Notes
        -----
        A name that a feature or an id has already gets an underscore.
        """
        return self._table(long_entity_columns if long else entity_columns, level, library)

    def agent_table(self, level: float = 0.9, *, library: LibraryName | None = None) -> Any:
        """The agents: one row for each, in the order of `agent_ids_`.

        Parameters
        ----------
        level, library : as in `coef_table`

        Returns
        -------
        dataframe with the columns
            agent : the id, under the name of its column if `fit` had one.
            n_entities, n_events : numbers of entities and events.
            cluster : the cluster with the largest share of the agent's entities.
            effective_clusters : effective number of clusters, 1 / Σ share².
            share_0, share_1, … : shares of the agent's entities in each cluster, mean over the draws, as in the report.
            weight_0, weight_1, … : `agent_weights_`, probabilities of the cluster of the agent's next entity.
            level_effect, …_effect, with _std, _lower and _upper : effects of the agent on the level and on slopes, if
            the model has any.
        """
        return self._table(agent_columns, level, library)

    @single_threaded_blas
    def _table(self, columns: Callable[[Any, float], Columns], level: float, library: Any) -> Any:
        model = check_model(self)
        check_probability(level)
        name = chosen_library(library, self.frame_library_)
        return make_frame(columns(model, float(level)), name)

    @property
    def _repr_html_(self) -> Callable[[], str]:
        # scikit-learn's raises an AttributeError if HTML is off
        diagram: Callable[[], str] = super()._repr_html_
        return self._results_html if self.__sklearn_is_fitted__() else diagram

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle and self.__sklearn_is_fitted__():
            bundle["text/html"] = self._results_html()
        return bundle

    @single_threaded_blas
    def _results_html(self) -> str:
        return model_html(check_model(self))

    def __fitted_model__(self) -> FittedModel:
        check_is_fitted(self)
        return self._model

    def __sklearn_is_fitted__(self) -> bool:
        return "_model" in vars(self)


def check_probability(level: Any) -> None:
    """Refuse a level outside (0, 1)."""
    if not isinstance(level, Real) or not 0.0 < float(level) < 1.0:
        raise ArgumentError(f"`level` must lie between 0 and 1, but is {level!r}; 0.9 is a usual choice.")


def model_to_save(estimator: Any) -> FittedModel:
    """What a fitted estimator found, with the settings that it has now."""
    names = getattr(estimator, "feature_names_in_", None)
    return check_model(estimator).changed(settings=model_settings(estimator), feature_names=names)


def fit_streamed(estimator: Any, data: StreamedEvents) -> None:
    """Fit an estimator to a table that has been read into a work folder."""
    estimator._fit_streamed(data)


def set_found(estimator: HierarchicalEstimator, **values: Any) -> None:
    """Change what an estimator found."""
    estimator._model = check_model(estimator).changed(**values)


def keep_model(estimator: Estimator, model: FittedModel) -> Estimator:
    """Give an estimator a model that was fitted elsewhere; its parameters are checked as those of any user."""
    estimator._check_parameters()
    estimator.n_features_in_ = model.n_features_in_
    if model.feature_names_in_ is not None:
        estimator.feature_names_in_ = model.feature_names_in_
    estimator._model = replace(model, settings=model_settings(estimator))
    return estimator
