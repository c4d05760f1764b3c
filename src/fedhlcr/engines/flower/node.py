"""A node: it reads its table, answers for its agents, and keeps their labels in a file.

Flower starts a new process for every message, so the node keeps its state in a file: the agents' matrices, labels and
acknowledged rounds, under the experiment's name. The file is written atomically, before the reply is sent.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.engines.flower.node_table import NodeEvents, NodeTable, Source, digest_of, stamp_of
from fedhlcr.engines.flower.open_sum import OpenSum
from fedhlcr.engines.flower.peers import NodeIdentity
from fedhlcr.engines.flower.private_node import PrivateNode, check_terms
from fedhlcr.engines.flower.records import NodeScore, RoundRequest, SumMessage
from fedhlcr.engines.flower.refusal import PLAIN_REFUSED, PRIVACY_REQUIRED, UNKNOWN_AGENT
from fedhlcr.engines.flower.tally import Tally
from fedhlcr.exceptions import ArgumentError, CodecError, FixedPointError, Refusal, StorageError
from fedhlcr.federation.group import AgentGroup
from fedhlcr.federation.messages import SURVEY_ROUND, Broadcast
from fedhlcr.federation.mods import Mod
from fedhlcr.federation.private.inquiry import Inquiry, write_sum
from fedhlcr.federation.secure_device import OUT_OF_STEP, SecureDevice
from fedhlcr.posterior import PublicModel
from fedhlcr.privacy.terms import SumStage, Terms, terms_of
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.reader import RecordReader, reading_errors

logger = logging.getLogger(__name__)

STATE_KIND = "node"
STATE_VERSION = 1
# Seconds that a process waits for another process of the same node.
LONGEST_LOCK = 600.0
# Sums over fewer test events could reveal single events.
FEWEST_SCORED = 10
NO_SCORE = NodeScore(0, 0.0, 0.0, 0.0)
_ONLY_SECURE = 'the node only takes part in secure aggregation; start the run with aggregation="secure"'


class Held(NamedTuple):
    """A node's agents, and the file they were read from."""

    group: AgentGroup
    source: Source


