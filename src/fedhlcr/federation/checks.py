"""Checks of contributions: those with wrong types or shapes, or with impossible sums, are refused.

Reasons never contain a value: logs may be read where an agent's data must not be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, for_kernels
from fedhlcr.exceptions import ArgumentError
from fedhlcr.federation.claims import MAX_CHANGE
from fedhlcr.federation.laws import Law
from fedhlcr.federation.messages import Contribution, Contributions
from fedhlcr.federation.sums import AgentSums
from fedhlcr.federation.weights import MAX_WEIGHT
from fedhlcr.kernels.grams import NOT_FINITE, NOT_POSITIVE, SOUND, check_grams
from fedhlcr.model.curves import N_QUANTILES
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import GRAMS, Known, SumSchema, gram_sums
from fedhlcr.privacy import fixed_point

# No column may have larger values: the sum of their squares could overflow.
LARGEST = 1e100
# Limits that earlier releases did not have.
LATER_LIMITS = ("max_event_ratio", "max_target_square", "max_weight", "max_change")
# In fixed point, the largest scalar of an agent: so many agents can be added up.
LARGEST_WIDE = 2.0 ** (fixed_point.HIGHEST - 24)


@dataclass(frozen=True, repr=False)
class ReplyLimits:
    """Limits beyond which the server refuses an agent's contribution, or counts it with less weight.

    Attributes
    ----------
    max_events, max_entities : the most events and entities of one agent
    max_event_ratio : the most events of one agent, as a multiple of the median over the agents of the survey
    max_mean_square : the largest mean square of a column of an agent's events around the run's shift, as a multiple of
        the mean square over all agents
    max_target_square : the same for the target, where it is standardised
    max_weight : how many times the median agent any agent may count in the server's sums. An agent beyond it, and
        beyond what is usual among these agents, is not refused: its sums are scaled down (`federation.weights`).
        Infinite trusts everybody, in the survey too. None is 5 on a network, and infinite in a simulation, where one
        process has all agents
    max_change : how far an agent's events and entities may differ from those of its earlier replies, relative to these;
        infinite if mods change sums
    min_events_per_entity : the fewest events of an entity; less than 1 if events have fractional weights
    tolerance : how far from positive semi-definite a matrix may be because of rounding, relative to its diagonal
    """

    max_events: float = 1e7
    max_entities: float = 1e6
    max_event_ratio: float = 1e5
    max_mean_square: float = 1e8
    max_target_square: float = 1e3
    max_weight: float | None = None
    max_change: float = MAX_CHANGE
    min_events_per_entity: float = 1.0
    tolerance: float = 1e-8

    def __post_init__(self) -> None:
        for f in fields(self):
            value: Any = getattr(self, f.name)
            if value is None and f.default is None:
                continue
            is_number = isinstance(value, Real)
            if not is_number or not value >= 0.0:
                raise ArgumentError(f"`{f.name}` of the limits must be a number of at least 0, but is {value!r}.")
            object.__setattr__(self, f.name, float(value))

    def __repr__(self) -> str:
        """Without later limits that have their defaults: the text identifies a run, and older runs have no such."""
        usual = {name: (getattr(type(self), name),) for name in LATER_LIMITS} | {"max_weight": (None, MAX_WEIGHT)}
        shown = [f for f in fields(self) if getattr(self, f.name) not in usual.get(f.name, ())]
        return f"ReplyLimits({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in shown)})"


class ExpectedReply(NamedTuple):
    """What a valid contribution to the open round looks like."""

    layout: GramLayout
    schema: SumSchema
    n_clusters: int
    units: FloatArray  # (width,) mean square of each column over all agents; zeros in the survey
    has_tables: bool  # whether contributions carry table counts
    is_survey: bool = False
    n_curves: int = 0  # columns whose quantiles the survey asks for
    usual_events: float = np.inf  # median number of events of an agent in the survey
    of_events: bool = True  # whether matrices are sums over events as they are, neither weighted nor without effects
    has_link: bool = False  # whether targets in the sums are working targets
    # n_events of agents → the most that the first number of their matrices can be
    most_weight: Callable[[FloatArray], FloatArray] | None = None
    law: Law | None = None  # what it answers; None in the survey
    fixed_point: bool = False  # whether the server adds it up in fixed point

    @classmethod
    def under(
        cls, likelihood: AnyLikelihood, law: Law, n_clusters: int, units: FloatArray, usual: float, *, tables: bool
    ) -> ExpectedReply:
        """Contributions under a law, where `usual` is the median number of events of an agent.

        `tables` says whether they carry table counts.
        """
        return cls(
            likelihood.layout,
            likelihood.sum_schema,
            n_clusters,
            units,
            tables,
            usual_events=usual,
            of_events=likelihood.sums_events(law),
            has_link=likelihood.linear_spread is not None,
            most_weight=likelihood.most_weight(law),
            law=law,
        )

    @classmethod
    def survey(cls, layout: GramLayout, n_curves: int = 0) -> ExpectedReply:
        schema = gram_sums(layout.packed_size)
        return cls(layout, schema, 1, np.zeros(layout.width), has_tables=False, is_survey=True, n_curves=n_curves)


def find_mistyped(contribution: Contribution) -> str | None:
    """Why a contribution does not say which agent it is from and which round it answers, or None."""
    if not isinstance(contribution.agent, str):
        return "the agent's name is not text"
    answered = contribution.run, contribution.session, contribution.round
    return None if all(type(number) is int for number in answered) else "run, session or round is not an integer"


def find_malformed(contribution: Contribution, expected: ExpectedReply) -> str | None:
    """Why a contribution cannot be stacked with others, or None: its arrays have other types or shapes."""
    n_clusters = expected.n_clusters
    schema = expected.schema
    if set(contribution.blocks) != {block.name for block in schema.blocks}:
        return "its blocks are not those of the likelihood"
    values = {**vars(contribution), **contribution.blocks}
    wanted: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
        "entity_counts": (np.int32, (n_clusters,)),
        "table_counts": (np.int32, (n_clusters,)),
        **{block.name: (np.float64, (n_clusters, block.size)) for block in schema.blocks},
        "scalars": (np.float64, (len(schema.scalars),)),
        "shift": (np.float64, (expected.layout.n_features + 1 if expected.is_survey else 0,)),
        "quantiles": (np.float64, (expected.n_curves, N_QUANTILES)),
    }
    for name, (dtype, shape) in wanted.items():
        if not isinstance(values[name], np.ndarray) or values[name].dtype != dtype:
            return f"wrong dtype of `{name}`"
        if values[name].shape != shape:
            return f"wrong shape of `{name}`"
    return None


def find_faults(contributions: Contributions, expected: ExpectedReply, limits: ReplyLimits) -> list[str | None]:
    """For each agent why its contribution is impossible, or None."""
    sums = contributions.sums
    verdicts = _Verdicts(contributions)
    soundness = _soundness(sums, expected, limits)
    for block in expected.schema.blocks:
        bad = soundness[block.name] == NOT_FINITE
        verdicts.refuse_rows(bad, f"NaN or infinity in `{block.name}`")
        if block.is_moments:
            bad = soundness[block.name] == NOT_POSITIVE
            verdicts.refuse_rows(bad, f"`{block.name}` is not positive semi-definite")
        elif not block.is_gram:
            verdicts.refuse_rows(~block.possible(sums.blocks[block.name]).all(axis=1), f"impossible `{block.name}`")
    verdicts.refuse(~np.isfinite(sums.scalars).all(axis=1), "NaN or infinity in `scalars`")
    verdicts.refuse(~np.isfinite(contributions.shifts).all(axis=1), "NaN or infinity in `shift`")
    # rows that are not finite are refused already; they must not cause warnings here
    with np.errstate(invalid="ignore", over="ignore"):
        if expected.is_survey:
            _check_survey(contributions, verdicts)
        else:
            _check_labels(sums, expected, limits, verdicts)
        events = expected.layout.n_events(sums.grams)
        verdicts.refuse_rows(events <= 0, "a matrix has no events")
        bad = soundness[GRAMS] == NOT_POSITIVE
        verdicts.refuse_rows(bad, "a matrix is not positive semi-definite")
        n_events = sums.by_agent(events) if expected.schema.counts_events else sums.scalar("events")
        verdicts.refuse(n_events > limits.max_events, "more events than `max_events`")
        most = limits.max_event_ratio * expected.usual_events
        verdicts.refuse(n_events > most, "more events than `max_event_ratio` times the median agent")
        if expected.most_weight is not None:
            verdicts.refuse(sums.by_agent(events) > expected.most_weight(n_events), "events of impossible precision")
        _check_columns(sums, expected, limits, verdicts)
        if not expected.is_survey:
            _check_scalars(sums, n_events, expected, verdicts)
        if expected.fixed_point:
            _check_fixed(contributions, expected, verdicts)
    return verdicts.reasons


def _check_columns(sums: AgentSums, expected: ExpectedReply, limits: ReplyLimits, verdicts: _Verdicts) -> None:
    """Refuse columns that are far larger than in the survey."""
    events = expected.layout.n_events(sums.grams)
    diagonal = expected.layout.diagonal(sums.grams)
    usual = np.where(expected.units > 0, expected.units, np.inf)
    bad = (diagonal > limits.max_mean_square * usual * events[:, None]).any(axis=1)
    verdicts.refuse_rows(bad, "a column exceeds `max_mean_square`")
    if not expected.is_survey and not expected.has_link:
        # of the agent as a whole: a single cluster may hold its oddest events
        target = sums.by_agent(diagonal[:, -1])
        weight = sums.by_agent(events)
        bad = target > limits.max_target_square * usual[-1] * weight
        verdicts.refuse(bad, "the target exceeds `max_target_square`")


def _soundness(sums: AgentSums, expected: ExpectedReply, limits: ReplyLimits) -> dict[str, NDArray[np.int64]]:
    """For each row of each block SOUND or NOT_FINITE, and for a Gram matrix also NOT_POSITIVE."""
    found: dict[str, NDArray[np.int64]] = {}
    for block in expected.schema.blocks:
        rows = for_kernels(sums.blocks[block.name])
        if block.is_gram:
            found[block.name] = np.empty(len(rows), dtype=np.int64)
            check_grams(rows, expected.units, limits.tolerance, found[block.name])
        elif block.is_moments:
            found[block.name] = np.empty(len(rows), dtype=np.int64)
            # effects are at most about 1 in the units of a run; sums in fixed point are rounded to multiples of 2⁻³⁰
            check_grams(rows, np.ones(block.width), limits.tolerance, found[block.name])
        else:
            found[block.name] = np.where(np.isfinite(rows).all(axis=1), SOUND, NOT_FINITE)
    return found


class _Verdicts:
    """The first reason found to refuse each agent's contribution."""

    def __init__(self, contributions: Contributions) -> None:
        self._sums = contributions.sums
        self.reasons: list[str | None] = [None] * len(contributions)

    def refuse(self, bad: NDArray[np.bool_] | np.bool_, reason: str) -> None:
        """Refuse the agents marked in `bad`, (agents,)."""
        if not bad.any():
            return
        for agent in np.flatnonzero(bad):
            self.reasons[agent] = self.reasons[agent] or reason

    def refuse_rows(self, bad: NDArray[np.bool_] | np.bool_, reason: str) -> None:
        """Refuse the agents of the rows marked in `bad`, (rows,)."""
        if bad.any():
            self.refuse(self._sums.by_agent(np.asarray(bad)) > 0, reason)


