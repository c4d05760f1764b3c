"""Secure sums: exact through every fault, and each party reveals nothing but its part of the sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedhlcr.exceptions import ArgumentError, FederationError
from fedhlcr.privacy.party import Party
from fedhlcr.privacy.secure_sum import SecureSum
from fedhlcr.privacy.terms import SumStage, Terms
from fedhlcr.storage.records import to_record
from tests.secure_sums import FAULTS, N_VALUES, STAGES, DeltaServer, Round, rewritten, run_sum

NAMES = [f"agent {number}" for number in range(7)]
TERMS = Terms(run=1, session=2, epoch=0, round=5, n_values=N_VALUES, min_parties=3)


def vectors_of(names, rng, n_values=N_VALUES):
    return {name: rng.integers(0, 2**64, n_values, dtype=np.uint64) for name in names}


def plain_sum(vectors, names):
    return sum((vectors[name] for name in names), np.zeros_like(next(iter(vectors.values()))))


@st.composite
def rounds(draw, most_faults=6):
    cohort = sorted(draw(st.sets(st.sampled_from(NAMES), min_size=2)))
    places = st.tuples(st.sampled_from(STAGES), st.sampled_from(cohort))
    faults = draw(st.dictionaries(places, st.sampled_from(FAULTS), max_size=most_faults))
    rarely = st.integers(0, 9).map(lambda number: number == 9)
    return Round(cohort, faults, draw(rarely), draw(rarely))


FAULTY = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@settings(FAULTY, max_examples=40)
@given(st.lists(rounds(), min_size=1, max_size=5))
def test_running_total_equals_the_plain_sum_after_any_faults(plans):
    server = DeltaServer(NAMES, 1)
    for plan in plans:
        server.run(plan)


def random_round(rng):
    """About one party in five has a fault in each stage."""
    cohort = [name for name in NAMES if rng.random() < 0.8] or NAMES
    faults = {(stage, name): str(rng.choice(FAULTS)) for stage in STAGES for name in cohort if rng.random() < 1 / 5}
    return Round(cohort, faults, rng.random() < 0.05, rng.random() < 0.05)


def run_faults(n_faults):
    """Run rounds until so many faults have happened; return how many of each, and how many rounds gave a sum."""
    rng = np.random.default_rng(15)
    server, n_sums = DeltaServer(NAMES, 2), 0
    while server.happened.total() < n_faults:
        n_sums += server.run(random_round(rng)).server.result is not None
    return server.happened, n_sums, server.number


def test_running_total_is_exact_after_300_faults():
    happened, n_sums, n_rounds = run_faults(300)
    assert set(happened) == {*FAULTS, "crash"}
    assert 0.25 < n_sums / n_rounds < 1


@pytest.mark.slow
def test_running_total_is_exact_after_10000_faults():
    happened, n_sums, n_rounds = run_faults(10_000)
    assert min(happened.values()) > 100
    assert 0.25 < n_sums / n_rounds < 1


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("n_parties", [5, 20])
def test_one_fault_never_voids_a_round(stage, fault, n_parties, rng):
    vectors = vectors_of([f"p{number}" for number in range(n_parties)], rng)
    server = run_sum(TERMS, vectors, {(stage, "p2"): fault}).server
    if fault == "forged" and stage in (SumStage.SHARES, SumStage.MASKED):
        # nobody can put together what p2 has shared wrongly
        assert server.result is None
        assert server.suspects == ("p2",)
        return
    kept = fault in ("garbled first", "restarted") or stage is SumStage.UNMASKING
    assert server.result.parties == tuple(name for name in vectors if kept or name != "p2")
    np.testing.assert_array_equal(server.result.values, plain_sum(vectors, server.result.parties))
    assert server.suspects == (
        ("p2",) if fault == "damaged" or (fault, stage) == ("forged", SumStage.UNMASKING) else ()
    )


def test_round_without_faults_sums_everybody(rng):
    vectors = vectors_of(NAMES, rng)
    server = run_sum(TERMS, vectors).server
    assert server.result.parties == tuple(NAMES)
    assert server.suspects == ()
    assert server.void_reason is None
    np.testing.assert_array_equal(server.result.values, plain_sum(vectors, NAMES))


@pytest.mark.parametrize("n_parties", [3, 4, 12, 110])
def test_third_of_the_parties_may_drop_out(n_parties, rng):
    """Beyond 100 parties only neighbours share masks; there fewer may drop out, because groups differ."""
    vectors = vectors_of([f"p{number}" for number in range(n_parties)], rng)
    dropped = rng.permutation(list(vectors))[: n_parties // 3 if n_parties <= 100 else n_parties // 10]
    stages = [STAGES[number % 3 + 1] for number in range(len(dropped))]
    terms = Terms(1, 2, 0, 5, N_VALUES, 2)
    server = run_sum(terms, vectors, dict.fromkeys(zip(stages, dropped, strict=True), "unreached")).server
    left = set(vectors) - {name for stage, name in zip(stages, dropped, strict=True) if stage is not SumStage.UNMASKING}
    assert set(server.result.parties) == left
    np.testing.assert_array_equal(server.result.values, plain_sum(vectors, server.result.parties))


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        (SumStage.KEYS, "2 parties sent keys, but at least 3"),
        (SumStage.SHARES, "2 parties sent shares, but at least 3"),
        (SumStage.MASKED, "2 parties sent masked values, but at least 3"),
        (SumStage.UNMASKING, "2 of 7 parties helped"),
    ],
)
def test_too_few_parties_void_the_round(stage, reason, rng):
    server = run_sum(TERMS, vectors_of(NAMES, rng), {(stage, name): "unreached" for name in NAMES[2:]}).server
    assert server.result is None
    assert server.void_reason.startswith(reason)


@pytest.mark.parametrize(("n_invited", "who"), [(2, "2 parties were"), (1, "1 party was")])
def test_too_few_invited_parties_are_not_asked(n_invited, who, rng):
    exchange = run_sum(TERMS, vectors_of(NAMES[:n_invited], rng))
    assert exchange.messages == [{}]
    assert exchange.server.void_reason == f"{who} invited, but at least 3 are needed."


@pytest.mark.parametrize("n_wrong", [1, 2])
def test_wrong_shares_are_found_and_left_out(n_wrong, rng):
    vectors = vectors_of([f"p{number}" for number in range(20)], rng)
    liars = list(vectors)[3 : 3 + n_wrong]
    faults = {(SumStage.UNMASKING, name): "forged" for name in liars} | {(SumStage.MASKED, "p9"): "lost"}
    server = run_sum(TERMS, vectors, faults).server
    assert server.suspects == tuple(liars)
    np.testing.assert_array_equal(server.result.values, plain_sum(vectors, set(vectors) - {"p9"}))


def test_wrong_share_without_one_to_spare_accuses_nobody(rng):
    faults = {(SumStage.UNMASKING, "agent 0"): "forged"} | {(SumStage.UNMASKING, name): "lost" for name in NAMES[5:]}
    server = run_sum(TERMS, vectors_of(NAMES, rng), faults).server
    assert (
        server.void_reason == "5 of 7 parties helped to unmask the sum: the shares of a secret contradict each other."
    )
    assert server.suspects == ()


def test_replies_of_uninvited_parties_are_ignored(rng):
    vectors = vectors_of(NAMES, rng)
    parties = {name: Party(name, TERMS) for name in [*NAMES, "stranger"]}
    server = SecureSum(TERMS, NAMES)
    message = next(iter(server.begin().values()))
    replies = {name: party.handle(message, lambda: None) for name, party in parties.items()}
    assert list(server.proceed(replies)) == list(vectors)


def test_repeated_and_invalid_keys_are_left_out(rng):
    server = SecureSum(TERMS, NAMES)
    replies = {name: Party(name, TERMS).handle(message, list) for name, message in server.begin().items()}
    replies["agent 1"] = replies["agent 4"]
    replies["agent 6"] = rewritten(replies["agent 6"], keys=np.zeros((2, 32), np.uint8))
    assert list(server.proceed(replies)) == ["agent 0", "agent 2", "agent 3", "agent 5"]
    assert server.suspects == ("agent 1", "agent 4", "agent 6")


def test_server_is_used_in_order():
    server = SecureSum(TERMS, NAMES)
    with pytest.raises(FederationError, match="not begun"):
        server.proceed({})
    server.begin()
    with pytest.raises(FederationError, match="begun already"):
        server.begin()
    assert server.proceed({}) == {}
    with pytest.raises(FederationError, match="over"):
        server.proceed({})


def test_party_named_twice_is_refused():
    with pytest.raises(ArgumentError, match="`parties`"):
        SecureSum(TERMS, ["a", "b", "a"])


@pytest.mark.parametrize("field", ["n_values", "min_parties"])
def test_impossible_terms_are_refused(field):
    with pytest.raises(ArgumentError, match=field):
        Terms(**(to_record(TERMS) | {field: 0}))
