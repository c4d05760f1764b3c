"""Secure sums in one process, with faults in every stage; and a running total of differences on top of them."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedhlcr.exceptions import FedHLCRError
from fedhlcr.privacy.party import Party
from fedhlcr.privacy.secure_sum import SecureSum
from fedhlcr.privacy.shamir import PRIME
from fedhlcr.privacy.terms import VERSION, SumStage, Terms
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader

STAGES = (SumStage.KEYS, SumStage.SHARES, SumStage.MASKED, SumStage.UNMASKING)
N_VALUES = 3
# What can happen to a party in a stage: it never gets the message; its reply is lost; its reply arrives damaged; it
# replies with something well-formed but wrong; it gets a damaged message first and the right one later; its process is
# replaced by a new one, which reads its state.
FAULTS = ("unreached", "lost", "damaged", "forged", "garbled first", "restarted")


class Exchange(NamedTuple):
    """A secure sum that is over, and what the server saw: the messages and replies of every stage."""

    server: SecureSum
    messages: list[dict[str, bytes]]
    replies: list[dict[str, bytes]]


def restarted(party):
    """The party as another process would read it."""
    data = codec.encode("party", 1, party.to_record())
    return Party.read(RecordReader(codec.decode(data, "party", 1), "the state", "start again"), party.identity)


def rewritten(data, **changes):
    """A well-formed message with other fields."""
    kind = codec.kind_of(data)
    record = codec.decode(data, kind, VERSION)
    assert changes.keys() <= record.keys()
    return codec.encode(kind, VERSION, record | changes)


def fields(data):
    return codec.decode(data, codec.kind_of(data), VERSION)


def damaged(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


def forged(data, stage):
    """A reply whose content is wrong; values themselves are not touched, because nobody could notice."""
    record = fields(data)
    match stage:
        case SumStage.KEYS:
            return rewritten(data, keys=random_like(record["keys"]))
        case SumStage.SHARES:
            return rewritten(data, sealed=random_like(record["sealed"]))
        case SumStage.MASKED:
            return rewritten(data, commitment=random_like(record["commitment"]))
    return rewritten(data, shares=random_like(record["shares"]) % np.uint32(PRIME))


def random_like(array):
    return np.frombuffer(os.urandom(array.nbytes), array.dtype).reshape(array.shape)


def run_sum(terms, vectors, faults=None, parties=None):
    """Run a secure sum of {party: values}; `faults` by stage and party. Return the server and what it saw."""
    faults = faults or {}
    parties = {name: Party(name, terms) for name in vectors} if parties is None else parties
    server = SecureSum(terms, list(vectors))
    exchange = Exchange(server, [server.begin()], [])
    for stage in STAGES:
        if not exchange.messages[-1]:
            break
        exchange.replies.append({})
        for name, message in exchange.messages[-1].items():
            reply = answer(parties, name, message, vectors[name], faults.get((stage, name)))
            if reply is not None:
                exchange.replies[-1][name] = reply
        exchange.messages.append(server.proceed(exchange.replies[-1]))
    return exchange


def answer(parties, name, message, vector, fault):
    """What arrives at the server; None if nothing does."""
    if fault == "unreached":
        return None
    if fault == "restarted":
        parties[name] = restarted(parties[name])
    party = parties[name]
    stage = party.stage
    if fault == "garbled first":
        try:
            party.handle(damaged(message), lambda: vector)
        except FedHLCRError:
            assert party.stage is stage
    try:
        reply = party.handle(message, lambda: vector)
    except FedHLCRError:
        return None
    return {"lost": None, "damaged": damaged(reply), "forged": forged(reply, stage)}.get(fault, reply)


@dataclass
class DeltaParty:
    """A party that sends differences: its new values minus those that the server accepted last."""

    epoch: int = -1
    accepted: np.ndarray = field(default_factory=lambda: np.zeros(N_VALUES, np.uint64))
    accepted_round: int = -1
    pending: tuple[int, np.ndarray] | None = None

    def settle(self, epoch, acknowledged):
        """The server's last accepted round decides what the server holds of this party."""
        if epoch != self.epoch:
            self.epoch, self.accepted, self.accepted_round = epoch, np.zeros(N_VALUES, np.uint64), -1
        elif self.pending is not None and acknowledged == self.pending[0]:
            self.accepted_round, self.accepted = self.pending
        self.pending = None
        assert acknowledged == self.accepted_round

    def difference(self, number, values):
        self.pending = number, values
        return values - self.accepted


@dataclass
class Round:
    """One round: who is invited, what goes wrong, whether the server dies before it commits or opens a new epoch."""

    cohort: list[str]
    faults: dict[tuple[SumStage, str], str]
    crash: bool = False
    new_epoch: bool = False


class DeltaServer:
    """Keeps the total of all parties' last accepted values, from sums of differences only; and beside it, for the test,
    each party's values."""

    def __init__(self, names, seed):
        self.rng = np.random.default_rng(seed)
        self.parties = {name: DeltaParty() for name in names}
        self.epoch = self.number = 0
        self.total = np.zeros(N_VALUES, np.uint64)
        self.acknowledged: dict[str, int] = {}
        self.plain: dict[str, np.ndarray] = {}
        self.happened: Counter[str] = Counter()

    def run(self, plan, min_parties=2):
        self.number += 1
        if plan.new_epoch:
            self.epoch += 1
            self.total, self.acknowledged, self.plain = np.zeros(N_VALUES, np.uint64), {}, {}
        values, differences = {}, {}
        for name in plan.cohort:
            self.parties[name].settle(self.epoch, self.acknowledged.get(name, -1))
            values[name] = self.rng.integers(0, 2**64, N_VALUES, dtype=np.uint64)
            differences[name] = self.parties[name].difference(self.number, values[name])
        terms = Terms(1, 2, self.epoch, self.number, N_VALUES, min_parties)
        exchange = run_sum(terms, differences, plan.faults)
        server = exchange.server
        asked = {(stage, name) for stage, messages in zip(STAGES, exchange.messages, strict=False) for name in messages}
        self.happened.update(fault for place, fault in plan.faults.items() if place in asked)
        assert (server.result is None) != (server.void_reason is None)
        if plan.crash:
            self.happened["crash"] += 1
        elif server.result is not None:
            # one atomic write: the total and who is in it
            self.total = self.total + server.result.values
            self.acknowledged |= dict.fromkeys(server.result.parties, self.number)
            self.plain |= {name: values[name] for name in server.result.parties}
        expected = sum(self.plain.values(), np.zeros(N_VALUES, np.uint64))
        np.testing.assert_array_equal(self.total, expected)
        return exchange
