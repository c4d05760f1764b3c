"""Targets whose log odds are linear: what yes-or-no targets (`model.binary`) and counts (`model.counts`) share.

    ψ_ijn = β_ijᵀx_ijn + d_ijn,     p(y_ijn) ∝ exp(κψ) / (2 cosh(ψ/2))^b,     β_ij = w_z + a_i + b_ij

with b, κ and d of each event. Given a weight ω_ijn ~ PG(b, ψ), a Pólya–Gamma variable, an event counts as a normal one
with target κ/ω − d and variance 1/ω. So with weighted Gram matrices all is as in `model.mixed` with noise scale 1:
clusters, effects, merging, the delta rule.

Where entities of one cluster are equal, labels are drawn from the events themselves, without the weights: these depend
on the old label, which would hold it fast. Otherwise effects are integrated out given the weights. The comparison of
several clusters with one integrates them out without weights, by importance sampling.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr._support.checks import not_negative, square_positive
from fedhlcr._support.special import ndtri
from fedhlcr.data.events import EventStore
from fedhlcr.kernels import evidence, logits, weights
from fedhlcr.kernels.effects import EffectState
from fedhlcr.kernels.grams import add_chosen
from fedhlcr.kernels.logits import EventTerms
from fedhlcr.kernels.profiles import OwnMixture
from fedhlcr.model import mixed_agents, mixed_server
from fedhlcr.model.arguments import AgentsPart, Concluded, ProfileData, events_of
from fedhlcr.model.mixed import Mixed
from fedhlcr.model.mixed_globals import EFFECTS, EVENT_WEIGHTS, MixedGlobals, first_evidence, positive_or_infinite
from fedhlcr.model.mixed_server import TINY, EffectEvidence
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPosterior
from fedhlcr.model.schema import (
    GRAMS,
    ROUNDING,
    Bound,
    Known,
    Level,
    Stage,
    State,
    StateField,
    SummedScalar,
    anything,
    quantity,
)
from fedhlcr.model.sums import ClusterSums

LOG_LIKELIHOOD = "log_likelihood"
# Scalars of mixed models that are sums over weighted matrices here, so that numbers of events do not bound them.
OF_WEIGHTS = ("squared_events", "noise_excess", "noise_squares")
# Bounds of the first variances of effects beside a single cluster, as multiples of the usual ones.
LEAST_START = 0.1
MOST_START = 2.0
# The largest factor by which effects are scaled at once.
LONGEST_STEP = 1.5
# Points by which effects are integrated out when clusters are compared.
N_POINTS = 16
# What is left of the noise on the scale of log odds, so that quantiles of single numbers can be searched for.
LEAST_VARIANCE = 1e-8


@dataclass(frozen=True, kw_only=True)
class LogitGlobals(MixedGlobals):
    """Those of clusters of mixed models, whose noise is 1 here and of no interest."""

    noise_scale: float = quantity(possible=square_positive, broadcast=True, attribute=False)
    noise_shape: float = quantity(possible=positive_or_infinite, broadcast=True, attribute=False)


def _log_likelihood(known: Known) -> tuple[Bound, Bound]:
    """Targets are discrete, so none is more likely than 1, up to rounding."""
    return -np.inf, 1e3 * ROUNDING * known.n_events


def spread_normals(n_points: int, size: int) -> FloatArray:
    """(points, size) standard normal numbers, evenly spread in all columns together.

    The first column holds quantiles, the others a Kronecker sequence by powers of a generalised golden ratio: the root
    of x^size = x + 1 above 1.
    """
    ratio = 2.0
    for _ in range(50):
        ratio = (1.0 + ratio) ** (1.0 / max(size, 1))
    numbers = np.arange(n_points)[:, None] + 0.5
    steps = np.append(1.0 / n_points, ratio ** -np.arange(1.0, size))[:size]
    return np.asarray(ndtri(numbers * steps % 1.0))


class Logits(Mixed):
    """Clusters of mixed models on the scale of log odds."""

    globals_type: type[MixedGlobals] = LogitGlobals

    needs_events: ClassVar[bool] = True
    # 0 as long as it has not been drawn
    event_weight = StateField(EVENT_WEIGHTS, Level.EVENT, size=0, initial=0.0, possible=not_negative)
    doubts_clusters: ClassVar[bool] = True
    settles_slowly: ClassVar[bool] = True

    @property
    def own_scalars(self) -> tuple[SummedScalar, ...]:
        common = (replace(s, range=anything) if s.name in OF_WEIGHTS else s for s in super().own_scalars)
        return (*common, SummedScalar(LOG_LIKELIHOOD, _log_likelihood))

    @abstractmethod
    def event_terms(self, events: EventStore, agent_state: State) -> EventTerms:
        """b, κ, d and c of events; `agent_state` has a row for each entity, and may have an axis of draws behind it."""

    def first_weights(self, events: EventStore, terms: EventTerms) -> FloatArray:
        """Weights of events that have not been drawn yet: their means at log odds of 0."""
        del events
        return 0.25 * terms.shape

    def weighted_targets(self, events: EventStore, agent_state: State) -> tuple[FloatArray, FloatArray]:
        return self._working_targets(events, self.event_terms(events, agent_state), agent_state[EVENT_WEIGHTS])

    def _working_targets(
        self, events: EventStore, terms: EventTerms, event_weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """κ/ω − d and ω; weights that have not been drawn yet are the first ones."""
        kept = self._known_weights(events, terms, event_weights)
        kappa, fixed = (of if of.ndim == kept.ndim else of[:, None] for of in (terms.kappa, terms.fixed))
        return kappa / kept - fixed, kept

    def _known_weights(self, events: EventStore, terms: EventTerms, kept: FloatArray) -> FloatArray:
        if kept.all():
            return kept
        first = self.first_weights(events, terms)
        return np.where(kept > 0.0, kept, first if first.ndim == kept.ndim else first[:, None])

    def _part_terms(self, part: AgentsPart, state: State) -> EventTerms:
        by_entity = {
            own.name: state[own.name][part.owner] if own.level == Level.AGENT else state[own.name]
            for own in self.state_fields
        }
        return self.event_terms(events_of(part), by_entity)

    def _weighted(self, part: AgentsPart) -> AgentsPart:
        return self._with_weights(part, self._part_terms(part, part.state), part.state[EVENT_WEIGHTS])

    def _with_weights(self, part: AgentsPart, terms: EventTerms, event_weights: FloatArray) -> AgentsPart:
        return mixed_agents.weighted_part(part, *self._working_targets(events_of(part), terms, event_weights))

    # At the agents.

    def score_rows(self, current: MixedGlobals) -> FloatArray:
        """In plain clusters the scoring matrices are log likelihoods already."""
        return np.eye(current.n_clusters) if current.is_plain else super().score_rows(current)

    def scoring_matrices(self, part: AgentsPart, current: MixedGlobals) -> FloatArray:
        """In plain clusters (entities, clusters) log likelihoods; otherwise effective matrices given the weights."""
        if not current.is_plain:
            return super().scoring_matrices(part, current)
        events = events_of(part)
        terms = self._part_terms(part, part.state)
        first = self.layout.first_regressor
        coef = current.coef.copy()
        out = np.zeros((len(part.entities.grams), current.n_clusters))
        part.run_on_entities(
            lambda *block: logits.write_log_likelihoods(events.X, terms, events.event_start, *block, coef, first, out)
        )
        return out

    def entity_matrices(
        self, grams: FloatArray, current: MixedGlobals, agent_state: State, events: EventStore | None = None
    ) -> FloatArray:
        if not current.is_plain:
            return super().entity_matrices(grams, current, agent_state, events)
        assert events is not None
        terms = self.event_terms(events, agent_state)
        everyone = np.arange(len(grams))
        out = np.zeros((len(grams), current.n_clusters))
        arrays = events.X, terms, events.event_start, everyone, 0, len(everyone), current.coef.copy()
        logits.write_log_likelihoods(*arrays, self.layout.first_regressor, out)
        return out

    def conclude(
        self,
        part: AgentsPart,
        current: MixedGlobals,
        scoring: FloatArray,
        labels: LabelArray,
        rows: IndexArray,
        n_rows: int,
    ) -> Concluded:
        """Draw effects given the old weights, then the weights given the coefficients of each entity."""
        sums = self._empty_sums(n_rows, len(part.agents))
        law = self.kernel_law(current, part.round)
        if current.is_plain:
            # a run that goes back to plain clusters forgets effects
            fresh = self.fresh_state(part.state)
            state = {**part.state, "variance": fresh["variance"], "agent_effects": fresh["agent_effects"]}
            coef = current.coef[np.maximum(labels, 0)]
        else:
            weighted = self._weighted(part)
            drawn = self._draw_effects(weighted, current, scoring, labels, rows, sums)
            if not law.given_effects:
                self._add_scale_scores(weighted, drawn, current, labels, sums.scalars)
            state = {**part.state, **self.new_state(drawn, current)}
            coef = drawn.coef
        state |= self._draw_own(part, current, coef, sums.scalars)
        terms = self._part_terms(part, state)
        state[EVENT_WEIGHTS] = self._draw_weights(part, terms, coef, sums.scalars)
        mixed_agents.add_counts(self.layout, part, current, sums.scalars)
        if current.stage == Stage.PLAIN:
            weighted = self._with_weights(part, terms, state[EVENT_WEIGHTS])
            mixed_agents.add_evidence(self.layout, weighted, labels, law, sums.scalars)
            add_chosen(weighted.entities.grams, part.chosen, rows, sums.data)
        elif current.is_plain or law.given_effects:
            # those of the kernel have the old weights
            steps = np.empty((0, 0)) if current.is_plain else coef - current.coef[labels]
            self._sum_data(part, terms, state[EVENT_WEIGHTS], steps, rows, sums.data)
        if current.stage == Stage.WEIGHING:
            self._weigh(part._replace(state=state), current, terms, labels, sums.scalars)
        return Concluded(state, {GRAMS: sums.data, EFFECTS: sums.effects}, sums.scalars)

    def _add_scale_scores(
        self, weighted: AgentsPart, drawn: EffectState, current: MixedGlobals, labels: LabelArray, scalars: FloatArray
    ) -> None:
        """Where the plain stage has score tests: the score and the information of a common factor of all effects."""
        effects = drawn.coef - current.coef[labels] - drawn.agent_effects[weighted.owner]
        scores = np.zeros((len(scalars), 2, self.layout.n_coef))
        entities = weighted.entities.grams, weighted.entities.agent_start, weighted.agents
        evidence.add_scale_scores(*entities, drawn.coef, effects, self.layout.first_regressor, scores)
        first = first_evidence(self.layout)
        scalars[:, first : first + scores[0].size] = scores.reshape(len(scalars), -1)

    def _draw_own(self, part: AgentsPart, current: MixedGlobals, coef: FloatArray, scalars: FloatArray) -> State:
        """What a family lets agents draw besides effects and weights: nothing by default."""
        del part, current, coef, scalars
        return {}

    def _sum_data(
        self,
        part: AgentsPart,
        terms: EventTerms,
        event_weights: FloatArray,
        steps: FloatArray,
        rows: IndexArray,
        data: FloatArray,
    ) -> None:
        """Replace `data` by sums of the weighted Gram matrices of (x, target − xᵀstep), with a step for each entity."""
        events = events_of(part)
        # agents that have never taken part have no weights yet
        targets = terms.kappa / np.where(event_weights > 0.0, event_weights, 1.0) - terms.fixed
        if len(steps):
            logits.move_targets(events.X, events.event_start, part.chosen, steps, self.layout.first_regressor, targets)

        def add(chosen: IndexArray, first: int, last: int) -> FloatArray:
            own = np.zeros_like(data)
            arrays = events.X, targets, events.event_start, event_weights
            weights.weighted_sums(*arrays, chosen, first, last, rows, own)
            return own

        data[:] = 0.0
        for own in part.run_on_entities(add):
            data += own

    def _draw_weights(self, part: AgentsPart, terms: EventTerms, coef: FloatArray, scalars: FloatArray) -> FloatArray:
        """(events,) new weights of the events of agents that take part; those of others stay."""
        events = events_of(part)
        drawn = part.state[EVENT_WEIGHTS].copy()
        densities = np.empty(len(scalars))
        data = events.X, terms, events.event_start, part.entities, coef, self.layout.first_regressor, part.round
        part.run_on_agents(lambda *block: logits.draw_weights(*data, *block, drawn, densities))
        scalars[:, [scalar.name for scalar in self.own_scalars].index(LOG_LIKELIHOOD)] = densities
        return drawn

    def _event_log_likelihoods(self, part: AgentsPart, terms: EventTerms, coef: FloatArray) -> FloatArray:
        """(events,) log densities given the coefficients of each entity; 0 for agents that take no part."""
        events = events_of(part)
        out = np.zeros(events.n_events)

        def write(chosen: IndexArray, first: int, last: int) -> None:
            arrays = events.X, terms, events.event_start, chosen[first:last], coef
            logits.event_log_likelihoods(*arrays, self.layout.first_regressor, out)

        part.run_on_entities(write)
        return out

    def _weigh(
        self, part: AgentsPart, current: MixedGlobals, terms: EventTerms, labels: LabelArray, scalars: FloatArray
    ) -> None:
        """Add the log density of each agent's entities, with their labels and effects integrated out."""
        events = events_of(part)
        law = self.kernel_law(current, part.round)
        densities = np.zeros((len(labels), current.n_clusters))
        steps = part.state["agent_effects"]
        owner = part.owner
        points = spread_normals(N_POINTS, len(law.columns))
        part.run_on_entities(
            lambda *block: logits.integrated_densities(
                events.X, terms, events.event_start, *block, law, steps, owner, points, densities
            )
        )
        out = np.zeros(len(labels))
        rows = np.eye(current.n_clusters)
        prior = current.prior_weights()
        agent_start = part.entities.agent_start
        part.run_on_agents(
            lambda *block: evidence.add_log_densities(densities, rows, prior, labels, agent_start, *block, out)
        )
        mixed_agents.add_weighed(part, out, scalars)

    # At the server.

    def _evidence(self, sums: ClusterSums) -> EffectEvidence:
        """Entities have no noise of their own."""
        return super()._evidence(sums)._replace(of_noise=0.0)

    def _start_variances(self, sums: ClusterSums, spec: ModelSpec) -> FloatArray:
        """For a single cluster a first guess from the score tests, because few events say little about variances."""
        usual = super()._start_variances(sums, spec)
        if sums.occupied.sum() > 1:
            return usual
        excess, squares = mixed_server.evidence_scalars(self.layout, sums)[:2]
        # both are of weighted events, whose information adds up
        guess = excess / np.maximum(squares, TINY)
        return np.clip(guess, LEAST_START * usual, MOST_START * usual)

    def _with_effect_covariance(
        self, drawn: MixedGlobals, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator
    ) -> MixedGlobals:
        """As in `model.mixed`; before the last stage also given effects on the scale of their standard deviations.

        Variances given effects move slowly where events say little. Scaling the effects by s, and the variances along,
        does not: s has a normal law given the weights. It would change sums of absent agents, so the last stage, which
        is exact, goes without it.
        """
        moved = super()._with_effect_covariance(drawn, sums, spec, rng)
        if drawn.stage == Stage.EXACT:
            return moved
        score, information = mixed_server.evidence_scalars(self.layout, sums)[:2]
        step = 1.0 + np.divide(score, information, out=np.zeros_like(score), where=information > 0.0)
        factor = np.clip(step, 1.0 / LONGEST_STEP, LONGEST_STEP)
        return replace(moved, effect_covariance=moved.effect_covariance * np.outer(factor, factor))

    def _with_noise(
        self, drawn: MixedGlobals, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator
    ) -> MixedGlobals:
        """The weights take its place."""
        del sums, spec, rng
        return drawn

    def log_joint(self, sums: ClusterSums, regressions: CoefPosterior, current: MixedGlobals) -> float:
        """The log density of targets, effects and labels given the globals, without weights."""
        del regressions
        total = sums.scalars[LOG_LIKELIHOOD] + sums.scalars["log_label_prior"]
        return float(total if current.is_plain else total + mixed_server.log_effects(self.layout, sums, current))

    def _first_quantities(self, spec: ModelSpec) -> dict[str, Any]:
        return {**super()._first_quantities(spec), "noise_scale": 1.0, "noise_unit": 1.0}

    # For predictions.

    def own_mixture(self, draws: MixedGlobals, label_weights: FloatArray, profiles: ProfileData) -> OwnMixture:
        """The mixture of log odds, before the family's own part of them."""
        one = np.ones(label_weights.shape[:2])
        common = super().own_mixture(draws, label_weights, profiles)._replace(variance=one, noise=LEAST_VARIANCE * one)
        if not len(common.columns):
            # nobody has effects, and nothing depends on the matrices
            return common
        events = events_of(profiles)
        targets = self.weighted_targets(events, profiles.agent_state)
        return common._replace(grams=mixed_agents.weighted_by_draw(profiles.grams, events, *targets))
