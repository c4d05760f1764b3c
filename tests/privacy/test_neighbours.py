"""Groups: the same for all who know the keys, symmetric, of equal size, and large enough."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fedhlcr.privacy.neighbours import COMPLETE_UP_TO, groups_of, n_neighbours, places_of, threshold

SIZES = [1, 2, 3, 7, 100, 101, 128, 333, 1000]


@pytest.mark.parametrize("n_parties", SIZES)
def test_groups_are_symmetric_and_contain_their_party(n_parties):
    groups = groups_of(n_parties, b"keys")
    assert groups.shape == (n_parties, n_neighbours(n_parties) + 1)
    assert (np.diff(groups, axis=1) > 0).all()
    member = np.zeros((n_parties, n_parties), bool)
    np.put_along_axis(member, groups, True, axis=1)
    assert member.diagonal().all()
    assert (member == member.T).all()


@pytest.mark.parametrize("n_parties", SIZES)
def test_places_find_a_party_in_its_members_groups(n_parties):
    groups = groups_of(n_parties, b"keys")
    found = groups[groups, places_of(groups)]
    np.testing.assert_array_equal(found, np.repeat(np.arange(n_parties)[:, None], groups.shape[1], axis=1))


def test_up_to_100_parties_everybody_is_a_neighbour():
    assert [n_neighbours(n) for n in (2, 50, COMPLETE_UP_TO)] == [1, 49, 99]
    assert n_neighbours(COMPLETE_UP_TO + 1) < COMPLETE_UP_TO


def test_numbers_of_the_table_in_the_docstring():
    sizes = (150, 300, 1000, 10_000, 100_000)
    assert [n_neighbours(n) for n in sizes] == [56, 56, 74, 98, 110]
    assert [threshold(n_neighbours(n) + 1) for n in sizes] == [38, 38, 50, 66, 74]


def test_order_follows_from_the_keys():
    one, same, other = groups_of(300, b"a"), groups_of(300, b"a"), groups_of(300, b"b")
    np.testing.assert_array_equal(one, same)
    assert (one != other).mean() > 0.9


def test_every_pair_is_equally_likely_to_be_neighbours():
    n_parties, n_rounds = 120, 200
    together = np.zeros((n_parties, n_parties))
    for number in range(n_rounds):
        np.add.at(together, (np.arange(n_parties)[:, None], groups_of(n_parties, b"%d" % number)), 1)
    share = n_neighbours(n_parties) / (n_parties - 1)
    z = (together[np.triu_indices(n_parties, 1)] - n_rounds * share) / np.sqrt(n_rounds * share * (1 - share))
    assert np.abs(z).max() < 6
    assert 0.9 < z.std() < 1.1


@pytest.mark.parametrize("size", range(1, 200))
def test_threshold_is_two_thirds(size):
    t = threshold(size)
    assert size / 2 < t <= size
    # a lying server needs 2t answers, and a third of the group may answer twice
    assert all(2 * t > size + colluding for colluding in range(-(-size // 3)))


def test_losses_within_the_assumptions_leave_everybody_connected_and_recoverable(rng):
    """20 % of the parties collude and 10 % drop out: the honest rest share masks, and groups have enough left."""
    n_parties = 300
    for number in range(200):
        groups = groups_of(n_parties, b"%d" % number)
        order = rng.permutation(n_parties)
        colluding, dropped = np.isin(np.arange(n_parties), order[:60]), np.isin(np.arange(n_parties), order[60:90])
        t = threshold(groups.shape[1])
        assert (~dropped[groups]).sum(axis=1).min() >= t
        assert colluding[groups].sum(axis=1).max() < t
        rest = ~(colluding | dropped)
        member = np.zeros((n_parties, n_parties), bool)
        np.put_along_axis(member, groups, True, axis=1)
        assert connected_components(csr_array(member[np.ix_(rest, rest)]))[0] == 1
