"""The agents' side of secure sums in a simulation: every agent is a device, and answers all four messages honestly.

An agent that fails does so before one of the four messages, each with the same probability. If that is the last one,
its masked contribution has arrived, and counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedhlcr._support.threads import stream_results
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
        n_threads: int = 1,
    ) -> None:
        self._vectors, self._out_of_step, self._last_stages = vectors, out_of_step, last_stages
        self._parties: dict[str, Party] = {}
        self._stage, self._n_threads = 0, n_threads

    def exchange(self, terms: Terms, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """The answers of all agents that answer this message."""
        stage, self._stage = self._stage, self._stage + 1
        asked = [name for name in messages if stage < self._last_stages.get(name, N_STAGES)]
        replies = dict.fromkeys(set(asked) & self._out_of_step, OUT_OF_STEP) if stage == 0 else {}
        names = [name for name in asked if name in self._vectors]
        if stage == 0:
            # here, because it needs the extra `privacy`
            from fedhlcr.privacy.party import Party

            self._parties = {name: Party(name, terms) for name in names}

        def answer(position: int) -> tuple[str, bytes | None]:
            name = names[position]
            try:
                return name, self._parties[name].handle(messages[name], lambda: self._vectors[name])
            except SecureSumError:
                return name, None

        for name, reply in stream_results(answer, len(names), self._n_threads):
            if reply is not None:
                replies[name] = reply
        return replies
