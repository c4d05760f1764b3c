"""What a curious server has seen of a run, in the form in which the attacks read it.

In plain mode every agent is a sender, and its sums are statements. In secure mode only the sums of the whole cohort are
seen, so there is one sender, EVERYONE. What single parties send is in `wire`, where nothing should be found.
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

    def regrouped(self, cluster_of: IndexArray) -> Statement:
        """The same with a row for each cluster of a later round, in which some have been merged."""
        n_clusters = len(cluster_of)
        first = np.full(n_clusters, -1)
        present, positions = np.unique(cluster_of, return_index=True)
        first[present[present >= 0]] = positions[present >= 0]
        rows = first[cluster_of[self.clusters]]
        clusters, inverse = np.unique(rows, return_inverse=True)
        counts, grams = np.zeros(len(clusters)), np.zeros((len(clusters), self.grams.shape[1]))
        np.add.at(counts, inverse, self.entity_counts)
        np.add.at(grams, inverse, self.grams)
        return replace(
            self, clusters=clusters.astype(np.int32), entity_counts=counts, grams=grams, cluster_of=cluster_of
        )

    def dense(self, n_clusters: int) -> tuple[FloatArray, FloatArray]:
        """Counts and matrices with a row for every original cluster."""
        counts, grams = np.zeros(n_clusters), np.zeros((n_clusters, self.grams.shape[1]))
        counts[self.clusters], grams[self.clusters] = self.entity_counts, self.grams
        return counts, grams


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


def total_view(view: ServerView) -> ServerView:
    """What remains of a view if only the total over all senders can be seen, as under secure aggregation.

    In every round the total holds the last statement of each sender, absent ones included.
    """
    by_round: dict[int, dict[str, Statement]] = {}
    for sender, own in view.statements.items():
        for statement in own:
            by_round.setdefault(statement.round, {})[sender] = statement
    newest: dict[str, Statement] = {}
    totals: list[Statement] = []
    for _, stated in sorted(by_round.items()):
        newest |= stated
        totals.append(_total(list(stated.values()), list(newest.values()), totals))
    return replace(view, statements={EVERYONE: totals})


def _total(stated: list[Statement], newest: list[Statement], before: list[Statement]) -> Statement:
    """The sum of the newest statements of all senders, of which some were made in this round."""
    now = stated[0]
    whole = replace(
        now,
        since=before[-1].round if before else NO_STATEMENT,
        clusters=np.concatenate([statement.clusters for statement in newest]),
        entity_counts=np.concatenate([statement.entity_counts for statement in newest]),
        grams=np.concatenate([statement.grams for statement in newest]),
        labels_changed=sum(statement.labels_changed for statement in stated),
        is_exact=all(statement.is_exact for statement in newest),
    )
    return whole.regrouped(now.cluster_of)
