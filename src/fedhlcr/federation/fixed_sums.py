"""Sums in fixed point: agents report them so that they can be added exactly, in any order, with masks or without.

Floating-point sums depend on the order of addition, and masks cannot be added to them. So with `fixed_point` every sum
is rounded to a multiple of 2⁻³⁰ and travels as an integer modulo 2⁶⁴ (`privacy.fixed_point`).

**Absolute coordinates.** When the server moves a cluster's coefficients given those of its entities, the effects of all
entities of the cluster shift, those of absent agents too. A ledger shifts its pages. A running total could be shifted
as well, but every agent would have to shift its own accepted sums, and rounding errors would add up. So agents report
sums as if no shift had ever happened: the server broadcasts the sum of all shifts so far, agents undo it, and the
server applies it to the total. What an agent has reported never changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import finite, not_negative, within
from fedhlcr.federation.read_only import ReadOnly
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.arguments import EffectShift
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import SumSchema
from fedhlcr.model.sums import ClusterSums
from fedhlcr.privacy import fixed_point
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader

Integers = NDArray[np.uint64]
# Sums that were rounded before may have any value that fits.
ANY = float(np.nextafter(fixed_point.SUM_LIMIT, 0.0))
NO_ROWS = np.empty(0, dtype=np.int64)
NO_CENTRE = np.empty(0)
NO_SHIFT = np.empty((0, 0))


@dataclass(frozen=True)
class SumTerms(ReadOnly):
    """What agents must know, besides the law, to report sums in fixed point.

    Attributes
    ----------
    epoch : number of the server's account; in a new epoch every agent starts from zero
    is_secure : whether agents report differences under masks; if not, sums
    largest : the largest absolute value that one agent may report, so that the sum over all agents does not overflow
    rows : original clusters whose sums travel, ascending; the sums of all others are zero at every agent
    effects, targets : (original clusters, n_coef) the sum of all shifts so far, `EffectShift`; (0, 0) without effects
    centre : in the second part of the survey, the mean of each column; else empty
    """

    epoch: int
    is_secure: bool
    largest: float
    rows: IndexArray = field(default_factory=lambda: NO_ROWS)
    effects: FloatArray = field(default_factory=lambda: NO_SHIFT)
    targets: FloatArray = field(default_factory=lambda: NO_SHIFT)
    centre: FloatArray = field(default_factory=lambda: NO_CENTRE)

    FIELDS: ClassVar = frozenset(
        ("epoch", "is_secure", "largest", "rows", "effects_reference", "targets_reference", "centre")
    )

    def fixed(self, likelihood: AnyLikelihood, sums: AgentSums) -> AgentSums:
        """The sums in absolute coordinates, rounded to fixed point."""
        blocks = sums.blocks
        if len(self.effects):
            blocks = likelihood.shifted(blocks, -EffectShift(self.effects, self.targets).of(sums.clusters))
        rounded = {name: fixed_point.quantized(block, self.largest) for name, block in blocks.items()}
        return replace(sums, blocks=rounded, scalars=fixed_point.quantized(sums.scalars, self.largest))

    def to_record(self) -> codec.Record:
        return {
            "epoch": self.epoch,
            "is_secure": self.is_secure,
            "largest": self.largest,
            "rows": self.rows,
            "effects_reference": self.effects,
            "targets_reference": self.targets,
            "centre": self.centre,
        }

    @classmethod
    def read(cls, reader: RecordReader, n_clusters: int, n_coef: int, width: int) -> SumTerms:
        """Read the fields of `to_record` and check them; `n_clusters` is 0 in the survey."""
        rows = reader.array("rows", "i8", (None,), within(0, n_clusters))
        reader.require((np.diff(rows) > 0).all(), "rows")
        shifts = [reader.array(f"{name}_reference", "f8", (None, None), finite) for name in ("effects", "targets")]
        for name, shift in zip(("effects", "targets"), shifts, strict=True):
            reader.require(shift.shape in ((0, 0), (n_clusters, n_coef)), f"{name}_reference")
        reader.require(shifts[0].shape == shifts[1].shape, "targets_reference")
        centre = reader.array("centre", "f8", (None,), finite)
        reader.require(len(centre) in (0, width - 1) and (n_clusters == 0 or not len(centre)), "centre")
        return cls(
            reader.value("epoch", int, within(0, 2**62)),
            reader.value("is_secure", bool),
            reader.value("largest", float, not_negative),
            rows,
            shifts[0],
            shifts[1],
            centre,
        )


@dataclass(frozen=True)
class VectorLayout:
    """How sums of some original clusters become one vector of integers: a row for each cluster, then the scalars.

    A row holds the entity count, the table count and the blocks.
    """

    schema: SumSchema
    rows: IndexArray

    @property
    def row_size(self) -> int:
        return 2 + sum(block.size for block in self.schema.blocks)

    @property
    def n_values(self) -> int:
        return len(self.rows) * self.row_size + len(self.schema.scalars)

    def holds(self, sums: AgentSums) -> bool:
        """Whether all clusters of the sums are among the rows."""
        return bool(np.isin(sums.clusters, self.rows).all())

    def total(self, sums: AgentSums) -> Integers:
        """The sum over all agents. Their sums are multiples of the resolution, so nothing is rounded here."""
        values = np.column_stack([sums.entity_counts, sums.table_counts, *sums.blocks.values()])
        matrix = np.zeros((len(self.rows), self.row_size), dtype=np.uint64)
        if len(values):
            place = np.searchsorted(self.rows, sums.clusters)
            order = np.argsort(place, kind="stable")
            used, starts = np.unique(place[order], return_index=True)
            matrix[used] = np.add.reduceat(fixed_point.encode(values, ANY)[order], starts, axis=0)
        scalars = fixed_point.encode(sums.scalars, ANY).sum(axis=0, dtype=np.uint64)
        return np.concatenate([matrix.ravel(), scalars])

    def by_agent(self, sums: AgentSums) -> Integers:
        """(agents, n_values) the vector of each agent. All its clusters must be among the rows."""
        values = np.column_stack([sums.entity_counts, sums.table_counts, *sums.blocks.values()])
        matrix = np.zeros((len(sums), len(self.rows), self.row_size), dtype=np.uint64)
        matrix[sums.row_owner, np.searchsorted(self.rows, sums.clusters)] = fixed_point.encode(values, ANY)
        flat = matrix.reshape(len(sums), len(self.rows) * self.row_size)
        return np.hstack([flat, fixed_point.encode(sums.scalars, ANY)])

    def spread(self, values: Integers, rows: IndexArray) -> Integers:
        """The same vector for other rows, which must contain these; the new ones are zero."""
        matrix = np.zeros((len(rows), self.row_size), dtype=np.uint64)
        matrix[np.searchsorted(rows, self.rows)] = values[: len(self.rows) * self.row_size].reshape(-1, self.row_size)
        return np.concatenate([matrix.ravel(), values[len(self.rows) * self.row_size :]])

    def used_rows(self, values: Integers) -> IndexArray:
        """The rows that hold anything but zeros."""
        matrix = values[: len(self.rows) * self.row_size].reshape(-1, self.row_size)
        return self.rows[matrix.any(axis=1)]

    def has_strays(self, values: Integers) -> bool:
        """Whether a cluster without entities has other sums than zero."""
        matrix = values[: len(self.rows) * self.row_size].reshape(-1, self.row_size)
        return bool(matrix[matrix[:, 0] == 0].any())

    def cluster_sums(self, values: Integers, likelihood: AnyLikelihood, shift: EffectShift | None) -> ClusterSums:
        """The total as the server uses it: in floating point, with all shifts applied."""
        end = len(self.rows) * self.row_size
        matrix, scalars = fixed_point.decode(values[:end]).reshape(-1, self.row_size), fixed_point.decode(values[end:])
        blocks, first = {}, 2
        for block in self.schema.blocks:
            blocks[block.name] = np.ascontiguousarray(matrix[:, first : first + block.size])
            first += block.size
        if shift is not None:
            blocks = likelihood.shifted(blocks, shift.of(self.rows))
        return ClusterSums.of(self.schema, blocks, matrix[:, 0].copy(), matrix[:, 1].copy(), scalars)
