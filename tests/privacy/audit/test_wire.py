"""The attack on secure aggregation finds nothing in its messages, and finds everything if masks are broken."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy import party
from fedhlcr.privacy.audit import wire
from fedhlcr.privacy.audit.playing import HALF_UNIT, LARGEST, play_secure, to_vector
from fedhlcr.privacy.audit.recording import record_run
from fedhlcr.privacy.audit.scoring import Truth, score
from fedhlcr.privacy.audit.tables import as_hierarchy
from fedhlcr.privacy.audit.view import ServerView
from fedhlcr.privacy.fixed_point import encode

N_ROUNDS = 3


@pytest.fixture(scope="module")
def recorded():
    table, _ = make_hlcr(6, 5, 3, 2, 3, 0.5, random_state=1)
    hierarchy = as_hierarchy(table)
    engine = InProcessEngine.from_hierarchy(hierarchy, failure_rate=0.0, seed=0, n_threads=1)
    settings = FederationSettings(
        GramLayout(2), rounds=6, patience=None, max_clusters=8, effects="none", noise="common"
    )
    view = record_run(settings, engine)[1].view()
    return view, Truth.of(hierarchy, view.layout, view.units)


def attacked(recorded):
    """What the attack finds in the messages, and how many numbers of agents occur in them."""
    view, truth = recorded
    rounds, secrets = play_secure(view, N_ROUNDS)
    claims = wire.attack_wire(rounds, ServerView(view.layout, view.units, {}, HALF_UNIT))
    return score(claims, truth, view.layout), wire.known_numbers(rounds, secrets)


def test_nothing_is_found_in_messages(recorded):
    found, leaked = attacked(recorded)
    assert (found.n_claims, found.entities, found.rows, leaked) == (0, 0, 0, 0)


def test_total_is_the_sum_of_all_agents(recorded):
    view, _ = recorded
    rounds, _ = play_secure(view, N_ROUNDS)
    total = sum(own.total.values for own in rounds)
    newest = [statements[N_ROUNDS - 1] for statements in view.statements.values()]
    np.testing.assert_array_equal(total, sum(encode(to_vector(own), LARGEST) for own in newest))


def test_own_masks_are_taken_off(recorded):
    """The server knows the seeds of the survivors; if the attack did not use them, it would prove little."""
    view, _ = recorded
    own = play_secure(view, 1)[0][0]
    stripped, masked = own.stripped(), own.masked
    assert stripped.keys() == masked.keys() == set(view.statements)
    np.testing.assert_array_equal(sum(stripped.values()), own.total.values)
    assert all((stripped[name] != masked[name]).any() for name in masked)


def no_mask(*arguments):
    return np.zeros(arguments[-1], dtype=np.uint64)


def test_messages_without_masks_are_noticed(recorded, monkeypatch):
    for name in ("self_mask", "pair_mask"):
        monkeypatch.setattr(party, name, no_mask)
    monkeypatch.setattr(wire, "self_mask", no_mask)
    monkeypatch.setattr("fedhlcr.privacy.unmasking.self_mask", no_mask)
    found, leaked = attacked(recorded)
    assert found.entities > 0
    assert leaked > 0


def test_missing_masks_of_pairs_are_noticed(recorded, monkeypatch):
    """Then the party's own mask is all that hides it, and the server knows that one."""
    monkeypatch.setattr(party, "pair_mask", no_mask)
    found, _ = attacked(recorded)
    assert found.entities > 0


def test_masks_used_twice_are_noticed(recorded, monkeypatch):
    """The same masks in every round cancel in differences, which then show single agents."""

    def constant(own, public, digest, n_values):
        return np.full(n_values, 123_456_789_012_345, dtype=np.uint64)

    monkeypatch.setattr(party, "pair_mask", constant)
    found, _ = attacked(recorded)
    assert found.entities > 0


def test_whole_and_small_numbers_are_not_secrets(recorded):
    view, _ = recorded
    rounds, _ = play_secure(view, 1)
    assert wire.known_numbers(rounds, np.array([0, 3, 5 << 30, 1 << 40], dtype=np.uint64)) == 0
