"""The engine at the server: it finds out which node holds which agents, and carries letters through a Flower Grid.

A node takes part once it has answered a roll call. One that fails, by an error or by silence, is not asked again until
it has answered another: a node that hangs delays one round, not all. Nobody is waited for without a limit.
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

# Seconds between looks for replies: short at first, for a simulated round takes less than one; then longer.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
# Seconds between looks at who is there while replies are awaited, and between lines that say who is waited for.
LOOK_AROUND, TELL_AGAIN = 2.0, 30.0
# Seconds after which a node that refused is asked again: its table or its release may have been mended.
ASK_AGAIN = 60.0
# The most that one that keeps rounds waiting is left alone for, in lengths of a round.
LONGEST_LEAVE = 16
SILENCE = Refusal("Silence", "it is asked again when it answers; if that happens often, raise `round-timeout`")
# Letters can be answered for so many times the length of a round: late replies are told from lost ones.
LATE_ROUNDS = 2


class Sent(NamedTuple):
    """A message on its way: what for, to which node, about which agents, and when it expires."""

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
    features : columns of the federation, in order; agreed on by `gather` if none are given
    present : the agents of each node that takes part
    """

    grid: Grid
    experiment: str
    waiting: Waiting = Waiting()
    features: tuple[str, ...] = ()
    present: dict[int, frozenset[str]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._sent: dict[str, Sent] = {}
        self._awaited: set[str] = set()
        self._arrived: list[Reply] = []
        self._refused: dict[int, tuple[str, float]] = {}
        self._scores: dict[int, Score] = {}
        self._said: dict[int, Presence] = {}
        self._silences: Counter[int] = Counter()
        self._labels: dict[int, str] = {}

    def gather(self) -> None:
        """Wait before the first round until enough nodes agree on the columns and all who are there have spoken."""
        pause = _Pauses(self.waiting.for_nodes)
        while True:
            online = self._look_around()
            self._collect()
            silent = online - self._said.keys() - self._refused.keys()
            columns, voters = self._vote()
            if len(voters) >= self.waiting.min_nodes and (not silent or pause.over):
                break
            if pause.over:
                raise self._too_few(online, silent, voters)
            ready = f"{len(voters)} of at least {self.waiting.min_nodes} are ready"
            pause.rest(f"waiting for nodes: {ready}, {len(online)} connected")
        if silent:
            logger.warning("%s connected, but without an answer; the run begins without.", NODE.count(len(silent)))
        # the others get a roll call with these columns, and refuse with a word to their own people
        self.features, self.present = columns, {node: self.present[node] for node in voters}
        n_agents = sum(map(len, self.present.values()))
        logger.info("%d nodes with %d agents take part; columns: %s.", len(voters), n_agents, ", ".join(columns))

    def _vote(self) -> tuple[tuple[str, ...], list[int]]:
        """The columns that most nodes have, in the order most of them have, and the nodes that have them."""
        told = {node: tuple(self._said[node].features) for node in sorted(self.present)}
        sets = Counter(frozenset(columns) for columns in told.values())
        if self.features:
            most = frozenset(self.features)
        elif sets:
            most = max(sets, key=lambda columns: (sets[columns], sorted(columns)))
        else:
            return (), []
        voters = [node for node, columns in told.items() if frozenset(columns) == most]
        orders = Counter(told[node] for node in voters)
        return self.features or max(orders, key=lambda order: (orders[order], order)), voters

    def _reasons(self) -> list[str]:
        """Why nodes do not take part."""
        return [f"node {self._labels[node]}: {reason}" for node, (reason, _) in sorted(self._refused.items())]

    def _too_few(self, online: set[int], silent: set[int], voters: list[int]) -> NotEnoughNodesError:
        reasons = self._reasons()
        if len(voters) < len(self.present):
            reasons.append(
                f"{NODE.count(len(self.present))} would be ready, but they are told to use different columns"
            )
        ready, are = NODE.count(len(voters)), "is" if len(voters) == 1 else "are"
        return NotEnoughNodesError(
            f"{ready} {are} ready after {self.waiting.for_nodes:g} seconds, of at least {self.waiting.min_nodes} "
            f"wanted (`min-nodes`); {len(online)} are connected, {len(silent)} of them have not answered. Start more "
            "SuperNodes, or wait longer (`wait-for-nodes`). " + "; ".join(reasons)
        )

    def agents(self) -> list[str]:
        """Names of all agents on nodes that take part; if there are none, some are waited for."""
        pause = _Pauses(self.waiting.for_nodes)
        while True:
            # where nobody is there, nobody is kept waiting by one that is slow
            online = self._look_around(spare_the_slow=bool(self.present))
            self._collect()
            if self.present:
                return sorted((name for names in self.present.values() for name in names), key=natural_key)
            if pause.over:
                raise NotEnoughNodesError(
                    f"no node was ready for {self.waiting.for_nodes:g} seconds (`wait-for-nodes`), {len(online)} are "
                    "connected; see to them, then run again with resume=true: the run goes on from its last round. "
                    + "; ".join(self._reasons())
                )
            pause.rest(f"waiting for nodes: none is ready, {len(online)} connected")

    def deliver(self, call: Invitation) -> Iterator[Reply]:
        """Send each node the letter of its agents, and hand over contributions as they come."""
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
        """A letter for each node that holds an agent asked."""
        asked = set(call.agents)
        return sum(not names.isdisjoint(asked) for names in self.present.values())

    def keep_model(self, model: PublicModel) -> dict[str, Score]:
        """Send every node the model; how each scores it on its own test events, by the node's name or number."""
        self._look_around()
        self._collect()
        content = packed(Keepsake(model.to_bytes()), self._envelope())
        sent = {
            self._send(Errand.KEEPSAKE, node, content, (), self.waiting.for_replies, "model")
            for node in list(self.present)
        }
        for _ in self._await(sent):
            pass
        named = Counter(self._labels[node] for node in self._scores)
        labels = {node: label if named[label := self._labels[node]] == 1 else str(node) for node in self._scores}
        return {labels[node]: self._scores[node] for node in sorted(self._scores, key=labels.__getitem__)}

    def to_record(self, forgotten: Collection[str] = ()) -> codec.Record:  # noqa: ARG002
        """Nodes keep their own state; only the columns' order is everyone's."""
        return {"features": list(self.features)}

    def restore(self, record: codec.Record) -> None:
        """Before `gather`: the columns were agreed on when the run began."""
        features = tuple(checkpoint_reader(record).texts("features"))
        if self.features and self.features != features:
            raise ArgumentError(
                f"the checkpoint is about the columns {', '.join(features)}, in this order; resume with `features` the "
                "same, or empty."
            )
        self.features = features

    def _await(self, sent: set[str]) -> Iterator[Reply]:
        """Replies to these messages, and to late ones, until all of these have come, failed, or taken too long."""
        pause = _Pauses(self.waiting.for_replies)
        looked = time.monotonic()
        self._awaited = sent
        while sent & self._sent.keys():
            if time.monotonic() - looked > LOOK_AROUND:
                online, looked = self._look_around(), time.monotonic()
                for message in [m for m in sent & self._sent.keys() if self._sent[m].node not in online]:
                    # a SuperLink says so too, but only after a minute
                    del self._sent[message]
            self._collect()
            left = sent & self._sent.keys()
            if self._arrived:
                pause.reset()
            yield from self._arrived
            self._arrived.clear()
            if left and pause.over:
                for node in {self._sent[message].node for message in left}:
                    self._silences[node] += 1
                    leave = min(2 ** self._silences[node], LONGEST_LEAVE) if self._silences[node] > 1 else 0
                    self._dismiss(node, SILENCE, leave * self.waiting.for_replies)
                break
            if left:
                pause.rest(f"waiting for {len(left)} of {len(sent)} nodes")
        # what comes from now on is late
        self._awaited = set()

    def _look_around(self, *, spare_the_slow: bool = True) -> set[int]:
        """Which nodes are connected; those that are not known, or have failed, are asked who they are."""
        names = {node.node_id: node.name or str(node.node_id) for node in self.grid.get_nodes()}
        self._labels |= names
        online = set(names)
        for node in self.present.keys() - online:
            self._dismiss(node, GONE, 0.0)
        asked = self._nodes_asked(Errand.ROLL_CALL)
        for node in sorted(online - self.present.keys() - asked):
            if self._may_ask(node) or (self._silences[node] and not spare_the_slow):
                content = self._envelope().to_content()
                self._send(Errand.ROLL_CALL, node, content, (), self.waiting.for_replies, "roll call")
        return online

    def _may_ask(self, node: int) -> bool:
        """Whether a node that was dismissed may be asked again by now."""
        return node not in self._refused or time.monotonic() >= self._refused[node][1]

    def _nodes_asked(self, errand: Errand) -> set[int]:
        return {sent.node for sent in self._sent.values() if sent.errand is errand}

    def _envelope(self) -> Envelope:
        return Envelope(__version__, self.experiment, list(self.features))

    def _send(
        self, errand: Errand, node: int, content: RecordDict, agents: Collection[str], ttl: float, group: str
    ) -> str:
        """Push one message; returns its id, or nothing if Flower does not take it."""
        ttl = max(ttl, 1.0)
        message = Message(content, node, str(errand), ttl=ttl, group_id=group)
        ids = [i for i in self.grid.push_messages([message]) if i]
        if not ids:
            self._dismiss(node, GONE, 0.0)
            return ""
        self._sent[ids[0]] = Sent(errand, node, frozenset(agents), time.monotonic() + ttl)
        return ids[0]

    def _collect(self) -> None:
        """Take in all replies that have come; contributions are to be handed on, the rest is dealt with here."""
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
            # what was wrong with an old letter is old
            if not late:
                at_once = refusal is GONE or refusal.kind == UNKNOWN_AGENT
                self._dismiss(sent.node, refusal, 0.0 if at_once else ASK_AGAIN)
            return
        try:
            match sent.errand:
                case Errand.ROLL_CALL:
                    self._welcome(sent.node, Presence.from_content(message.content))
                case Errand.KEEPSAKE:
                    self._scores[sent.node] = Score.from_content(message.content)
                case Errand.LETTER:
                    answers = Answers.from_content(message.content)
                    if not late:
                        del self._silences[sent.node]
                    elif sent.node in self._said and sent.node not in self.present and self._may_ask(sent.node):
                        # alive, all the same
                        self._welcome(sent.node, self._said[sent.node])
                    opened = map(_open, answers.contributions)
                    self._arrived += [one for one in opened if _is_from(one, sent.agents)]
        except RecordError as error:
            self._dismiss(sent.node, Refusal("RecordError", str(error)), ASK_AGAIN)

    def _welcome(self, node: int, presence: Presence) -> None:
        """A node has said who it is."""
        if presence.version != __version__:
            cure = f"the server has fedhlcr {__version__}; install the same release at the node"
            self._dismiss(node, Refusal("VersionError", cure), ASK_AGAIN)
            return
        elsewhere = {name for other, names in self.present.items() if other != node for name in names}
        agents = frozenset(presence.agents)
        if double := len(agents & elsewhere):
            cure = f"{double} of its agents are at another node already; give agents names of their own"
            self._dismiss(node, Refusal("DoubleAgent", cure), ASK_AGAIN)
            return
        self._refused.pop(node, None)
        if node not in self.present:
            logger.info("node %s is ready: %d agents.", self._labels[node], len(agents))
        self.present[node], self._said[node] = agents, presence

    def _dismiss(self, node: int, refusal: Refusal, wait: float) -> None:
        """Ask a node no more until it has answered a roll call, in `wait` seconds at the earliest."""
        was_present = self.present.pop(node, None) is not None
        told, _ = self._refused.get(node, ("", 0.0))
        if was_present or told != str(refusal):
            logger.warning("node %s does not take part now: %s.", self._labels[node], refusal)
        if refusal is GONE:
            del self._silences[node]
        self._refused[node] = str(refusal), time.monotonic() + wait


def _open(data: bytes) -> Contribution | bytes:
    """A contribution, or what should be one; the server will say why it is none."""
    try:
        return Contribution.from_bytes(data)
    except CodecError:
        return data


def _is_from(reply: Contribution | bytes, agents: Collection[str]) -> bool:
    """Whether it is for the server to judge: a node speaks for its own agents only."""
    return isinstance(reply, bytes) or (isinstance(reply.agent, str) and reply.agent in agents)


class _Pauses:
    """Rests between looks, up to a limit, with a word now and then."""

    def __init__(self, limit: float) -> None:
        self._start = self._told = time.monotonic()
        self._limit = limit
        self._length = FIRST_PAUSE

    @property
    def over(self) -> bool:
        return time.monotonic() - self._start > self._limit

    def reset(self) -> None:
        """Something has come: more may follow at once."""
        self._length = FIRST_PAUSE

    def rest(self, news: str) -> None:
        now = time.monotonic()
        if now - self._told > TELL_AGAIN:
            self._told = now
            logger.info("%s; %.0f of %g seconds.", news, now - self._start, self._limit)
        time.sleep(self._length)
        self._length = min(1.5 * self._length, LONGEST_PAUSE)
