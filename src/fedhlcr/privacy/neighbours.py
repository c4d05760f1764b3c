"""Who shares masks and secrets with whom in a secure sum.

Up to 100 parties, everybody does with everybody. Beyond, each party has the same even number k of neighbours, which
grows with the logarithm of the number of parties: the parties are put on a circle in random order, and each has the k/2
next ones on either side as neighbours (Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead",
CCS 2020). The order follows from a hash of all keys of the round, so that every party computes it and the server cannot
choose it at will. A server that lies could still try many rosters, by leaving parties out, until an order suits it.

A party and its neighbours are its *group*. Each member holds a share of the party's secrets, and two thirds of them are
needed to put a secret together:

    threshold t = ⌈2g/3⌉ of g members

 - Fewer than t colluding members learn nothing.
 - A server that lies to half of the group that the party dropped out, and to the other half that it did not, needs 2t
   answers of g members, and colluding ones answer twice: it fails against fewer than 2t − g ≥ g/3 colluding members.
 - A group that loses no more than a third of its members can still put the secrets together.

k is the smallest number for which, with 20 % of all parties colluding with the server and 10 % dropping out, each
chosen without knowledge of the order,

 1. some group has t colluding members with probability below 2⁻⁴⁰ (hypergeometric tail, times the number of parties);
 2. the honest parties that did not drop out fall apart into circles' arcs without a mask between them with probability
    below 2⁻⁴⁰: it takes k/2 missing parties in a row, so n (.2 + .1)^(k/2) bounds it;
 3. some group loses more than g − t members with probability below 2⁻²⁰; then the round is void, and nothing is lost.

    parties          150    300    1,000   10,000   100,000
    neighbours k      56     56       74       98       110
    threshold t       38     38       50       66        74

Among 1,000 parties with 10 % colluding, the lie above succeeds for somebody with probability 4·10⁻⁶ per round.
"""

from __future__ import annotations

import math
from functools import lru_cache
from hashlib import sha256

import numpy as np

from fedhlcr._support.arrays import IndexArray

COMPLETE_UP_TO = 100
COLLUDING = 0.2
DROPPING = 0.1
SECRECY_BOUND = 2.0**-40
RECOVERY_BOUND = 2.0**-20


def threshold(group_size: int) -> int:
    """How many members of a group must answer: two thirds, rounded up."""
    return -(-2 * group_size // 3)


@lru_cache(maxsize=64)
def n_neighbours(n_parties: int) -> int:
    """How many neighbours each party has."""
    if n_parties <= COMPLETE_UP_TO:
        return n_parties - 1
    fitting = (k for k in range(2, n_parties - 1, 2) if _is_enough(n_parties, k))
    return next(fitting, n_parties - 1)


def _is_enough(n_parties: int, k: int) -> bool:
    # here, because it takes long to import, and a Flower node does so for each message
    from scipy.stats import hypergeom

    group = k + 1
    t = threshold(k + 1)
    colluding = math.ceil(COLLUDING * n_parties)
    dropping = math.ceil(DROPPING * n_parties)
    seen = n_parties * hypergeom.sf(t - 1, n_parties - 1, colluding, k)
    apart = n_parties * (COLLUDING + DROPPING) ** (k // 2)
    lost = n_parties * hypergeom.sf(group - t, n_parties, dropping, group)
    return bool(seen < SECRECY_BOUND and apart < SECRECY_BOUND and lost < RECOVERY_BOUND)


@lru_cache(maxsize=4)
def groups_of(n_parties: int, digest: bytes) -> IndexArray:
    """Return each party's group, itself included, as sorted indices: an array of shape (n_parties, k + 1).

    Parameters
    ----------
    digest : hash of all keys of the round; it decides the order on the circle
    """
    k = n_neighbours(n_parties)
    if k == n_parties - 1:
        groups = np.tile(np.arange(n_parties), (n_parties, 1))
    else:
        marks = [sha256(digest + index.to_bytes(8, "little")).digest() for index in range(n_parties)]
        circle = np.array(sorted(range(n_parties), key=marks.__getitem__))
        steps = np.arange(-(k // 2), k // 2 + 1)
        groups = np.empty((n_parties, k + 1), np.int64)
        groups[circle] = np.sort(circle[(np.arange(n_parties)[:, None] + steps) % n_parties], axis=1)
    groups.flags.writeable = False
    return groups


def places_of(groups: IndexArray) -> IndexArray:
    """Return where each party stands in its members' groups: groups[groups[i, j], places[i, j]] = i."""
    n_parties, size = groups.shape
    # rows are sorted, so (party, member) pairs in this order are sorted too
    pairs = (np.arange(n_parties)[:, None] * n_parties + groups).ravel()
    places: IndexArray = np.searchsorted(pairs, groups * n_parties + np.arange(n_parties)[:, None]) - groups * size
    return places
