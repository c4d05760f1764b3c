"""Which contributions are believed: shapes, types and sums that cannot be are refused.

Reasons never contain a value: logs cross the boundary contributions were made not to cross.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr.arrays import FloatArray
from fedhlcr.federation.messages import UNLABELLED, Contribution, Contributions
from fedhlcr.federation.sums import N_SCALARS, AgentSums
from fedhlcr.gram import GramLayout
from fedhlcr.kernels.grams import NOT_FINITE, NOT_POSITIVE, check_grams


@dataclass(frozen=True)
class ReplyLimits:
    """What one agent may say at most.

    Attributes
    ----------
    max_events, max_entities : of one agent
    max_mean_square : of a column of an agent's events around the run's shift, in multiples of what is usual
    min_events_per_entity : less than 1 where events have fractional weights
    tolerance : how far from positive semi-definite rounding may leave a matrix, relative to its diagonal
    """

    max_events: float = 1e7
    max_entities: float = 1e6
    max_mean_square: float = 1e8
    min_events_per_entity: float = 1.0
    tolerance: float = 1e-8


class Expected(NamedTuple):
    """What a sound contribution to the open round looks like."""

    layout: GramLayout
    known_clusters: NDArray[np.bool_]  # (original clusters,); none in the survey
    units: FloatArray  # (width,) usual mean square of each column; zeros in the survey
    has_tables: bool

    @classmethod
    def survey(cls, layout: GramLayout) -> Expected:
        return cls(layout, np.empty(0, dtype=bool), np.zeros(layout.width), has_tables=False)

    @property
    def is_survey(self) -> bool:
        return len(self.known_clusters) == 0

    @property
    def n_shifts(self) -> int:
        return self.layout.n_features + 1 if self.is_survey else 0


def find_malformed(contribution: Contribution, expected: Expected) -> str | None:
    """Why a single contribution cannot even be stacked with others, or None."""
    if not isinstance(contribution.agent, str):
        return "the agent's name is no text"
    if not (isinstance(contribution.run, int) and isinstance(contribution.round, int)):
        return "run or round is no whole number"
    rows = np.shape(contribution.clusters)
    wanted: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
        "clusters": (np.int32, rows[:1] or (0,)),
        "entity_counts": (np.int32, rows),
        "table_counts": (np.int32, rows),
        "grams": (np.float64, (*rows, expected.layout.packed_size)),
        "scalars": (np.float64, (N_SCALARS,)),
        "shift": (np.float64, (expected.n_shifts,)),
    }
    for name, (dtype, shape) in wanted.items():
        value = getattr(contribution, name)
        if not isinstance(value, np.ndarray) or value.dtype != dtype:
            return f"wrong dtype of `{name}`"
        if value.shape != shape:
            return f"wrong shape of `{name}`"
    return None


def find_faults(contributions: Contributions, expected: Expected, limits: ReplyLimits) -> list[str | None]:
    """For each agent why its contribution cannot be true, or None."""
    sums, verdicts = contributions.sums, _Verdicts(contributions)
    soundness = np.empty(len(sums.grams), dtype=np.int64)
    check_grams(sums.grams, expected.units, limits.tolerance, soundness)
    verdicts.refuse_rows(soundness == NOT_FINITE, "NaN or infinity in `grams`")
    verdicts.refuse(~np.isfinite(sums.scalars).all(axis=1), "NaN or infinity in `scalars`")
    verdicts.refuse(~np.isfinite(contributions.shifts).all(axis=1), "NaN or infinity in `shift`")
    # what is not finite has its verdict; here it must only not disturb
    with np.errstate(invalid="ignore", over="ignore"):
        if expected.is_survey:
            _check_survey(sums, verdicts)
        else:
            _check_labels(sums, expected, limits, verdicts)
        events = expected.layout.n_events(sums.grams)
        verdicts.refuse_rows(events <= 0, "a matrix without events")
        verdicts.refuse_rows(soundness == NOT_POSITIVE, "a matrix that is not positive semi-definite")
        verdicts.refuse(sums.by_agent(events) > limits.max_events, "more events than `max_events`")
        diagonal = sums.grams[:, np.cumsum(np.arange(1, expected.layout.width + 1)) - 1]
        bound = limits.max_mean_square * np.where(expected.units > 0, expected.units, np.inf)
        verdicts.refuse_rows((diagonal > bound * events[:, None]).any(axis=1), "columns beyond `max_mean_square`")
    return verdicts.reasons


class _Verdicts:
    """The first reason found against each agent."""

    def __init__(self, contributions: Contributions) -> None:
        self._sums = contributions.sums
        self.reasons: list[str | None] = [None] * len(contributions)

    def refuse(self, bad: NDArray[np.bool_] | np.bool_, reason: str) -> None:
        """`bad`: (agents,)"""
        for agent in np.flatnonzero(bad):
            self.reasons[agent] = self.reasons[agent] or reason

    def refuse_rows(self, bad: NDArray[np.bool_] | np.bool_, reason: str) -> None:
        """`bad`: (rows,)"""
        if bad.any():
            self.refuse(self._sums.by_agent(np.asarray(bad)) > 0, reason)


def _check_survey(sums: AgentSums, verdicts: _Verdicts) -> None:
    verdicts.refuse(np.diff(sums.row_start) > 1, "more than one matrix in the survey")
    labelled = (sums.clusters != UNLABELLED) | (sums.entity_counts != 0) | (sums.table_counts != 0)
    verdicts.refuse_rows(labelled, "labels in the survey")


def _check_labels(sums: AgentSums, expected: Expected, limits: ReplyLimits, verdicts: _Verdicts) -> None:
    n_clusters = len(expected.known_clusters)
    in_range = (sums.clusters >= 0) & (sums.clusters < n_clusters)
    known = in_range & expected.known_clusters[np.where(in_range, sums.clusters, 0)]
    verdicts.refuse_rows(~known, "a cluster that does not exist")
    cells = sums.row_owner * n_clusters + sums.clusters
    repeated = np.ones(len(cells), dtype=bool)
    repeated[np.unique(cells, return_index=True)[1]] = False
    verdicts.refuse_rows(repeated, "a cluster twice")
    verdicts.refuse_rows(sums.entity_counts < 1, "entity counts below one")
    least, most = (1, sums.entity_counts) if expected.has_tables else (0, 0)
    verdicts.refuse_rows((sums.table_counts < least) | (sums.table_counts > most), "impossible table counts")
    fewest_events = limits.min_events_per_entity * sums.entity_counts
    # weights may sum to a digit less
    too_few = expected.layout.n_events(sums.grams) < fewest_events * (1.0 - 1e-9)
    verdicts.refuse_rows(too_few, "counts that disagree with the matrix")
    n_entities = sums.by_agent(sums.entity_counts)
    verdicts.refuse(n_entities > limits.max_entities, "more entities than `max_entities`")
    log_q, bernoulli, log_prior, changed = sums.scalars.T
    possible = (log_q <= 0) & (log_prior <= 1e-9 * n_entities) & (changed >= 0) & (changed <= n_entities)
    possible &= (bernoulli == 0) | ((bernoulli == 1) & (n_entities > 0))
    verdicts.refuse(~possible, "impossible `scalars`")