def _check_fixed(contributions: Contributions, expected: ExpectedReply, verdicts: _Verdicts) -> None:
    """Refuse sums that are too large for fixed point."""
    sums = contributions.sums
    reason = "too large for fixed point: {}"
    verdicts.refuse((np.abs(sums.scalars) > LARGEST_WIDE).any(axis=1), reason.format("`scalars`"))
    if not expected.is_survey:
        for name, rows in sums.blocks.items():
            verdicts.refuse_rows((np.abs(rows) >= fixed_point.LIMIT).any(axis=1), reason.format(f"`{name}`"))
        return
    squares = sums.by_agent(np.abs(expected.layout.diagonal(sums.grams)).max(axis=1))
    means = sums.by_agent(expected.layout.n_events(sums.grams)) * (contributions.shifts**2).max(axis=1)
    verdicts.refuse(squares + means > LARGEST_WIDE, reason.format("`grams` or `shift`"))


def _check_survey(contributions: Contributions, verdicts: _Verdicts) -> None:
    sums = contributions.sums
    verdicts.refuse_rows((sums.entity_counts != 0) | (sums.table_counts != 0), "labels in the survey")
    verdicts.refuse((sums.scalars != 0).any(axis=1), "labels in the survey")
    verdicts.refuse((np.abs(contributions.shifts) > LARGEST).any(axis=1), "an absurdly large `shift`")
    verdicts.refuse_rows((np.abs(sums.grams) > LARGEST**2).any(axis=1), "absurdly large `grams`")
    if (quantiles := contributions.quantiles) is not None:
        possible = (np.abs(quantiles) <= LARGEST).all(axis=(1, 2)) & (np.diff(quantiles) >= 0.0).all(axis=(1, 2))
        verdicts.refuse(~possible, "impossible `quantiles`")


