"""The survey from sums alone: means first, then mean squares around them.

In plain mode the server sees every agent's means and matrix, and protects the units from agents far off
(`survey.Survey`). Under secure aggregation it sees two sums over all agents that answered, so it cannot. The sums may
have any magnitude, so they are encoded in limbs (`privacy.fixed_point`).

    part 1   n, Σ x, Σ y              → the means, which the server broadcasts
    part 2   n, Σ (x − mean)², …      → the scales
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import finite, positive
from fedhlcr.federation.fixed_sums import NO_CENTRE, Integers
from fedhlcr.federation.sums import AgentSums
from fedhlcr.federation.survey import Units
from fedhlcr.model.gram import GramLayout, Standardization, has_spread
from fedhlcr.privacy import fixed_point
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Sizes, stored


@dataclass(frozen=True)
class SurveySum:
    """A sum of one part of the survey over agents: their events, and one number for each column."""

    n_events: float = stored(float, possible=positive)
    columns: FloatArray = stored("f8", "columns", possible=finite)

    @property
    def means(self) -> FloatArray:
        return self.columns / self.n_events

    @classmethod
    def of(cls, integers: Integers) -> SurveySum:
        values = fixed_point.decode_wide(integers.reshape(-1, fixed_point.N_LIMBS))
        return cls(float(values[0]), values[1:])


def survey_size(layout: GramLayout) -> int:
    """Integers in either part of the survey."""
    return fixed_point.N_LIMBS * layout.width


def survey_part(layout: GramLayout, sums: AgentSums, shifts: FloatArray, centre: FloatArray) -> Integers:
    """(agents, n_values) what each agent adds to one part of the survey: to the first if `centre` is empty.

    `sums` and `shifts` are their answers in plain mode: one matrix around the agent's own means, and these means.
    """
    means = shifts[sums.row_owner]
    events = layout.n_events(sums.grams)[:, None]
    columns = events * means
    if len(centre):
        columns = layout.diagonal(sums.grams)[:, 1:] + events * (means - centre) ** 2
    encoded = np.zeros((len(sums), survey_size(layout)), dtype=np.uint64)
    # agents without events have no row, and add nothing
    encoded[sums.row_owner] = fixed_point.encode_wide(np.hstack([events, columns])).reshape(
        len(events), survey_size(layout)
    )
    return encoded


def units_from_sums(layout: GramLayout, first: SurveySum, second: SurveySum, *, standardize: bool) -> Units:
    """The units of the run."""
    shift = centre_of(layout, first)
    squares = second.means
    scale = np.ones_like(shift)
    if standardize:
        varies = has_spread(np.sqrt(squares), shift)
        scale = np.where(varies, np.sqrt(squares), 1.0)
        squares = np.where(varies, squares, 0.0)
    mean_squares = np.concatenate([[1.0], squares / scale**2])
    return Units(Standardization(shift, scale), float(np.sqrt(mean_squares[-1])) or 1.0, mean_squares)


def units_of_answers(layout: GramLayout, sums: AgentSums, shifts: FloatArray, *, standardize: bool) -> Units:
    """The same units from the answers of single agents."""
    first = SurveySum.of(survey_part(layout, sums, shifts, NO_CENTRE).sum(axis=0, dtype=np.uint64))
    second = SurveySum.of(survey_part(layout, sums, shifts, centre_of(layout, first)).sum(axis=0, dtype=np.uint64))
    return units_from_sums(layout, first, second, standardize=standardize)


def centre_of(layout: GramLayout, first: SurveySum) -> FloatArray:
    """What columns are shifted by: their means, or nothing if there is no intercept."""
    return first.means if layout.fit_intercept else np.zeros_like(first.columns)


@dataclass
class SumSurvey:
    """The survey of secure aggregation: both parts, each from one cohort."""

    layout: GramLayout
    first: SurveySum | None = stored(SurveySum, optional=True, default=None)
    second: SurveySum | None = stored(SurveySum, optional=True, default=None)

    @property
    def centre(self) -> FloatArray:
        """What the agents centre their columns on; empty in the first part."""
        return NO_CENTRE if self.first is None else centre_of(self.layout, self.first)

    @property
    def is_complete(self) -> bool:
        return self.second is not None

    @property
    def n_events(self) -> float:
        return 0.0 if self.second is None else self.second.n_events

    def absorb(self, integers: Integers) -> str | None:
        """Take in the sum of a cohort; return why it is impossible, or None."""
        part = SurveySum.of(integers)
        if not part.n_events > 0.0:
            return "no agent of the cohort has events"
        if self.first is not None and (part.columns < 0.0).any():
            return "a sum of squares is negative"
        if self.first is None:
            self.first = part
        else:
            self.second = part
        return None

    def units(self, *, standardize: bool) -> Units:
        assert self.first is not None
        assert self.second is not None
        return units_from_sums(self.layout, self.first, self.second, standardize=standardize)

    def check_record(self, reader: RecordReader, sizes: Sizes) -> None:  # noqa: ARG002
        reader.require(self.first is not None or self.second is None, "first.n_events")
