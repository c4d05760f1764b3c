"""With differential privacy and secure aggregation the server sees noisy totals only, and these hide entities."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fedhlcr import DifferentialPrivacy
from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.run import AgentsHere, SecureTotals, run_private
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.audit.membership import numpy_noise
from fedhlcr.privacy.audit.tables import as_hierarchy
from fedhlcr.privacy.audit.wire import known_numbers
from fedhlcr.privacy.release import UNIT
from fedhlcr.privacy.secure_sum import SecureSum

pytest.importorskip("cryptography", reason="the privacy extra is not installed")

N_AGENTS = 17
# An agent is found if no number that it added is off by more than this share of the clip.
EXACT = 1e-3


def no_noise(scale, size):
    del scale
    return np.zeros(size, dtype=np.int64)


class Watched(SecureTotals):
    """Secure totals that keep, by query, what the agents added before and after their noise, and the total."""

    def __init__(self, agents, source):
        super().__init__(agents, 3, source)
        self.vectors, self.noisy, self.totals = [], [], []

    def __call__(self, query, pages):
        pages = list(pages)
        self.vectors.append(np.concatenate([vectors for _, vectors in pages]))
        self.totals.append(super().__call__(query, pages))
        return self.totals[-1]

    def _noisy(self, query, pages):
        own = dict(super()._noisy(query, pages))
        self.noisy.append(np.array(list(own.values())))
        return iter(own.items())


def new_server(names):
    privacy = DifferentialPrivacy(8.0, 1e-3, rounds=4)
    settings = FederationSettings(
        GramLayout(2), effects="none", noise="common", aggregation="secure", min_cohort=3, privacy=privacy
    )
    return PrivateServer(settings, privacy.plan(len(names)), list(names))


def run(source, monkeypatch):
    """A run of agents with one entity each, so that to find an agent's vector is to find an entity's."""
    table, _ = make_hlcr(N_AGENTS, 1, 8, 2, 2, 0.5, balanced=True, random_state=4)
    hierarchy = as_hierarchy(table)
    assert hierarchy.n_entities == hierarchy.index.n_agents == N_AGENTS
    agents = PrivateAgents(AgentShard.from_hierarchy(hierarchy), secret=1)
    server, watched, replies = new_server(agents.names), Watched(agents.names, source), []
    proceed = SecureSum.proceed

    def spied(self, received):
        replies.append(received)
        return proceed(self, received)

    monkeypatch.setattr(SecureSum, "proceed", spied)
    run_private(server, AgentsHere(agents, watched))
    return server, watched, SimpleNamespace(replies=replies)


def n_found(watched):
    """Entities that an adversary finds who knows all vectors but one: the total less these is the last one."""
    found = set()
    for vectors, total in zip(watched.vectors, watched.totals, strict=True):
        rest = total - (vectors.sum(axis=0) - vectors)
        added = np.abs(vectors).max(axis=1) > EXACT * UNIT
        found |= set(np.flatnonzero(added & (np.abs(rest - vectors).max(axis=1) <= EXACT * UNIT)).tolist())
    return len(found)


def test_no_entity_is_found_in_noisy_totals(monkeypatch):
    """Neither in the totals, even if all others are known, nor in any message."""
    _, watched, messages = run(numpy_noise(3), monkeypatch)
    assert n_found(watched) == 0
    secrets = np.concatenate([own.ravel() for own in (*watched.vectors, *watched.noisy)]).view(np.uint64)
    assert len(messages.replies) == 4 * len(watched.totals)
    assert known_numbers([messages], secrets) == 0


def test_totals_without_noise_give_all_entities_away(monkeypatch):
    assert n_found(run(no_noise, monkeypatch)[1]) == N_AGENTS


def test_server_has_nothing_but_noisy_totals(monkeypatch):
    """Its whole state and all its queries follow from the names of the agents and the totals."""
    server, watched, _ = run(numpy_noise(3), monkeypatch)
    again = new_server(server.registry.names)
    for total in watched.totals:
        again.query()
        again.accept(total, np.arange(N_AGENTS))
    assert again.finished
    # as texts, because nan is not equal to itself
    assert repr(again.history.records) == repr(server.history.records)
    assert again.model().to_bytes() == server.model().to_bytes()
    one, other = (dict(arrays_in(own)) for own in (server, again))
    assert one.keys() == other.keys()
    assert len(one) > 10
    for place, array in one.items():
        np.testing.assert_array_equal(array, other[place], err_msg=place)


def test_no_array_of_the_server_has_a_row_for_each_agent(monkeypatch):
    server, _, _ = run(numpy_noise(3), monkeypatch)
    by_agent = {place for place, array in arrays_in(server) if N_AGENTS in array.shape}
    assert by_agent <= {".registry.accepted_round", ".registry.withdrawn"}


def arrays_in(value, place=""):
    """All arrays inside of an object, with where they are."""
    if isinstance(value, np.ndarray):
        yield place, value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from arrays_in(part, f"{place}[{name}]")
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from arrays_in(part, f"{place}[{number}]")
    elif type(value).__module__.startswith("fedhlcr"):
        names = {*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())}
        for name in sorted(names):
            if hasattr(value, name):
                yield from arrays_in(getattr(value, name), f"{place}.{name}")
