"""Predict with a model file without scikit-learn, which takes longer to import than a small table to predict.

`fedhlcr predict` uses it. Its predictions are those of the estimator that `fedhlcr.load` returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import available_threads, single_threaded_blas
from fedhlcr.data import inputs
from fedhlcr.data.families import Family
from fedhlcr.data.recipe import Recipe
from fedhlcr.estimators.rows import EventReader
from fedhlcr.exceptions import ArgumentError, CodecError
from fedhlcr.kernels import ahead
from fedhlcr.model import choice as choice  # it registers all likelihoods
from fedhlcr.model.gram import read_units
from fedhlcr.model.likelihood import is_registered, likelihood_named
from fedhlcr.posterior import Draws, Posterior, Profiles
from fedhlcr.posterior.predictive import Moments
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.model_facts import open_pages, opened
from fedhlcr.storage.model_reader import ModelReader, read_classes, read_feature_names
from fedhlcr.storage.reader import reading_errors


@dataclass
class SavedModel(EventReader):
    """What `fedhlcr predict` needs of a model: attributes and methods as those of the estimators.

    Attributes
    ----------
    family : the sort of target
    feature_names_in_ : names of the features, or None
    classes_ : the two classes, of a classifier
    """

    family: Family
    posterior_: Posterior
    recipe_: Recipe | None
    agent_column_: str | None
    entity_column_: str | None
    sole_agent_: NDArray[np.object_] | None
    feature_names_in_: NDArray[np.object_] | None
    classes_: NDArray[Any] | None

    @single_threaded_blas
    def predict_moments(
        self, X: Any, agent: Any = None, entity: Any = None, levels: tuple[float, ...] = (), exposure: Any = None
    ) -> Moments:
        """Mean, standard deviation and quantiles, as those of an estimator."""
        matrix, profiles, offset = self._rows(X, agent, entity, exposure)
        return self.posterior_.predict(matrix, profiles, levels, offset)

    @single_threaded_blas
    def interval_of(
        self, X: Any, agent: Any = None, entity: Any = None, level: float = 0.9, exposure: Any = None
    ) -> tuple[FloatArray, FloatArray]:
        """Ends of intervals, as those of an estimator."""
        matrix, profiles, offset = self._rows(X, agent, entity, exposure)
        return self.posterior_.interval(matrix, profiles, level, offset)

    def _rows(self, X: Any, agent: Any, entity: Any, exposure: Any) -> tuple[FloatArray, Profiles, FloatArray | None]:
        ahead.prepare(ahead.for_predictions(self.posterior_.likelihood.name))
        table, matrix = self._read(X, agent, entity)
        index = self.posterior_.memory.entities.index
        profiles = Profiles.of(*self._find(index, table.agent, table.entity, len(matrix)))
        if exposure is not None and not self.family.has_exposure:
            raise ArgumentError("`exposure` is for counts; leave it out, or use a model of counts.")
        return matrix, profiles, inputs.log_exposure(exposure, len(matrix))

    def _features(self, table: inputs.Table, *, reset: bool) -> FloatArray:
        del reset
        matrix = inputs.feature_matrix(table.features)
        n_features = self.posterior_.layout.n_inputs
        if matrix.shape[1] != n_features:
            raise ArgumentError(f"`X` has {matrix.shape[1]} features, but the model has {n_features}.")
        return matrix


def load_to_predict(path: PathLike) -> SavedModel | None:
    """The model in a file; None if the file is of an earlier release or of another sort: then `fedhlcr.load` reads it.

    All of the file is checked, as by `fedhlcr.load`.
    """
    with opened(path) as file, reading_errors():
        if (record := open_pages(file)) is None:
            return None
        record.verify()
        reader = ModelReader(record)
        about = reader.about()
        return None if about["likelihood"] is None else _read(reader, about)


def _read(reader: ModelReader, about: dict[str, Any]) -> SavedModel:
    name = about["likelihood"]
    reader.require(is_registered(name), "likelihood")
    layout, units = read_units(reader.part("standardization."), fit_intercept=about["fit_intercept"])
    likelihood = likelihood_named(name, layout)
    draws = Draws.read(reader.part("draws."), likelihood)
    recipe = None if about["recipe"] is None else Recipe.from_json(about["recipe"])
    memory = reader.memory(likelihood, draws, available_threads())
    family = likelihood.family
    if family.has_classes != (about["classes"] is not None):
        raise CodecError("the model is not valid: only a classifier has classes; save it again.")
    return SavedModel(
        family,
        Posterior(likelihood, units, draws, memory),
        recipe,
        about["agent_column"],
        about["entity_column"],
        reader.sole_agent(memory.entities.index) if about["one_agent"] else None,
        read_feature_names(about["feature_names"], layout.n_inputs, recipe),
        read_classes(about["classes"]) if family.has_classes else None,
    )
