"""How much of what the attack claims is true. Only this module sees the agents' own matrices and events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.model.gram import GramLayout, Standardization, event_grams
from fedhlcr.privacy.audit.reconstruction import Claim, same, steps, tolerance
from fedhlcr.privacy.audit.view import EVERYONE, ServerView, Statement

# A matrix counts as recovered if no entry is off by more than this share of its largest entry.
EXACT = 1e-6
# A row counts as recovered if no value is off by more than this share of the column's spread.
EXACT_ROW = 1e-4


@dataclass(frozen=True)
class Truth:
    """What the agents hold, in the units of the run.

    Attributes
    ----------
    grams : (entities, packed)
    rows : (events, columns) features and target
    entity_of : (events,)
    agent_of : (entities,)
    agents : names of the agents
    """

    grams: FloatArray
    rows: FloatArray
    entity_of: np.ndarray
    agent_of: np.ndarray
    agents: list[str]

    @classmethod
    def of(cls, hierarchy: Hierarchy, layout: GramLayout, units: Standardization) -> Truth:
        index = hierarchy.index
        plain = GramLayout(hierarchy.X.shape[1], layout.fit_intercept)
        grams = units.rescale(plain, event_grams(hierarchy.events, plain, units.shift, index.agent_of))
        rows = np.column_stack([units.apply(hierarchy.X), units.apply_target(hierarchy.y)])
        entity_of = np.repeat(np.arange(index.n_entities), np.diff(hierarchy.event_start))
        return cls(grams, rows, entity_of, index.agent_of, list(index.agents.texts))


@dataclass(frozen=True)
class AttackScore:
    """What an attack has recovered.

    Attributes
    ----------
    n_entities, entities : all of them, and those whose matrix was recovered
    n_small, rows : events of entities with one or two events, and those recovered exactly
    n_claims, n_wrong : matrices that the attack claims, and those that belong to no entity
    reasons : recovered entities by the reason of the claim
    """

    n_entities: int
    entities: int
    n_small: int
    rows: int
    n_claims: int
    n_wrong: int
    reasons: dict[str, int]


def score(claims: Sequence[Claim], truth: Truth, layout: GramLayout) -> AttackScore:
    """Compare the claims with the truth."""
    position = {name: number for number, name in enumerate(truth.agents)}
    recovered: dict[int, Claim] = {}
    n_wrong = 0
    for claim in claims:
        own = np.arange(len(truth.grams))
        if claim.sender != EVERYONE:
            own = np.flatnonzero(truth.agent_of == position[claim.sender])
        found = own[same(truth.grams[own], claim.gram, EXACT * np.abs(claim.gram).max())]
        new = [entity for entity in found.tolist() if entity not in recovered]
        n_wrong += not len(found)
        if new:
            recovered[new[0]] = claim
    n_events = np.bincount(truth.entity_of, minlength=len(truth.grams))
    rows = sum(_right_rows(layout, claim.gram, truth.rows[truth.entity_of == e]) for e, claim in recovered.items())
    reasons = dict(Counter(claim.reason for claim in recovered.values()))
    n_small = int(n_events[n_events <= 2].sum())
    return AttackScore(len(truth.grams), len(recovered), n_small, rows, len(claims), n_wrong, reasons)


def rows_in(layout: GramLayout, gram: FloatArray) -> FloatArray:
    """(events, columns) the rows (x, y) that a matrix of one or two events holds; no row for more events.

    With M = Σ (1, x, y)(1, x, y)ᵀ over two events, the mean m is half of the first row of M, and M/2 − mmᵀ = ddᵀ with
    half the distance of the events d. So the events are m ± d.
    """
    full = layout.unpack(gram)
    n_events = round(float(gram[0]))
    if n_events == 1:
        return np.asarray(full[:1, 1:] / full[0, 0])
    if n_events != 2:
        return np.empty((0, layout.width - 1))
    mean = full[0] / 2.0
    spread = full / 2.0 - np.outer(mean, mean)
    widest = int(np.argmax(np.diag(spread)))
    half = spread[widest] / np.sqrt(spread[widest, widest]) if spread[widest, widest] > 0.0 else np.zeros_like(mean)
    return np.asarray(np.stack([mean + half, mean - half])[:, 1:])


def _right_rows(layout: GramLayout, gram: FloatArray, rows: FloatArray) -> int:
    """The number of events of an entity whose rows follow from its matrix."""
    found = rows_in(layout, gram)
    return sum(bool(same(found, row, EXACT_ROW).any()) for row in rows) if len(found) else 0


@dataclass(frozen=True)
class Exposure:
    """How often the exact total shows an entity that moves alone into a cluster or out of it.

    Attributes
    ----------
    n_rounds, rounds : rounds that could show it, and those that did
    entities : number of entities shown at least once
    """

    n_rounds: int
    rounds: int
    entities: int


def exposure(view: ServerView, truth: Truth) -> Exposure:
    """Compare the changes of a view's sums with the matrices of all entities."""
    n_rounds = 0
    shown = 0
    entities = set[int]()
    for statements in view.statements.values():
        exact = [own for own in statements if own.is_exact]
        for _, changes, differences in steps(exact, lambda size: tolerance(view, size)):
            moved = differences * changes[:, None]
            found = {entity for gram in moved[np.abs(changes) == 1] for entity in _matches(gram, truth, view)}
            n_rounds = n_rounds + 1
            shown = shown + bool(found)
            entities |= found
    return Exposure(n_rounds, shown, len(entities))


def _matches(gram: FloatArray, truth: Truth, view: ServerView) -> list[int]:
    alike = np.flatnonzero(np.abs(truth.grams[:, 0] - gram[0]) < 0.5)
    size = np.abs(gram).max()
    return alike[same(truth.grams[alike], gram, EXACT * size + 4.0 * view.resolution)].tolist()


def weighted_alone(view: ServerView, truth: Truth) -> int:
    """The number of entities whose features are shown by rounds in which sums are weighted.

    With noise of entities the matrix of an entity that is alone in a cluster is divided by its noise variance, and the
    target is moved by its effects. Its features, divided by the sum of the weights, are still exact.
    """
    n_columns = view.layout.width - 1
    inputs = np.flatnonzero(np.tril_indices(view.layout.width)[0] < n_columns)
    scaled = truth.grams[:, inputs] / truth.grams[:, :1]
    found: set[int] = set()
    for statement in (own for statements in view.statements.values() for own in statements if not own.is_exact):
        for gram in _alone(statement):
            mean = gram[inputs] / gram[0]
            found |= set(np.flatnonzero(same(scaled, mean, EXACT * np.abs(mean).max())).tolist())
    return len(found)


def _alone(statement: Statement) -> FloatArray:
    """The matrices of clusters with one entity of the sender."""
    return statement.grams[(statement.entity_counts == 1) & (statement.grams[:, 0] > 0.0)]
