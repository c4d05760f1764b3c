"""What the methods of a likelihood are given, and what they return. See `model.likelihood`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray, ranges
from fedhlcr._support.threads import Blocks, Result, run_blocks
from fedhlcr.data.events import EventStore
from fedhlcr.kernels import evidence
from fedhlcr.kernels.arguments import AgentAnswers, EntityArrays, Remembered
from fedhlcr.model.covariance import variance_ratios
from fedhlcr.model.schema import Globals, State, StateField
from fedhlcr.storage.scratch import release

G = TypeVar("G", bound=Globals)


class Summands(NamedTuple):
    """What each entity adds to the sums of its cluster and of its agent.

    Attributes
    ----------
    blocks : by name, (entities, size); summed by cluster
    scalars : by name, (entities,); summed by agent
    """

    blocks: dict[str, FloatArray]
    scalars: dict[str, FloatArray]


class AgentFigures(NamedTuple):
    """What agents add up in many sweeps and what never changes: it is computed once where that is possible."""

    events: FloatArray  # (agents,) Σ of the weights of events
    within: FloatArray  # (agents, n_features) squares of the features within entities


def agent_figures(grams: FloatArray, agent_start: IndexArray, n_features: int, n_threads: int = 1) -> AgentFigures:
    """The figures of all agents, from the Gram matrices of their entities."""
    n_agents = len(agent_start) - 1
    figures = AgentFigures(np.empty(n_agents), np.empty((n_agents, n_features)))
    blocks = Blocks.balanced(agent_start)

    def run(block: int) -> None:
        first, last = blocks.range(block)
        evidence.write_figures(grams, agent_start, first, last, *figures)
        release(grams[agent_start[first] : agent_start[last]])

    run_blocks(run, len(blocks), n_threads)
    return figures


class AgentsPart(NamedTuple):
    """The agents that take part in a round, and what is theirs alone.

    Attributes
    ----------
    entities : the entities of all agents here
    agents : positions of the agents that take part, ascending
    state : their state, by name; see `Likelihood.own_state`
    round : number of the sweep, which keys random numbers
    blocks : ranges of positions in `agents` to run on threads; results do not depend on it
    events : the events of all entities, for a likelihood that needs them
    figures : of all agents here, if they are known already
    single : whether entities are scored in single precision first
    """

    entities: EntityArrays
    agents: IndexArray
    state: State
    round: int
    blocks: Blocks
    n_threads: int = 1
    events: EventStore | None = None
    figures: AgentFigures | None = None
    single: bool = False

    def page(self, first: int, last: int, fields: tuple[StateField, ...]) -> AgentsPart:
        """The agents [first, last) alone, in views of the arrays; for parts in which all agents take part.

        `fields` declare the state.
        """
        grams, agent_start, keys, streams = self.entities
        start = int(agent_start[first])
        stop = int(agent_start[last])
        own = EntityArrays(
            grams[start:stop], agent_start[first : last + 1] - start, keys[start:stop], streams[first:last]
        )
        rows = [slice(first, last), slice(start, stop)]
        if self.events is not None:
            rows.append(slice(*self.events.event_start[[start, stop]]))
        return AgentsPart(
            own,
            np.arange(last - first),
            {of.name: self.state[of.name][rows[of.level]] for of in fields},
            self.round,
            Blocks((0, last - first)),
            events=None if self.events is None else self.events.of_entities(start, stop),
            figures=None if self.figures is None else AgentFigures(*(of[first:last] for of in self.figures)),
            single=self.single,
        )

    def run(self, task: Callable[[int], Result]) -> list[Result]:
        """Run a task for each block on threads, and return the results in the order of the blocks.

        Matrices in a mapped file are dropped from memory block by block: a fit needs no room for all of them.
        """
        grams = self.entities.grams
        agent_start = self.entities.agent_start

        def run(block: int) -> Result:
            result = task(block)
            first, last = self.blocks.range(block)
            if first < last:
                release(grams[agent_start[self.agents[first]] : agent_start[self.agents[last - 1] + 1]])
            return result

        return run_blocks(run, len(self.blocks), self.n_threads)

    def run_on_agents(self, task: Callable[[IndexArray, int, int], Result]) -> list[Result]:
        """Run task(agents, first, last) for each block, agents[first:last]."""
        return self.run(lambda block: task(self.agents, *self.blocks.range(block)))

    def run_on_entities(self, task: Callable[[IndexArray, int, int], Result]) -> list[Result]:
        """Run task(chosen, first, last) for each block; chosen[first:last] are its entities."""
        chosen = self.chosen
        bounds = self.entity_blocks
        return self.run(lambda block: task(chosen, *bounds[block]))

    @property
    def n_agents(self) -> int:
        """Number of all agents here."""
        return len(self.entities.agent_start) - 1

    @property
    def owner(self) -> IndexArray:
        """(entities,) the agent of each entity."""
        return np.repeat(np.arange(self.n_agents), np.diff(self.entities.agent_start))

    @property
    def chosen(self) -> IndexArray:
        """Positions of the entities of the agents that take part."""
        start = self.entities.agent_start
        return ranges(start[self.agents], np.diff(start)[self.agents])

    @property
    def entity_blocks(self) -> tuple[tuple[int, int], ...]:
        """The blocks as ranges of positions in `chosen`."""
        sizes = np.diff(self.entities.agent_start)[self.agents]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return tuple(
            (int(starts[first]), int(starts[last])) for first, last in map(self.blocks.range, range(len(self.blocks)))
        )


class ProfileData(NamedTuple):
    """What is known of the pairs of agent and entity to predict for.

    Attributes
    ----------
    grams : (profiles, packed); 0 for a new entity
    is_known, is_known_agent : (profiles,) whether the entity, and whether its agent, is known
    agent_state : the agent state by name, (profiles, draws, ...); the initial value for what is not known
    events : the events of the profiles, for a likelihood that needs them; the state of events is (events, draws)
    """

    grams: FloatArray
    is_known: NDArray[np.bool_]
    is_known_agent: NDArray[np.bool_]
    agent_state: State
    events: EventStore | None = None


class FittedEntities(NamedTuple):
    """What agents keep of some entities in one draw.

    Attributes
    ----------
    grams : (entities, packed)
    labels : (entities,)
    agent_state : the agent state by name, a row for each entity, or for its agent
    events : their events, for a likelihood that needs them; the state of events has a row for each of these
    """

    grams: FloatArray
    labels: IndexArray
    agent_state: State
    events: EventStore | None = None


def events_of(kept: AgentsPart | ProfileData | FittedEntities) -> EventStore:
    """The events that agents keep for a likelihood with `needs_events`."""
    assert kept.events is not None
    return kept.events


class EventPoints(NamedTuple):
    """Events of known entities in one draw, (events,) each, in the units of the run.

    Attributes
    ----------
    linear : the linear part βᵀx of each event, with its offset
    target : of each event
    scale : noise scales of their entities
    mean : of counts, the mean of their entities' fitted events for the exposure of each event; else 0
    agent_state : the state of their agents and entities, by name
    """

    linear: FloatArray
    target: FloatArray
    scale: FloatArray
    mean: FloatArray
    agent_state: State


class Concluded(NamedTuple):
    """What agents with an agent state end a round with: the new state, and their sums."""

    state: State
    blocks: dict[str, FloatArray]  # by name, (rows, size)
    scalars: FloatArray  # (agents that take part, own scalars)


class DrawnLabels(NamedTuple):
    """What is drawn besides the agent state."""

    labels: LabelArray  # (entities,)
    answers: AgentAnswers
    remembered: Remembered


class Recentred(NamedTuple, Generic[G]):
    """Globals with redrawn coefficients, and by how much the effects of each cluster's entities grew (K, n_coef)."""

    globals: G
    shift: FloatArray | None


