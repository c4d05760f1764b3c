"""What the methods of a likelihood are given, and what they return. See `model.likelihood`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray, ranges
from fedhlcr._support.threads import Blocks
from fedhlcr.data.events import EventStore
from fedhlcr.kernels.arguments import EntityArrays
from fedhlcr.model.schema import Globals, State

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


class AgentsPart(NamedTuple):
    """The agents that take part in a round, and what is theirs alone.

    Attributes
    ----------
    entities : the entities of all agents here
    agents : positions of the agents that take part, ascending
    state : their private state, by name; see `Likelihood.own_state`
    round : number of the sweep, which keys random numbers
    blocks : ranges of positions in `agents` to run on threads; results do not depend on it
    events : the events of all entities, for a likelihood that needs them
    """

    entities: EntityArrays
    agents: IndexArray
    state: State
    round: int
    blocks: Blocks
    n_threads: int = 1
    events: EventStore | None = None

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
    private : the private state by name, (profiles, draws, ...); the initial value for what is not known
    events : the events of the profiles, for a likelihood that needs them; the state of events is (events, draws)
    """

    grams: FloatArray
    is_known: NDArray[np.bool_]
    is_known_agent: NDArray[np.bool_]
    private: State
    events: EventStore | None = None


class Concluded(NamedTuple):
    """What agents with a private state end a round with: the new state, and their sums."""

    state: State
    blocks: dict[str, FloatArray]  # by name, (rows, size)
    scalars: FloatArray  # (agents that take part, own scalars)


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


class CollapsedTerms(NamedTuple):
    """What the collapsed sampler needs to integrate the coefficients out.

    Attributes
    ----------
    grams : (entities, packed) the (regressors, target) block of each Gram matrix, divided by σ²
    prior_precision : (packed,) the same block of a cluster without entities, i.e. the prior's
    """

    grams: FloatArray
    prior_precision: FloatArray