def _check_labels(sums: AgentSums, expected: ExpectedReply, limits: ReplyLimits, verdicts: _Verdicts) -> None:
    verdicts.refuse_rows(sums.entity_counts < 1, "a cluster has events but no entities")
    least, most = (1, sums.entity_counts) if expected.has_tables else (0, 0)
    verdicts.refuse_rows((sums.table_counts < least) | (sums.table_counts > most), "impossible table counts")
    fewest_events = limits.min_events_per_entity * sums.entity_counts
    # the sum of fractional weights may be rounded down
    if expected.schema.counts_events:
        too_few = expected.layout.n_events(sums.grams) < fewest_events * (1.0 - 1e-9)
        verdicts.refuse_rows(too_few, "fewer events than entities")
    n_entities = sums.by_agent(sums.entity_counts)
    if not expected.schema.counts_events:
        too_few = sums.scalar("events") < limits.min_events_per_entity * n_entities * (1.0 - 1e-9)
        verdicts.refuse(too_few, "fewer events than entities")
    verdicts.refuse(n_entities > limits.max_entities, "more entities than `max_entities`")


def _check_scalars(sums: AgentSums, n_events: FloatArray, expected: ExpectedReply, verdicts: _Verdicts) -> None:
    """Refuse scalars that an agent with these entities and events cannot report under the law."""
    known = Known(sums.by_agent(sums.entity_counts), n_events, expected.law)
    for scalar, values in zip(expected.schema.scalars, sums.scalars.T, strict=True):
        bad = ~scalar.possible(values, known)
        verdicts.refuse(bad, f"impossible `{scalar.name}`: its entities and events do not allow that value")
