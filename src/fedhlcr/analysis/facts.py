"""What is said of a fitted model, as plain data and without a word of how to say it.

Terminal, summary, notebook, tables, report and the facts in model files take their figures from here; `analysis.words`
puts them into sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import AGENT, ENTITY, Noun, noun, printable
from fedhlcr.analysis.effects import (
    INTERVAL_LEVEL,
    EntityDifferences,
    change_intervals,
    coef_intervals,
    effect_sizes,
    entity_differences,
    entity_shares,
    feature_names,
    id_columns,
    one_hot,
    step_ratios,
    target_name,
    target_spread,
    typical_levels,
    unit_changes,
)
from fedhlcr.analysis.links import Link, link_of
from fedhlcr.analysis.memberships import MAX_EXACT, Memberships, memberships
from fedhlcr.analysis.names import names_to_show
from fedhlcr.analysis.rounds import FederatedRun
from fedhlcr.posterior import alignment
from fedhlcr.posterior.fitted_model import check_model

# An entity's label is uncertain if its probability is below this.
SURE = 0.8
# A cluster is clear if at least this share of its entities is surely in it.
MOSTLY = 0.5
# If fewer of all entities are surely in their cluster, clusters are no finding.
FEW_SURE = 0.2
# If more than this share of `max_clusters` was found, the limit may be too low.
NEAR_THE_LIMIT = 0.85
# With fewer events per coefficient of a cluster, 90 % intervals of predictions covered 0 to 88 % in simulations, 72 %
# on average; with more they covered 84 to 92 %, for any number of clusters.
EVENTS_PER_COEF = 5
# Parameters that say nothing about the model, or are told elsewhere.
UNTOLD = ("verbose", "limits", "privacy")


class UserNames(NamedTuple):
    """What the user calls things."""

    agent: Noun
    entity: Noun
    target: str
    features: tuple[str, ...]


@dataclass(frozen=True)
class ClusterFacts:
    """One cluster, in the user's units.

    Attributes
    ----------
    number : as in `labels_` and `coef_`
    n_entities : entities whose label in `labels_` it is; None if the model holds no entities
    share : share of the fitted entities, mean over the draws
    weight : expected share of the entities of a new agent
    level : predicted target at average features; of classes and counts, the probability or the rate
    changes : (n_features,) change of the target per unit; for a level of a category, against all other levels. Of
        classes and counts, odds ratios or rate ratios (`step_ratios`)
    lower, upper : (n_features,) ends of their 90 % intervals; NaN if there is only one draw
    effects : (n_features,) changes per standard deviation of the feature; logarithms of ratios
    """

    number: int
    n_entities: int | None
    share: float
    weight: float
    level: float
    changes: FloatArray
    lower: FloatArray
    upper: FloatArray
    effects: FloatArray


@dataclass(frozen=True)
class LabelCertainty:
    """How sure it is which entity is in which cluster, and which clusters to read as one mixed group.

    Attributes
    ----------
    n_all, n_sure : numbers of entities, and of those that are surely in their cluster; 0 if the model holds none
    clear, blurred : numbers of the clusters whose entities are mostly certain, and of the others
    blurred_share : share of the entities in blurred clusters, mean over the draws
    sure_of_cluster : for each cluster, how many of the entities with this label are surely in it
    """

    n_all: int
    n_sure: int
    clear: tuple[int, ...]
    blurred: tuple[int, ...]
    blurred_share: float
    sure_of_cluster: tuple[int, ...] = ()

    @property
    def n_clusters(self) -> int:
        return len(self.clear) + len(self.blurred)

    @property
    def share(self) -> float:
        """Share of the entities that are surely in their cluster."""
        return self.n_sure / self.n_all if self.n_all else 1.0

    @property
    def is_finding(self) -> bool:
        """Whether the clusters tell entities apart."""
        return bool(self.clear) and self.share >= FEW_SURE

    @property
    def mixed_group(self) -> tuple[int, ...]:
        """The clusters to read as one mixed group; empty if there are no two of them."""
        return self.blurred if self.is_finding and len(self.blurred) > 1 else ()


@dataclass(frozen=True)
class AgentFacts:
    """All agents, in the model's order.

    Attributes
    ----------
    ids : as they are shown
    n_entities, n_events : (agents,)
    weights : (agents, clusters) shares of its entities, mean over the draws
    """

    ids: list[str]
    n_entities: IndexArray
    n_events: FloatArray
    weights: FloatArray

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def main_cluster(self) -> IndexArray:
        return self.weights.argmax(axis=1)

    def effective_clusters(self) -> FloatArray:
        """Effective number of clusters of each agent: 1 / Σ_k share_k²."""
        return np.asarray(1.0 / (self.weights**2).sum(axis=1))


class Facts:
    """What is said of a fitted model. Each fact is computed when it is first asked for."""

    def __init__(self, model: Any) -> None:
        self.model = check_model(model)
        self._posterior = self.model.posterior_
        self._store = self._posterior.memory.entities

    @cached_property
    def names(self) -> UserNames:
        agent_column, entity_column = id_columns(self.model)
        agent = noun(agent_column, AGENT)
        entity = noun(entity_column, ENTITY)
        if agent == entity:
            agent = AGENT
            entity = ENTITY
        return UserNames(agent, entity, target_name(self.model), tuple(map(printable, feature_names(self.model))))

    @cached_property
    def link(self) -> Link:
        """The words for the target."""
        return link_of(self.model)

    @property
    def holds_entities(self) -> bool:
        """Whether the model knows its agents and entities; a public model does not."""
        return len(self._store) > 0

    @cached_property
    def events_of_entities(self) -> FloatArray:
        """(entities,) numbers of events."""
        return self._posterior.layout.n_events(self._store.grams)

    @property
    def n_events(self) -> float:
        return float(self.events_of_entities.sum())

    @property
    def n_chains(self) -> int:
        return int(self._posterior.draws.chain.max()) + 1

    @property
    def finds_clusters(self) -> bool:
        """Whether the model chose the number of clusters itself."""
        return isinstance(self.model.n_clusters, str)

    @property
    def is_near_limit(self) -> bool:
        """Whether there may be more clusters than the fit was allowed to find."""
        return self.finds_clusters and self.model.n_clusters_ > NEAR_THE_LIMIT * self.model.max_clusters

    @property
    def noise(self) -> float:
        """Standard deviation of an event around its regression; of no meaning for classes and counts."""
        return float(self._posterior.noise_level())

    @cached_property
    def run(self) -> FederatedRun | None:
        """How a federated model was fitted, if it is known."""
        return FederatedRun.of(self.model)

    @cached_property
    def differences(self) -> EntityDifferences | None:
        """How entities of one cluster differ; None if the model takes them as equal."""
        return entity_differences(self.model)

    @cached_property
    def category_levels(self) -> frozenset[int]:
        """Positions of the features that indicate a level of a category."""
        return frozenset(one_hot(self.model))

    @cached_property
    @single_threaded_blas
    def clusters(self) -> tuple[ClusterFacts, ...]:
        model = self.model
        levels = model.family.to_response(typical_levels(model))
        changes = unit_changes(model)
        lower, upper = change_intervals(model)
        effects = effect_sizes(model)
        if model.family.has_link:
            changes, lower, upper = step_ratios(model)
            effects = np.log(changes)
        counts = np.bincount(model.labels_, minlength=model.n_clusters_)
        shares = entity_shares(model)
        return tuple(
            ClusterFacts(
                k,
                int(counts[k]) if self.holds_entities else None,
                float(shares[k]),
                float(model.cluster_weights_[k]),
                float(levels[k]),
                changes[k],
                lower[k],
                upper[k],
                effects[k],
            )
            for k in range(model.n_clusters_)
        )

    def strongest_features(self, most: int) -> list[int]:
        """Positions of the features with the strongest effects over all clusters, in the order of the table."""
        strength = sum(cluster.effects**2 for cluster in self.clusters)
        return sorted(np.argsort(-np.asarray(strength), kind="stable")[:most].tolist())

    @cached_property
    @single_threaded_blas
    def agents(self) -> AgentFacts | None:
        """All agents; None if the model is public."""
        if not self.holds_entities:
            return None
        index = self._store.index
        n_events = np.bincount(index.agent_of, weights=self.events_of_entities, minlength=index.n_agents)
        return AgentFacts(
            names_to_show(index.agents.texts),
            np.diff(index.agent_start),
            n_events.astype(np.float64),
            alignment.mean_compositions(self._posterior.memory, self.model.alignment_),
        )

    @cached_property
    @single_threaded_blas
    def members(self) -> Memberships:
        return memberships(self.model, MAX_EXACT)

    @cached_property
    def certainty(self) -> LabelCertainty:
        clusters = self.clusters
        is_sure = self.members.certainty >= SURE
        n_all = len(is_sure)
        sure = np.bincount(self.members.label[is_sure], minlength=len(clusters)).tolist()
        if not n_all or len(clusters) == 1:
            return LabelCertainty(n_all, n_all, tuple(range(len(clusters))), (), 0.0, (n_all,) * len(clusters))
        blurred = tuple(c.number for c in clusters if not c.n_entities or sure[c.number] < MOSTLY * c.n_entities)
        return LabelCertainty(
            n_all,
            int(is_sure.sum()),
            tuple(c.number for c in clusters if c.number not in blurred),
            blurred,
            sum(clusters[k].share for k in blurred),
            tuple(sure),
        )

    @cached_property
    def few_events(self) -> tuple[float, int] | None:
        """Numbers of events and of a cluster's coefficients, if events are too few for honest intervals; else None.

        None also if the model does not hold its fitted events.
        """
        # curves shrink as far as the events demand it, so they do not count
        n_coef = self._posterior.layout.n_linear
        holds_fitted = len(self._store) >= self._posterior.draws.entity_counts[0].sum()
        return (self.n_events, n_coef) if holds_fitted and self.n_events < EVENTS_PER_COEF * n_coef else None

    @cached_property
    @single_threaded_blas
    def residual_squares(self) -> FloatArray:
        """(entities,) squared residuals around the regression of each entity, in units of a real target.

        Without effects, that is the regression of its cluster.
        """
        posterior = self._posterior
        target_scale = posterior.standardization.scale[-1]
        grams = self._store.grams
        if posterior.likelihood.has_state:
            rss = posterior.layout.rss(grams, self.model.entity_regressions.mean)
            return np.asarray(rss * target_scale**2)
        coef = alignment.mean_coef(posterior.draws, self.model.alignment_)
        squares = np.zeros(len(self._store))
        for k, vector in enumerate(posterior.layout.rss_vectors(coef)):
            own = np.flatnonzero(self.members.label == k)
            squares[own] = grams[own] @ vector
        return np.asarray(np.maximum(squares, 0.0) * target_scale**2)

    @cached_property
    def target_spread(self) -> float | None:
        """Standard deviation of a real target over the fitted events; None if the model holds no events."""
        return target_spread(self.model) if self.holds_entities and not self.link.family.has_link else None

    @property
    def explained(self) -> float | None:
        """Share of the variance of the fitted events that is explained; None where the target has no spread."""
        if not self.target_spread:
            return None
        return 1.0 - float(self.residual_squares.sum() / (self.n_events * self.target_spread**2))

    @cached_property
    def totals(self) -> tuple[FloatArray, FloatArray]:
        """(entities,) sums of the classes or counts of each entity, and of their exposures."""
        events = self._store.events
        # models of classes and of counts keep them
        assert events is not None
        of_entity = np.repeat(np.arange(events.n_entities), np.diff(events.event_start))
        totals, exposures = (
            np.bincount(of_entity, weights=events.weight * of, minlength=events.n_entities).astype(np.float64)
            for of in (events.y, np.exp(events.offsets))
        )
        return totals, exposures

    @property
    def base(self) -> float | None:
        """Of classes and counts, the share of the second class, or the rate, among the fitted events."""
        if not self.link.family.has_link or not self.holds_entities:
            return None
        totals, exposures = self.totals
        return float(totals.sum() / exposures.sum())


def model_facts(model: Any, provenance: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A description of a model for programs, as values that JSON can hold: what was fitted, and the clusters.

    Parameters
    ----------
    provenance : where the model comes from
    settings : the model's, if other ones than its own are to be told
    """
    facts = Facts(model)
    model = check_model(model)
    settings = model.settings if settings is None else settings
    recipe = model.recipe_
    quantities = model.posterior_.likelihood.globals_type.traced_quantities()
    names = feature_names(model)
    known = facts.holds_entities
    intervals = np.stack(coef_intervals(model), axis=-1)
    found: dict[str, Any] = {
        "estimator": model.saved_as,
        "public": not known,
        "target": (recipe and recipe.target) or None,
        "agent": model.agent_column_,
        "entity": model.entity_column_,
        "features": names,
        "levels": {} if recipe is None else recipe.categorical,
        "n_agents": facts._store.index.n_agents if known else None,
        "n_entities": len(facts._store) if known else None,
        # frequencies of events may add up to fractions
        "n_events": (int(facts.n_events) if facts.n_events.is_integer() else facts.n_events) if known else None,
        "n_clusters": model.n_clusters_,
        **{q.name: getattr(model, f"{q.name}_") for q in quantities if q.attribute},
    }
    if model.family.has_classes:
        found["classes"] = model.classes_
    if model.family.has_exposure:
        found["exposure"] = None if recipe is None else recipe.exposure
        found["dispersion"] = model.dispersion_
    # infinite, and so null, if the noise is normal and the same for all
    found["noise_shape"] = getattr(model, "noise_shape_", None)
    own = facts.differences
    for name, scales in (
        ("effect_scales", own and own.entity_scales),
        ("agent_effect_scales", own and own.agent_scales),
    ):
        slopes = None if scales is None else dict(zip(names, scales[1:], strict=True))
        found[name] = None if scales is None else {"level": scales[0], "slopes": slopes}
    found |= {
        "noise_range": own and own.noise_range,
        "n_draws": len(model.posterior_.draws),
        "interval_level": INTERVAL_LEVEL,
        "diagnostics": [figures._asdict() for figures in model.diagnostics_],
        "comparison": model.comparison_ and model.comparison_.facts(),
        "clusters": [
            {
                "cluster": k,
                "weight": cluster.weight,
                "share": cluster.share,
                "entities": cluster.n_entities,
                "level": cluster.level,
                "intercept": model.intercept_[k],
                "coef": dict(zip(names, model.coef_[k], strict=True)),
                "coef_interval": dict(zip(names, intervals[k], strict=True)),
            }
            for k, cluster in enumerate(facts.clusters)
        ],
        "settings": {name: value for name, value in settings.items() if name not in UNTOLD},
        "provenance": dict(provenance),
    }
    if getattr(model, "privacy_", None) is not None:
        found["privacy"] = model.privacy_.to_dict()
    if getattr(model, "history_", None) is not None:
        totals = {"answers": "n_accepted", "asked": "n_asked", "bytes_up": "bytes_up", "bytes_down": "bytes_down"}
        found["federation"] = {
            "rounds": model.n_rounds_,
            "stop_reason": model.stop_reason_,
            **{name: model.history_[column].sum() for name, column in totals.items()},
        }
    return found
