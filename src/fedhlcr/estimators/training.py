"""The events that a model is fitted to, in memory or in files: what a fit needs to know of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.analysis.fit_comparison import Sample, take_sample
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import EntityIndex, Hierarchy
from fedhlcr.data.scarcity import TableShape
from fedhlcr.kernels.grams import sum_rows
from fedhlcr.model.curves import Curves, column_quantiles
from fedhlcr.model.gram import Standardization, column_means, entity_grams
from fedhlcr.model.likelihood import AnyLikelihood

# Events whose features give the usual values in sentences and on axes; of more, evenly spaced ones.
MOST_FOR_QUANTILES = 10_000


@dataclass(frozen=True)
class RawMatrices:
    """Gram matrices around a shift, not yet in the units of a run.

    Attributes
    ----------
    pooled : (packed,) their sum
    in_units : returns the matrices in the given units, (entities, packed); to be called once
    """

    pooled: FloatArray
    in_units: Callable[[Standardization], FloatArray]


class TrainingEvents(ABC):
    """Events to fit a model to."""

    @property
    @abstractmethod
    def index(self) -> EntityIndex:
        """The agents and entities."""

    @abstractmethod
    def shape(self) -> TableShape:
        """What warnings about small tables depend on."""

    @abstractmethod
    def quantiles(self, columns: Sequence[int]) -> FloatArray:
        """(features, N_QUANTILES) quantiles of the features; only those of `columns` are used."""

    @abstractmethod
    def means(self, n_threads: int) -> FloatArray:
        """(n_features + 1,) means of (x, y)."""

    @abstractmethod
    def matrices(
        self, likelihood: AnyLikelihood, shift: FloatArray, curves: Curves | None, n_threads: int
    ) -> RawMatrices:
        """The entities' Gram matrices, around a shift, for this likelihood."""

    @abstractmethod
    def events(self, likelihood: AnyLikelihood, units: Standardization) -> EventStore:
        """The events in the units of a run."""

    @abstractmethod
    def sample(self) -> Sample | None:
        """Some events to compare models on; None if that makes no sense. To be called after `matrices`."""

    @abstractmethod
    def usual_quantiles(self) -> FloatArray:
        """(features, N_QUANTILES) quantiles of the features in some events. To be called after `matrices`."""


@dataclass(frozen=True)
class EventsInMemory(TrainingEvents):
    """Events of a table in memory."""

    hierarchy: Hierarchy

    @property
    def index(self) -> EntityIndex:
        return self.hierarchy.index

    def shape(self) -> TableShape:
        own = self.hierarchy
        return TableShape(own.n_events, own.n_entities, own.X.shape[1], target_varies=bool(np.ptp(own.y) > 0.0))

    def quantiles(self, columns: Sequence[int]) -> FloatArray:
        del columns
        return column_quantiles(self.hierarchy.X, self.hierarchy.weight)

    def means(self, n_threads: int) -> FloatArray:
        return column_means(self.hierarchy, n_threads)

    def matrices(
        self, likelihood: AnyLikelihood, shift: FloatArray, curves: Curves | None, n_threads: int
    ) -> RawMatrices:
        layout = likelihood.layout
        own = self.hierarchy if curves is None else replace(self.hierarchy, X=curves.expand(self.hierarchy.X))
        grams = entity_grams(own, layout, shift, n_threads)
        return RawMatrices(sum_rows(grams), lambda units: units.rescale(layout, grams, n_threads))

    def events(self, likelihood: AnyLikelihood, units: Standardization) -> EventStore:
        return likelihood.events_in(self.hierarchy.events, units)

    def sample(self) -> Sample | None:
        return take_sample(self.hierarchy)

    def usual_quantiles(self) -> FloatArray:
        rows = evenly_spaced(self.hierarchy.n_events)
        return column_quantiles(self.hierarchy.X[rows], self.hierarchy.weight[rows])


def evenly_spaced(n_events: int) -> IndexArray:
    """Positions of events whose features stand for those of all."""
    return np.linspace(0, n_events - 1, min(n_events, MOST_FOR_QUANTILES)).astype(np.int64)
