"""Which nodes take part in a federation, and why the others do not.

A node takes part once it has answered a roll call. A node that fails, by an error or because it does not reply in time,
is not asked again until it has answered another roll call. So a node that hangs delays one round, not all.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable

from fedhlcr._support.version import __version__
from fedhlcr._support.wording import AGENT
from fedhlcr.engines.flower.names import AgentNames, NodeName
from fedhlcr.engines.flower.records import GONE, Presence
from fedhlcr.exceptions import Refusal

logger = logging.getLogger(__name__)

# The longest time for which a node that keeps timing out is left alone, in lengths of a round.
LONGEST_LEAVE = 16
TIMED_OUT = Refusal(
    "Silence",
    "the node did not reply in time; it takes part again once it replies; if this happens often, see the node's log "
    "for a full disk or other errors, or raise `round-timeout`",
)


class Attendance:
    """The nodes of a federation.

    Attributes
    ----------
    present : the agents of each node that takes part, by the node's id
    labels : the name or number by which a node appears in logs
    identities : the key and the name of each node
    """

    def __init__(self, names: AgentNames | None = None) -> None:
        self.present: dict[int, frozenset[str]] = {}
        self.labels: dict[int, str] = {}
        self.identities: dict[int, NodeName] = {}
        self._names = names or AgentNames()
        self._presences: dict[int, Presence] = {}
        # why a node does not take part, and when it may be asked again
        self._dismissed: dict[int, tuple[str, float]] = {}
        self._timeouts: Counter[int] = Counter()

    def admit(self, node: int, presence: Presence) -> Refusal | None:
        """Let a node that answered a roll call take part, or return why it cannot."""
        if presence.version != __version__:
            cure = f"the server has fedhlcr {__version__}; install the same release at the node"
            return Refusal("VersionError", cure)
        elsewhere = {name for other, names in self.present.items() if other != node for name in names}
        agents = frozenset(presence.agents)
        if n_double := len(agents & elsewhere):
            cure = f"{n_double} of its agents are at another node already; give every agent a name of its own"
            return Refusal("DoubleAgent", cure)
        if refusal := self._names.claim(self.identities.get(node, NodeName()), presence.agents):
            return refusal
        self._dismissed.pop(node, None)
        if node not in self.present:
            logger.info("node %s is ready: %s.", self.labels[node], AGENT.count(len(agents)))
        self.present[node] = agents
        self._presences[node] = presence
        return None

    def admit_again(self, node: int) -> Refusal | None:
        """Let a node that timed out take part again: a late reply shows that it is alive."""
        if node in self._presences and node not in self.present and self.may_ask(node):
            return self.admit(node, self._presences[node])
        return None

    def dismiss(self, node: int, refusal: Refusal, wait: float) -> None:
        """Exclude a node until it has answered another roll call, which is sent in `wait` seconds at the earliest."""
        was_present = self.present.pop(node, None) is not None
        logged, _ = self._dismissed.get(node, ("", 0.0))
        if was_present or logged != str(refusal):
            logger.warning("node %s does not take part now: %s.", self.labels[node], refusal)
        if refusal is GONE:
            del self._timeouts[node]
        self._dismissed[node] = str(refusal), time.monotonic() + wait

    def dismiss_slow(self, node: int, round_length: float, refusal: Refusal = TIMED_OUT) -> None:
        """Exclude a node that did not reply in time. If that happens again, it is left alone for longer and longer."""
        self._timeouts[node] += 1
        leave = min(2 ** self._timeouts[node], LONGEST_LEAVE) if self._timeouts[node] > 1 else 0
        self.dismiss(node, refusal, leave * round_length)

    def replied_in_time(self, node: int) -> None:
        """Forget earlier timeouts of a node."""
        del self._timeouts[node]

    def is_slow(self, node: int) -> bool:
        """Whether a node has timed out since its last reply in time."""
        return self._timeouts[node] > 0

    def may_ask(self, node: int) -> bool:
        """Whether a node was never dismissed, or its waiting time is over."""
        return node not in self._dismissed or time.monotonic() >= self._dismissed[node][1]

    def unheard(self, online: set[int]) -> set[int]:
        """Nodes that are connected, but have not answered a roll call in any way."""
        return online - self._presences.keys() - self._dismissed.keys()

    def distinct_labels(self, nodes: Collection[int]) -> dict[int, str]:
        """The label of each of these nodes, or its number if several of them have that label."""
        uses = Counter(self.labels[node] for node in nodes)
        return {node: self.labels[node] if uses[self.labels[node]] == 1 else str(node) for node in nodes}

    def keep_only(self, nodes: Iterable[int]) -> None:
        """Let only these nodes take part."""
        self.present = {node: self.present[node] for node in nodes}

    def vote(self, agreed: tuple[str, ...]) -> tuple[tuple[str, ...], list[int]]:
        """The columns of the federation, and the nodes that have them.

        If no columns are agreed yet, those that most nodes have are chosen, in the order that most of these use.
        """
        columns_of = {node: tuple(self._presences[node].features) for node in sorted(self.present)}
        sets = Counter(frozenset(columns) for columns in columns_of.values())
        if agreed:
            chosen = frozenset(agreed)
        elif sets:
            chosen = max(sets, key=lambda columns: (sets[columns], sorted(columns)))
        else:
            return (), []
        voters = [node for node, columns in columns_of.items() if frozenset(columns) == chosen]
        orders = Counter(columns_of[node] for node in voters)
        return agreed or max(orders, key=lambda order: (orders[order], order)), voters

    def reasons(self) -> list[str]:
        """Why nodes do not take part, one line for each node."""
        return [f"node {self.labels[node]}: {reason}" for node, (reason, _) in sorted(self._dismissed.items())]
