"""An open round: what is sent to which agents, and which of their replies are accepted."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np

from fedhlcr._support.arrays import IndexArray
from fedhlcr.exceptions import ArgumentTypeError, CodecError, FederationError
from fedhlcr.federation.block_sums import BlockReply
from fedhlcr.federation.checks import ExpectedReply, ReplyLimits, find_faults, find_malformed, find_mistyped
from fedhlcr.federation.claims import Claims
from fedhlcr.federation.messages import SURVEY_ROUND, VERSION, Broadcast, Contribution, Contributions
from fedhlcr.federation.registry import UNREGISTERED, Registry
from fedhlcr.federation.sums import PAGE_SIZE

logger = logging.getLogger(__name__)

Reply = Contributions | Contribution | BlockReply | bytes | bytearray | memoryview

NOBODY = np.empty(0, dtype=np.int64)
# These two happen in any federation and are logged as information; all other refusals are warnings.
LATE = "it answers another round than the open one"
NOT_AWAITED = "the agent was not asked, or has answered already"


class Invitation(NamedTuple):
    """What an engine delivers in a round: the broadcast, and for each agent asked its last accepted round.

    Under secure aggregation, agents that have withdrawn are asked once more, and answer with sums of zero: `leaving`.
    Workers that add up their agents' contributions check them first by what is `expected`.
    """

    broadcast: Broadcast
    agents: list[str]
    acknowledged: IndexArray
    leaving: frozenset[str] = frozenset()
    expected: ExpectedReply | None = None


class OpenRound:
    """Checks the replies to one round. A refused reply is logged with a reason that contains no values.

    Parameters
    ----------
    n_asked : number of agents asked
    awaited : positions of the agents whose replies may be accepted; in the survey these are more than were asked
    expected, limits : what a valid reply looks like
    claims : what agents have claimed in earlier rounds; None in the survey
    """

    def __init__(
        self,
        broadcast: Broadcast,
        registry: Registry,
        n_asked: int,
        awaited: IndexArray,
        expected: ExpectedReply,
        limits: ReplyLimits,
        claims: Claims | None = None,
    ) -> None:
        self.broadcast = broadcast
        self.n_asked = n_asked
        # one copy of the broadcast for each agent asked, unless the engine sends fewer
        self.n_copies = n_asked
        self.n_refused = self.bytes_up = self.bytes_masked_down = 0
        self._packed_down: int | None = None
        self.labels_changed = 0.0
        self._registry = registry
        self._expected = expected
        self._limits = limits
        self._claims = claims
        self._awaited = np.zeros(len(registry), dtype=bool)
        self._awaited[awaited] = True
        self._accepted: list[IndexArray] = []

    @property
    def bytes_down(self) -> int:
        if self._packed_down is not None:
            return self._packed_down
        return self.n_copies * self.broadcast.n_bytes + self.bytes_masked_down

    @bytes_down.setter
    def bytes_down(self, n_bytes: int) -> None:
        self._packed_down = n_bytes

    @property
    def participants(self) -> IndexArray:
        """Positions of the agents whose replies were accepted, ascending, without those that have withdrawn since."""
        accepted = np.sort(np.concatenate([NOBODY, *self._accepted]))
        return accepted[~self._registry.withdrawn[accepted]]

    def find_strangers(self, positions: IndexArray) -> str | None:
        """Why a cohort cannot be accepted, or None: one of its agents is unknown, not awaited, or named twice."""
        known = (positions != UNREGISTERED).all() and len(np.unique(positions)) == len(positions)
        if not known or not self._awaited[positions].all():
            return "it names an agent that was not asked, or names one twice"
        return None

    def accept(self, positions: IndexArray) -> None:
        """Note that the contributions of these agents are accepted."""
        self._awaited[positions] = False
        self._accepted.append(positions)

    def refuse_cohort(self, n_agents: int, reason: str) -> None:
        self.n_refused += n_agents
        logger.warning("round %d: refused the sum of a cohort: %s", self.broadcast.round, reason)

    def refuse_unmasked(self) -> None:
        self.n_refused += 1
        logger.warning("round %d: refused a reply of a single agent: aggregation is secure", self.broadcast.round)

    def check_block(self, reply: BlockReply) -> bool:
        """Whether the sum of a block can be accepted. Its agents are noted, and so is who was refused by the worker."""
        self.bytes_up += reply.n_bytes
        first = reply.state.block * PAGE_SIZE
        positions = reply.positions
        names = self._registry.names[first : first + len(reply.state.sizes)]
        # a program's mistake, not that of an agent
        if not names or names[0] != reply.first or not self._awaited[positions].all():
            raise FederationError("the sum of a block is not of the agents that the server asked; report this error.")
        if (reason := self._find_wrong_round(reply)) is not None:
            self._refuse(reply.first, reason)
            return False
        for place, reason in reply.refused.items():
            self._refuse(names[place], reason)
        self.accept(positions)
        self.labels_changed += reply.labels_changed
        return True

    def check_reply(self, reply: Reply) -> tuple[Contributions | None, IndexArray]:
        """The accepted contributions of a reply, or None, and the positions of their agents."""
        match reply:
            case Contributions():
                self.bytes_up += reply.encoded_size()
                return self._check(reply)
            case Contribution():
                return self._check_one(reply)
            case bytes() | bytearray() | memoryview():
                self.bytes_up += len(reply)
                try:
                    return self._check_one(Contribution.from_bytes(bytes(reply)), counted=True)
                except CodecError:
                    # the error's message is not logged, because it may quote text of the sender
                    self._refuse("?", f"its bytes are not a contribution of version {VERSION}")
                    return None, NOBODY
        raise ArgumentTypeError(f"`reply` is {type(reply).__name__}; expected bytes, Contribution or Contributions.")

    def _check_one(
        self, contribution: Contribution, *, counted: bool = False
    ) -> tuple[Contributions | None, IndexArray]:
        reason = (
            find_mistyped(contribution)
            # before the shapes: a late reply may have other shapes because clusters were merged
            or self._find_wrong_round(contribution)
            or find_malformed(contribution, self._expected)
        )
        if reason is not None:
            self._refuse(contribution.agent, reason)
            return None, NOBODY
        stacked = Contributions.from_one(contribution, self.broadcast.representative, self._expected.schema)
        self.bytes_up += 0 if counted else stacked.encoded_size()
        return self._check(stacked)

    def _check(self, contributions: Contributions) -> tuple[Contributions | None, IndexArray]:
        positions = self._registry.find(contributions.agents)
        expected = self._expected
        for reasons_of in (
            self._find_misplaced,
            lambda found, _: find_faults(found, expected, self._limits),
            self._find_changed,
        ):
            reasons = reasons_of(contributions, positions)
            if not any(reasons):
                continue
            for name, reason in zip(contributions.agents, reasons, strict=True):
                if reason is not None:
                    self._refuse(name, reason)
            left = np.flatnonzero([reason is None for reason in reasons])
            if not len(left):
                return None, NOBODY
            contributions = contributions.take(left)
            positions = positions[left]
        if self._claims is not None:
            layout = expected.layout
            self._claims.note(positions, contributions.sums, layout, expected.units, of_events=expected.of_events)
        self.accept(positions)
        self.labels_changed += contributions.sums.scalar("labels_changed").sum()
        return contributions, positions

    def _find_misplaced(self, contributions: Contributions, positions: IndexArray) -> list[str | None]:
        """For each agent why no contribution of it can be accepted now, or None."""
        if reason := self._find_wrong_round(contributions):
            return [reason] * len(contributions)
        first = np.zeros(len(positions), dtype=bool)
        first[np.unique(positions, return_index=True)[1]] = True
        known = positions != UNREGISTERED
        refused = {
            "the agent is not known": ~known,
            "the agent has withdrawn": known & self._registry.withdrawn[positions],
            NOT_AWAITED: ~(self._awaited[positions] & first),
        }
        reasons: list[str | None] = [None] * len(positions)
        for refusal, bad in refused.items():
            for agent in np.flatnonzero(bad):
                reasons[agent] = reasons[agent] or refusal
        return reasons

    def _find_wrong_round(self, reply: Contribution | Contributions | BlockReply) -> str | None:
        if reply.run != self.broadcast.run:
            return "it belongs to another run"
        # answers to the survey are the same in every session
        same_session = reply.session == self.broadcast.session or reply.round == SURVEY_ROUND
        return None if same_session and reply.round == self.broadcast.round else LATE

    def _find_changed(self, contributions: Contributions, positions: IndexArray) -> list[str | None]:
        """For each agent why its contribution does not fit its earlier ones, or None."""
        if self._claims is None:
            return [None] * len(contributions)
        expected = self._expected
        layout = expected.layout
        return self._claims.check(positions, contributions.sums, layout, expected.units, of_events=expected.of_events)

    def _refuse(self, agent: object, reason: str) -> None:
        self.n_refused += 1
        if not isinstance(agent, str) or self._registry.find([agent])[0] == UNREGISTERED:
            # the name that an unknown sender gives may contain anything, so it is not logged
            agent = "?"
        level = logging.INFO if reason in (LATE, NOT_AWAITED) else logging.WARNING
        logger.log(level, "round %d: refused a reply from agent %r: %s", self.broadcast.round, agent, reason)
