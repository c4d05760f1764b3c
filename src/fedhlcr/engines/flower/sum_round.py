"""The server's side of a secure sum on Flower: which node is which party, and what its first message carries."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedhlcr.engines.flower.attendance import Attendance
from fedhlcr.engines.flower.compression import pack
from fedhlcr.engines.flower.peers import fingerprint_of, signer_of
from fedhlcr.engines.flower.records import QueryRequest, RoundRequest, SumMessage
from fedhlcr.federation.open_round import Invitation


@dataclass
class SumRound:
    """The nodes of a round.

    Attributes
    ----------
    nodes : their ids, by the names under which they sign
    agents : names of the agents asked, by the same names
    requests : what nodes have not been sent yet: a broadcast, or a query of a private run
    leaving : agents that have withdrawn
    """

    nodes: dict[str, int] = field(default_factory=dict)
    agents: dict[str, list[str]] = field(default_factory=dict)
    requests: dict[str, RoundRequest | QueryRequest] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()

    @classmethod
    def of(cls, call: Invitation, attendance: Attendance) -> SumRound:
        """All nodes that take part and have an agent asked."""
        made = cls(leaving=call.leaving)
        labels = attendance.distinct_labels(attendance.present)
        for node, request in round_requests(call, attendance).items():
            made.nodes[labels[node]] = node
            made.agents[labels[node]] = request.agents
            made.requests[labels[node]] = request
        return made

    @classmethod
    def of_query(cls, inquiry: bytes, attendance: Attendance) -> SumRound:
        """All nodes that take part, each with all of its agents: a query of a private run goes to everybody."""
        made = cls()
        request = QueryRequest(pack(inquiry))
        for node, party in attendance.distinct_labels(attendance.present).items():
            made.nodes[party] = node
            made.agents[party] = sorted(attendance.present[node])
            made.requests[party] = request
        return made

    def records(self, party: str, message: bytes) -> tuple[SumMessage | RoundRequest | QueryRequest, ...]:
        """What a node is sent: the message, and with the first one the broadcast or the query."""
        request = self.requests.pop(party, None)
        if request is None:
            return (SumMessage(party, message, []),)
        leaving = self.leaving.intersection(self.agents[party])
        return SumMessage(party, message, sorted(leaving)), request


def round_requests(call: Invitation, attendance: Attendance) -> dict[int, RoundRequest]:
    """The broadcast of a round for each node that takes part and has an agent asked."""
    acknowledged = dict(zip(call.agents, call.acknowledged.tolist(), strict=True))
    broadcast = pack(call.broadcast.to_bytes())
    asked = {node: [name for name in call.agents if name in names] for node, names in attendance.present.items()}
    return {
        node: RoundRequest(broadcast, names, [acknowledged[name] for name in names])
        for node, names in asked.items()
        if names
    }


def is_signed_by(fingerprint: str, data: bytes, signature: bytes) -> bool:
    """Whether the key with this fingerprint has signed the data; without a fingerprint, whether any key has, or none.

    Nodes check this too, and refuse a sum with a wrong signature. The server only keeps one node from spoiling the
    round for all others.
    """
    if not fingerprint and not signature:
        return True
    signer = signer_of(data, signature)
    return signer is not None and fingerprint in ("", fingerprint_of(signer))
