"""A party refuses whatever would reveal its values, and a refused message changes nothing."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhlcr.exceptions import ArgumentError, CodecError, FedHLCRError, FixedPointError, SecureSumError
from fedhlcr.privacy.fixed_point import encode
from fedhlcr.privacy.party import Party
from fedhlcr.privacy.secure_sum import SecureSum
from fedhlcr.privacy.terms import SumStage, Terms
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import to_record
from tests.secure_sums import STAGES, damaged, fields, restarted, rewritten

TERMS = Terms(run=1, session=2, epoch=3, round=4, n_values=5, min_parties=3)
NAMES = [f"p{number}" for number in range(6)]


def party_at(stage, terms=TERMS, identities=None):
    """A party that waits for this stage, and the message that asks for it."""
    parties = {name: Party(name, terms, identities and identities[name]) for name in NAMES}
    server = SecureSum(terms, NAMES)
    messages, zeros = server.begin(), np.zeros(terms.n_values, np.uint64)
    while parties["p0"].stage is not stage:
        replies = {name: parties[name].handle(message, lambda: zeros) for name, message in messages.items()}
        messages = server.proceed(replies)
    return parties["p0"], messages["p0"]


def refuses(party, message, match, kind=SecureSumError):
    """The party refuses the message, computes no values, and keeps all of its state."""
    before = codec.encode("party", 1, party.to_record())
    with pytest.raises(kind, match=match):
        party.handle(message, lambda: pytest.fail("values were computed"))
    assert codec.encode("party", 1, party.to_record()) == before


def values():
    return np.zeros(TERMS.n_values, np.uint64)


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_is_answered_once(stage):
    party, message = party_at(stage)
    party.handle(message, values)
    refuses(party, message, "over" if stage is SumStage.UNMASKING else "each comes once")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("other", STAGES)
def test_stages_out_of_order_are_refused(stage, other):
    if stage is not other:
        refuses(party_at(stage)[0], party_at(other)[1], "each comes once")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("field", ["run", "session", "epoch", "round", "n_values", "min_parties"])
def test_messages_of_another_sum_are_refused(stage, field):
    numbers = to_record(TERMS)
    _, message = party_at(stage, Terms(**(numbers | {field: numbers[field] + 1})))
    refuses(party_at(stage)[0], message, "another round")


@pytest.mark.parametrize("stage", STAGES)
def test_damaged_messages_are_refused(stage):
    party, message = party_at(stage)
    for wrong in (b"", b"nonsense", message[:-5], damaged(message), message + b"!"):
        refuses(party, wrong, "fedhlcr|truncated|empty|kind", (CodecError, SecureSumError))
    assert party.handle(message, values)


@pytest.mark.parametrize("stage", STAGES[1:])
@given(data=st.data())
def test_wrong_fields_are_refused_or_harmless(stage, data):
    """Well-formed messages with any field replaced end in an error of fedhlcr or in a reply, never in a crash."""
    party, message = party_at(stage)
    field = data.draw(st.sampled_from(sorted(fields(message))))
    wrong = data.draw(
        st.sampled_from(
            [7, "text", ["p0"], [], np.zeros(0, np.uint8), np.ones(6, bool), np.zeros((6, 2, 32), np.uint8)]
        )
    )
    try:
        party.handle(rewritten(message, **{field: wrong}), values)
    except FedHLCRError:
        assert party.stage is stage


def test_small_cohort_is_refused():
    party, message = party_at(SumStage.SHARES)
    roster = fields(message)
    few = {name: roster[name][:2] for name in ("parties", "keys", "signature_sizes")}
    refuses(party, rewritten(message, **few), "2 parties take part, but at least 3")


@pytest.mark.parametrize("places", [((1, 0), (2, 0)), ((1, 0), (2, 1)), ((1, 0), (1, 1)), ((0, 1), (3, 1))])
def test_repeated_keys_are_refused(places):
    party, message = party_at(SumStage.SHARES)
    keys = fields(message)["keys"].copy()
    keys[places[1]] = keys[places[0]]
    refuses(party, rewritten(message, keys=keys), "the same key")


def test_repeated_names_are_refused():
    party, message = party_at(SumStage.SHARES)
    refuses(party, rewritten(message, parties=[*NAMES[:-1], "p0"]), "`parties`", CodecError)


def test_keys_of_low_order_are_refused():
    party, message = party_at(SumStage.SHARES)
    keys = fields(message)["keys"].copy()
    keys[3] = [[0] * 32, [1] + [0] * 31]
    refuses(party, rewritten(message, keys=keys), "low order")


def test_roster_must_show_the_partys_own_keys():
    party, message = party_at(SumStage.SHARES)
    keys = fields(message)["keys"].copy()
    keys[0, 1] ^= 5
    refuses(party, rewritten(message, keys=keys), "other keys for this party")
    refuses(party, rewritten(message, parties=["x", *NAMES[1:]]), "not on the roster")


def test_too_few_shares_are_refused():
    party, message = party_at(SumStage.MASKED)
    few = np.arange(6) < 3
    refuses(party, rewritten(message, present=few, sealed=fields(message)["sealed"][:2]), "3 parties sent shares")


def test_party_that_is_said_to_be_absent_refuses():
    party, message = party_at(SumStage.MASKED)
    refuses(party, rewritten(message, present=np.arange(6) > 0), "`present`", CodecError)
    party, message = party_at(SumStage.UNMASKING)
    refuses(party, rewritten(message, survivors=np.arange(6) > 0), "`survivors`", CodecError)


def test_too_few_survivors_are_refused():
    party, message = party_at(SumStage.UNMASKING)
    refuses(party, rewritten(message, survivors=np.arange(6) < 3), "3 parties sent masked values, 3 of them")


def test_min_parties_bounds_the_survivors():
    party, message = party_at(SumStage.UNMASKING, Terms(1, 2, 3, 4, 5, min_parties=6))
    refuses(party, rewritten(message, survivors=np.arange(6) < 5), "at least 6 and 4 are needed")


def test_survivors_must_have_sent_shares():
    parties = {name: Party(name, TERMS) for name in NAMES}
    server = SecureSum(TERMS, NAMES)
    messages = server.begin()
    for absent in ("", "p5", ""):
        messages = server.proceed(
            {name: parties[name].handle(messages[name], values) for name in messages if name != absent}
        )
    wrong = rewritten(messages["p0"], survivors=np.ones(6, bool))
    refuses(parties["p0"], wrong, "`survivors`", CodecError)


def test_unreadable_shares_are_not_held():
    party, message = party_at(SumStage.MASKED)
    sealed = fields(message)["sealed"].copy()
    sealed[1] ^= 1
    sealed[[2, 3]] = sealed[[3, 2]]
    party.handle(rewritten(message, sealed=sealed), values)
    record = party.to_record()
    assert record["member_held"].tolist() == [True, True, False, False, False, True]


@pytest.mark.parametrize(
    "wrong", [np.zeros(5), np.zeros(4, np.uint64), np.zeros((5, 1), np.uint64), np.zeros(5, np.int64)]
)
def test_values_of_another_shape_are_refused(wrong):
    party, message = party_at(SumStage.MASKED)
    with pytest.raises(ArgumentError, match="`values` must return 5 numbers of type uint64"):
        party.handle(message, lambda: wrong)
    assert party.handle(message, values)


def test_error_in_the_values_leaves_the_party_as_it_was():
    party, message = party_at(SumStage.MASKED)
    with pytest.raises(FixedPointError):
        party.handle(message, lambda: encode(np.full(5, np.nan))[..., 0])
    assert party.handle(message, values)


@pytest.mark.parametrize("stage", [*STAGES, SumStage.OVER])
def test_state_survives_a_restart(stage):
    party, message = party_at(SumStage.UNMASKING if stage is SumStage.OVER else stage)
    if stage is SumStage.OVER:
        party.handle(message, values)
    again = restarted(party)
    assert codec.encode("party", 1, again.to_record()) == codec.encode("party", 1, party.to_record())
    if stage is not SumStage.OVER and stage is not SumStage.KEYS:
        again.handle(message, values)
    if stage is SumStage.UNMASKING:
        assert again.to_record() == restarted(again).to_record()


def test_secrets_are_gone_when_the_round_is_over():
    party, message = party_at(SumStage.UNMASKING)
    assert "secrets" in party.to_record()
    party.handle(message, values)
    assert set(party.to_record()) == {"name", "stage", *(f"terms_{name}" for name in to_record(TERMS))}


def test_damaged_state_is_refused():
    record = party_at(SumStage.UNMASKING)[0].to_record()
    for name in record:
        for wrong in ({}, {name: np.zeros(3)}):
            with pytest.raises(CodecError, match="the state is not valid"):
                Party.read(RecordReader({key: record[key] for key in record if key != name} | wrong, "the state", ""))
    for name, value in (("stage", "nonsense"), ("terms_n_values", 0), ("terms_min_parties", 1), ("member_index", 6)):
        with pytest.raises(CodecError, match="the state is not valid"):
            Party.read(RecordReader(record | {name: value}, "the state", ""))


class Seal:
    """Signatures for tests: everybody knows everybody's key."""

    def __init__(self, name):
        self.name = name

    def sign(self, data):
        return hmac.digest(self.name.encode(), data, hashlib.sha256)

    def verify(self, party, data, signature):
        return hmac.compare_digest(Seal(party).sign(data), signature)


