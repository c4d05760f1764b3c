"""Counts: negative binomial regressions with a log link.

    y_ijn has mean μ = e_ijn exp(β_ijᵀx_ijn) and variance μ + μ²/r,     β_ij = w_z + a_i + b_ij

with exposures e, and a size r that every agent has of its own, log r_i ~ N(ρ, s²): the larger, the closer to a Poisson
law. In the notation of `model.logits`, ψ = log(μ/r), an event of frequency f has b = f(y + r) and κ = f(y − r)/2, and d
is log(e/r).

Agents draw their r_i given their coefficients, with the weights integrated out, by Metropolis steps. A common r could
not change without all agents: weights are drawn given r, and sums of absent agents have the old weights.

For r → ∞ weights become so precise that coefficients hardly move. So an event's r is never more than `POISSON_LIMIT`
times the mean count m of its entity: 1/r_ijn = 1/r_i + 1/(50 m). Where counts follow a Poisson law, the model has two
per cent more variance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import finite, positive, square_positive
from fedhlcr._support.special import gammainc, gammaincinv, gammaln, ndtri
from fedhlcr.data.events import EventStore
from fedhlcr.data.families import COUNT, Family
from fedhlcr.exceptions import ArgumentError
from fedhlcr.kernels.keyed import keyed_steps
from fedhlcr.kernels.logits import EventTerms
from fedhlcr.kernels.responses import CountMixture
from fedhlcr.kernels.weights import FIRST_EVENT
from fedhlcr.model.arguments import AgentsPart, EventPoints, ProfileData, events_of
from fedhlcr.model.gram import Standardization
from fedhlcr.model.likelihood import register
from fedhlcr.model.logits import Logits
from fedhlcr.model.mixed import GOLDEN
from fedhlcr.model.mixed_agents import by_agent
from fedhlcr.model.mixed_globals import EVENT_WEIGHTS, MixedGlobals, positive_or_infinite
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPosterior
from fedhlcr.model.schema import Bound, Known, Level, Stage, State, StateField, SummedScalar, quantity
from fedhlcr.model.sums import ClusterSums

LOG_SIZE = "log_size"
# Σ log r, Σ (log r)² and the number of agents that have drawn theirs.
SIZE_SCALARS = ("log_sizes", "squared_log_sizes", "agents_with_sizes")
POISSON_LIMIT = 50.0
# Counts that are added to those of an entity before its mean is taken, so that it is not 0.
ADDED_COUNT = 0.5
# ρ ~ N(1, 1.5²); s² ~ IG(2, .2), and s is at least .3, so that ρ can move.
CENTRE = 1.0
CENTRE_SCALE = 1.5
SPREAD_SHAPE = 2.0
SPREAD_RATE = 0.2
LEAST_SPREAD = 0.3
# A run begins with so many rounds in which sizes stay as they are. The first coefficients are far from the data: given
# these, rare counts would make sizes so small that the coefficients could never leave.
ROUNDS_WITHOUT_SIZES = 15
# Metropolis steps of an agent in each round, and what an event tells about log r, about, for the steps' length.
N_STEPS = 4
INFORMATION = 0.15
# Largest mean of a count that is drawn.
LARGEST_MEAN = 1e18
# log r stays within these bounds.
SMALLEST = -12.0
LARGEST = 25.0


def _log_size(known: Known) -> tuple[Bound, Bound]:  # noqa: ARG001
    return SMALLEST, LARGEST


def _squared_log_size(known: Known) -> tuple[Bound, Bound]:  # noqa: ARG001
    return 0.0, max(SMALLEST**2, LARGEST**2)


def _each(known: Known) -> tuple[Bound, Bound]:  # noqa: ARG001
    return 1.0, 1.0


SIZE_RANGES = (_log_size, _squared_log_size, _each)


@dataclass(frozen=True, kw_only=True)
class CountGlobals(MixedGlobals):
    """Those of clusters of mixed models, whose noise is 1 here, and ρ and s of the sizes."""

    noise_scale: float = quantity(possible=square_positive, broadcast=True, attribute=False)
    noise_shape: float = quantity(possible=positive_or_infinite, broadcast=True, attribute=False)
    log_size_centre: float = quantity(possible=finite, broadcast=True, traced=True, attribute=False)
    log_size_spread: float = quantity(possible=positive, broadcast=True, attribute=False)


@register
class NegativeBinomial(Logits):
    """A target is a count, and the log of its mean is linear."""

    name: ClassVar[str] = "negative binomial"
    family: ClassVar[Family] = COUNT
    globals_type = CountGlobals
    linear_spread: ClassVar[float | None] = 1.0

    @property
    def own_scalars(self) -> tuple[SummedScalar, ...]:
        own = (SummedScalar(name, range_of) for name, range_of in zip(SIZE_SCALARS, SIZE_RANGES, strict=True))
        return (*super().own_scalars, *own)

    @property
    def own_state(self) -> tuple[StateField, ...]:
        return (*super().own_state, StateField(LOG_SIZE, Level.AGENT, size=0, initial=0.0, possible=finite))

    # At the agents.

    def events_in(self, events: EventStore, units: Standardization) -> EventStore:
        if (events.y < 0.0).any() or (events.y % 1.0 != 0.0).any():
            raise ArgumentError(
                "the likelihood 'negative binomial' needs counts as targets, but some are negative or not whole "
                "numbers; check the column, or choose another likelihood."
            )
        return super().events_in(events, units)

    def event_terms(self, events: EventStore, agent_state: State) -> EventTerms:
        log_size = np.repeat(agent_state[LOG_SIZE], np.diff(events.event_start), axis=0)
        return count_terms(events, log_size)

    def first_weights(self, events: EventStore, terms: EventTerms) -> FloatArray:
        """Means of the weights where an event's own count is its mean."""
        y = events.y
        offset = events.offsets
        shape = terms.shape
        if shape.ndim == 2:
            y = y[:, None]
            offset = offset[:, None]
        psi = np.log(y + ADDED_COUNT) - offset + terms.fixed
        return shape * np.tanh(0.5 * psi) / np.where(psi == 0.0, 1.0, 2.0 * psi) + np.where(psi == 0.0, 0.25 * shape, 0)

    def _draw_own(self, part: AgentsPart, current: MixedGlobals, coef: FloatArray, scalars: FloatArray) -> State:
        """log r of each agent, by Metropolis steps given its coefficients; agents without weights wait."""
        assert isinstance(current, CountGlobals)
        agents = part.agents
        old = part.state
        normals, uniforms = (np.empty((len(agents), N_STEPS)) for _ in range(2))
        # entities use this purpose under their own keys
        keyed_steps(part.entities.agent_streams, agents, part.round, FIRST_EVENT, normals, uniforms)
        n_events = by_agent(part, events_of(part).weight)
        length = 2.4 / np.sqrt(current.log_size_spread**-2.0 + INFORMATION * n_events)
        log_size = old[LOG_SIZE].copy()
        began = self._began(part)[agents]
        if current.stage == Stage.PLAIN and part.round < ROUNDS_WITHOUT_SIZES:
            began[:] = False
        density = self._size_density(part, current, coef, log_size)
        for step in range(N_STEPS):
            proposal = log_size.copy()
            proposal[agents] = np.clip(log_size[agents] + length * normals[:, step], SMALLEST, LARGEST)
            proposed = self._size_density(part, current, coef, proposal)
            accepted = began & (np.log(uniforms[:, step]) < proposed - density)
            log_size[agents[accepted]] = proposal[agents[accepted]]
            density = np.where(accepted, proposed, density)
        self._add_sizes(log_size[agents], scalars)
        return {LOG_SIZE: log_size}

    def _draw_weights(self, part: AgentsPart, terms: EventTerms, coef: FloatArray, scalars: FloatArray) -> FloatArray:
        """As in `model.logits`; an agent that has none begins with `first_weights`.

        The first coefficients are drawn from the prior, far from large counts. Given these, sizes would become tiny
        and weights so precise that the coefficients could never leave.
        """
        drawn = super()._draw_weights(part, terms, coef, scalars)
        events = events_of(part)
        of_event = np.repeat(part.owner, np.diff(events.event_start))
        begins = np.isin(of_event, part.agents) & ~self._began(part)[of_event]
        return np.where(begins, self.first_weights(events, terms), drawn)

    def _began(self, part: AgentsPart) -> NDArray[np.bool_]:
        """(all agents,) which have weights already."""
        owner = np.repeat(part.owner, np.diff(events_of(part).event_start))
        return np.bincount(owner, weights=part.state[EVENT_WEIGHTS], minlength=part.n_agents) > 0.0

    def _size_density(
        self, part: AgentsPart, current: CountGlobals, coef: FloatArray, log_size: FloatArray
    ) -> FloatArray:
        """(agents asked,) log density of log r and of the agents' events."""
        terms = self._part_terms(part, {**part.state, LOG_SIZE: log_size})
        own = by_agent(part, self._event_log_likelihoods(part, terms, coef))
        apart = (log_size[part.agents] - current.log_size_centre) / current.log_size_spread
        return own - 0.5 * apart**2

    def _add_sizes(self, log_size: FloatArray, scalars: FloatArray) -> None:
        scalars[:, -3:] = np.column_stack([log_size, log_size**2, np.ones(len(log_size))])

    # At the server.

    def _first_quantities(self, spec: ModelSpec) -> dict[str, Any]:
        return {**super()._first_quantities(spec), "log_size_centre": 0.0, "log_size_spread": 1.0}

    def draw(
        self,
        sums: ClusterSums,
        regressions: CoefPosterior,
        current: MixedGlobals,
        spec: ModelSpec,
        rng: np.random.Generator,
    ) -> MixedGlobals:
        """As in `model.mixed`; then ρ | r, s and s | r, ρ."""
        drawn: Any = super().draw(sums, regressions, current, spec, rng)
        total, squares, n = (sums.scalars[name] for name in SIZE_SCALARS)
        precision = n / drawn.log_size_spread**2 + CENTRE_SCALE**-2.0
        linear = total / drawn.log_size_spread**2 + CENTRE / CENTRE_SCALE**2
        centre = linear / precision + rng.standard_normal() / np.sqrt(precision)
        apart = max(squares - 2.0 * centre * total + n * centre**2, 0.0)
        shape = SPREAD_SHAPE + 0.5 * n
        rate = SPREAD_RATE + 0.5 * apart
        # 1/s² has a Gamma law, cut off at its largest value
        largest = gammainc(shape, rate / LEAST_SPREAD**2)
        inverse = gammaincinv(shape, rng.random() * largest) / rate
        spread = max(inverse, 1e-8) ** -0.5 if largest > 0.0 else LEAST_SPREAD
        return replace(drawn, log_size_centre=float(centre), log_size_spread=float(max(spread, LEAST_SPREAD)))

    # For predictions.

    def mixture(self, draws: MixedGlobals, weights: FloatArray, profiles: ProfileData) -> CountMixture:
        assert isinstance(draws, CountGlobals)
        levels = ndtri((np.arange(1, weights.shape[1] + 1) * GOLDEN) % 1.0)
        of_new = np.asarray(draws.log_size_centre) + np.asarray(draws.log_size_spread) * levels
        log_size = np.where(profiles.is_known_agent[:, None], profiles.agent_state[LOG_SIZE], of_new)
        return CountMixture(self.own_mixture(draws, weights, profiles), log_size)

    def event_log_densities(self, current: MixedGlobals, points: EventPoints) -> FloatArray:
        del current
        size = bounded_size(np.exp(points.agent_state[LOG_SIZE]), points.mean)
        y = points.target
        # log(r + μ)
        total = np.logaddexp(np.log(size), points.linear)
        constant = gammaln(y + size) - gammaln(size) - gammaln(y + 1.0)
        return np.asarray(constant + size * (np.log(size) - total) + y * (points.linear - total))

    def draw_targets(self, current: MixedGlobals, points: EventPoints, rng: np.random.Generator) -> FloatArray:
        del current
        size = bounded_size(np.exp(points.agent_state[LOG_SIZE]), points.mean)
        # numpy's limit of a Poisson law
        rate = np.minimum(rng.gamma(size) * np.exp(points.linear) / size, LARGEST_MEAN)
        return rng.poisson(rate).astype(np.float64)


