"""A fitted model as plain data, whichever way it was fitted: it predicts, and its figures are in the user's units.

Estimators are shells around it. It needs no scikit-learn, which takes longer to import than a small table to predict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.data.families import Family
from fedhlcr.data.frames import Given
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.data.ids import NEW
from fedhlcr.data.inputs import read_target
from fedhlcr.data.recipe import Recipe
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError
from fedhlcr.kernels import ahead
from fedhlcr.model.curves import Curves
from fedhlcr.model.gram import entity_grams
from fedhlcr.posterior import alignment
from fedhlcr.posterior.alignment import Alignment
from fedhlcr.posterior.diagnostics import Diagnostic, diagnose
from fedhlcr.posterior.entity_coef import EntityCoef, entity_coef
from fedhlcr.posterior.event_rows import LEFT_OUT, UNPREDICTED, EventRows, Schema, read_rows
from fedhlcr.posterior.memory import AgentMemory
from fedhlcr.posterior.prediction import Posterior, Profiles
from fedhlcr.posterior.responses import Moments
from fedhlcr.posterior.user_units import coef_transform, to_user_units
from fedhlcr.privacy.differential_privacy import PrivacyPlan
from fedhlcr.samplers.state import EntityData
from fedhlcr.settings import SETTINGS


@dataclass(frozen=True, eq=False, repr=False)
class FittedModel:
    """All that a fit found. The docstring of `HLCRRegressor` explains the attributes whose names end with "_".

    Attributes
    ----------
    saved_as : name of the estimator's class
    settings : the estimator's parameters by name
    schema : how tables become events
    """

    saved_as: str
    settings: Mapping[str, Any]
    schema: Schema
    seed_: int
    posterior_: Posterior
    alignment_: Alignment
    feature_means_: FloatArray
    feature_spreads_: FloatArray
    feature_quantiles_: FloatArray | None = None
    diagnostics_: tuple[Diagnostic, ...] = ()
    comparison_: Any = None  # analysis.verdict.FitComparison, or None
    provenance_: Mapping[str, Any] = field(default_factory=dict)
    # the sweeps of a sampler, or the rounds of a federation
    trace_: NDArray[np.void] | None = None
    history_: NDArray[np.void] | None = None
    stop_reason_: str | None = None
    privacy_: PrivacyPlan | None = None

    def __getattr__(self, name: str) -> Any:
        # called only for names that are not found: settings, and posterior means of the globals, such as `noise_scale_`
        if not name.startswith("_") and "posterior_" in self.__dict__:
            if name in self.settings:
                return self.settings[name]
            if name.endswith("_") and name[:-1] in self._mean_quantities:
                return self._mean_quantities[name[:-1]]
        raise AttributeError(f"this model has no `{name}`.")

    @classmethod
    def settled(
        cls, saved_as: str, settings: Mapping[str, Any], schema: Schema, seed: int, posterior: Posterior
    ) -> Self:
        """Number the clusters of a posterior, and find the features' means and spreads. `adapted` changes neither."""
        layout = posterior.layout
        pooled = posterior.memory.entities.pooled_gram
        normal = layout.normal_equations(pooled)
        aligned = alignment.align(
            posterior.draws, normal.xx / normal.n, drop_empty=isinstance(settings["n_clusters"], str)
        )
        means, spreads = posterior.standardization.column_moments(layout, pooled)
        n_inputs = layout.n_inputs
        return cls(saved_as, settings, schema, seed, posterior, aligned, means[:n_inputs], spreads[:n_inputs])

    def changed(self, **values: Any) -> Self:
        """The same model with other values of fields, by their names here or, with a "_", in the schema."""
        own = {name: values.pop(name) for name in list(values) if name in {one.name for one in fields(self)}}
        schema = replace(self.schema, **{name.removesuffix("_"): value for name, value in values.items()})
        return replace(self, schema=schema, **own)

    @property
    def family(self) -> Family:
        """What the target is."""
        return self.schema.family

    @property
    def n_features_in_(self) -> int:
        return self.schema.n_features

    @property
    def feature_names_in_(self) -> NDArray[np.object_] | None:
        return self.schema.feature_names

    @property
    def agent_column_(self) -> str | None:
        return self.schema.agent_column

    @property
    def entity_column_(self) -> str | None:
        return self.schema.entity_column

    @property
    def sole_agent_(self) -> NDArray[np.object_] | None:
        return self.schema.sole_agent

    @property
    def classes_(self) -> NDArray[Any] | None:
        return self.schema.classes

    @property
    def recipe_(self) -> Recipe | None:
        return self.schema.recipe

    @property
    def n_clusters_(self) -> int:
        return self.alignment_.n_clusters

    @property
    def n_rounds_(self) -> int | None:
        return None if self.history_ is None else int(self.history_["round"].max(initial=0))

    @cached_property
    @single_threaded_blas
    def _mean_coef(self) -> FloatArray:
        """(n_clusters_, n_coef) mean coefficients of the clusters, in standardised units."""
        return alignment.mean_coef(self.posterior_.draws, self.alignment_)

    @cached_property
    @single_threaded_blas
    def _mean_quantities(self) -> dict[str, Any]:
        posterior = self.posterior_
        scale = float(posterior.standardization.scale[-1])
        return alignment.mean_quantities(posterior.draws, self.alignment_, scale, posterior.layout.n_linear)

    @property
    def coef_(self) -> FloatArray:
        return to_user_units(self, self._mean_coef)[0]

    @property
    def intercept_(self) -> FloatArray:
        return to_user_units(self, self._mean_coef)[1]

    @property
    def curves_(self) -> Curves | None:
        return self.posterior_.standardization.curves

    @property
    def curve_coef_(self) -> FloatArray:
        layout = self.posterior_.layout
        return self.posterior_.standardization.feature_slopes(layout, self._mean_coef)[:, layout.n_inputs :]

    @cached_property
    @single_threaded_blas
    def cluster_weights_(self) -> FloatArray:
        return self.alignment_.gather(np.exp(self.posterior_.draws.log_weights))

    @cached_property
    def dispersion_(self) -> float:
        return float(np.exp(-np.asarray(self.posterior_.draws.log_size_centre)).mean())

    @property
    def agent_ids_(self) -> NDArray[np.object_]:
        return self.posterior_.memory.entities.index.agent_ids

    @cached_property
    def pair_ids_(self) -> list[tuple[Any, Any]]:
        # built on first access: a million take 100 MB
        index = self.posterior_.memory.entities.index
        return list(zip(index.agent_ids[index.agent_of], index.entity_ids, strict=True))

    @cached_property
    def labels_(self) -> IndexArray:
        return alignment.voted_labels(self.posterior_.memory, self.alignment_)

    @cached_property
    def agent_weights_(self) -> FloatArray:
        return alignment.mean_agent_weights(self.posterior_.draws, self.posterior_.memory, self.alignment_)

    @cached_property
    @single_threaded_blas
    def entity_regressions(self) -> EntityCoef:
        """The coefficients of all entities in standardised units. They take time, so they are computed on access."""
        return entity_coef(self.posterior_, coef_transform(self, np.zeros(self.n_features_in_)))

    @property
    def entity_coef_(self) -> FloatArray:
        return to_user_units(self, self.entity_regressions.mean)[0]

    @property
    def entity_intercept_(self) -> FloatArray:
        return to_user_units(self, self.entity_regressions.mean)[1]

    @property
    def entity_coef_std_(self) -> FloatArray:
        return self.entity_regressions.std[:, 1:]

    @property
    def entity_intercept_std_(self) -> FloatArray:
        return self.entity_regressions.std[:, 0]

    @property
    def entity_effects_(self) -> FloatArray:
        found = self.entity_regressions
        transform = coef_transform(self, self.feature_means_)
        return np.asarray((found.mean - found.of_cluster) @ transform.T)

    def read(self, given: Given, fate: str, **how: Any) -> EventRows:
        """Read a table; the other arguments are those of `read_rows`."""
        ahead.prepare(ahead.for_predictions(self.posterior_.likelihood.name))
        index = self.posterior_.memory.entities.index
        how = {"missing": SETTINGS["missing"].current(self.settings.get("missing", "refuse")), **how}
        return read_rows(self.schema, index, given, fate, **how)

    @single_threaded_blas
    def means(self, rows: EventRows) -> FloatArray:
        """(rows of the table,) the means of `moments` alone, which take less time."""
        found = self.posterior_.mean(rows.matrix, rows.profiles, rows.offset) if len(rows) else np.empty(0)
        return rows.read.spread(found)

    @single_threaded_blas
    def moments(self, rows: EventRows, levels: tuple[float, ...] = ()) -> Moments:
        """Moments and quantiles of the rows of a table; NaN for rows that were left out."""
        found = Moments.empty(0, len(levels))
        if len(rows):
            found = self.posterior_.predict(rows.matrix, rows.profiles, levels, rows.offset)
        return Moments(*map(rows.read.spread, found))

    @single_threaded_blas
    def interval(self, rows: EventRows, level: float) -> tuple[FloatArray, FloatArray]:
        """Ends of intervals that hold the target of each row with probability `level`."""
        lower = upper = np.empty(0)
        if len(rows):
            lower, upper = self.posterior_.interval(rows.matrix, rows.profiles, level, rows.offset)
        return rows.read.spread(lower), rows.read.spread(upper)

    @single_threaded_blas
    def log_density(self, rows: EventRows) -> FloatArray:
        """Log density of the target of each row."""
        rows.warn_of_forgotten_exposure()
        found = np.empty(0)
        if len(rows):
            found = self.posterior_.log_density(rows.matrix, rows.target, rows.profiles, rows.offset)
        return rows.read.spread(found)

    def predict_moments(
        self, X: Any, agent: Any = None, entity: Any = None, levels: tuple[float, ...] = (), exposure: Any = None
    ) -> Moments:
        """Mean, standard deviation and quantiles, as those of an estimator."""
        return self.moments(self.read(Given(X, agent=agent, entity=entity, exposure=exposure), UNPREDICTED), levels)

    def interval_of(
        self, X: Any, agent: Any = None, entity: Any = None, level: float = 0.9, exposure: Any = None
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of intervals, as those of an estimator."""
        return self.interval(self.read(Given(X, agent=agent, entity=entity, exposure=exposure), UNPREDICTED), level)

    def cluster_probabilities(self, profiles: Profiles) -> FloatArray:
        """(rows, clusters) probability of each cluster for rows that were already looked up."""
        gather = self.alignment_.gather
        blocks = [gather(np.moveaxis(block, 1, 0)) for _, block in self.posterior_.blocks(profiles)]
        return np.concatenate(blocks)[profiles.of_row]

    @single_threaded_blas
    def responsibilities(self, agent: Any = None, entity: Any = None) -> FloatArray:
        """Probability of each cluster for entities, as that of an estimator."""
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
        known = self.schema.agents_or_sole(agent, n_rows)
        profiles = self.schema.find(self.posterior_.memory.entities.index, known, entity, n_rows)
        found = self.cluster_probabilities(profiles)
        return found[0] if one else found

    def read_events(self, X: Any, agent: Any = None, entity: Any = None) -> EventRows:
        """Read event rows as `predict` does; X, agent and entity as there."""
        return self.read(Given(X, agent=agent, entity=entity), LEFT_OUT)

    def events_of(self, X: Any, y: Any = None, agent: Any = None, entity: Any = None, exposure: Any = None) -> Given:
        """Read events to compare with predictions: columns in place of names, without rows with missing values.

        Parameters
        ----------
        X, y, agent, entity, exposure : as in `score`

        Returns
        -------
        Given
            The same arguments, with encoded features.
        """
        rows = self.read(Given(X, y, agent, entity, exposure=exposure), LEFT_OUT, target=True).required()
        given = rows.read.given
        # who forgot ids has been warned already
        is_sole = given.agent is None and self.schema.sole_agent is not None
        agent = rows.agent if rows.agent is not None or is_sole else NEW
        return given._replace(agent=agent, entity=NEW if rows.entity is None else rows.entity)

    def numeric_target(self, y: Any, n_rows: int) -> FloatArray:
        """(n_rows,) targets as numbers, as in `fit`: 1 for the second of two classes, 0 for the first."""
        return read_target(self.schema.family, self.schema.classes, y, n_rows)

    def entities_of(self, X: Any, y: Any, agent: Any = None, entity: Any = None) -> EntityData:
        """The entities of a table and their Gram matrices, in the model's units."""
        given = Given(X, y, agent, entity)
        return self.entities_in(self.read(given, LEFT_OUT, target=True, needs_ids=True).required())

    def entities_in(self, rows: EventRows) -> EntityData:
        """The entities of the events of a table, with their Gram matrices in the model's units."""
        if rows.entity is None:
            raise ArgumentError(
                "`entity` is missing; pass one entity id per event row, so that the events find theirs."
            )
        agent = rows.agent if rows.read.given.agent is not None else self.schema.agents_or_sole(None, len(rows))
        if agent is None:
            raise ArgumentError("`agent` is missing and the model has several agents; pass one agent id per event row.")
        likelihood = self.posterior_.likelihood
        layout = self.posterior_.layout
        units = self.posterior_.standardization
        n_threads = self.posterior_.memory.entities.n_threads
        expanded = units.expand(rows.matrix)
        hierarchy = build_hierarchy(expanded, rows.target, rows.weight, agent, rows.entity, rows.offset, n_threads)
        grams = units.rescale(layout, entity_grams(hierarchy, layout, units.shift, n_threads), n_threads)
        events = None
        if likelihood.needs_events:
            events = likelihood.events_in(replace(hierarchy.events, X=hierarchy.X[:, : layout.n_inputs]), units)
        return EntityData(likelihood, hierarchy.index, grams, n_threads, events)

    @single_threaded_blas
    def adapted(self, rows: EventRows) -> Self:
        """The same model after its agents have seen more events; the clusters are not refitted."""
        ahead.prepare(ahead.for_adapting(self.posterior_.likelihood.name))
        adapted = self.posterior_.adapt(self.entities_in(rows), Stream(self.seed_, ReservedChain.ADAPTATION))
        return replace(self, posterior_=adapted, diagnostics_=diagnose(adapted))

    def without_agents(self) -> Self:
        """The public part of the model."""
        posterior = self.posterior_
        nobody = AgentMemory.of_nobody(posterior.likelihood, posterior.draws, 1)
        return replace(self, posterior_=replace(posterior, memory=nobody), feature_quantiles_=None)


def check_model(model: Any) -> FittedModel:
    """What a fitted estimator found; anything else is refused."""
    if isinstance(model, FittedModel):
        return model
    if not hasattr(model, "__fitted_model__"):
        raise ArgumentTypeError(
            f"`model` must be an estimator of fedhlcr, such as HLCRRegressor, but is of type {type(model).__name__}; "
            "for a pipeline pass its last step, `pipeline[-1]`."
        )
    found: FittedModel = model.__fitted_model__()
    return found
