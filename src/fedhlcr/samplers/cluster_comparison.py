"""One cluster or several? Where entities differ within the clusters found, a run compares both and goes on with one.

With effects, entities of one cluster may differ too. A chain that has found many clusters never learns how much,
because the clusters have taken their differences; and where entities have few events, such clusters describe these well
and predict others badly. So when merging is over,

 1. clusters that hardly differ are merged, because effects can take such differences;
 2. the several clusters left are *weighed*: agents add up the log densities of their entities' targets given the
    globals, with label, effects and noise of each entity integrated out;
 3. all clusters become one, without effects for some rounds, then with those for which there is evidence;
 4. this one cluster is weighed;
 5. the run stays with it, or goes back to the several.

With n events, the several clusters gain, in nats per event,

    (log density of K clusters − log density of one − ½ (K − 1) F log n) / n,

and they must gain more than `least_gain`. Events with two outcomes, or small counts, say so little that the last term
would hide real clusters: then it is (K − 1) F, and the least gain is `least_gain_of_outcomes`. All of this needs sums
only, so a federation decides as a centralised fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.checks import finite, not_negative
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import Globals, Stage
from fedhlcr.samplers.state import ServerState
from fedhlcr.storage.codec import Record
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import restore, stored, to_record, under

# Entities with fewer events on average are scarce data, from which clusters can be found that are not there.
MANY_EVENTS = 10.0
# The gain that several clusters need where entities have hardly any events, twice as much with curves.
GAIN_WITH_FEW = 0.25
# The loss that is accepted for the sake of clusters, which say more than effects do, where entities have very many
# events; and the number of events below which none is. With many events both predict about equally well.
LOSS_WITH_MANY = 0.02
VERY_MANY_EVENTS = 40.0
# Where single events say little, as those with two outcomes do, the several clusters need this gain if entities have
# hardly any events, and none if they have very many; a coefficient costs one nat.
GAIN_WITH_LITTLE = 0.02
# The gain is meant for so many events for each coefficient of the several clusters.
USUAL_PER_COEF = 50.0
# Clusters with fewer events for each coefficient, or fewer entities, may fit these so well by chance that entities do
# not seem to differ within them.
ENOUGH_EVENTS = 30.0
ENOUGH_ENTITIES = 50.0
# Clusters that gain less, in nats per event and without effects, may be no more than effects cut into pieces.
ENOUGH_GAIN = 0.3
# Lengths of the phases as shares of the rounds in which clusters are found, and the fewest such rounds. The comparison
# may take so much longer than these rounds, or a few rounds more in a short run, where no phase is shorter than
# `SHORTEST_PHASE`.
SETTLING = 0.05
WEIGHED = 0.05
PLAIN_ALONE = 0.05
EFFECTS_ALONE = 0.25
RETURNING = 0.02
LONGER = 0.2
FEWEST_ROUNDS = 30
SHORTEST_PHASE = 2


class Phase(IntEnum):
    """How far the comparison is."""

    WAITING = 0  # clusters are being found
    SETTLING = 1  # those that hardly differ have been merged
    SEVERAL = 2  # the others are weighed
    PLAIN = 3  # one cluster, without effects
    EFFECTS = 4  # one cluster, with effects
    ONE = 5  # it is weighed
    BACK = 6  # the next rounds begin with the several clusters
    OVER = 7


LENGTHS = {
    Phase.SETTLING: SETTLING,
    Phase.SEVERAL: WEIGHED,
    Phase.PLAIN: PLAIN_ALONE,
    Phase.EFFECTS: EFFECTS_ALONE,
    Phase.ONE: WEIGHED,
    Phase.BACK: RETURNING,
}
STAGES = {
    Phase.SETTLING: Stage.MERGING,
    Phase.SEVERAL: Stage.WEIGHING,
    Phase.PLAIN: Stage.PLAIN,
    Phase.EFFECTS: Stage.MERGING,
    Phase.ONE: Stage.WEIGHING,
    Phase.BACK: Stage.MERGING,
}


class Weight(NamedTuple):
    """Sums over the rounds in which a number of clusters was weighed."""

    log_density: float = 0.0  # in nats per event
    rounds: int = 0

    def plus(self, log_density: float) -> Weight:
        return Weight(self.log_density + log_density, self.rounds + 1)

    @property
    def mean(self) -> float:
        return self.log_density / max(self.rounds, 1)


def least_gain(events_per_entity: float, events_per_coef: float, *, has_curves: bool = False) -> float:
    """Nats per event that several clusters must gain over one: more, the fewer events there are.

    Parameters
    ----------
    events_per_entity : mean number of events of an entity
    events_per_coef : number of events for each coefficient of the several clusters
    """
    scarcity = max(0.0, 1.0 - events_per_entity / MANY_EVENTS) * np.sqrt(USUAL_PER_COEF / events_per_coef)
    plenty = max(0.0, 1.0 - VERY_MANY_EVENTS / max(events_per_entity, 1.0))
    return float(GAIN_WITH_FEW * scarcity * (1.0 + has_curves) - LOSS_WITH_MANY * plenty)


def least_gain_of_outcomes(events_per_entity: float) -> float:
    """The same where single events say little: the several clusters must gain more, the fewer events entities have."""
    return GAIN_WITH_LITTLE * max(0.0, 1.0 - events_per_entity / VERY_MANY_EVENTS)


@dataclass
class ClusterComparison:
    """The comparison of several clusters with one.

    Attributes
    ----------
    n_rounds, start : rounds in which clusters are found, and the round before them
    n_plain, differ : number of plain clusters when effects were switched on, and whether entities clearly differ within
        them
    ends : the last round of the present phase
    several : the globals to go back to
    weights : of the several clusters, and of one
    """

    n_rounds: int
    start: int = 0
    n_plain: int = stored(int, possible=not_negative, default=0)
    differ: bool = stored(bool, default=False)
    phase: Phase = stored(Phase, default=Phase.WAITING)
    ends: int = stored(int, possible=not_negative, default=0)
    several: Globals | None = None
    weights: list[Weight] = field(default_factory=lambda: [Weight(), Weight()])

    @property
    def is_running(self) -> bool:
        return self.phase not in (Phase.WAITING, Phase.OVER)

    @property
    def stage(self) -> Stage:
        return STAGES[self.phase]

    def is_needed(self, likelihood: AnyLikelihood, state: ServerState) -> bool:
        """Whether several clusters are doubtful: entities differ within them, they have few events or say little."""
        if not likelihood.has_stages:
            return False
        n_clusters = int(state.sums.occupied.sum())
        n_events = state.sums.scalars["events"]
        if n_clusters == 1:
            # then it is not known yet whether entities differ within this one
            return self.n_plain > 1
        if likelihood.doubts_clusters or self.differ or state.sums.entity_counts.sum() < ENOUGH_ENTITIES * n_clusters:
            return True
        if n_events < ENOUGH_EVENTS * n_clusters * likelihood.layout.n_linear:
            return True
        together = {name: block.sum(axis=0)[None] for name, block in state.sums.blocks.items()}
        apart = likelihood.evidence(state.sums.blocks, state.globals).sum()
        return bool(apart - likelihood.evidence(together, state.globals)[0] < ENOUGH_GAIN * n_events)

    @property
    def latest_start(self) -> int:
        """The round after which the comparison begins at the latest."""
        return self.start + round((1.0 + LONGER - sum(LENGTHS.values())) * self.n_rounds)

    def _length(self, phase: Phase) -> int:
        return max(SHORTEST_PHASE, round(LENGTHS[phase] * self.n_rounds))

    def begin(self, round_number: int, n_clusters: int) -> None:
        """Begin after a round; a single cluster only learns its effects."""
        self._enter(Phase.PLAIN if n_clusters == 1 else Phase.SETTLING, round_number)

    def to_record(self) -> Record:
        record = to_record(self) | {"weights": np.array(self.weights, dtype=np.float64)}
        several = {} if self.several is None else self.several.to_record()
        return record | under("several.", several)

    def restore(self, reader: RecordReader, globals_type: type[Globals], n_coef: int) -> None:
        """Read the fields of `to_record`, and check every value."""
        restore(self, reader)
        weights = reader.array("weights", "f8", (2, 2), finite)
        reader.require(bool((weights[:, 1] >= 0).all()), "weights")
        self.weights = [Weight(total, int(rounds)) for total, rounds in weights]
        several = reader.part("several.")
        self.several = None if several.is_empty else globals_type.read(several, n_coef)
        reader.require(self.several is not None or self.phase not in (Phase.ONE, Phase.BACK), "several.coef")

    def _enter(self, phase: Phase, round_number: int) -> None:
        self.phase, self.ends = phase, round_number + (self._length(phase) if phase in LENGTHS else 0)

    def advance(self, likelihood: AnyLikelihood, state: ServerState) -> IndexArray | None:
        """Go on after a round; return the map of all clusters to one when that is due."""
        if self.phase in (Phase.SEVERAL, Phase.ONE):
            self._weigh(state)
        if state.round >= self.ends:
            if self.phase == Phase.SEVERAL:
                self.several = state.globals
                self._enter(Phase.PLAIN, state.round)
                return np.zeros(state.globals.n_clusters, dtype=np.int64)
            self._enter(self._next(likelihood, state), state.round)
        return None

    def _next(self, likelihood: AnyLikelihood, state: ServerState) -> Phase:
        if self.phase == Phase.BACK or (self.phase == Phase.EFFECTS and self.several is None):
            self.several = None
            return Phase.OVER
        return self._decision(likelihood, state) if self.phase == Phase.ONE else Phase(self.phase + 1)

    def _weigh(self, state: ServerState) -> None:
        number = int(self.phase == Phase.ONE)
        scalars = state.sums.scalars
        if scalars["weighed_events"] > 0.0:
            self.weights[number] = self.weights[number].plus(scalars["log_density"] / scalars["weighed_events"])

    def _decision(self, likelihood: AnyLikelihood, state: ServerState) -> Phase:
        n_events = state.sums.scalars["events"]
        n_entities = state.sums.entity_counts.sum()
        assert self.several is not None
        layout = likelihood.layout
        per_coef = n_events / (self.several.n_clusters * layout.n_linear)
        needed = least_gain_of_outcomes(n_events / n_entities)
        price = 1.0
        if not likelihood.doubts_clusters:
            needed = least_gain(n_events / n_entities, per_coef, has_curves=bool(layout.curve_groups))
            price = 0.5 * float(np.log(max(n_events, 1.0)))
        if self.gain(n_events, layout.n_linear, price) > needed:
            self.several = self.several.at_stage(Stage.MERGING)
            return Phase.BACK
        self.several = None
        return Phase.OVER

    def gain(self, n_events: float, n_coef: int, price: float) -> float:
        """What the several clusters gain, in nats per event, if each coefficient costs `price` nats.

        Coefficients of curves, which are shrunk, do not count.
        """
        several, one = (weight.mean for weight in self.weights)
        assert self.several is not None
        n_more = self.several.n_clusters - 1
        return several - one - price * n_more * n_coef / max(n_events, 1.0)
