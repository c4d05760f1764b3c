"""Sums over all agents, by cluster: all that the server knows about the labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.model.schema import GRAMS, SumSchema


@dataclass(frozen=True)
class ClusterSums:
    """Sums over agents: blocks and counts by cluster, and scalars.

    The likelihood's `SumSchema` declares the blocks and the scalars. The scalars of the labels' prior are

        log_beta_draws    Σ log q_i, from which β is learned
        bernoulli_draws   Σ s_i, from which β is learned
        log_label_prior   log p(labels | ψ, β)
        labels_changed    number of labels that changed in the last sweep

    Attributes
    ----------
    blocks : by name, (clusters, size)
    entity_counts : (clusters,) N^(k)
    table_counts : (clusters,) Σ_i m_ik
    scalars : by name
    """

    blocks: dict[str, FloatArray]
    entity_counts: FloatArray
    table_counts: FloatArray
    scalars: dict[str, float]

    @classmethod
    def of(
        cls,
        schema: SumSchema,
        blocks: dict[str, FloatArray],
        entity_counts: FloatArray,
        table_counts: FloatArray,
        scalars: FloatArray,
    ) -> ClusterSums:
        """Make sums from arrays, with `scalars` in the order of the schema."""
        for block in blocks.values():
            # what subtracting leaves of a cluster that lost its last entity is rounding, and may outweigh the prior
            block[entity_counts == 0] = 0.0
        return cls(blocks, entity_counts, table_counts, schema.named(scalars))

    @classmethod
    def zero(cls, schema: SumSchema, n_clusters: int) -> ClusterSums:
        nothing = dict.fromkeys(schema.scalar_names, 0.0)
        return cls(schema.zero_blocks(n_clusters), np.zeros(n_clusters), np.zeros(n_clusters), nothing)

    def __add__(self, other: ClusterSums) -> ClusterSums:
        return ClusterSums(
            {name: block + other.blocks[name] for name, block in self.blocks.items()},
            self.entity_counts + other.entity_counts,
            self.table_counts + other.table_counts,
            {name: value + other.scalars[name] for name, value in self.scalars.items()},
        )

    @property
    def grams(self) -> FloatArray:
        """(clusters, packed) M_k, the Gram matrix of all events of cluster k."""
        return self.blocks[GRAMS]

    @property
    def n_clusters(self) -> int:
        return len(self.entity_counts)

    @property
    def occupied(self) -> NDArray[np.bool_]:
        return self.entity_counts > 0

    def regroup(self, target: IndexArray) -> ClusterSums:
        """The sums after cluster k has become target[k]; −1 drops an empty cluster."""
        n_clusters = int(target.max()) + 1

        def gather(values: FloatArray) -> FloatArray:
            gathered = np.zeros((n_clusters, *values.shape[1:]))
            np.add.at(gathered, target[target >= 0], values[target >= 0])
            return gathered

        return replace(
            self,
            blocks={name: gather(block) for name, block in self.blocks.items()},
            entity_counts=gather(self.entity_counts),
            table_counts=gather(self.table_counts),
        )
