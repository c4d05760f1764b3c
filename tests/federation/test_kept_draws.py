"""Which draws are kept: a spread of the second half of the rounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedhlcr.federation.kept_draws import DrawKeeper
from fedhlcr.model.gaussian import Gaussian
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers.state import GlobalDraw
from fedhlcr.storage.reader import checkpoint_reader

GAUSSIAN = Gaussian(GramLayout(1))


def draw_of(number: int, n_clusters: int = 2) -> GlobalDraw:
    return GlobalDraw(number, np.ones(n_clusters), GAUSSIAN.start(ModelSpec(), n_clusters), float(number))


def rounds_of(keeper: DrawKeeper) -> list[int]:
    return [draw.round for draw in keeper.kept()]


def filled(most: int, n_rounds: int, settled_from: int = 1) -> DrawKeeper:
    keeper = DrawKeeper(most)
    for number in range(1, n_rounds + 1):
        keeper.add(draw_of(number), settled=number >= settled_from)
    return keeper


@given(st.integers(1, 12), st.integers(1, 150))
def test_kept_draws_are_spread_over_the_second_half(most, n_rounds):
    kept = rounds_of(filled(most, n_rounds))
    assert 1 <= len(kept) <= most
    # evenly, from just after the middle to the end; a single one may be anywhere
    gap = kept[1] - kept[0] if len(kept) > 1 else n_rounds
    assert (np.diff(kept) == gap).all()
    assert n_rounds // 2 < kept[0] <= n_rounds // 2 + gap
    assert n_rounds - gap < kept[-1] <= n_rounds


def test_all_draws_of_the_second_half_are_kept_while_there_is_room():
    assert rounds_of(filled(most=10, n_rounds=20)) == list(range(11, 21))


def test_draws_before_merging_has_ended_are_not_kept():
    assert rounds_of(filled(most=10, n_rounds=12, settled_from=10)) == [10, 11, 12]


def test_newest_draw_stands_in_while_none_is_settled():
    keeper = filled(most=10, n_rounds=5, settled_from=6)
    assert rounds_of(keeper) == [5]
    assert keeper.newest.round == 5


def test_replaced_draw_is_the_only_one():
    keeper = filled(most=10, n_rounds=12)
    keeper.replace_newest(draw_of(12, n_clusters=1))
    assert rounds_of(keeper) == [12]
    assert keeper.newest.globals.n_clusters == 1


def test_clear_drops_everything():
    keeper = filled(most=2, n_rounds=12)
    keeper.clear()
    assert keeper.newest is None
    assert rounds_of(keeper) == []
    keeper.add(draw_of(13), settled=True)
    assert rounds_of(keeper) == [13]


@given(st.integers(1, 8), st.integers(0, 40), st.integers(1, 40))
def test_restored_keeper_continues_in_the_same_way(most, n_rounds, n_more):
    keeper, again = filled(most, n_rounds), DrawKeeper(most)
    again.restore(checkpoint_reader(keeper.to_record()), GAUSSIAN)
    assert rounds_of(again) == rounds_of(keeper)
    for number in range(n_rounds + 1, n_rounds + n_more + 1):
        for one in (keeper, again):
            one.add(draw_of(number), settled=True)
    assert rounds_of(again) == rounds_of(keeper)


def test_restored_draws_have_their_own_numbers_of_clusters():
    keeper, again = DrawKeeper(5), DrawKeeper(5)
    for number, n_clusters in ((5, 4), (6, 2), (7, 3)):
        keeper.add(draw_of(number, n_clusters), settled=True)
    again.restore(checkpoint_reader(keeper.to_record()), GAUSSIAN)
    assert [draw.globals.n_clusters for draw in again.kept()] == [4, 2, 3]