@dataclass(frozen=True)
class Node:
    """One node in one experiment.

    Attributes
    ----------
    features : columns of the federation, in order; empty until they are agreed on, then the node uses its own
    mods : functions that contributions pass through before they leave the node, `federation.mods`
    """

    options: NodeOptions
    experiment: str
    features: tuple[str, ...] = ()
    mods: tuple[Mod, ...] = ()

    def __post_init__(self) -> None:
        if self.features and set(self.features) != set(self.options.features):
            raise Refusal(
                "ColumnsError",
                f"the federation uses the columns {', '.join(self.features)}; set `features` of the node to these, or "
                "start another federation",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        return self.features or self.options.features

    @property
    def table(self) -> NodeTable:
        return NodeTable(self.options, self.columns)

    @property
    def state_path(self) -> Path:
        return self.options.state_dir / f"{self.experiment}.state"

    @property
    def model_path(self) -> Path:
        return self.options.state_dir / f"{self.experiment}.model"

    @property
    def open_sum(self) -> OpenSum:
        return OpenSum(self.options.state_dir / f"{self.experiment}.secure")

    @property
    def private(self) -> PrivateNode:
        folder = self.options.state_dir
        tally = Tally.of(folder, self.options.max_epsilon, self.options.max_delta)
        return PrivateNode(folder / f"{self.experiment}.private", self.experiment, tally)

    def names(self) -> list[str]:
        """Names of the node's agents."""
        with self._alone():
            group = self._held().group
        names = [name for name, joins in zip(group.names, group.joins, strict=True) if joins]
        if n_left_out := len(group.names) - len(names):
            rule = self.options.disclosure
            n_features = group.shard.n_features
            logger.warning("%s", rule.warning(n_left_out, len(group.names), n_features))
            if not names:
                cure = (
                    "none of the node's agents has enough events and entities to share sums safely; `fedhlcr flower "
                    "preview` at the node shows why"
                )
                raise Refusal("TooFewEvents", cure)
        if self.options.test_path is not None:
            # an error in the test file should show now, not after the last round
            self.table.read(self.options.test_path, names)
        return names

    def count(self) -> tuple[int, int]:
        """The numbers of events and agents in the table, after all checks of it and of the test table."""
        events = self.table.read(self.options.data_path)
        if self.options.test_path is not None:
            self.table.read(self.options.test_path)
        return len(events.y), len(set(events.agent))

    def read_table(self) -> NodeEvents:
        """The events of the node's table, after all checks; nothing is kept."""
        return self.table.read(self.options.data_path)

    def _held(self) -> Held:
        return self._saved() or self._from_table()

    def _from_table(self) -> Held:
        """Agents without labels, read from the table, and saved."""
        held = self._build()
        self._save(held)
        return held

    def _build(self) -> Held:
        # taken before the file is read, so that a change during the reading is noticed next time
        source = Source.of(self.table.file_of(self.options.data_path))
        events = self.table.read(self.options.data_path)
        weight = np.ones(len(events.y))
        hierarchy = build_hierarchy(events.X, events.y, weight, events.agent, events.entity, events.offset)
        return Held(AgentGroup(hierarchy, self.mods, self.options.disclosure), source)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one process of the node work at a time: Flower may start one while another is still at work."""
        self._make_folder()
        lock = FileLock(self.state_path.with_suffix(".lock"))
        with _writing():
            try:
                lock.acquire(timeout=LONGEST_LOCK)
            except Timeout:
                raise Refusal("Busy", "the node is still at another message; raise `round-timeout`") from None
        try:
            yield
        finally:
            lock.release()

    def answer(self, request: RoundRequest) -> list[bytes]:
        """One contribution for each agent asked. New labels are saved before the reply is sent."""
        with self._alone():
            return self._answer(request, Broadcast.from_bytes(request.broadcast))

    def answer_query(self, inquiry: Inquiry) -> bytes:
        """The sum of the agents' clipped vectors, for a server that is trusted to add the noise."""
        with self._alone():
            if self.options.is_secure:
                raise Refusal(PLAIN_REFUSED, _ONLY_SECURE)
            values, _ = self._private_sum(inquiry)
            query = inquiry.query
            with _writing():
                self.private.mark(query.run, inquiry.session, query.place)
            return write_sum(inquiry, values)

    def _private_sum(self, inquiry: Inquiry) -> tuple[NDArray[np.int64], list[str]]:
        """What the node's agents add to the answer to a query, before noise, and their names."""
        if self.mods:
            raise Refusal("DisclosureError", "the node's mods change contributions, which a private run does not have")
        held = self._held()
        if held.group.shard.run is not None:
            # an ordinary run of this name has converted the matrices; its state stays as it is
            held = self._build()
        with _writing():
            return self.private.answer(inquiry, held.group, held.source.digest)

    def add_up(self, asked: SumMessage, opening: RoundRequest | Inquiry | None) -> bytes:
        """Answer one of the four messages of a secure sum; a broadcast, or a query, comes with the first.

        New labels, and then the secrets of the round, are saved before the reply is sent. A query of a private run
        counts as answered once the masked sum is sent.
        """
        with self._alone():
            identity = self._identity()
            if opening is None:
                device = self.open_sum.read(identity)
            elif isinstance(opening, Inquiry):
                device = self._begin_private_sum(asked, opening, identity)
            else:
                begun = self._begin_sum(asked, opening, identity)
                if begun is None:
                    return OUT_OF_STEP
                device = begun
            counts = device.is_private and device.stage is SumStage.MASKED
            with _writing():
                reply = self.open_sum.handle(device, asked.message)
                if counts:
                    self.private.mark(device.terms.run, device.terms.session, device.terms.epoch)
                if identity is not None:
                    identity.peers.keep_new()
            return reply

    def _begin_private_sum(self, asked: SumMessage, inquiry: Inquiry, identity: NodeIdentity | None) -> SecureDevice:
        terms = self._terms_of(asked)
        check_terms(inquiry, terms)
        self.open_sum.check_new(terms)
        values, agents = self._private_sum(inquiry)
        noisy = self.private.with_noise(values, inquiry, terms)
        return SecureDevice.of(terms, noisy, agents, (asked.party, identity), is_private=True)

    def _terms_of(self, asked: SumMessage) -> Terms:
        """The terms of a sum, unless too few nodes would be enough to reveal it."""
        terms = terms_of(asked.message)
        if terms.min_parties < self.options.min_cohort:
            raise Refusal(
                "CohortError",
                f"the sum of {terms.min_parties} nodes could be revealed (`min-cohort` of the run), but the node wants "
                f"at least {self.options.min_cohort} (`min-cohort` of the node)",
            )
        return terms

    def _begin_sum(
        self, asked: SumMessage, request: RoundRequest, identity: NodeIdentity | None
    ) -> SecureDevice | None:
        broadcast = Broadcast.from_bytes(request.broadcast)
        terms = self._terms_of(asked)
        held, positions = self._prepare(request, broadcast, is_secure=True)
        rounds = np.array(request.acknowledged, dtype=np.int64)
        with _suiting_target():
            self.open_sum.check_new(terms)
            own = asked.party, identity
            device = SecureDevice.open(held.group, broadcast, (positions, rounds), terms, own, asked.leaving)
        if device is None:
            return None
        if len(device.agents) < len(positions):
            cure = "a mod at the node withholds some of its agents, but only the sum over all of them is sent"
            raise Refusal("DisclosureError", cure)
        self._save(held)
        return device

    def _identity(self) -> NodeIdentity | None:
        """The node's key, and those of the others; None for a simulated node, which has no key."""
        options = self.options
        if options.share is not None:
            return None
        return NodeIdentity.read(options.key_path, options.peers_path, options.state_dir)

    def _answer(self, request: RoundRequest, broadcast: Broadcast) -> list[bytes]:
        held, positions = self._prepare(request, broadcast, is_secure=False)
        with _suiting_target():
            contributions = held.group.answer(broadcast, positions, np.array(request.acknowledged, dtype=np.int64))
        self._save(held)
        return [contributions[i].to_bytes() for i in range(len(contributions))]

    def _prepare(self, request: RoundRequest, broadcast: Broadcast, *, is_secure: bool) -> tuple[Held, IndexArray]:
        """The node's agents, ready to answer a broadcast, and the positions of those asked."""
        self._check_aggregation(broadcast, is_secure=is_secure)
        held = self._held()
        shard = held.group.shard
        other_run = broadcast.run != shard.run or broadcast.round == SURVEY_ROUND
        if shard.run is not None and other_run and broadcast.session > shard.session:
            logger.info("the experiment was started again: the old labels are dropped.")
            held = self._from_table()
        if (broadcast.session, broadcast.round) < (held.group.shard.session, held.group.shard.newest_round):
            cure = (
                "the broadcast is older than one that the node has answered; stop other runs of this experiment, or "
                "choose another `experiment`"
            )
            raise Refusal("OutdatedLetter", cure)
        try:
            return held, held.group.positions(request.agents)
        except KeyError:
            raise Refusal(
                UNKNOWN_AGENT,
                "an agent is missing from the node's table now; the node will be asked for its agents again",
            ) from None

    def _check_aggregation(self, broadcast: Broadcast, *, is_secure: bool) -> None:
        """Refuse to answer in the open what should be under masks, or without noise what should have some."""
        if self.options.max_epsilon is not None:
            cure = "the node only takes part in runs with differential privacy; start the run with `epsilon`"
            raise Refusal(PRIVACY_REQUIRED, cure)
        if self.options.is_secure and not is_secure:
            raise Refusal(PLAIN_REFUSED, _ONLY_SECURE)
        if is_secure != (broadcast.terms is not None and broadcast.terms.is_secure):
            cure = "the broadcast is for another kind of aggregation than the message it came with; nothing is sent"
            raise Refusal("AggregationError", cure)

    def keep(self, model: PublicModel) -> None:
        """Save the public model beside the state, for the node's own use."""
        with self._alone(), _writing():
            model.save(self.model_path)
            # the run is over
            self.open_sum.close()

    def score(self, model: PublicModel) -> NodeScore:
        """How well the model predicts the test events. Only sums over them are sent, and none after a private run."""
        if self.options.test_path is None:
            return NO_SCORE
        is_private = self.options.max_epsilon is not None or model.privacy is not None
        if is_private or self.private.tally.has(self.experiment):
            logger.info("no score is sent: runs of this name are private, and their plans do not count it.")
            return NO_SCORE
        with self._alone():
            group = self._held().group
        events = self.table.read(self.options.test_path, group.names)
        if len(events.y) < FEWEST_SCORED:
            logger.warning(
                "no score is sent: fewer than %d test events are too few to share sums safely.", FEWEST_SCORED
            )
            return NO_SCORE
        moments = group.predict(model, events.X, events.entity, agent=events.agent, offset=events.offset)
        mean = float(events.y.mean())
        spread, error = (float(np.sum((events.y - other) ** 2)) for other in (mean, moments.mean))
        return NodeScore(len(events.y), mean, spread, error)

    def _saved(self) -> Held | None:
        """The saved state, or None if there is none for this table and these columns."""
        if not self.state_path.exists() and not atomic.previous_of(self.state_path).exists():
            return None
        try:
            whose = "the node's state", "it is built from the table again"
            reader = RecordReader(atomic.read_newest(self.state_path, STATE_KIND, STATE_VERSION), *whose)
            with reading_errors(*whose):
                was = Source(*(reader.value(name, str) for name in Source._fields))
                order = tuple(reader.texts("features"))
                columns = reader.value("columns", str)
                group = AgentGroup.read(reader, self.mods, self.options.disclosure)
        except (StorageError, CodecError) as error:
            logger.warning("%s; the labels are lost, and the agents start again.", error)
            return None
        now = self.table.file_of(self.options.data_path)
        if self.options.share is None and was.path != str(now) and Path(was.path).exists():
            cure = "its `state-dir` holds the state of another table or node; choose another folder, or empty it"
            raise Refusal("StateError", cure)
        if columns != self._columns_key() or (self.features and self.features != order):
            logger.info("the columns or their order have changed: the agents start again.")
            return None
        stamp = stamp_of(now)
        if was.stamp != stamp and was.digest != digest_of(now):
            logger.warning("%s has changed: its agents start again, and the old labels are dropped.", now.name)
            return None
        return Held(group, was._replace(stamp=stamp))

    def _save(self, held: Held) -> None:
        record = held.group.to_record()
        record |= {"columns": self._columns_key(), "features": list(self.columns), **held.source._asdict()}
        with _writing():
            atomic.write_atomically(self.state_path, codec.encode(STATE_KIND, STATE_VERSION, record), private=True)

    def _make_folder(self) -> None:
        with _writing():
            # only the node may read the labels
            self.options.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _columns_key(self) -> str:
        options = self.options
        roles = options.target, options.agent, options.agent_name, options.entity
        # states of nodes without these options were saved without them
        more = (options.positive, options.exposure) if options.positive or options.exposure else ()
        return repr((*roles, sorted(self.columns), options.share, *more))


@contextlib.contextmanager
def _suiting_target() -> Iterator[None]:
    try:
        yield
    except ArgumentError as error:
        # a message of a likelihood, which never quotes a value
        cure = "the node's target does not suit the `family` of the run; the node's log says what to do"
        raise Refusal("TargetError", cure, str(error)) from None
    except FixedPointError as error:
        cure = "sums of the node are too large for fixed point; check the units of its table"
        raise Refusal("FixedPointError", cure, str(error)) from None


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cure = "the node cannot write to its `state-dir`; free some space, or choose a folder that it may write to"
        raise Refusal("StateError", cure, str(error.strerror)) from None
