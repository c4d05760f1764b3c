"""What all likelihoods share that give each event a weight: weighted Gram matrices, built from the agents' events.

Given the weights all is as with common noise (`model.mixed`). So agents keep their events, and the weight of each event
as agent state. At the end of a round each weight is drawn given its entity's coefficients, and the sums that leave
the agent have the new weights: everything the server draws is conditional on the state that the agents keep.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr.data.events import EventStore
from fedhlcr.kernels import weights
from fedhlcr.kernels.effective import EffectsLaw
from fedhlcr.kernels.effects import EffectState, EffectSums
from fedhlcr.model.arguments import AgentsPart, ProfileData
from fedhlcr.model.mixed import Mixed
from fedhlcr.model.mixed_globals import MixedGlobals

EVENT_WEIGHTS = "event_weights"


class EventWeighted(Mixed):
    """Clusters of mixed models whose Gram matrices are weighted by the agents."""

    noise_of_entities = False
    needs_events: ClassVar[bool] = True

    def has_plain_entities(self, draws: MixedGlobals) -> bool:
        """Events always have weights."""
        del draws
        return False

    def kernel_law(self, current: MixedGlobals, round_number: int) -> EffectsLaw:
        # ν may belong to events here, and all entities have the same noise
        return super().kernel_law(current, round_number)._replace(noise_shape=float("inf"))

    def variance_quantiles(self, current: MixedGlobals, n: int) -> FloatArray:
        del n
        return np.array([current.noise_scale**2])

    def _weighted(self, part: AgentsPart, targets: FloatArray, event_weights: FloatArray) -> AgentsPart:
        """The part with weighted Gram matrices; those of agents that take no part are 0."""
        events = part.events
        chosen = part.chosen
        bounds = part.entity_blocks
        assert events is not None
        # those of agents that take no part are not used, but must not be read as numbers
        everyone = len(chosen) == len(part.entities.grams)
        grams = (np.empty_like if everyone else np.zeros_like)(part.entities.grams)

        def run(block: int) -> None:
            arrays = events.X, targets, events.event_start, event_weights
            weights.weighted_grams(*arrays, chosen, *bounds[block], grams)

        part.run(run)
        return part._replace(entities=part.entities._replace(grams=grams))

    @staticmethod
    def _weighted_entities(
        grams: FloatArray, events: EventStore, targets: FloatArray, event_weights: FloatArray
    ) -> FloatArray:
        """Weighted Gram matrices of single entities; `grams` are those without weights."""
        weighted = np.empty_like(grams)
        everyone = np.arange(len(grams))
        arrays = events.X, targets, events.event_start, event_weights
        weights.weighted_grams(*arrays, everyone, 0, len(everyone), weighted)
        return weighted

    @staticmethod
    def _weighted_by_draw(profiles: ProfileData, targets: FloatArray) -> FloatArray:
        """(profiles, draws, packed) weighted matrices; 0 for a new entity. `targets` are (events, draws)."""
        events = profiles.events
        own_weights = profiles.agent_state[EVENT_WEIGHTS]
        assert events is not None
        out = np.zeros((len(profiles.grams), own_weights.shape[1], profiles.grams.shape[1]))
        weights.weighted_grams_by_draw(events.X, targets, events.event_start, own_weights, out)
        return out

    def _coef_drawn(
        self,
        weighted: AgentsPart,
        current: MixedGlobals,
        scoring: FloatArray,
        labels: LabelArray,
        rows: IndexArray,
        sums: EffectSums,
    ) -> EffectState:
        """Draw effects given the old weights; the state holds the coefficients of each entity."""
        old = weighted.state
        law = self.kernel_law(current, weighted.round)
        coef = np.zeros((len(labels), self.layout.n_coef))
        state = EffectState(self.variance(old, current), old["agent_effects"].copy(), coef)
        self._draw_effects(weighted, scoring, labels, law, state, rows, sums)
        return state

    @staticmethod
    def _by_agent(part: AgentsPart, values: FloatArray) -> FloatArray:
        """(agents asked,) sums over their events."""
        assert part.events is not None
        owner = np.repeat(part.owner, np.diff(part.events.event_start))
        return np.asarray(np.bincount(owner, weights=values, minlength=part.n_agents)[part.agents], dtype=np.float64)
