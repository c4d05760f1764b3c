"""What a curious server has seen of a run, in the form in which the attacks read it.

In plain mode every agent is a sender, and its sums are statements. In secure mode the server has only the total of all
agents, so there is one sender, EVERYONE. What single parties send is in `wire`, where nothing should be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedhlcr._support.arrays import CountArray, FloatArray, IndexArray
from fedhlcr.model.gram import GramLayout, Standardization

# The sender of the cohort's total.
EVERYONE = ""
# A statement that is not compared with an earlier one.
NO_STATEMENT = -1


@dataclass(frozen=True)
class Statement:
    """Sums by cluster, as one sender has stated them in one round.

    Attributes
    ----------
    round, since : the round, and that of the statement to which `labels_changed` refers; NO_STATEMENT for none
    clusters : (rows,) original clusters
    entity_counts : (rows,)
    grams : (rows, packed) in the units of the run
    labels_changed : number of the sender's labels that changed since
    cluster_of : (original clusters,) the present cluster of each, in this round
    is_exact : whether the matrices sum events as they are, without weights and effects
    """

    round: int
    since: int
    clusters: CountArray
    entity_counts: FloatArray
    grams: FloatArray
    labels_changed: float
    cluster_of: IndexArray
    is_exact: bool = True

    @classmethod
    def empty(cls, number: int, since: int, cluster_of: IndexArray, *, is_exact: bool) -> Statement:
        """A statement without any cluster."""
        none = np.empty(0)
        return cls(number, since, none.astype(np.int32), none, np.empty((0, 0)), 0.0, cluster_of, is_exact)

    @property
    def representative(self) -> IndexArray:
        """(clusters,) the original cluster that stands for each present one."""
        present, first = np.unique(self.cluster_of, return_index=True)
        return first[present >= 0]

    def regrouped(self, cluster_of: IndexArray) -> Statement:
        """The same with a row for each cluster of a later round, in which some have been merged."""
        present, positions = np.unique(cluster_of, return_index=True)
        rows = positions[np.searchsorted(present, cluster_of[self.clusters])]
        clusters, inverse = np.unique(rows, return_inverse=True)
        counts = np.zeros(len(clusters))
        grams = np.zeros((len(clusters), self.grams.shape[1]))
        np.add.at(counts, inverse, self.entity_counts)
        np.add.at(grams, inverse, self.grams)
        return replace(
            self, clusters=clusters.astype(np.int32), entity_counts=counts, grams=grams, cluster_of=cluster_of
        )

    def dense(self, n_clusters: int) -> tuple[FloatArray, FloatArray]:
        """Counts and matrices with a row for every original cluster."""
        counts = np.zeros(n_clusters)
        grams = np.zeros((n_clusters, self.grams.shape[1]))
        counts[self.clusters] = self.entity_counts
        grams[self.clusters] = self.grams
        return counts, grams

    def dense_rows(self, clusters: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Counts and matrices of some original clusters."""
        counts, grams = self.dense(len(self.cluster_of))
        return counts[clusters], grams[clusters]


@dataclass(frozen=True)
class ServerView:
    """Everything that senders have stated to the server, round by round, and what is public.

    Attributes
    ----------
    layout, units : of the run; every broadcast holds them
    statements : by sender, in the order of the rounds
    resolution : the largest rounding error in a number that was sent: above 0 only if sums are in fixed point
    """

    layout: GramLayout
    units: Standardization
    statements: Mapping[str, list[Statement]]
    resolution: float = 0.0
