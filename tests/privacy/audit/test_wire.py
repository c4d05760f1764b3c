"""The attack on secure aggregation finds nothing in its messages, and finds everything if masks are broken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy import party
from fedhlcr.privacy.audit import wire
from fedhlcr.privacy.audit.attack_score import Truth, score
from fedhlcr.privacy.audit.reconstruction import reconstruct
from fedhlcr.privacy.audit.recording_engine import KnownAgents, record_run
from fedhlcr.privacy.audit.tables import as_hierarchy, audit_wire
from fedhlcr.privacy.audit.view import EVERYONE
from fedhlcr.storage import codec

pytest.importorskip("cryptography", reason="the privacy extra is not installed")

N_ROUNDS = 4
SETTINGS = FederationSettings(
    GramLayout(2), rounds=8, patience=None, max_clusters=8, effects="none", noise="common", fixed_point=True
)
SECURE = {"aggregation": "secure", "min_cohort": 3}


@pytest.fixture(scope="module")
def hierarchy():
    return as_hierarchy(make_hlcr(6, 5, 3, 2, 3, 0.5, random_state=1)[0])


def recorded(hierarchy, failure_rate=0.0, **mode):
    agents = KnownAgents.from_hierarchy(hierarchy, failure_rate=failure_rate, seed=0, n_threads=1)
    server, recording = record_run(replace(SETTINGS, **mode), agents, N_ROUNDS)
    return server, recording, agents


@pytest.fixture(scope="module")
def secure(hierarchy):
    return recorded(hierarchy, **SECURE)


def test_nothing_is_found_in_messages(hierarchy):
    found = audit_wire(hierarchy, SETTINGS, N_ROUNDS)
    assert found.holds
    assert found.n_rounds == N_ROUNDS
    own = found.messages
    assert (own.n_claims, own.entities, own.rows, found.leaked, found.surveyed) == (0, 0, 0, 0, 0)


def test_nothing_is_found_if_agents_fail_in_all_stages(hierarchy):
    _, recording, agents = recorded(hierarchy, failure_rate=0.3, **SECURE)
    view = recording.total_view()
    assert any(len(own.masked) < 6 for own in recording.wire)
    assert wire.attack_wire(recording.wire, view) == []
    assert wire.known_numbers(recording.wire, agents.secrets()) == 0


def test_all_messages_are_kept(secure):
    """Those of both parts of the survey, and of four stages in every round."""
    server, recording, agents = secure
    assert [own.is_survey for own in recording.wire] == [True, True] + [False] * N_ROUNDS
    assert all(len(own.requests) == len(own.replies) == 4 for own in recording.wire)
    n_bytes = sum(len(data) for own in recording.wire for stage in own.replies for data in stage.values())
    assert n_bytes == sum(record.bytes_up for record in server.history.records)
    for own, hidden in zip(recording.wire, agents.hidden, strict=True):
        np.testing.assert_array_equal(own.total.values, sum(hidden.values()))


def test_server_has_nothing_but_totals(secure):
    """Its whole state follows from the names of the agents and the totals: what it knows besides is in messages."""
    server, recording, agents = secure
    again = Server(server.settings)
    for own in recording.wire:
        again.open_round(agents.everyone.agents)
        again.accept_sum(own.total.parties, own.total.values)
        again.close_round()
    states = [codec.decode(own.to_bytes(), "server", 1) for own in (server, again)]
    traffic = {"history.bytes_up", "history.bytes_down"}
    assert states[0].keys() == states[1].keys() > traffic
    for name in states[0].keys() - traffic:
        np.testing.assert_array_equal(states[0][name], states[1][name], err_msg=name)


def test_own_masks_are_taken_off(secure):
    """The server knows the seeds of the survivors; if the attack did not use them, it would prove little."""
    _, recording, agents = secure
    for own in recording.wire:
        stripped, masked = own.stripped(), own.masked
        assert stripped.keys() == masked.keys() == set(agents.everyone.agents)
        np.testing.assert_array_equal(sum(stripped.values()), own.total.values)
        assert all((stripped[name] != masked[name]).any() for name in masked)


def test_total_with_masks_is_the_total_without(hierarchy, secure):
    """So the long series of totals may come from runs without masks."""
    _, plain, _ = recorded(hierarchy)
    with_masks, without = (own.total_view().statements[EVERYONE] for own in (secure[1], plain))
    assert len(with_masks) == len(without) == N_ROUNDS
    for one, other in zip(with_masks, without, strict=True):
        assert (one.round, one.since, one.labels_changed) == (other.round, other.since, other.labels_changed)
        np.testing.assert_array_equal(one.grams, other.grams)
        np.testing.assert_array_equal(one.clusters, other.clusters)


def test_vectors_of_agents_are_read_as_their_sums(hierarchy, secure):
    """If the attack misread vectors, it would find nothing in any of them."""
    _, recording, agents = secure
    view = recording.total_view()
    truth = Truth.of(hierarchy, view.layout, view.units)
    name = truth.agents[2]
    sampled = [(own, hidden) for own, hidden in zip(recording.wire, agents.hidden, strict=True) if not own.is_survey]
    sums = sum(own.whole(hidden[name]) for own, hidden in sampled)
    read = sampled[-1][0].read(sums)
    own = truth.grams[truth.agent_of == 2]
    assert read.entity_counts.sum() == len(own)
    np.testing.assert_allclose(read.grams.sum(axis=0), own.sum(axis=0), atol=1e-7)


@pytest.fixture(scope="module")
def n_plain(hierarchy):
    """Entities that the attack finds in plain mode, in the same rounds."""
    view = recorded(hierarchy)[1].view()
    return score(reconstruct(view), Truth.of(hierarchy, view.layout, view.units), view.layout).entities


def no_mask(*arguments):
    return np.zeros(arguments[-1], dtype=np.uint64)


def test_messages_without_masks_are_noticed(hierarchy, n_plain, monkeypatch):
    for name in ("self_mask", "pair_mask"):
        monkeypatch.setattr(party, name, no_mask)
    monkeypatch.setattr(wire, "self_mask", no_mask)
    monkeypatch.setattr("fedhlcr.privacy.unmasking.self_mask", no_mask)
    found = audit_wire(hierarchy, SETTINGS, N_ROUNDS)
    assert found.messages.entities >= n_plain > 0
    assert found.leaked > 0
    assert found.surveyed == 6


def test_missing_masks_of_pairs_are_noticed(hierarchy, n_plain, monkeypatch):
    """Then the party's own mask is all that hides it, and the server knows that one."""
    monkeypatch.setattr(party, "pair_mask", no_mask)
    found = audit_wire(hierarchy, SETTINGS, N_ROUNDS)
    assert found.messages.entities >= n_plain > 0
    assert found.surveyed == 6


def test_masks_used_twice_are_noticed(hierarchy, monkeypatch):
    """The same masks in every round cancel in differences, which then show single agents."""

    def constant(own, public, digest, n_values):
        return np.full(n_values, 123_456_789_012_345, dtype=np.uint64)

    monkeypatch.setattr(party, "pair_mask", constant)
    assert audit_wire(hierarchy, SETTINGS, N_ROUNDS).messages.entities > 0


def test_two_agents_have_no_secure_sum():
    found = audit_wire(as_hierarchy(make_hlcr(2, 5, 3, 2, 3, 0.5, random_state=1)[0]), SETTINGS, N_ROUNDS)
    assert found.n_rounds == 0


def test_whole_and_small_numbers_are_not_secrets(secure):
    _, recording, _ = secure
    numbers = np.array([0, 3, 5 << 30, 1 << 40], dtype=np.uint64)
    assert wire.known_numbers(recording.wire, numbers) == 0
