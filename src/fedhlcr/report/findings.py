"""What a fitted model found, in numbers and words. No HTML here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import AGENT, printable
from fedhlcr.analysis.axis_words import describe_effects
from fedhlcr.analysis.differences import EntityDifferences
from fedhlcr.analysis.effects import (
    change_intervals,
    effect_sizes,
    one_hot,
    target_spread,
)
from fedhlcr.analysis.links import Link, link_of
from fedhlcr.analysis.memberships import Memberships, effective_clusters, memberships
from fedhlcr.analysis.ratios import cluster_ratios
from fedhlcr.analysis.summary import cluster_figures
from fedhlcr.data.hierarchy import EntityIndex
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.posterior import alignment
from fedhlcr.posterior.alignment import mean_compositions
from fedhlcr.report.names import Names, begins_with, named, names_to_show
from fedhlcr.report.room import rows_that_fit, size_of_agents, size_of_entities

# An entity's label is uncertain if its probability is below this.
SURE = 0.8
# Most entities to list; of more, the least certain are listed.
MAX_LISTED = 50_000
# Entities named as examples of a cluster, and effects described.
N_EXAMPLES = 3
N_EFFECTS = 3


@dataclass(frozen=True)
class Cluster:
    """One cluster, in the user's units.

    Attributes
    ----------
    number : as in `labels_` and `coef_`
    share : share of the fitted entities, mean over the draws
    weight : probability that an entity of a new agent is in it
    n_entities : entities with this label in `labels_`; None if the model holds no entities
    level : predicted target at average features; of classes and counts, the probability or the rate
    changes : (n_features,) change of the target per unit; for a level of a category, against all other levels. Of
        classes and counts, odds ratios or rate ratios (`cluster_ratios`)
    lower, upper : (n_features,) ends of their 90 % intervals; NaN if there is only one draw
    effects : (n_features,) changes per standard deviation of the feature; logarithms of ratios
    is_clear : (n_features,) whether the interval leaves out no change
    moves : the strongest effects in words
    examples : the entities that are most certainly in it: each one's row in `Entities`, and its name
    n_sure : entities with this label that are surely in it; None if the model holds no entities
    certainty : mean probability of this cluster among the entities with this label; NaN if there are none
    """

    number: int
    share: float
    weight: float
    n_entities: int | None
    level: float
    changes: FloatArray
    lower: FloatArray
    upper: FloatArray
    effects: FloatArray
    is_clear: NDArray[np.bool_]
    moves: tuple[str, ...]
    examples: tuple[tuple[int, str], ...]
    n_sure: int | None = None
    certainty: float = float("nan")


@dataclass(frozen=True)
class Agents:
    """All agents, in the model's order."""

    ids: list[str]
    n_entities: IndexArray
    n_events: FloatArray
    weights: FloatArray  # (agents, clusters) shares of its entities, mean over the draws

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def main_cluster(self) -> IndexArray:
        return self.weights.argmax(axis=1)

    def effective_clusters(self) -> FloatArray:
        """Effective number of clusters of each agent: 1 / Σ_k share_k²."""
        return effective_clusters(self.weights)


@dataclass(frozen=True)
class Entities:
    """Agent–entity pairs; of more than fit on a page, the least certain.

    Attributes
    ----------
    agents, entities : distinct names; `agent` and `entity` are positions in them
    label, certainty : the cluster in `labels_`, and its probability
    runner_up, runner_up_probability : the most probable of the other clusters; −1 and 0 if there is only one cluster
    scatter : root mean square of the events around the entity's own regression, in units of the target
    noise : the noise that the model assumes for the entity, in units of the target
    observed : of classes and counts, the share of the second class or the rate among its events; then there is no
        scatter or noise
    n_all, n_uncertain : numbers of all entities and of all uncertain ones, listed or not
    position : (listed,) positions in the model, as in `labels_`
    probability : (listed, clusters) of each cluster
    """

    names: Names
    agents: list[str]
    entities: list[str]
    agent: IndexArray
    entity: IndexArray
    n_events: FloatArray
    label: IndexArray
    certainty: FloatArray
    runner_up: IndexArray
    runner_up_probability: FloatArray
    scatter: FloatArray | None
    noise: FloatArray | None
    observed: FloatArray | None
    n_all: int
    n_uncertain: int
    position: IndexArray
    probability: FloatArray

    def __len__(self) -> int:
        return len(self.label)

    def name(self, row: int) -> str:
        """The entity and, if there are several agents, its agent."""
        entity = self.entities[self.entity[row]]
        agent = self.agents[self.agent[row]]
        alone = len(self.agents) < 2 or (begins_with(entity, agent) and not agent.isdigit())
        entity_name = named(entity, self.names.entity)
        return entity_name if alone else f"{entity_name} of {named(agent, self.names.agent)}"


