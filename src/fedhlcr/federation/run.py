"""The loop of a federation (open a round, deliver the broadcast, accept replies, close the round) and checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import within
from fedhlcr._support.wording import DEVICE
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.exceptions import ArgumentError, CodecError, FedHLCRError, StorageError
from fedhlcr.federation.account import AccountFactory
from fedhlcr.federation.history import RoundRecord
from fedhlcr.federation.open_round import Invitation, Reply
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.privacy.terms import Terms
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.reader import CHECKPOINT, RecordReader, checkpoint_reader, reading_errors

if TYPE_CHECKING:
    from fedhlcr.privacy.secure_sum import SecureSum

logger = logging.getLogger(__name__)

INTERRUPTED = "interrupted"
CHECKPOINT_KIND = "checkpoint"
CHECKPOINT_VERSION = 1


class Engine(Protocol):
    """Delivers a broadcast to agents, and returns their contributions. It knows nothing about the algorithm."""

    def agents(self) -> Sequence[str]:
        """Names of the agents that can be reached now."""

    def deliver(self, call: Invitation) -> Iterator[Reply]:
        """Replies, in any order, until all have arrived or the time is up."""

    def n_copies(self, call: Invitation) -> int:
        """Number of copies of the broadcast that are sent: one for each device that has an agent asked."""

    def to_record(self, forgotten: Collection[str] = ()) -> codec.Record:
        """State for a checkpoint.

        An engine whose agents are in this process returns their state, without that of `forgotten` agents. An engine
        whose agents keep their own state returns none of it.
        """

    def restore(self, record: codec.Record) -> None: ...


class CarriesSums(Protocol):
    """Whatever carries the messages of secure sums."""

    def exchange(self, terms: Terms, messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """Deliver one message to each device, and return the answers of those that answered in time.

        The answer to the first message is empty if the device needs a new epoch.
        """


@runtime_checkable
class SecureEngine(Engine, CarriesSums, Protocol):
    """An engine that also carries the messages of secure sums between the server and devices, which hold agents."""

    def parties(self, call: Invitation) -> dict[str, list[str]]:
        """Begin a round: the devices that have agents asked, by name, and these agents."""


@runtime_checkable
class VerifiesKeys(Protocol):
    """An engine that knows the long-lived keys of devices, by which they sign their keys of a round."""

    def verify(self, party: str, data: bytes, signature: bytes) -> bool:
        """Whether a device has signed this."""


@runtime_checkable
class CountsBytes(Protocol):
    """An engine that sends other bytes than those of the messages, because it packs them."""

    def bytes_moved(self) -> tuple[int, int]:
        """Bytes sent down and up in the last round."""


@runtime_checkable
class KeepsAccount(Protocol):
    """An engine whose workers hold the pages of the server's ledger."""

    def account_for(self, settings: FederationSettings) -> AccountFactory | None:
        """Makes the account of a server with these settings; None if it needs the contribution of each agent."""


@runtime_checkable
class SimulationEngine(Engine, Protocol):
    """An engine built from a table, as `FedHLCRRegressor` needs it: it can return its agents' Gram matrices."""

    def entity_grams(self, run: int, layout: GramLayout, units: Standardization) -> FloatArray:
        """(entities, packed) the Gram matrices of all agents, in the units of the run and in the table's order."""


class EngineFactory(Protocol):
    """Builds the engine of a simulated federation from a table."""

    def __call__(self, hierarchy: Hierarchy, *, failure_rate: float, seed: int, n_threads: int) -> SimulationEngine: ...


@runtime_checkable
class Closes(Protocol):
    """An engine that holds processes or connections until it is closed."""

    def close(self) -> None: ...


def settings_for(settings: FederationSettings, engine: Engine) -> FederationSettings:
    """The settings with what follows from the engine: one that has all agents need distrust none of them."""
    return replace(settings, simulated=isinstance(engine, SimulationEngine))


def server_for(settings: FederationSettings, engine: Engine) -> Server:
    """A new server, with the account that the engine brings, if it brings one."""
    return Server(settings, _account_of(settings, engine))


def _account_of(settings: FederationSettings, engine: Engine) -> AccountFactory | None:
    return engine.account_for(settings) if isinstance(engine, KeepsAccount) else None


