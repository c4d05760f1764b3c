"""Predictions of any fitted model: means, moments, intervals, densities, and what scores need."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.data import inputs
from fedhlcr.data.frames import Given
from fedhlcr.estimators.output import OutputChoice
from fedhlcr.estimators.reading import UNPREDICTED, UNSCORED, FittedEvents, TableReader
from fedhlcr.estimators.score import Counts
from fedhlcr.estimators.tidy_tables import check_probability
from fedhlcr.posterior.predictive import Moments


class Predictions(OutputChoice, TableReader):
    """A fitted model that predicts. What belongs to its target, such as `predict`, is in `estimators.targets`."""

    @single_threaded_blas
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
        events = self._events(Given(X, agent=agent, entity=entity, exposure=exposure), UNPREDICTED)
        return Moments(*map(events.read.spread, self._moments(events, levels)))

    def _moments(self, events: FittedEvents, levels: tuple[float, ...]) -> Moments:
        if not len(events):
            return Moments(np.empty(0), np.empty(0), np.empty((0, len(levels))))
        return self.posterior_.predict(events.matrix, events.profiles, levels, self._own_offset(events))

    @single_threaded_blas
    def _mean(self, given: Given) -> FloatArray:
        """The means of `predict_moments` alone, which take less time."""
        events = self._events(given, UNPREDICTED)
        return events.read.spread(self._means(events))

    def _means(self, events: FittedEvents) -> FloatArray:
        if not len(events):
            return np.empty(0)
        return self.posterior_.mean(events.matrix, events.profiles, self._own_offset(events))

    def _own_offset(self, events: FittedEvents) -> FloatArray | None:
        return self._offset(events.read.given.exposure, len(events))

    def interval_of(
        self, X: Any, agent: Any = None, entity: Any = None, level: float = 0.9, exposure: Any = None
    ) -> tuple[FloatArray, FloatArray]:
        """The ends of `predict_interval`, for any target; arguments as there."""
        return self._ends(Given(X, agent=agent, entity=entity, exposure=exposure), level)

    @single_threaded_blas
    def _ends(self, given: Given, level: float) -> tuple[FloatArray, FloatArray]:
        check_is_fitted(self)
        check_probability(level)
        events = self._events(given, UNPREDICTED)
        ends = (np.empty(0), np.empty(0))
        if len(events):
            ends = self.posterior_.interval(events.matrix, events.profiles, level, self._own_offset(events))
        return events.read.spread(ends[0]), events.read.spread(ends[1])

    def _interval(self, given: Given, level: float, output: str | None) -> Any:
        """`interval_of`, as the user wants it."""
        lower, upper = self._ends(given, level)
        return self._answer({"lower": lower, "upper": upper}, given.X, output)

    @single_threaded_blas
    def _log_density(self, given: Given) -> FloatArray:
        events = self._events(given, UNPREDICTED, target=True)
        self._warn_of_forgotten_exposure(events.read)
        if not len(events):
            return events.read.spread(np.empty(0))
        target = self._target(events.read.given.y, len(events))
        offset = self._own_offset(events)
        return events.read.spread(self.posterior_.log_density(events.matrix, target, events.profiles, offset))

    @single_threaded_blas
    def _scored(self, given: Given) -> tuple[FloatArray, FloatArray, FloatArray | None, Counts]:
        """Observed and predicted targets of events without missing values, their weights, and what they are."""
        events = self._events(given, UNSCORED, target=True)
        self._require_rows(events)
        self._warn_of_forgotten_exposure(events.read)
        given = events.read.given
        weight = None if given.sample_weight is None else inputs.weight_vector(given.sample_weight, len(events))
        return self._target(given.y, len(events)), self._means(events), weight, events.counts
