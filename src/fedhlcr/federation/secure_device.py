"""A device's side of a secure round: it draws labels under the broadcast, then answers the four messages of the sum.

A device holds one agent or many, and adds up what they report before it hides the sum under masks. Between two messages
it can be saved and restored, because a Flower node is a new process for each.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from fedhlcr._support.arrays import IndexArray
from fedhlcr.exceptions import SecureSumError
from fedhlcr.federation.fixed_sums import Integers
from fedhlcr.federation.group import AgentGroup
from fedhlcr.federation.messages import SURVEY_ROUND, Broadcast
from fedhlcr.privacy.terms import SumStage, Terms
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import under

if TYPE_CHECKING:
    from fedhlcr.privacy.party import Party
    from fedhlcr.privacy.roster import Signer

# What a device answers that cannot say how its sums differ from what the server has: a new epoch is needed.
OUT_OF_STEP = b""


class SecureDevice:
    """A device in one round.

    Attributes
    ----------
    agents : names of the agents whose sums it adds up; mods may have left some out
    is_private : whether the sum answers a query of a private run, so that it must be counted
    """

    def __init__(self, party: Party, values: Integers, agents: list[str], *, is_private: bool = False) -> None:
        self._party = party
        self._values = values
        self.agents = agents
        self.is_private = is_private

    @classmethod
    def open(
        cls,
        group: AgentGroup,
        broadcast: Broadcast,
        asked: tuple[IndexArray, IndexArray],
        terms: Terms,
        identity: tuple[str, Signer | None],
        leaving: Collection[str] = (),
    ) -> SecureDevice | None:
        """Answer a broadcast, but keep the sums for the messages that follow; None if a new epoch is needed.

        Parameters
        ----------
        asked : positions of the agents asked, and the round that the server acknowledges to each
        identity : the device's name, and what signs its keys
        leaving : agents that withdraw: they answer with sums of zero
        """
        positions, acknowledged = asked
        order = np.argsort(positions, kind="stable")
        if group.shard.out_of_step(broadcast, positions[order], acknowledged[order]).any():
            return None
        contributions = group.answer(broadcast, positions, acknowledged)
        if own := [name for name in contributions.agents if name in leaving]:
            group.shard.leave(own)
        values = group.shard.vectors(broadcast, contributions).sum(axis=0, dtype=np.uint64)
        _check_terms(terms, broadcast, len(values))
        return cls.of(terms, values, contributions.agents, identity)

    @classmethod
    def of(
        cls,
        terms: Terms,
        values: Integers,
        agents: list[str],
        identity: tuple[str, Signer | None],
        *,
        is_private: bool = False,
    ) -> SecureDevice:
        """A device that is about to answer the first message, with the sum of these agents."""
        # here, because it needs the extra `privacy`
        from fedhlcr.privacy.party import Party

        return cls(Party(identity[0], terms, identity[1]), values, agents, is_private=is_private)

    @property
    def terms(self) -> Terms:
        return self._party.terms

    @property
    def stage(self) -> SumStage:
        """Which message comes next."""
        return self._party.stage

    def handle(self, message: bytes) -> bytes:
        """Answer one of the four messages."""
        return self._party.handle(message, lambda: self._values)

    def to_record(self) -> codec.Record:
        """The state between two messages. It holds secrets: keep it in a private file until the round ends."""
        own: codec.Record = {"values": self._values, "agents": self.agents, "is_private": self.is_private}
        return own | under("party.", self._party.to_record())

    @classmethod
    def read(cls, reader: RecordReader, identity: Signer | None = None) -> SecureDevice:
        from fedhlcr.privacy.party import Party

        party = Party.read(reader.part("party."), identity)
        is_private = reader.value("is_private", bool)
        return cls(party, reader.array("values", "u8", (None,)), reader.texts("agents"), is_private=is_private)


def _check_terms(terms: Terms, broadcast: Broadcast, n_values: int) -> None:
    """Refuse terms of another round than the broadcast's: every round's sums are added up once."""
    assert broadcast.terms is not None
    # a survey that is repeated counts as another epoch
    epoch = terms.epoch if broadcast.round == SURVEY_ROUND else broadcast.terms.epoch
    expected = broadcast.run, broadcast.session, epoch, broadcast.round, n_values
    if (terms.run, terms.session, terms.epoch, terms.round, terms.n_values) != expected:
        raise SecureSumError("the terms of the sum are not those of the broadcast's round; nothing is sent.")
