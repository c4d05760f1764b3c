"""A device that is saved and restored between all messages gives the run of the ledger in fixed point."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr.exceptions import SecureSumError
from fedhlcr.federation.group import AgentGroup
from fedhlcr.federation.messages import Broadcast
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from tests.federations import hierarchy_of, run_rounds, server_for

pytest.importorskip("cryptography", reason="the privacy extra is not installed")

from fedhlcr.federation.secure_device import OUT_OF_STEP, SecureDevice

SETTINGS = {"seed": 2, "max_clusters": 8, "patience": None, "effects": "entity", "min_cohort": 3}


def saved(kind, record):
    """A record that was written to a file and read again."""
    return RecordReader(codec.decode(codec.encode(kind, 1, record), kind, 1), "the state", "start again")


class Devices:
    """An engine of devices with several agents each. Every device is written to bytes after each message."""

    def __init__(self, table, n_devices=4):
        parts = np.array_split(np.unique(table.agent), n_devices)
        self.groups = {
            f"device {i}": AgentGroup(hierarchy_of(table[np.isin(table.agent, part)])) for i, part in enumerate(parts)
        }
        self._call, self._open = None, {}

    def agents(self):
        return [name for group in self.groups.values() for name in group.names]

    def n_copies(self, call):
        return len(self.groups)

    def deliver(self, call):
        raise NotImplementedError

    def to_record(self, forgotten=()):
        return {}

    def restore(self, record):
        raise NotImplementedError

    def parties(self, call):
        self._call, self._open = call, {}
        own = {name: [agent for agent in call.agents if agent in group.names] for name, group in self.groups.items()}
        return {name: agents for name, agents in own.items() if agents}

    def exchange(self, terms, messages):
        first = not self._open
        replies = {}
        for name, message in messages.items():
            if first:
                device = self._begin(name, terms)
                if device is None:
                    replies[name] = OUT_OF_STEP
                    continue
            else:
                device = SecureDevice.read(saved("device", self._open[name]))
            replies[name] = device.handle(message)
            self._open[name] = device.to_record()
        return replies

    def _begin(self, name, terms):
        group, acknowledged = self.groups[name], dict(zip(self._call.agents, self._call.acknowledged, strict=True))
        positions = np.array([i for i, agent in enumerate(group.names) if agent in acknowledged])
        rounds = np.array([acknowledged[group.names[i]] for i in positions])
        broadcast = Broadcast.from_bytes(self._call.broadcast.to_bytes())
        device = SecureDevice.open(group, broadcast, (positions, rounds), terms, (name, None))
        self.groups[name] = AgentGroup.read(saved("group", group.to_record()))
        return device


def test_devices_with_many_agents_give_what_they_hold(small):
    """The secrets of these devices are random, so the run is not that of a simulation; their sums are the total."""
    table = small[0]
    server, devices = server_for(3, aggregation="secure", participation=0.6, **SETTINGS), Devices(table)
    run_rounds(server, devices, 14)
    account = server.rule.account
    total = np.zeros_like(account.integers())
    for group in devices.groups.values():
        rounds = server.registry.accepted_round[server.registry.find(group.names)]
        shard = group.shard
        for agent, number in enumerate(rounds.tolist()):
            sums = shard.kept.pending if number == shard.pending_round[agent] else shard.kept.accepted
            total = total + (account.vectors.total(sums.take(np.array([agent]))) if number >= 0 else 0)
    np.testing.assert_array_equal(total, account.integers())
    assert 0 < server.history.records[-1].n_accepted < 40
    assert server.rule.account.total().entity_counts.sum() > 100


def test_a_device_that_lost_its_state_asks_for_a_new_epoch(small):
    table = small[0]
    server, devices = server_for(3, aggregation="secure", **SETTINGS), Devices(table)
    run_rounds(server, devices, 4)
    lost = np.isin(table.agent, [int(name) for name in devices.groups["device 1"].names])
    devices.groups["device 1"] = AgentGroup(hierarchy_of(table[lost]))
    run_rounds(server, devices, 1)
    assert server.history.records[-1].n_accepted == 30
    assert server.rule.account.is_empty
    run_rounds(server, devices, 1)
    assert server.history.records[-1].n_accepted == 40


def test_a_device_does_not_answer_a_message_twice(small):
    table = small[0]
    server, devices = server_for(3, aggregation="secure", **SETTINGS), Devices(table)
    call = server.open_round(devices.agents())
    devices.parties(call)
    terms = server.exchange_terms()
    from fedhlcr.privacy.secure_sum import SecureSum

    message = SecureSum(terms, sorted(devices.groups)).begin()["device 0"]
    device = devices._begin("device 0", terms)
    device.handle(message)
    with pytest.raises(SecureSumError):
        device.handle(message)
