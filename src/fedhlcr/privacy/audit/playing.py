"""Play secure aggregation with the sums of a recorded run: every agent is a party, and all messages are kept.

A party sends the difference to its last accepted sums in fixed point, as under `aggregation="secure"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.privacy.audit.view import NO_STATEMENT, ServerView, Statement
from fedhlcr.privacy.audit.wire import Messages, WireRound
from fedhlcr.privacy.fixed_point import FixedArray, decode, encode
from fedhlcr.privacy.party import Party
from fedhlcr.privacy.secure_sum import SecureSum
from fedhlcr.privacy.terms import FEWEST_PARTIES, Terms

# The largest number that fits into a vector, in the units of a run.
LARGEST = 2.0**24
# The rounding error of one number in fixed point.
HALF_UNIT = 2.0**-31


def play_secure(
    view: ServerView, n_rounds: int, progress: Callable[[], None] | None = None
) -> tuple[list[WireRound], FixedArray]:
    """The messages of the first rounds, and all numbers that agents have hidden in them."""
    numbers = sorted({own.round for statements in view.statements.values() for own in statements})[:n_rounds]
    accepted: dict[str, FixedArray] = {}
    rounds, secrets = [], []
    for number in numbers:
        stated = {
            sender: own for sender, statements in view.statements.items() for own in statements if own.round == number
        }
        vectors = {sender: encode(to_vector(own), LARGEST) for sender, own in stated.items()}
        changes = {sender: vector - accepted.get(sender, np.uint64(0)) for sender, vector in vectors.items()}
        accepted |= vectors
        secrets += [*vectors.values(), *changes.values()]
        if len(changes) >= FEWEST_PARTIES:
            rounds.append(_play_round(number, changes, next(iter(stated.values()))))
        if progress is not None:
            progress()
    return rounds, np.concatenate(secrets)


def _play_round(number: int, vectors: Mapping[str, FixedArray], like: Statement) -> WireRound:
    terms = Terms(0, 0, 0, number, len(next(iter(vectors.values()))), FEWEST_PARTIES)
    parties = {name: Party(name, terms) for name in vectors}

    def values(name: str) -> Callable[[], FixedArray]:
        return lambda: vectors[name]

    def carry(messages: Messages) -> Messages:
        return {name: parties[name].handle(data, values(name)) for name, data in messages.items()}

    wire = WireRound(terms, lambda vector: from_vector(decode(vector), like))
    wire.play(SecureSum(terms, list(vectors)), carry)
    return wire


def to_vector(statement: Statement) -> FloatArray:
    """Counts, matrices and the number of changed labels as one vector, with all original clusters."""
    counts, grams = statement.dense(len(statement.cluster_of))
    return np.concatenate([counts, grams.ravel(), [statement.labels_changed]])


def from_vector(vector: FloatArray, like: Statement) -> Statement:
    """The statement of such a vector."""
    n_clusters: int = len(like.cluster_of)
    clusters: IndexArray = np.arange(n_clusters)
    return replace(
        like,
        since=NO_STATEMENT,
        clusters=clusters.astype(np.int32),
        entity_counts=vector[:n_clusters],
        grams=vector[n_clusters:-1].reshape(n_clusters, -1),
        labels_changed=float(vector[-1]),
        is_exact=True,
    )
