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

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import finite, within
from fedhlcr.federation.read_only import ReadOnly
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.arguments import EffectShift
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import SumSchema
from fedhlcr.model.sums import ClusterSums
from fedhlcr.privacy import fixed_point
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Below, Sizes, stored

Integers = NDArray[np.uint64]
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
    rows : original clusters whose sums travel, ascending; the sums of all others are zero at every agent
    effects, targets : (original clusters, n_coef) the sum of all shifts so far, `EffectShift`; (0, 0) without effects
    centre : in the second part of the survey, the mean of each column; else empty
    """

    epoch: int = stored(int, possible=within(0, 2**62))
    is_secure: bool = stored(bool)
    rows: IndexArray = stored("i8", None, possible=Below("clusters"), default_factory=lambda: NO_ROWS)
    effects: FloatArray = stored(
        "f8", "shifted", "shifted coef", possible=finite, name="effects_reference", default_factory=lambda: NO_SHIFT
    )
    targets: FloatArray = stored(
        "f8", "shifted", "shifted coef", possible=finite, name="targets_reference", default_factory=lambda: NO_SHIFT
    )
    centre: FloatArray = stored("f8", None, possible=finite, default_factory=lambda: NO_CENTRE)

    def check_record(self, reader: RecordReader, sizes: Sizes) -> None:
        """There are no clusters in the survey."""
        reader.require((np.diff(self.rows) > 0).all(), "rows")
        reader.require(self.effects.shape in ((0, 0), (sizes["clusters"], sizes["coef"])), "effects_reference")
        centres = (0,) if sizes["clusters"] else (0, sizes["columns"])
        reader.require(len(self.centre) in centres, "centre")

    def fixed(self, likelihood: AnyLikelihood, sums: AgentSums) -> AgentSums:
        """The sums in absolute coordinates, rounded to fixed point."""
        blocks = sums.blocks
        if len(self.effects):
            blocks = likelihood.shifted(blocks, -EffectShift(self.effects, self.targets).of(sums.clusters))
        return replace(sums, blocks={name: fixed_point.rounded(block) for name, block in blocks.items()})


@dataclass(frozen=True)
class VectorLayout:
    """How sums of some original clusters become one vector of integers: a row for each cluster, then the scalars.

    A row holds the entity count, the table count, and the blocks in two limbs for each number. Scalars may have any
    magnitude, and have eight limbs each. Limbs are added like other integers.
    """

    schema: SumSchema
    rows: IndexArray

    @property
    def row_size(self) -> int:
        return 2 + fixed_point.N_HALVES * sum(block.size for block in self.schema.blocks)

    @property
    def n_row_values(self) -> int:
        return len(self.rows) * self.row_size

    @property
    def n_values(self) -> int:
        return self.n_row_values + fixed_point.N_LIMBS * len(self.schema.scalars)

    def matrix(self, values: Integers) -> Integers:
        """(rows, row_size) the part of a vector that belongs to clusters."""
        return values[: self.n_row_values].reshape(len(self.rows), self.row_size)

    def by_agent(self, sums: AgentSums) -> Integers:
        """(agents, n_values) the vector of each agent. All its clusters must be among the rows."""
        vectors = np.zeros((len(sums), self.n_values), dtype=np.uint64)
        matrices = vectors[:, : self.n_row_values].reshape(len(sums), len(self.rows), self.row_size)
        matrices[sums.row_owner, np.searchsorted(self.rows, sums.clusters)] = self._encoded_rows(sums)
        vectors[:, self.n_row_values :] = self._encoded_scalars(sums)
        return vectors

    def total(self, sums: AgentSums) -> Integers:
        """The sum of all agents' vectors."""
        matrix = np.zeros((len(self.rows), self.row_size), dtype=np.uint64)
        if len(sums.clusters):
            place = np.searchsorted(self.rows, sums.clusters)
            order = np.argsort(place, kind="stable")
            used, starts = np.unique(place[order], return_index=True)
            matrix[used] = np.add.reduceat(self._encoded_rows(sums)[order], starts, axis=0)
        return np.concatenate([matrix.ravel(), self._encoded_scalars(sums).sum(axis=0, dtype=np.uint64)])

    def _encoded_rows(self, sums: AgentSums) -> Integers:
        counts = np.stack([sums.entity_counts, sums.table_counts], axis=1).astype(np.uint64)
        blocks = fixed_point.encode(np.concatenate(list(sums.blocks.values()), axis=1))
        return np.hstack([counts, blocks.reshape(len(counts), self.row_size - 2)])

    def _encoded_scalars(self, sums: AgentSums) -> Integers:
        limbs = fixed_point.encode_wide(sums.scalars)
        return limbs.reshape(len(sums), fixed_point.N_LIMBS * sums.scalars.shape[1])

    def spread(self, values: Integers, rows: IndexArray) -> Integers:
        """The same vector for other rows, which must contain these; the new ones are zero."""
        matrix = np.zeros((len(rows), self.row_size), dtype=np.uint64)
        matrix[np.searchsorted(rows, self.rows)] = self.matrix(values)
        return np.concatenate([matrix.ravel(), values[self.n_row_values :]])

    def used_rows(self, values: Integers) -> IndexArray:
        """The rows that hold anything but zeros."""
        return self.rows[self.matrix(values).any(axis=1)]

    def has_strays(self, values: Integers) -> bool:
        """Whether a cluster without entities has other sums than zero."""
        matrix = self.matrix(values)
        return bool(matrix[matrix[:, 0] == 0].any())

    def cluster_sums(self, values: Integers, likelihood: AnyLikelihood, shift: EffectShift | None) -> ClusterSums:
        """The total as the server uses it: in floating point, with all shifts applied."""
        matrix = self.matrix(values)
        counts = matrix[:, :2].view(np.int64).astype(np.float64)
        limbs = matrix[:, 2:].reshape(len(matrix), -1, fixed_point.N_HALVES)
        numbers = fixed_point.decode(limbs)
        first = 0
        blocks = {}
        for block in self.schema.blocks:
            blocks[block.name] = np.ascontiguousarray(numbers[:, first : first + block.size])
            first += block.size
        if shift is not None:
            blocks = likelihood.shifted(blocks, shift.of(self.rows))
        scalars = fixed_point.decode_wide(values[self.n_row_values :].reshape(-1, fixed_point.N_LIMBS))
        return ClusterSums.of(self.schema, blocks, counts[:, 0].copy(), counts[:, 1].copy(), scalars)
