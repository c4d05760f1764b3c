"""Keys of nodes under secure aggregation: signatures, the operator's list, and keys that are kept at first use."""

import stat

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fedhlcr.engines.flower.certificates import Certificates
from fedhlcr.engines.flower.names import fingerprint
from fedhlcr.engines.flower.peers import NodeIdentity, PeerKeys, fingerprint_of, read_keys, sign, signer_of
from fedhlcr.engines.flower.sum_round import is_signed_by
from fedhlcr.exceptions import Refusal, SecureSumError
from fedhlcr.privacy.party import Party
from fedhlcr.privacy.roster import Advert, Roster, signed_text
from fedhlcr.privacy.secure_sum import SecureSum
from fedhlcr.privacy.terms import SumStage, Terms, write_request
from fedhlcr.storage.records import from_record, to_record

NAMES = ("north", "south", "west")
TERMS = Terms(run=1, session=2, epoch=3, round=4, n_values=5, min_parties=3)


@pytest.fixture
def keys(tmp_path):
    made = Certificates(tmp_path / "keys")
    made.make(nodes=NAMES)
    return made


def identity(keys, name, state_dir, *, listed=True):
    return NodeIdentity.read(keys.node_key(name), keys.nodes if listed else None, state_dir)


def new_key():
    return ec.generate_private_key(ec.SECP384R1())


def test_a_signature_shows_who_signed(keys, tmp_path):
    own = identity(keys, "north", tmp_path)
    signature = own.sign(b"keys")
    assert signer_of(b"keys", signature) == read_keys(keys.nodes)["north"]
    assert signer_of(b"other keys", signature) is None
    for broken in (b"", b"\x01", signature[:-1], signature[:40], signature[:2] + bytes(len(signature))):
        assert signer_of(b"keys", broken) is None
    other = identity(keys, "south", tmp_path)
    assert other.verify("north", b"keys", signature)
    assert not other.verify("north", b"other keys", signature)


def test_a_key_has_the_fingerprint_by_which_the_server_knows_it(keys):
    key = new_key()
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signature = sign(key, b"keys")
    assert fingerprint_of(signer_of(b"keys", signature)) == fingerprint(pem)
    assert is_signed_by(fingerprint(pem), b"keys", signature)
    assert not is_signed_by(fingerprint(pem), b"keys", sign(new_key(), b"keys"))
    assert not is_signed_by(fingerprint(pem), b"keys", b""), "a node with a key must use it"
    assert is_signed_by("", b"keys", b""), "a simulated node has none"
    assert not is_signed_by("", b"keys", b"nonsense")


def test_a_list_admits_no_other_key_and_no_other_node(keys, tmp_path):
    own = identity(keys, "north", tmp_path)
    with pytest.raises(Refusal, match="the key shown for node 'south' is not the one") as changed:
        own.verify("south", b"keys", sign(new_key(), b"keys"))
    assert "Ask its owner; if it is new, correct its line in" in changed.value.detail
    with pytest.raises(Refusal, match="node 'east' is not in the list"):
        own.verify("east", b"keys", sign(new_key(), b"keys"))
    own.peers.keep_new()
    assert not (tmp_path / "peers.pinned").exists()


def test_first_keys_are_kept_and_later_ones_refused(keys, tmp_path, caplog):
    first, second = new_key(), new_key()
    own = identity(keys, "north", tmp_path, listed=False)
    assert own.verify("south", b"keys", sign(first, b"keys"))
    own.peers.keep_new()
    assert "trusted at first use: south SHA256:" in caplog.text
    assert stat.S_IMODE((tmp_path / "peers.pinned").stat().st_mode) == 0o600
    # after a restart
    again = identity(keys, "north", tmp_path, listed=False)
    assert again.verify("south", b"keys", sign(first, b"keys"))
    with pytest.raises(Refusal, match="the key shown for node 'south' is not the one"):
        again.verify("south", b"keys", sign(second, b"keys"))
    with pytest.raises(Refusal, match="node 'east' has the key of node 'south'"):
        again.verify("east", b"keys", sign(first, b"keys"))
    # another process has kept another node meanwhile
    assert own.verify("west", b"keys", sign(second, b"keys"))
    own.peers.keep_new()
    assert set(read_keys(tmp_path / "peers.pinned")) == {"south", "west"}
    # the cure: remove the line
    lines = (tmp_path / "peers.pinned").read_text().splitlines(keepends=True)
    (tmp_path / "peers.pinned").write_text("".join(line for line in lines if "south" not in line))
    cured = identity(keys, "north", tmp_path, listed=False)
    assert cured.verify("south", b"keys", sign(new_key(), b"keys"))


def test_two_names_cannot_have_one_key_in_a_sum(keys, tmp_path):
    own, one = identity(keys, "north", tmp_path, listed=False), new_key()
    assert own.verify("south", b"keys", sign(one, b"keys"))
    with pytest.raises(Refusal, match="node 'west' has the key of node 'south'"):
        own.verify("west", b"keys", sign(one, b"keys"))


def line_of(name, key=None):
    public = (key or new_key()).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return f"{public.decode()} {name}\n"


