"""The last step of a secure sum at the server: put secrets together from shares, and remove the masks they make.

A share may be wrong, by accident or on purpose, so each secret is checked: a seed against the commitment that came with
the masked values, a key against the public key on the roster. If a secret fails, other shares are tried; shares that do
not lie on the right polynomial betray the party that sent them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import IndexArray
from fedhlcr.exceptions import SecureSumError
from fedhlcr.privacy import shamir
from fedhlcr.privacy.ciphers import KeyPair
from fedhlcr.privacy.fixed_point import FixedArray
from fedhlcr.privacy.party import commitment, pair_mask, self_mask
from fedhlcr.privacy.roster import MASKING, Roster

# How many other choices of shares are tried for a secret that fails its check. With a third of the shares to spare,
# a choice avoids one wrong share in 3 and three wrong ones in about 30.
TRIES = 200


@dataclass
class Unmasking:
    """Collects shares and takes masks off.

    Parameters
    ----------
    present : which parties sent shares; each has masked what it sends with all of them in its group
    commitments : of the survivors' seeds, by index; the other present parties dropped out before they sent values
    """

    roster: Roster
    present: NDArray[np.bool_]
    commitments: dict[int, bytes]

    def __post_init__(self) -> None:
        shape = len(self.roster), self.roster.group_size
        # by owner and place in the owner's group
        self.shares = np.zeros((*shape, shamir.N_LIMBS), np.uint32)
        self.asked = np.zeros(shape, np.bool_)
        self.held = np.zeros(shape, np.bool_)
        self.suspects: set[int] = set()

    def rows_of(self, holder: int) -> IndexArray:
        """The members of a party's group whose shares it sends, in the order in which it sends them."""
        return np.flatnonzero(self.present[self.roster.groups[holder]])

    def add(self, holder: int, shares: shamir.Shares, held: NDArray[np.bool_]) -> None:
        """Take the shares that one party holds."""
        rows = self.rows_of(holder)
        owners = self.roster.groups[holder, rows]
        places = self.roster.places[holder, rows]
        self.shares[owners, places] = shares
        self.asked[owners, places] = True
        self.held[owners, places] = held

    def remove_masks(self, total: FixedArray) -> FixedArray:
        """Return the sum of the survivors' values from the sum of their masked values."""
        survivors = np.zeros(len(self.roster), np.bool_)
        survivors[list(self.commitments)] = True
        # a party whose whole group dropped out left no mask behind
        left = survivors | (self.present & survivors[self.roster.groups].any(axis=1))
        secrets = self._secrets(np.flatnonzero(left).tolist())
        total = total.copy()
        digest = self.roster.digest
        n_values = self.roster.terms.n_values
        for owner, secret in secrets.items():
            if survivors[owner]:
                total -= self_mask(secret, digest, n_values)
                continue
            key = KeyPair.from_secret(secret)
            for other in self.roster.groups[owner].tolist():
                if survivors[other]:
                    mask = pair_mask(key, self.roster.keys[other, MASKING].tobytes(), digest, n_values)
                    # the survivor with the lower index has added it
                    total += mask if owner < other else -mask
        return total

    def _secrets(self, owners: list[int]) -> dict[int, bytes]:
        """The seeds of survivors and the masking keys of parties that dropped out."""
        threshold = self.roster.threshold
        chosen: dict[bytes, list[int]] = {}
        for owner in owners:
            places = np.flatnonzero(self.held[owner])
            if len(places) < threshold:
                if self.asked[owner].sum() >= threshold:
                    # enough members answered, but could not open what the owner had sealed for them
                    self.suspects.add(owner)
                raise SecureSumError(f"{len(places)} shares of a secret came back, but {threshold} are needed")
            chosen.setdefault(places[:threshold].tobytes(), []).append(owner)
        found: dict[int, bytes] = {}
        # owners whose shares come from the same places are done at once
        for key, together in chosen.items():
            places = np.frombuffer(key, np.int64)
            secrets = shamir.combine(self.shares[np.array(together)[:, None], places], places + 1)
            for owner, secret in zip(together, secrets, strict=True):
                found[owner] = secret if secret and self._is_right(owner, secret) else self._search(owner)
        return found

    def _is_right(self, owner: int, secret: bytes) -> bool:
        if owner in self.commitments:
            return commitment(secret, self.roster.digest, owner) == self.commitments[owner]
        return KeyPair.from_secret(secret).public == self.roster.keys[owner, MASKING].tobytes()

    def _search(self, owner: int) -> bytes:
        """The secret from other choices of shares; parties whose shares do not fit become suspects."""
        members = self.roster.groups[owner]
        threshold = self.roster.threshold
        held = np.flatnonzero(self.held[owner] & ~np.isin(members, list(self.suspects)))
        for places in _choices(held, threshold):
            shares = self.shares[owner, places][None]
            (secret,) = shamir.combine(shares, places + 1)
            if secret is not None and self._is_right(owner, secret):
                expected = [shamir.interpolate(shares, places + 1, place + 1)[0] for place in held.tolist()]
                fits = (self.shares[owner, held] == np.array(expected)).all(axis=1)
                self.suspects |= set(members[held[~fits]].tolist())
                return secret
        if len(held) > threshold:
            # with a share to spare, a single wrong one would have been found: the owner itself shared wrongly
            self.suspects.add(owner)
        raise SecureSumError("the shares of a secret contradict each other")


def _choices(places: IndexArray, size: int) -> Iterator[IndexArray]:
    """All choices of so many places if they are few, else random ones."""
    if math.comb(len(places), size) <= TRIES:
        yield from (np.array(choice) for choice in combinations(places.tolist(), size))
    else:
        generator = np.random.default_rng(size)
        yield from (np.sort(generator.permutation(places)[:size]) for _ in range(TRIES))