@dataclass(frozen=True)
class EffectShift:
    """By how much effects of entities have grown, because the coefficients of their clusters have moved.

    Shifts add up, and sums shift linearly: shifting by one and then by another is shifting by their sum, and the shift
    of a sum is the sum of the shifts.

    Attributes
    ----------
    effects : (clusters, n_coef) growth of the effects
    targets : (clusters, n_coef) how much of it data matrices must follow, because they hold targets without effects
    """

    effects: FloatArray
    targets: FloatArray

    @classmethod
    def zero(cls, n_clusters: int, n_coef: int) -> EffectShift:
        return cls(np.zeros((n_clusters, n_coef)), np.zeros((n_clusters, n_coef)))

    def __add__(self, other: EffectShift) -> EffectShift:
        return EffectShift(self.effects + other.effects, self.targets + other.targets)

    def __neg__(self) -> EffectShift:
        return EffectShift(-self.effects, -self.targets)

    def of(self, clusters: NDArray[np.integer]) -> EffectShift:
        """The shifts of the given clusters, one after the other."""
        return EffectShift(self.effects[clusters], self.targets[clusters])


class Differences(NamedTuple):
    """The laws of effects and noise in each draw, in standardised units.

    Attributes
    ----------
    entity_covariance : (draws, n_coef, n_coef) D of the entities' effects, b ~ N(0, D)
    agent_covariance : (draws, n_coef, n_coef) the same of the agents' effects
    noise_scale : (draws,) s, the typical noise
    noise_shape : (draws,) ν in σ² ~ IG(ν/2, νs²/2); infinite if all entities have the same noise
    """

    entity_covariance: FloatArray
    agent_covariance: FloatArray
    noise_scale: FloatArray
    noise_shape: FloatArray

    @property
    def noise_differs(self) -> bool:
        return bool(np.isfinite(self.noise_shape).any())

    def noise_quantile(self, level: float) -> float:
        """The noise below which this share of the entities lies, mean over the draws."""
        return float((self.noise_scale * np.sqrt(variance_ratios(self.noise_shape, 1.0 - level))).mean())