def test_a_list_may_be_a_file_with_comments(tmp_path):
    path = tmp_path / "peers"
    path.write_text("# our nodes\n\n" + line_of("north") + line_of("the south"))
    assert set(read_keys(path)) == {"north", "the south"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense\n", "peers, line 1: this is not a public key"),
        (line_of("").rstrip(), "the node's name is missing"),
        (line_of("a") + line_of("a"), "peers, line 2: this name or this key occurs twice"),
        (line_of("a", ed25519.Ed25519PrivateKey.generate()), "nodes have keys of type ecdsa"),
    ],
    # not the texts: keys are random, and every worker must find the same tests
    ids=["nonsense", "no name", "twice", "another type"],
)
def test_a_list_that_cannot_be_used_says_why(text, told, tmp_path):
    (tmp_path / "peers").write_text(text)
    with pytest.raises(Refusal, match="PeersError: the node cannot use its list") as refused:
        PeerKeys.of(tmp_path / "peers", tmp_path)
    assert told in refused.value.detail


def test_one_key_under_two_names_in_a_list_is_refused(tmp_path):
    key = new_key()
    (tmp_path / "peers").write_text(line_of("a", key) + line_of("b", key))
    with pytest.raises(Refusal, match="PeersError"):
        PeerKeys.of(tmp_path / "peers", tmp_path)


def test_missing_files_are_named_in_the_nodes_log(keys, tmp_path):
    for key, peers, told in (
        (None, None, "set `key-path`"),
        (tmp_path / "absent", None, "cannot read its private key"),
        (keys.node_public_key("north"), None, "cannot read its private key"),
        (keys.node_key("north"), tmp_path / "absent", "`peers-path` of the node names a file that does not exist"),
    ):
        with pytest.raises(Refusal, match="NodeConfigError") as refused:
            NodeIdentity.read(key, peers, tmp_path)
        assert told in refused.value.cure
        assert str(tmp_path) not in refused.value.cure, "the server sees this"
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    (tmp_path / "other").write_bytes(other)
    with pytest.raises(Refusal, match="must be of type ecdsa-sha2-nistp384"):
        NodeIdentity.read(tmp_path / "other", None, tmp_path)


class InTheMiddle:
    """A server that answers each party in the name of all others, with keys that it knows itself."""

    def __init__(self, parties, signer=None):
        self.parties, self.signer = parties, signer

    def roster_for(self, victim, adverts):
        own = {name: Party(name, TERMS).handle(self.first(), lambda: None) for name in adverts}
        shown = {name: adverts[name] if name == victim else self.forge(name, own[name], adverts[name]) for name in own}
        return write_request(SumStage.SHARES, TERMS, Roster.of(TERMS, shown).to_record())

    def first(self):
        return write_request(SumStage.KEYS, TERMS, to_record(TERMS))

    def forge(self, name, reply, honest):
        keys = advert_of(reply).keys
        if self.signer is None:
            # the signature of the other keys, as that is all there is
            return Advert(keys, honest.signature)
        return Advert(keys, sign(self.signer, signed_text(TERMS, name, keys)))


def advert_of(reply):
    from fedhlcr.privacy.terms import read_reply

    return from_record(Advert, read_reply(reply, SumStage.KEYS, TERMS))


@pytest.mark.parametrize("signs", [True, False])
def test_a_server_in_the_middle_is_noticed_by_every_party(signs, keys, tmp_path):
    parties = {name: Party(name, TERMS, identity(keys, name, tmp_path / name)) for name in NAMES}
    liar = InTheMiddle(parties, new_key() if signs else None)
    adverts = {name: advert_of(party.handle(liar.first(), lambda: None)) for name, party in parties.items()}
    for name, party in parties.items():
        with pytest.raises((Refusal, SecureSumError), match="PeerKey" if signs else "not signed by that party"):
            party.handle(liar.roster_for(name, adverts), lambda: None)
        assert party.stage is SumStage.SHARES, "nothing was sent"


def test_without_identities_the_same_server_would_not_be_noticed(keys, tmp_path):
    """The mutant: the check above depends on the signatures and on nothing else."""
    parties = {name: Party(name, TERMS) for name in NAMES}
    liar = InTheMiddle(parties)
    adverts = {name: advert_of(party.handle(liar.first(), lambda: None)) for name, party in parties.items()}
    for name, party in parties.items():
        party.handle(liar.roster_for(name, adverts), lambda: None)
        assert party.stage is SumStage.MASKED


def test_honest_parties_with_identities_give_the_sum(keys, tmp_path):
    parties = {name: Party(name, TERMS, identity(keys, name, tmp_path / name)) for name in NAMES}
    exchange = SecureSum(TERMS, NAMES, lambda party, data, signature: is_signed_by("", data, signature))
    messages = exchange.begin()
    while messages:
        replies = {
            name: parties[name].handle(message, lambda name=name: np.full(5, len(name), dtype=np.uint64))
            for name, message in messages.items()
        }
        messages = exchange.proceed(replies)
    assert exchange.result.values.tolist() == [14] * 5
