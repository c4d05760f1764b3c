"""What a server can make of all it sees, also if it lies; and mutants of the protocol that would give it more."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from fedhlcr.exceptions import FedHLCRError, SecureSumError
from fedhlcr.privacy import neighbours, party, shamir, terms, unmasking
from fedhlcr.privacy.party import Party, pair_mask
from fedhlcr.privacy.secure_sum import SecureSum
from fedhlcr.privacy.terms import SumStage, Terms, write_request
from tests.mutants import mutated
from tests.secure_sums import fields, rewritten, run_sum

NAMES = [f"p{number}" for number in range(6)]


def terms_of(number, n_values=4):
    return Terms(run=1, session=2, epoch=3, round=number, n_values=n_values, min_parties=3)


def assert_uniform(values):
    """All bytes of the integers are equally likely."""
    counts = np.bincount(values.view(np.uint8), minlength=256)
    expected = values.nbytes / 256
    assert ((counts - expected) ** 2 / expected).sum() < chi2.isf(1e-9, 255)


def check_masked_values_look_random():
    """Masked zeros are uniform, in each round, between rounds and between parties."""
    zeros = dict.fromkeys(NAMES, np.zeros(8192, np.uint64))
    views = [
        {name: fields(reply)["masked"] for name, reply in run_sum(terms_of(number, 8192), zeros).replies[2].items()}
        for number in (1, 2)
    ]
    for name in NAMES:
        assert_uniform(views[0][name])
        assert_uniform(views[1][name] - views[0][name])
    assert_uniform(views[0]["p0"] - views[0]["p1"])
    # nothing short of everybody's masked values cancels
    assert_uniform(sum(list(views[0].values())[:-1], np.zeros(8192, np.uint64)))


class Session:
    """A round that the server can steer: parties, and everything they have sent so far."""

    def __init__(self, number=1):
        self.terms = terms_of(number)
        self.parties = {name: Party(name, self.terms) for name in NAMES}
        self.server = SecureSum(self.terms, NAMES)
        self.messages = self.server.begin()
        rng = np.random.default_rng(number)
        self.values = {name: rng.integers(0, 2**64, 4, dtype=np.uint64) for name in NAMES}

    def ask(self, name, message):
        return self.parties[name].handle(message, lambda: self.values[name])

    def proceed(self, *lost):
        """All parties answer; the server acts as if it had not got the replies of some, but keeps them."""
        replies = {name: self.ask(name, message) for name, message in self.messages.items()}
        self.messages = self.server.proceed({name: reply for name, reply in replies.items() if name not in lost})
        return replies


def check_late_values_stay_hidden():
    """A party's values arrive after it was declared to have dropped out: its masking key is known, its seed is not."""
    session = Session()
    session.proceed()
    session.proceed()
    late = fields(session.proceed("p2")["p2"])["masked"]
    session.proceed()
    assert session.server.result.parties == ("p0", "p1", "p3", "p4", "p5")
    seen, roster = session.server._unmasking, session.server._roster
    key = shamir.combine(seen.shares[2, [0, 1, 3, 4]][None], np.array([1, 2, 4, 5]))[0]
    key = party.KeyPair.from_secret(key)
    assert key.public == roster.keys[2, 1].tobytes()
    for other in (0, 1, 3, 4, 5):
        mask = pair_mask(key, roster.keys[other, 1].tobytes(), roster.digest, 4)
        late = late - mask if other > 2 else late + mask
    assert (late != session.values["p2"]).all()


def check_lying_server_gets_one_secret_only():
    """The server tells half of the parties that p0 dropped out, the rest that it did not; then it asks again."""
    session = Session()
    for _ in range(3):
        session.proceed()
    secrets = session.parties["p0"]._secrets
    message = session.messages["p0"]
    alive, dead = np.ones(6, bool), np.arange(6) > 0
    stories = {name: [alive, dead] if name in ("p0", "p1", "p2") else [dead, alive] for name in NAMES}
    shares = {True: {}, False: {}}
    for name, told in stories.items():
        for survivors in told:
            try:
                reply = fields(session.ask(name, rewritten(message, survivors=survivors)))["shares"]
            except FedHLCRError:
                continue
            # a mutant may send both
            both = reply[0] if reply.ndim == 3 else [reply[0], reply[0]]
            for kind in (True, False):
                if reply.ndim == 3 or survivors[0] == kind:
                    shares[kind][int(name[1]) + 1] = both[0 if kind else 1]
    found = [
        bool(held) and shamir.combine(np.array(list(held.values()))[None], np.array(list(held)))[0] == secret
        for held, secret in ((shares[True], secrets.seed), (shares[False], secrets.masking.secret))
    ]
    assert not all(found)