@dataclass(frozen=True)
class Findings:
    """A model, prepared for a report; `agents` and `entities` are None if the model is public."""

    names: Names
    clusters: tuple[Cluster, ...]
    agents: Agents | None
    entities: Entities | None
    n_events: float
    n_chains: int
    link: Link | None  # words for classes and counts; None for real numbers
    base: float | None  # of classes and counts, the share of the second class or the rate among the fitted events
    noise: float  # standard deviation of an event around its regression; of no meaning for classes and counts
    noise_name: str  # "noise scale", as in the summary; with heavy tails the standard deviation is another number
    target_spread: float | None  # None if the model holds no events
    explained: float | None  # share of the variance of the fitted events
    category_levels: frozenset[int]  # features that indicate a level of a category
    differences: EntityDifferences | None  # between entities of one cluster; None if they are equal

    @property
    def has_agents(self) -> bool:
        """Whether there are agents to speak of: several, or one that the user named a column for."""
        return self.agents is not None and (len(self.agents) > 1 or self.names.agent != AGENT)


@single_threaded_blas
def gather(model: HierarchicalPredictor) -> Findings:
    """Gather all that a report shows of a fitted model, except scores on held-out events."""
    posterior = model.posterior_
    index = posterior.memory.entities.index
    grams = posterior.memory.entities.grams
    members = memberships(model, MAX_LISTED)
    link = link_of(model)
    residual = _residual_squares(model, members.label) if link is None else None
    n_events = posterior.layout.n_events(grams)
    agents = _list_agents(model, n_events) if len(index.agent_of) else None
    listed = None if agents is None else _list_entities(model, agents, members, residual)
    spread = target_spread(model) if listed and link is None else None
    explained = None
    if spread and residual is not None:
        explained = 1.0 - float(residual.sum() / (n_events.sum() * spread**2))
    return Findings(
        names=Names.of(model),
        clusters=_clusters(model, listed, members),
        agents=agents,
        entities=listed,
        n_events=float(n_events.sum()),
        n_chains=int(posterior.draws.chain.max()) + 1,
        link=link,
        base=_base(model) if listed and link is not None else None,
        noise=posterior.noise_level(),
        noise_name="standard deviation of the noise" if posterior.likelihood.has_heavy_tails else "noise scale",
        target_spread=spread,
        explained=explained,
        category_levels=frozenset(one_hot(model)),
        differences=model.entity_differences(),
    )


def _base(model: HierarchicalPredictor) -> float:
    """The mean target of all fitted events, per exposure."""
    totals, exposures = _totals(model)
    return float(totals.sum() / exposures.sum())


def _totals(model: HierarchicalPredictor) -> tuple[FloatArray, FloatArray]:
    """(entities,) sums of the targets of each entity, and of their exposures."""
    events = model.posterior_.memory.entities.events
    assert events is not None
    of_entity = np.repeat(np.arange(events.n_entities), np.diff(events.event_start))
    totals, exposures = (
        np.bincount(of_entity, weights=events.weight * of, minlength=events.n_entities).astype(np.float64)
        for of in (events.y, np.exp(events.offsets))
    )
    return totals, exposures


def _residual_squares(model: HierarchicalPredictor, label: IndexArray) -> FloatArray:
    """(entities,) squared residuals around the regression of each entity, in units of the target.

    Without effects, that is the regression of its cluster.
    """
    posterior = model.posterior_
    target_scale = posterior.standardization.scale[-1]
    if posterior.likelihood.has_state:
        rss = posterior.layout.rss(posterior.memory.entities.grams, model.entity_regressions().mean)
        return np.asarray(rss * target_scale**2)
    coef = alignment.mean_coef(posterior.draws, model.alignment_)
    squares = np.zeros(len(label))
    grams = posterior.memory.entities.grams
    for k, vector in enumerate(posterior.layout.rss_vectors(coef)):
        own = np.flatnonzero(label == k)
        squares[own] = grams[own] @ vector
    return np.asarray(np.maximum(squares, 0.0) * target_scale**2)


