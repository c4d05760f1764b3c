"""The agents' side of secure sums in a simulation: every agent is a device, and answers all four messages honestly.

An agent that fails does so before one of the four messages, each with the same probability. If that is the last one,
its masked contribution has arrived, and counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from fedhlcr.exceptions import SecureSumError
from fedhlcr.federation.fixed_sums import Integers
from fedhlcr.federation.secure_device import OUT_OF_STEP
from fedhlcr.privacy.terms import Terms

if TYPE_CHECKING:
    from fedhlcr.privacy.party import Party

N_STAGES = 4


class SimulatedParties:
    """The devices of one round.

    Parameters
    ----------
    vectors : by agent, what it adds to the sum; only agents that answer are listed
    out_of_step : agents that ask for a new epoch
    last_stages : by agent, the number of messages that it answers before it fails; agents not listed answer all
    """

    def __init__(
        self,
        vectors: Mapping[str, Integers],
        out_of_step: frozenset[str],
        last_stages: Mapping[str, int],
    ) -> None:
        self.vectors = vectors
        self.out_of_step = out_of_step
        self.last_stages = last_stages
        self._parties: dict[str, Party] = {}
        self._stage = 0

    def exchange(self, terms: Terms, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """The answers of all agents that answer this message."""
        stage = self._stage
        self._stage = self._stage + 1
        asked = [name for name in messages if stage < self.last_stages.get(name, N_STAGES)]
        replies = dict.fromkeys(set(asked) & self.out_of_step, OUT_OF_STEP) if stage == 0 else {}
        names = [name for name in asked if name in self.vectors]
        if stage == 0:
            # here, because it needs the extra `privacy`
            from fedhlcr.privacy.party import Party

            self._parties = {name: Party(name, terms) for name in names}

        # one after the other: key agreements hold Python's lock, so threads would not help
        for name in names:
            with contextlib.suppress(SecureSumError):
                replies[name] = self._parties[name].handle(messages[name], partial(self.vectors.__getitem__, name))
        return replies