def check_sum_is_exact():
    rng = np.random.default_rng(4)
    vectors = {name: rng.integers(0, 2**64, 4, dtype=np.uint64) for name in NAMES}
    for faults in ({}, {(SumStage.MASKED, "p1"): "lost"}):
        result = run_sum(terms_of(1), vectors, faults).server.result
        assert result is not None
        np.testing.assert_array_equal(result.values, sum(vectors[name] for name in result.parties))


def check_forged_share_does_not_change_the_sum():
    """Shares that are off by a little often give a secret that looks possible; only its check tells."""
    for number in range(4):
        session = Session(number)
        for _ in range(3):
            session.proceed()
        replies = {name: session.ask(name, message) for name, message in session.messages.items()}
        shares = fields(replies["p0"])["shares"].copy()
        shares[:, 0] = (shares[:, 0] + np.uint32(number + 1)) % np.uint32(shamir.PRIME)
        session.server.proceed(replies | {"p0": rewritten(replies["p0"], shares=shares)})
        np.testing.assert_array_equal(session.server.result.values, sum(session.values.values()))
        assert session.server.suspects == ("p0",)


def check_other_rounds_are_refused():
    """The server replays a message of an earlier round."""
    earlier, later = Session(1), Session(2)
    try:
        later.ask("p0", earlier.messages["p0"])
    except SecureSumError:
        return
    raise AssertionError("a message of another round was accepted")


def check_different_rosters_do_not_mix():
    """Two parties that were shown different rosters cannot read each other's shares."""
    session = Session()
    session.proceed()
    roster = fields(session.messages["p0"])
    keys = roster["keys"].copy()
    keys[5] = np.frombuffer(party.Secrets.generate().public, np.uint8).reshape(2, 32)
    session.messages["p0"] = rewritten(session.messages["p0"], keys=keys)
    sealed = {name: fields(session.ask(name, message))["sealed"] for name, message in session.messages.items()}
    inbox = np.stack([sealed[name][1] for name in NAMES if name != "p1"])
    session.ask("p1", write_request(SumStage.MASKED, session.terms, {"present": np.ones(6, bool), "sealed": inbox}))
    assert session.parties["p1"]._member.held.tolist() == [False, True, True, True, True, True]


CHECKS = [
    check_masked_values_look_random,
    check_late_values_stay_hidden,
    check_lying_server_gets_one_secret_only,
    check_sum_is_exact,
    check_forged_share_does_not_change_the_sum,
    check_other_rounds_are_refused,
    check_different_rosters_do_not_mix,
]


@pytest.mark.parametrize("check", CHECKS)
def test_protocol_passes(check):
    check()


MUTANTS = {
    "self mask left out": (
        party.self_mask,
        'keystream(derive(seed, b"self mask", digest), n_values)',
        "np.zeros(n_values, np.uint64)",
        check_late_values_stay_hidden,
    ),
    "pair masks do not cancel": (Party._mask, "masked -= mask", "masked += mask", check_sum_is_exact),
    "pair masks with the wrong sign": (
        Party._mask,
        "member.index < member.group[row]",
        "member.index > member.group[row]",
        check_sum_is_exact,
    ),
    "both shares revealed": (
        Party._unmask,
        "member.shares[rows, which]",
        "member.shares[rows]",
        check_lying_server_gets_one_secret_only,
    ),
    "unmasking answered twice": (
        Party._unmask,
        "self._secrets = self._member = None\n    return self._reply(record, SumStage.OVER)",
        "return self._reply(record, SumStage.UNMASKING)",
        check_lying_server_gets_one_secret_only,
    ),
    "threshold of one half": (
        neighbours.threshold,
        "-(-2 * group_size // 3)",
        "-(-group_size // 2)",
        check_lying_server_gets_one_secret_only,
    ),
    "context without the round": (
        terms.Terms.context.func,
        "to_record(self).values()",
        '{**to_record(self), "round": self.epoch}.values()',
        check_other_rounds_are_refused,
    ),
    "secrets not checked": (
        unmasking.Unmasking._is_right,
        "commitment(secret, self.roster.digest, owner) == self.commitments[owner]",
        "True",
        check_forged_share_does_not_change_the_sum,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name):
    function, old, new, check = MUTANTS[name]
    with mutated(function, old, new), pytest.raises(AssertionError):
        check()