@dataclass(frozen=True)
class Checkpoints:
    """A checkpoint file, written after every `every`-th round and after the last one."""

    path: PathLike
    every: int = 1

    def __post_init__(self) -> None:
        path = Path(self.path)
        if self.every < 1:
            raise ArgumentError(f"`every` must be at least 1 (save after each round), but is {self.every}.")
        if path.is_dir():
            raise ArgumentError(f"`checkpoint` is {str(path)!r}, a folder; pass the path of a file in it.")
        if not path.parent.is_dir():
            raise ArgumentError(f"`checkpoint` is {str(path)!r}, in a folder that does not exist; create it first.")

    def save(self, server: Server, engine: Engine, *, keep_previous: bool = True) -> None:
        agents = engine.to_record(forgotten=server.registry.withdrawn_names)
        parts = {"server": server.to_bytes(), "agents": codec.encode("agents", CHECKPOINT_VERSION, agents)}
        record: codec.Record = {name: np.frombuffer(data, dtype=np.uint8) for name, data in parts.items()}
        record |= {"session": server.session, "finished": server.finished}
        data = codec.encode(CHECKPOINT_KIND, CHECKPOINT_VERSION, record)
        atomic.write_atomically(self.path, data, keep_previous=keep_previous, private=True)

    def hold_unfinished(self) -> bool:
        """Whether the file holds an unfinished run. A file that cannot be read counts as one."""
        if not Path(self.path).exists() and not atomic.previous_of(self.path).exists():
            return False
        try:
            return not self._read().value("finished", bool)
        except (StorageError, CodecError):
            return True

    def engine_record(self) -> codec.Record:
        """The engine's part of the checkpoint."""
        return _agents_record(self._read())

    def _read(self) -> RecordReader:
        return checkpoint_reader(atomic.read_newest(self.path, CHECKPOINT_KIND, CHECKPOINT_VERSION))

    def resume(self, settings: FederationSettings, engine: Engine) -> Server:
        """Restore the server, and the engine's agents, from the checkpoint."""
        reader = self._read()
        account = _account_of(settings, engine)
        with reading_errors(*CHECKPOINT, clear=FedHLCRError):
            server = Server.from_bytes(settings, reader.array("server", "u1", (None,)).tobytes(), account)
            # higher than the session of the checkpoint, even if the clock was set back
            server.session = max(server.session, reader.value("session", int, within(0, 2**62)) + 1)
            engine.restore(_agents_record(reader))
        return server


def _agents_record(reader: RecordReader) -> codec.Record:
    return codec.decode(reader.array("agents", "u1", (None,)).tobytes(), "agents", CHECKPOINT_VERSION)


def run_federation(
    server: Server,
    engine: Engine,
    *,
    checkpoints: Checkpoints | None = None,
    evaluate: Callable[[Server, bool], None] | None = None,
    progress: Callable[[RoundRecord], None] | None = None,
) -> None:
    """Run rounds until the server stops. Ctrl-C ends the run early: draws made so far are kept, if there are any.

    `evaluate` is called after each round with whether the history must now have the errors of all rounds so far.
    """
    try:
        while not server.finished:
            run_round(server, engine)
            is_saved = checkpoints is not None and (server.finished or server.round % checkpoints.every == 0)
            if evaluate is not None:
                evaluate(server, server.finished or is_saved)
            if checkpoints is not None and is_saved:
                checkpoints.save(server, engine)
            if progress is not None:
                progress(server.history.records[-1])
    except KeyboardInterrupt:
        server.stop(INTERRUPTED)
        if not server.has_draws:
            raise
        if evaluate is not None:
            evaluate(server, True)


def run_round(server: Server, engine: Engine) -> RoundRecord:
    if server.settings.is_secure:
        return run_secure_round(server, _secure(engine))
    call = server.open_round(engine.agents())
    server.count_sent(engine.n_copies(call))
    for reply in engine.deliver(call):
        server.accept(reply)
    if isinstance(engine, CountsBytes):
        server.count_moved(*engine.bytes_moved())
    return server.close_round()


def _secure(engine: Engine) -> SecureEngine:
    if not isinstance(engine, SecureEngine):
        raise ArgumentError(
            f"{type(engine).__name__} cannot carry the messages of aggregation='secure': it lacks `parties` and "
            "`exchange`; use aggregation='plain', or another engine."
        )
    return engine


def carry(exchange: SecureSum, engine: CarriesSums, count: Callable[[int, int], None]) -> int:
    """Carry the messages of a secure sum; `count` is told the bytes down and up. Returns how many came back empty."""
    messages = exchange.begin()
    n_empty = 0
    while messages:
        replies = engine.exchange(exchange.terms, messages)
        count(sum(map(len, messages.values())), sum(map(len, replies.values())))
        n_empty += sum(not reply for reply in replies.values())
        messages = exchange.proceed({party: reply for party, reply in replies.items() if reply})
    if exchange.suspects:
        logger.warning("round %d: wrong messages came from %s.", exchange.terms.round, ", ".join(exchange.suspects))
    return n_empty


def run_secure_round(server: Server, engine: SecureEngine) -> RoundRecord:
    """A round in which the server learns the sum over all devices that answer, `privacy.secure_sum`."""
    # here, because it needs the extra `privacy`
    from fedhlcr.privacy.secure_sum import SecureSum

    call = server.open_round(engine.agents())
    server.count_sent(engine.n_copies(call))
    parties = engine.parties(call)
    terms = server.exchange_terms()
    exchange = SecureSum(terms, sorted(parties), engine.verify if isinstance(engine, VerifiesKeys) else None)
    out_of_step = carry(exchange, engine, server.count_exchanged)
    if exchange.result is None:
        logger.warning("round %d is void, and nothing is lost: %s", call.broadcast.round, exchange.void_reason)
    else:
        agents = [agent for party in exchange.result.parties for agent in parties[party]]
        server.accept_sum(agents, exchange.result.values)
    record = server.close_round()
    if out_of_step:
        server.begin_epoch(f"{DEVICE.count(out_of_step)} cannot say how their sums differ from what the server has")
    return record
