"""The engine at the server: it finds out which node has which agents, and sends them messages through a Flower Grid.

Which nodes take part is decided in `attendance`. Every wait has a time limit.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedhlcr._support.version import __version__
from fedhlcr._support.wording import NODE
from fedhlcr.data.ids import natural_key
from fedhlcr.engines.flower.attendance import Attendance
from fedhlcr.engines.flower.records import (
    GONE,
    Answers,
    Envelope,
    Errand,
    Keepsake,
    Letter,
    Presence,
    Score,
    find_refusal,
    packed,
)
from fedhlcr.engines.flower.refusal import UNKNOWN_AGENT
from fedhlcr.exceptions import ArgumentError, CodecError, NotEnoughNodesError, RecordError, Refusal
from fedhlcr.federation.messages import Contribution
from fedhlcr.federation.server import Invitation, Reply
from fedhlcr.posterior import PublicModel
from fedhlcr.storage import codec
from fedhlcr.storage.reader import checkpoint_reader

logger = logging.getLogger(__name__)

# Seconds between checks for replies: short at first, because a simulated round takes less than a second; then longer.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
# Seconds between checks of which nodes are connected, and between log lines, while replies are awaited.
LOOK_AROUND, LOG_AGAIN = 2.0, 30.0
# Seconds after which a node that refused is asked again: its table or its release may have been corrected.
ASK_AGAIN = 60.0
# A letter expires after this many lengths of a round. Until then a late reply still shows that the node is alive.
LATE_ROUNDS = 2


class Sent(NamedTuple):
    """A message that was sent and not answered yet: its purpose, its node, the agents asked, and when it expires."""

    errand: Errand
    node: int
    agents: frozenset[str]
    expires: float


@dataclass(frozen=True)
class Waiting:
    """How long to wait, in seconds, and for how many nodes."""

    min_nodes: int = 2
    for_nodes: float = 600.0
    for_replies: float = 300.0


@dataclass
class FlowerEngine:
    """Carries messages between a server and the agents of SuperNodes.

    Attributes
    ----------
    features : columns of the federation, in order; `gather` chooses them if none are given
    nodes : which nodes take part
    """

    grid: Grid
    experiment: str
    waiting: Waiting = Waiting()
    features: tuple[str, ...] = ()
    nodes: Attendance = field(default_factory=Attendance, init=False)

    def __post_init__(self) -> None:
        self._sent: dict[str, Sent] = {}
        self._awaited: set[str] = set()
        self._arrived: list[Reply] = []
        self._scores: dict[int, Score] = {}

    @property
    def present(self) -> dict[int, frozenset[str]]:
        """The agents of each node that takes part."""
        return self.nodes.present

    def gather(self) -> None:
        """Wait before the first round until enough nodes agree on the columns and all connected nodes have answered."""
        pause = _Pauses(self.waiting.for_nodes)
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
        ready, are = NODE.count(len(voters)), "is" if len(voters) == 1 else "are"
        return NotEnoughNodesError(
            f"{ready} {are} ready after {self.waiting.for_nodes:g} seconds, but at least "
            f"{self.waiting.min_nodes} are needed (`min-nodes`); {len(online)} are connected, {len(silent)} of them "
            "have not answered. Start more SuperNodes, or wait longer (`wait-for-nodes`). " + "; ".join(reasons)
        )

    def agents(self) -> list[str]:
        """Names of all agents of the nodes that take part. If there are none, wait for some."""
        pause = _Pauses(self.waiting.for_nodes)
        while True:
            # if no node takes part, a slow node keeps nobody waiting
            online = self._look_around(spare_the_slow=bool(self.present))
            self._collect()
            if self.present:
                return sorted((name for names in self.present.values() for name in names), key=natural_key)
            if pause.over:
                raise NotEnoughNodesError(
                    f"no node was ready for {self.waiting.for_nodes:g} seconds (`wait-for-nodes`); {len(online)} are "
                    "connected. Check the nodes, then run again with resume=true: the run continues from its last "
                    "round. " + "; ".join(self.nodes.reasons())
                )
            pause.rest(f"waiting for nodes: none is ready, {len(online)} connected")

    def deliver(self, call: Invitation) -> Iterator[Reply]:
        """Send the broadcast to each node with an agent asked, and yield contributions as they arrive."""
        acknowledged = dict(zip(call.agents, call.acknowledged.tolist(), strict=True))
        letter, group = call.broadcast.to_bytes(), f"{call.broadcast.round}"
        sent = set()
        for node, names in list(self.present.items()):
            asked = [name for name in call.agents if name in names]
            if asked:
                content = packed(Letter(letter, asked, [acknowledged[name] for name in asked]), self._envelope())
                sent.add(self._send(Errand.LETTER, node, content, asked, LATE_ROUNDS * self.waiting.for_replies, group))
        yield from self._await(sent)

    def n_copies(self, call: Invitation) -> int:
        """One copy of the broadcast for each node with an agent asked."""
        asked = set(call.agents)
        return sum(not names.isdisjoint(asked) for names in self.present.values())

    def keep_model(self, model: PublicModel) -> dict[str, Score]:
        """Send the model to every node. Returns the nodes' scores on their test events, by name or number."""
        self._look_around()
        self._collect()
        content = packed(Keepsake(model.to_bytes()), self._envelope())
        sent = {
            self._send(Errand.KEEPSAKE, node, content, (), self.waiting.for_replies, "model")
            for node in list(self.present)
        }
        for _ in self._await(sent):
            pass
        named = Counter(self.nodes.labels[node] for node in self._scores)
        labels = {node: label if named[label := self.nodes.labels[node]] == 1 else str(node) for node in self._scores}
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

    def _await(self, sent: set[str]) -> Iterator[Reply]:
        """Yield replies until all of these messages are answered, have failed, or have timed out.

        Late replies to earlier messages are yielded too.
        """
        pause = _Pauses(self.waiting.for_replies)
        looked = time.monotonic()
        self._awaited = sent
        while sent & self._sent.keys():
            if time.monotonic() - looked > LOOK_AROUND:
                online, looked = self._look_around(), time.monotonic()
                for message in [m for m in sent & self._sent.keys() if self._sent[m].node not in online]:
                    # the node is gone; the SuperLink would report that only after a minute
                    del self._sent[message]
            self._collect()
            left = sent & self._sent.keys()
            if self._arrived:
                pause.reset()
            yield from self._arrived
            self._arrived.clear()
            if left and pause.over:
                for node in {self._sent[message].node for message in left}:
                    self.nodes.dismiss_slow(node, self.waiting.for_replies)
                break
            if left:
                pause.rest(f"waiting for {len(left)} of {len(sent)} nodes")
        # replies that arrive from now on are late
        self._awaited = set()

    def _look_around(self, *, spare_the_slow: bool = True) -> set[int]:
        """The connected nodes. Those that do not take part get a roll call, if they may be asked again."""
        names = {node.node_id: node.name or str(node.node_id) for node in self.grid.get_nodes()}
        self.nodes.labels |= names
        online = set(names)
        for node in self.present.keys() - online:
            self.nodes.dismiss(node, GONE, 0.0)
        asked = self._nodes_asked(Errand.ROLL_CALL)
        for node in sorted(online - self.present.keys() - asked):
            if self.nodes.may_ask(node) or (self.nodes.is_slow(node) and not spare_the_slow):
                content = self._envelope().to_content()
                self._send(Errand.ROLL_CALL, node, content, (), self.waiting.for_replies, "roll call")
        return online

    def _nodes_asked(self, errand: Errand) -> set[int]:
        return {sent.node for sent in self._sent.values() if sent.errand is errand}

    def _envelope(self) -> Envelope:
        return Envelope(__version__, self.experiment, list(self.features))

    def _send(
        self, errand: Errand, node: int, content: RecordDict, agents: Collection[str], ttl: float, group: str
    ) -> str:
        """Send one message. Returns its id, or an empty text if Flower did not accept it."""
        ttl = max(ttl, 1.0)
        message = Message(content, node, str(errand), ttl=ttl, group_id=group)
        ids = [i for i in self.grid.push_messages([message]) if i]
        if not ids:
            self.nodes.dismiss(node, GONE, 0.0)
            return ""
        self._sent[ids[0]] = Sent(errand, node, frozenset(agents), time.monotonic() + ttl)
        return ids[0]

    def _collect(self) -> None:
        """Receive all replies that have arrived. Contributions are put into `_arrived`."""
        now = time.monotonic()
        for message_id in [i for i, sent in self._sent.items() if sent.expires < now]:
            del self._sent[message_id]
        if not self._sent:
            return
        for message in self.grid.pull_messages(list(self._sent)):
            message_id = message.metadata.reply_to_message_id
            sent = self._sent.pop(message_id, None)
            if sent is not None:
                self._receive(sent, message, late=sent.errand is Errand.LETTER and message_id not in self._awaited)

    def _receive(self, sent: Sent, message: Message, *, late: bool) -> None:
        refusal = find_refusal(message)
        if refusal is not None:
            # a refusal of an old letter says nothing about the node now
            if not late:
                at_once = refusal is GONE or refusal.kind == UNKNOWN_AGENT
                self.nodes.dismiss(sent.node, refusal, 0.0 if at_once else ASK_AGAIN)
            return
        problem = None
        try:
            match sent.errand:
                case Errand.ROLL_CALL:
                    problem = self.nodes.admit(sent.node, Presence.from_content(message.content))
                case Errand.KEEPSAKE:
                    self._scores[sent.node] = Score.from_content(message.content)
                case Errand.LETTER:
                    answers = Answers.from_content(message.content)
                    if late:
                        problem = self.nodes.admit_again(sent.node)
                    else:
                        self.nodes.replied_in_time(sent.node)
                    opened = map(_open, answers.contributions)
                    self._arrived += [one for one in opened if _is_from(one, sent.agents)]
        except RecordError as error:
            problem = Refusal("RecordError", str(error))
        if problem is not None:
            self.nodes.dismiss(sent.node, problem, ASK_AGAIN)


