"""Accounts of sums in fixed point: a ledger that sees each agent's sums, and a running total that sees only cohorts'.

Both hold the same integers: the total of the ledger equals the running total to the last bit, whatever was lost on the
way. `fixed_sums` explains the coordinates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.checks import finite, not_negative
from fedhlcr.exceptions import FederationError
from fedhlcr.federation.fixed_sums import Integers, VectorLayout
from fedhlcr.federation.ledger import Ledger
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.arguments import EffectShift
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Stored, restore, to_record


class FixedAccount(ABC):
    """What both accounts share: the shifts, and the total in floating point.

    Attributes
    ----------
    shifted : the sum of all shifts of effects so far, by original cluster; None for a likelihood without effects
    """

    def __init__(self, n_clusters: int, likelihood: AnyLikelihood) -> None:
        self.likelihood = likelihood
        self.vectors = VectorLayout(likelihood.sum_schema, np.arange(n_clusters))
        self.shifted = EffectShift.zero(n_clusters, likelihood.layout.n_coef) if likelihood.has_stages else None

    @abstractmethod
    def integers(self) -> Integers:
        """The sum of all contributions, in absolute coordinates."""

    def shift(self, likelihood: AnyLikelihood, shift: EffectShift) -> None:  # noqa: ARG002
        """Note that effects have moved. Nothing else changes, because sums are in absolute coordinates."""
        assert self.shifted is not None
        self.shifted = self.shifted + shift

    def total(self) -> ClusterSums:
        """The sum of all contributions, by original cluster."""
        return self.total_of(self.integers())

    def total_of(self, values: Integers) -> ClusterSums:
        """A total in floating point, with all shifts applied."""
        return self.vectors.cluster_sums(values, self.likelihood, self.shifted)

    def shifts_to_record(self) -> codec.Record:
        if self.shifted is None:
            return {}
        return {"shifted_effects": self.shifted.effects, "shifted_targets": self.shifted.targets}

    def restore_shifts(self, reader: RecordReader) -> None:
        if self.shifted is not None:
            shape = self.shifted.effects.shape
            arrays = [reader.array(f"shifted_{name}", "f8", shape, finite) for name in ("effects", "targets")]
            self.shifted = EffectShift(*arrays)


class FixedLedger(FixedAccount, Ledger):
    """A ledger of sums in fixed point."""

    def __init__(self, n_clusters: int, likelihood: AnyLikelihood) -> None:
        FixedAccount.__init__(self, n_clusters, likelihood)
        # the same sums as under secure aggregation, where nobody could be scaled down
        Ledger.__init__(self, n_clusters, likelihood.sum_schema, max_weight=np.inf)

    def integers(self) -> Integers:
        totals = [self.vectors.total(page) for page in self.pages]
        return np.sum([np.zeros(self.vectors.n_values, dtype=np.uint64), *totals], axis=0, dtype=np.uint64)

    def to_record(self) -> codec.Record:
        return Ledger.to_record(self) | self.shifts_to_record()

    def restore(self, reader: RecordReader, n_agents: int) -> None:
        Ledger.restore(self, reader, n_agents)
        self.restore_shifts(reader)


class RunningTotal(FixedAccount):
    """The account of secure aggregation: one total, to which the summed differences of a cohort are added.

    It does not know what an agent has contributed. An agent that leaves removes its own sums: it reports a difference
    that takes them off. If it does not, the server clears the total, and a new epoch begins.

    Attributes
    ----------
    epoch : raised whenever the total starts again from zero
    """

    STORED: ClassVar = {
        "epoch": Stored(int, possible=not_negative),
        "_values": Stored("u8", ("values",), name="total"),
    }

    def __init__(self, n_clusters: int, likelihood: AnyLikelihood) -> None:
        super().__init__(n_clusters, likelihood)
        self.epoch = 0
        self._values = np.zeros(self.vectors.n_values, dtype=np.uint64)

    @property
    def is_empty(self) -> bool:
        return not self.vectors.matrix(self._values).any()

    def rows(self, cluster_of: IndexArray) -> IndexArray:
        """Original clusters whose sums may change: those in use, and those in which absent agents still have sums."""
        clusters, first = np.unique(cluster_of, return_index=True)
        return np.union1d(first[clusters >= 0], self.vectors.used_rows(self._values))

    def after(self, rows: IndexArray, difference: Integers) -> Integers:
        """The total with a cohort's differences, which have these rows."""
        part = VectorLayout(self.vectors.schema, rows)
        return self._values + part.spread(difference, self.vectors.rows)

    def commit(self, values: Integers) -> None:
        """Set the total, after it has been checked."""
        self._values = values

    def integers(self) -> Integers:
        return self._values

    def grow(self, n_agents: int) -> None:
        """Nothing is kept by agent."""

    def clear(self) -> None:
        """Begin a new epoch."""
        self.epoch += 1
        self._values = np.zeros_like(self._values)

    def replace(self, agents: IndexArray, sums: AgentSums) -> None:  # noqa: ARG002
        raise FederationError("under secure aggregation the server must not receive the sums of single agents.")

    def remove(self, agent: int) -> None:  # noqa: ARG002
        raise FederationError("under secure aggregation nobody knows what a single agent has contributed.")

    def to_record(self) -> codec.Record:
        return to_record(self) | self.shifts_to_record()

    def restore(self, reader: RecordReader, n_agents: int) -> None:  # noqa: ARG002
        restore(self, reader, {"values": self.vectors.n_values})
        self.restore_shifts(reader)