def _clusters(model: HierarchicalPredictor, entities: Entities | None, members: Memberships) -> tuple[Cluster, ...]:
    figures = cluster_figures(model)
    moves = describe_effects(model, N_EFFECTS)
    effects, (lower, upper) = effect_sizes(model), change_intervals(model)
    clear = (lower > 0.0) | (upper < 0.0)
    if link_of(model) is not None:
        ratios = cluster_ratios(model)
        changes, lower, upper = np.moveaxis(
            np.array([[(r.ratio, r.lower, r.upper) for r in own] for own in ratios]), 2, 0
        )
        effects = np.log(changes)
    counts, n_sure, certainty = (
        np.bincount(members.label, weights=own, minlength=model.n_clusters_)
        for own in (None, members.certainty >= SURE, members.certainty)
    )
    return tuple(
        Cluster(
            number=k,
            share=own.share,
            weight=own.weight,
            n_entities=None if entities is None else own.n_entities,
            level=own.level,
            changes=own.changes,
            lower=lower[k],
            upper=upper[k],
            effects=effects[k],
            is_clear=clear[k],
            moves=tuple(printable(move) for move in moves[k]),
            examples=() if entities is None else _examples(entities, k),
            n_sure=None if entities is None else int(n_sure[k]),
            certainty=float(certainty[k] / counts[k]) if counts[k] else float("nan"),
        )
        for k, own in enumerate(figures)
    )


def _examples(entities: Entities, cluster: int) -> tuple[tuple[int, str], ...]:
    """The most certain entities; of equally certain ones, those with most events."""
    own = np.flatnonzero((entities.label == cluster) & (entities.certainty >= SURE))
    # certainty is rounded, so that the number of events decides among the certain ones
    order = np.lexsort((-entities.n_events[own], -entities.certainty[own].round(2)))
    return tuple((int(row), entities.name(row)) for row in own[order[:N_EXAMPLES]])


def _list_agents(model: HierarchicalPredictor, n_events: FloatArray) -> Agents:
    index = model.posterior_.memory.entities.index
    return Agents(
        ids=names_to_show(index.agents.texts),
        n_entities=np.diff(index.agent_start),
        n_events=np.bincount(index.agent_of, weights=n_events, minlength=index.n_agents).astype(np.float64),
        weights=mean_compositions(model.posterior_.memory, model.alignment_),
    )


def _list_entities(
    model: HierarchicalPredictor, agents: Agents, members: Memberships, residual: FloatArray | None
) -> Entities:
    posterior = model.posterior_
    index: EntityIndex = posterior.memory.entities.index
    runner_up, runner_up_probability = members.runners_up()
    rows, names, entity_of = _rows_on_page(index, agents, members)
    chosen = members.listed[rows]
    n_events = posterior.layout.n_events(posterior.memory.entities.grams[chosen])
    scatter = noise = observed = None
    if residual is not None:
        scatter = np.sqrt(residual[chosen] / np.maximum(n_events, 1e-300))
        noise = model.entity_noise_[chosen]
    else:
        totals, exposures = _totals(model)
        observed = totals[chosen] / np.maximum(exposures[chosen], 1e-300)
    return Entities(
        names=Names.of(model),
        agents=agents.ids,
        entities=names,
        agent=index.agent_of[chosen],
        entity=entity_of,
        n_events=n_events,
        label=members.label[chosen],
        certainty=members.certainty[chosen],
        runner_up=runner_up[rows],
        runner_up_probability=runner_up_probability[rows],
        scatter=scatter,
        noise=noise,
        observed=observed,
        n_all=len(index.agent_of),
        n_uncertain=int((members.certainty < SURE).sum()),
        position=chosen,
        probability=members.probability[rows],
    )


def _rows_on_page(index: EntityIndex, agents: Agents, members: Memberships) -> tuple[IndexArray, list[str], IndexArray]:
    """The rows of `members.listed` that fit on a page, their distinct names, and the position of each row's name."""
    distinct, name_of = np.unique(index.entity_of[members.listed], return_inverse=True)
    names = names_to_show(index.entities.texts[entity] for entity in distinct)
    size = size_of_entities(names, members.probability, index.n_entities)
    n_rows = rows_that_fit(len(name_of), size_of_agents(agents.ids, agents.weights), size)
    rows = np.sort(np.argsort(members.certainty[members.listed], kind="stable")[:n_rows])
    used, name_of = np.unique(name_of[rows], return_inverse=True)
    return rows, [names[name] for name in used], name_of