def _open(data: bytes) -> Contribution | bytes:
    """The contribution, or the bytes as they are if they cannot be read: the server will log why it refuses them."""
    try:
        return Contribution.from_bytes(data)
    except CodecError:
        return data


def _is_from(reply: Contribution | bytes, agents: Collection[str]) -> bool:
    """Whether the server should see a reply: a node may only answer for the agents it was asked about."""
    return isinstance(reply, bytes) or (isinstance(reply.agent, str) and reply.agent in agents)


class _Pauses:
    """Pauses between checks, up to a time limit. Now and then a log line says what is awaited."""

    def __init__(self, limit: float) -> None:
        self._start = self._logged = time.monotonic()
        self._limit = limit
        self._length = FIRST_PAUSE

    @property
    def over(self) -> bool:
        return time.monotonic() - self._start > self._limit

    def reset(self) -> None:
        """Make the next pause short: a reply has arrived, and more may follow soon."""
        self._length = FIRST_PAUSE

    def rest(self, awaited: str) -> None:
        now = time.monotonic()
        if now - self._logged > LOG_AGAIN:
            self._logged = now
            logger.info("%s; %.0f of %g seconds.", awaited, now - self._start, self._limit)
        time.sleep(self._length)
        self._length = min(1.5 * self._length, LONGEST_PAUSE)
