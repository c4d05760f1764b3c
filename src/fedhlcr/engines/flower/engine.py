"""The engine at the server: it finds out which node has which agents, and sends them messages through a Flower Grid.

Which nodes take part is decided in `attendance`. Every wait has a time limit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedhlcr._support.version import __version__
from fedhlcr._support.wording import NODE
from fedhlcr.data.ids import natural_key
from fedhlcr.engines.flower.attendance import TIMED_OUT, Attendance
from fedhlcr.engines.flower.compression import pack, unpack
from fedhlcr.engines.flower.names import AgentNames, NodeName
from fedhlcr.engines.flower.pauses import Pauses, WaitTimes
from fedhlcr.engines.flower.records import (
    GONE,
    Answers,
    ModelRequest,
    NodeScore,
    Presence,
    RequestHeader,
    RequestType,
    SumReply,
    find_refusal,
    packed,
)
from fedhlcr.engines.flower.refusal import ROUND_LOST, UNKNOWN_AGENT
from fedhlcr.engines.flower.sizes import (
    SMALL_REPLY,
    largest_answers,
    largest_contribution,
    largest_presence,
    largest_query_reply,
    largest_sum_reply,
)
from fedhlcr.engines.flower.sum_round import SumRound, is_signed_by, round_requests
from fedhlcr.engines.flower.transport import UNFINISHED, transport_for
from fedhlcr.exceptions import ArgumentError, CodecError, NotEnoughNodesError, RecordError, Refusal
from fedhlcr.federation.messages import Contribution
from fedhlcr.federation.open_round import Invitation, Reply
from fedhlcr.posterior import PublicModel
from fedhlcr.privacy.terms import Terms
from fedhlcr.storage import codec
from fedhlcr.storage.reader import checkpoint_reader

logger = logging.getLogger(__name__)

# Seconds between checks of which nodes are connected, while replies are awaited.
LOOK_AROUND = 2.0
# Seconds after which a node that refused is asked again: its table or its release may have been corrected.
ASK_AGAIN = 60.0
# A request expires after this many lengths of a round. Until then a late reply still shows that the node is alive.
LATE_ROUNDS = 2


class NodeRequest(NamedTuple):
    """What a node is asked, and what may come back.

    Attributes
    ----------
    kind, group, agents : its purpose, the round or another name of it, and the agents asked
    limit, contribution : bytes of the largest reply, and of the largest contribution in it
    """

    kind: RequestType
    group: str
    agents: frozenset[str] = frozenset()
    limit: int = 0
    contribution: int = 0


class Sent(NamedTuple):
    """A message that was sent and not answered yet: the question, its node, and when the reply is given up."""

    request: NodeRequest
    node: int
    expires: float


@dataclass
class FlowerEngine:
    """Carries messages between a server and the agents of SuperNodes.

    Attributes
    ----------
    features : columns of the federation, in order; `gather` chooses them if none are given
    names : which node may hold which agents
    nodes : which nodes take part
    """

    grid: Grid
    experiment: str
    waiting: WaitTimes = WaitTimes()
    features: tuple[str, ...] = ()
    names: AgentNames = AgentNames()
    nodes: Attendance = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = Attendance(self.names)
        self._post = transport_for(self.grid)
        self._sent: dict[int, Sent] = {}
        self._awaited: set[int] = set()
        self._arrived: list[Reply] = []
        self._bytes_down = self._bytes_up = 0
        self._scores: dict[int, NodeScore] = {}
        self._round: SumRound | None = None
        self._sums: dict[int, bytes] = {}

    @property
    def _is_secure(self) -> bool:
        return self.waiting.in_rounds > 1

    @property
    def present(self) -> dict[int, frozenset[str]]:
        """The agents of each node that takes part."""
        return self.nodes.present

    def gather(self) -> None:
        """Wait before the first round until enough nodes agree on the columns and all connected nodes have answered."""
        pause = Pauses(self.waiting.for_nodes, self._post.rest)
        while True:
            online = self._look_around()
            self._collect()
            silent = self.nodes.unheard(online)
            columns, voters = self.nodes.vote(self.features)
            if len(voters) >= self.waiting.min_nodes and (not silent or pause.over):
                break
            if pause.over:
                raise self._too_few(online, silent, voters)
            ready = f"{len(voters)} of at least {self.waiting.min_nodes} are ready"
            pause.rest(f"waiting for nodes: {ready}, {len(online)} connected")
        if silent:
            logger.warning("the run begins without %s that did not answer.", NODE.count(len(silent)))
        # nodes with other columns get a new roll call with these, and log at the node why they do not take part
        self.features = columns
        self.nodes.keep_only(voters)
        n_agents = sum(map(len, self.present.values()))
        logger.info("%d nodes with %d agents take part; columns: %s.", len(voters), n_agents, ", ".join(columns))

    def _too_few(self, online: set[int], silent: set[int], voters: list[int]) -> NotEnoughNodesError:
        reasons = self.nodes.reasons()
        if len(voters) < len(self.present):
            reasons.append(f"{NODE.count(len(self.present))} would be ready, but they use different columns")
        needed = "`min-nodes`, `min-cohort`" if self._is_secure else "`min-nodes`"
        ready = NODE.count(len(voters))
        are = "is" if len(voters) == 1 else "are"
        return NotEnoughNodesError(
            f"{ready} {are} ready after {self.waiting.for_nodes:g} seconds, but at least "
            f"{self.waiting.min_nodes} are needed ({needed}); {len(online)} are connected, {len(silent)} of them "
            "have not answered. Start more SuperNodes, or wait longer (`wait-for-nodes`). " + "; ".join(reasons)
        )

    def agents(self) -> list[str]:
        """Names of all agents of the nodes that take part. If there are too few nodes, wait for some."""
        pause = Pauses(self.waiting.for_nodes, self._post.rest)
        while True:
            # if too few nodes take part, a slow node keeps nobody waiting
            online = self._look_around(spare_the_slow=len(self.present) >= self.waiting.in_rounds)
            self._collect()
            if len(self.present) >= self.waiting.in_rounds:
                return sorted((name for names in self.present.values() for name in names), key=natural_key)
            if pause.over:
                fewest = f"fewer than {self.waiting.in_rounds} nodes were" if self._is_secure else "no node was"
                raise NotEnoughNodesError(
                    f"{fewest} ready for {self.waiting.for_nodes:g} seconds (`wait-for-nodes`); {len(online)} are "
                    f"connected. Check the nodes, then {self.waiting.then}. " + "; ".join(self.nodes.reasons())
                )
            pause.rest(f"waiting for nodes: {len(self.present) or 'none'} ready, {len(online)} connected")

    def deliver(self, call: Invitation) -> Iterator[Reply]:
        """Send the broadcast to each node with an agent asked, and yield contributions as they arrive."""
        group = f"{call.broadcast.round}"
        self._bytes_down = self._bytes_up = 0
        largest = largest_contribution(call.broadcast, call.agents)
        sent = set()
        for node, record in round_requests(call, self.nodes).items():
            limit = largest_answers(largest, len(record.agents))
            request = NodeRequest(RequestType.ROUND, group, frozenset(record.agents), limit, largest)
            expires = LATE_ROUNDS * self.waiting.for_replies
            sent.add(self._send(node, packed(record, self._header()), request, expires))
            self._bytes_down += len(record.broadcast)
        yield from self._await(sent)

    def parties(self, call: Invitation) -> dict[str, list[str]]:
        """The nodes with an agent asked, by name, and these agents: a node adds up their sums before it hides them."""
        self._round = SumRound.of(call, self.nodes)
        return self._round.agents

    def exchange(self, terms: Terms, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Send one message of a secure sum to each node; the replies of those that answer in time."""
        assert self._round is not None
        request = NodeRequest(RequestType.SUM, f"{terms.round}", limit=largest_sum_reply(terms, len(self._round.nodes)))
        contents = {party: packed(*self._round.records(party, messages[party]), self._header()) for party in messages}
        return self._collect_sums(contents, request)

    def begin_query(self, inquiry: bytes) -> dict[str, list[str]]:
        """Begin a query of a private run: the nodes that take part, by name, and their agents."""
        self._round = SumRound.of_query(inquiry, self.nodes)
        return self._round.agents

    def ask_all(self, place: int, n_values: int) -> dict[str, bytes]:
        """Send the query to all nodes without masks; the replies of those that answer in time."""
        assert self._round is not None
        request = NodeRequest(RequestType.QUERY, f"{place}", limit=largest_query_reply(n_values))
        contents = {party: packed(record, self._header()) for party, record in self._round.requests.items()}
        return self._collect_sums(contents, request)

    def _collect_sums(self, contents: Mapping[str, RecordDict], request: NodeRequest) -> dict[str, bytes]:
        """Send these messages, by party, and return the replies that came in time."""
        assert self._round is not None
        names = {self._round.nodes[party]: party for party in contents}
        self._sums.clear()
        messages = {node: contents[party] for node, party in names.items()}
        self._send_all(messages, request, LATE_ROUNDS * self.waiting.for_replies)
        return {names[node]: reply for node, reply in self._sums.items()}

    def verify(self, party: str, data: bytes, signature: bytes) -> bool:
        """Whether a node's own key has signed this. A node without a key signs nothing."""
        assert self._round is not None
        return is_signed_by(self.nodes.identities[self._round.nodes[party]].key, data, signature)

    def bytes_moved(self) -> tuple[int, int]:
        """Bytes of the last round's broadcasts and contributions, as they were sent."""
        return self._bytes_down, self._bytes_up

    def n_copies(self, call: Invitation) -> int:
        """One copy of the broadcast for each node with an agent asked."""
        asked = set(call.agents)
        return sum(not names.isdisjoint(asked) for names in self.present.values())

    def keep_model(self, model: PublicModel) -> dict[str, NodeScore]:
        """Send the model to every node. Returns the nodes' scores on their test events, by name or number."""
        self._look_around()
        self._collect()
        content = packed(ModelRequest(pack(model.to_bytes())), self._header())
        request = NodeRequest(RequestType.MODEL, "model", limit=SMALL_REPLY)
        self._send_all(dict.fromkeys(self.present, content), request, self.waiting.for_replies)
        labels = self.nodes.distinct_labels(self._scores)
        return {labels[node]: self._scores[node] for node in sorted(self._scores, key=labels.__getitem__)}

    def to_record(self, forgotten: Collection[str] = ()) -> codec.Record:  # noqa: ARG002
        """Nodes keep their own state; a checkpoint only needs the columns and their order."""
        return {"features": list(self.features)}

    def restore(self, record: codec.Record) -> None:
        """Restore the columns, which were agreed on when the run began. Call it before `gather`."""
        features = tuple(checkpoint_reader(record).texts("features"))
        if self.features and self.features != features:
            raise ArgumentError(
                f"the checkpoint's run uses the columns {', '.join(features)}, in this order; resume with the same "
                "`features`, or leave it empty."
            )
        self.features = features

    def _await(self, sent: set[int]) -> Iterator[Reply]:
        """Yield replies until all of these messages are answered, have failed, or have timed out.

        Late replies to earlier messages are yielded too.
        """
        pause = Pauses(self.waiting.for_replies, self._post.rest)
        looked = time.monotonic()
        self._awaited = sent
        while sent & self._sent.keys():
            if time.monotonic() - looked > LOOK_AROUND:
                online = self._look_around()
                looked = time.monotonic()
                for ticket in [t for t in sent & self._sent.keys() if self._sent[t].node not in online]:
                    # the node is gone; the SuperLink would report that only after a minute
                    self._forget(ticket)
            # asked before the last replies are collected: whatever arrived while the server was at work counts
            over = pause.over
            self._collect()
            left = sent & self._sent.keys()
            if self._arrived:
                pause.reset()
            yield from self._arrived
            self._arrived.clear()
            if left and over:
                for ticket in left:
                    reason = UNFINISHED if self._post.has_begun(ticket) else TIMED_OUT
                    self.nodes.dismiss_slow(self._sent[ticket].node, self.waiting.for_replies, reason)
                break
            if left:
                pause.rest(f"waiting for {len(left)} of {len(sent)} nodes")
        # replies that arrive from now on are late
        self._awaited = set()

    def _look_around(self, *, spare_the_slow: bool = True) -> set[int]:
        """The connected nodes. Those that do not take part get a roll call, if they may be asked again."""
        online = set()
        for info in self._post.nodes():
            online.add(info.node_id)
            self.nodes.labels[info.node_id] = info.name or str(info.node_id)
            self.nodes.identities[info.node_id] = NodeName.of(info)
        for node in self.present.keys() - online:
            self.nodes.dismiss(node, GONE, 0.0)
        asked = {sent.node for sent in self._sent.values() if sent.request.kind is RequestType.ROLL_CALL}
        for node in sorted(online - self.present.keys() - asked):
            if self.nodes.may_ask(node) or (self.nodes.is_slow(node) and not spare_the_slow):
                request = NodeRequest(RequestType.ROLL_CALL, "roll call", limit=largest_presence(self.names.max_agents))
                self._send(node, self._header().to_content(), request, self.waiting.for_replies)
        return online

    def _header(self) -> RequestHeader:
        return RequestHeader(__version__, self.experiment, list(self.features))

    def _send(self, node: int, content: RecordDict, request: NodeRequest, seconds: float) -> int:
        """Send one message, whose reply is awaited so long. Returns its ticket."""
        seconds = max(seconds, 1.0)
        message = Message(content, node, str(request.kind), ttl=seconds, group_id=request.group)
        ticket = self._post.send(message, request.limit, seconds)
        self._sent[ticket] = Sent(request, node, time.monotonic() + seconds)
        return ticket

    def _send_all(self, contents: Mapping[int, RecordDict], request: NodeRequest, seconds: float) -> None:
        """Send each node its message, and wait until all have replied or the time is up."""
        sent = {self._send(node, content, request, seconds) for node, content in contents.items()}
        for _ in self._await(sent):
            pass

    def _forget(self, ticket: int) -> None:
        """Stop waiting for a reply."""
        del self._sent[ticket]
        self._post.drop(ticket)

    def _collect(self) -> None:
        """Receive all replies that have arrived. Contributions are put into `_arrived`."""
        for ticket, reply in self._post.collect():
            sent = self._sent.pop(ticket, None)
            if sent is not None:
                kind = sent.request.kind
                late = kind in (RequestType.ROUND, RequestType.SUM, RequestType.QUERY) and ticket not in self._awaited
                self._receive(sent, reply, late=late)
        # only then: a reply that arrived while the server was at work, or while other nodes were asked, counts
        now = time.monotonic()
        for ticket in [ticket for ticket, sent in self._sent.items() if sent.expires < now]:
            self._forget(ticket)

    def _receive(self, sent: Sent, reply: Message | Refusal, *, late: bool) -> None:
        if refusal := reply if isinstance(reply, Refusal) else find_refusal(reply):
            # a refusal of an old request says nothing about the node now
            if not late:
                at_once = refusal is GONE or refusal.kind in (UNKNOWN_AGENT, ROUND_LOST)
                self.nodes.dismiss(sent.node, refusal, 0.0 if at_once else ASK_AGAIN)
        elif isinstance(reply, Message):
            self._receive_content(sent, reply, late=late)

    def _receive_content(self, sent: Sent, reply: Message, *, late: bool) -> None:
        problem = None
        try:
            match sent.request.kind:
                case RequestType.ROLL_CALL:
                    problem = self.nodes.admit(sent.node, Presence.from_content(reply.content))
                case RequestType.MODEL:
                    self._scores[sent.node] = NodeScore.from_content(reply.content)
                case RequestType.SUM | RequestType.QUERY:
                    reply_bytes = SumReply.from_content(reply.content).message
                    if late:
                        problem = self.nodes.admit_again(sent.node)
                    else:
                        self.nodes.replied_in_time(sent.node)
                        self._sums[sent.node] = reply_bytes
                case RequestType.ROUND:
                    answers = Answers.from_content(reply.content)
                    self._bytes_up += sum(map(len, answers.contributions))
                    # more than one for each agent asked would only cost time and memory
                    some = answers.contributions[: len(sent.request.agents)]
                    opened = [_open(data, sent.request.contribution) for data in some]
                    if late:
                        problem = self.nodes.admit_again(sent.node)
                    else:
                        self.nodes.replied_in_time(sent.node)
                    # a node may only answer for the agents it was asked about; the server logs unreadable bytes
                    self._arrived += [
                        one
                        for one in opened
                        if isinstance(one, bytes) or (isinstance(one.agent, str) and one.agent in sent.request.agents)
                    ]
        except RecordError as error:
            problem = Refusal("RecordError", str(error))
        if problem is not None:
            self.nodes.dismiss(sent.node, problem, ASK_AGAIN)


def _open(packed_data: bytes, limit: int) -> Contribution | bytes:
    """The contribution, or the bytes as they are if they cannot be read: the server will log why it refuses them."""
    try:
        data = unpack(packed_data, limit)
    except RecordError:
        return packed_data
    try:
        return Contribution.from_bytes(data)
    except CodecError:
        return data