IDENTITIES = {name: Seal(name) for name in NAMES}


def test_signed_keys_are_accepted():
    party, message = party_at(SumStage.UNMASKING, identities=IDENTITIES)
    assert party.handle(message, values)


def test_unsigned_keys_are_refused():
    party, message = party_at(SumStage.SHARES)
    party.identity = IDENTITIES["p0"]
    refuses(party, message, "not signed by that party")


@pytest.mark.parametrize("change", ["keys", "parties"])
def test_keys_signed_by_another_party_are_refused(change):
    party, message = party_at(SumStage.SHARES, identities=IDENTITIES)
    roster = fields(message)
    if change == "keys":
        keys = roster["keys"].copy()
        keys[4] ^= 3
        refuses(party, rewritten(message, keys=keys), "not signed by that party")
    else:
        refuses(party, rewritten(message, parties=["p0", "p2", "p1", *NAMES[3:]]), "not signed by that party")


def test_signatures_of_another_round_are_refused():
    party, message = party_at(SumStage.SHARES, identities=IDENTITIES)
    later = Terms(**(to_record(TERMS) | {"round": 9}))
    _, other = party_at(SumStage.SHARES, later, IDENTITIES)
    keys, signatures = fields(message)["keys"].copy(), fields(message)["signatures"].copy().reshape(6, 32)
    keys[1:], signatures[1:] = fields(other)["keys"][1:], fields(other)["signatures"].reshape(6, 32)[1:]
    refuses(party, rewritten(message, keys=keys, signatures=signatures.ravel()), "not signed by that party")


def test_server_leaves_out_keys_with_wrong_signatures():
    parties = {name: Party(name, TERMS, Seal("p0" if name == "p4" else name)) for name in NAMES}
    server = SecureSum(TERMS, NAMES, verify=IDENTITIES["p0"].verify)
    messages = server.begin()
    while messages:
        messages = server.proceed({name: parties[name].handle(message, values) for name, message in messages.items()})
    assert server.suspects == ("p4",)
    assert server.result.parties == ("p0", "p1", "p2", "p3", "p5")