def count_terms(events: EventStore, log_size: FloatArray) -> EventTerms:
    """The terms of events; `log_size` is log r of each event's agent, (events,) or (events, draws)."""
    mean = np.repeat(mean_rates(events), np.diff(events.event_start)) * np.exp(events.offsets)
    y = events.y
    weight = events.weight
    offset = events.offsets
    if log_size.ndim == 2:
        mean = mean[:, None]
        y = y[:, None]
        weight = weight[:, None]
        offset = offset[:, None]
    size = bounded_size(np.exp(log_size), mean)
    constant = weight * (gammaln(y + size) - gammaln(size) - gammaln(y + 1.0))
    return EventTerms(weight * (y + size), 0.5 * weight * (y - size), offset - np.log(size), constant)


def mean_rates(events: EventStore) -> FloatArray:
    """(entities,) mean count of each entity's events for an exposure of 1; never 0."""
    of_entity = np.repeat(np.arange(events.n_entities), np.diff(events.event_start))
    counts, exposures = (
        np.bincount(of_entity, weights=events.weight * of, minlength=events.n_entities)
        for of in (events.y, np.exp(events.offsets))
    )
    return np.asarray((counts + ADDED_COUNT) / np.maximum(exposures, 1e-300))


def bounded_size(size: FloatArray, mean: FloatArray) -> FloatArray:
    """The size of an event whose entity has this mean count."""
    return 1.0 / (1.0 / size + 1.0 / (POISSON_LIMIT * mean))
