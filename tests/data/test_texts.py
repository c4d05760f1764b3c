"""Compact texts behave as lists of texts, and are found as a dictionary finds them."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhlcr.data.hierarchy import UNKNOWN, EntityIndex, index_pairs
from fedhlcr.data.ids import Ids, Texts, canonical_text, natural_key, natural_order, read_ids, sorted_ids

ANY_TEXT = st.text(st.characters(), max_size=6)
NUMERIC = st.one_of(
    st.integers().map(str), st.sampled_from(["0", "-0", "007", "-7", "1e3", " 1", "9" * 19, "٣", "5\n"])
)
TEXTS = st.lists(st.one_of(ANY_TEXT, NUMERIC), max_size=30)


@given(TEXTS)
def test_texts_are_a_sequence(texts):
    compact = Texts.of(texts)
    assert list(compact) == texts == compact == compact[:]
    assert [compact[i] for i in range(-len(texts), 0)] == texts
    assert compact == Texts.of_arrow(compact.to_arrow()) == pickle.loads(pickle.dumps(compact))
    assert (compact == Texts.of([*texts, "more"])) is False
    assert list(compact.joined(compact)) == texts * 2
    places = np.arange(len(texts))[::-2]
    assert list(compact.take(places)) == texts[::-2]


def test_texts_of_a_slice_of_arrow():
    texts = pa.array(["one", "two", "", "three"])
    assert Texts.of_arrow(texts[1:]) == ["two", "", "three"]
    assert Texts.of_arrow(texts[2:3]) == [""]
    assert Texts.of_numbers(np.array([3, -12])) == ["3", "-12"]
    with pytest.raises(IndexError):
        Texts.of(["a"])[1]


@given(TEXTS, TEXTS)
def test_texts_are_found_as_in_a_dictionary(known, wanted):
    known = list(dict.fromkeys(known))
    position = {text: place for place, text in enumerate(known)}
    found = Texts.of(known).find(Texts.of([*wanted, *known]))
    assert found.tolist() == [position.get(text, UNKNOWN) for text in [*wanted, *known]]


@given(TEXTS)
def test_natural_order_is_that_of_the_key(texts):
    texts = list(dict.fromkeys(texts))
    order = natural_order(Texts.of(texts))
    assert sorted(order.tolist()) == list(range(len(texts)))
    keys = [natural_key(texts[place]) for place in order]
    assert keys == sorted(keys)


ID_VALUES = st.one_of(st.integers(-(2**70), 2**70), ANY_TEXT, NUMERIC, st.binary(max_size=3))


@given(st.lists(ID_VALUES, min_size=1, max_size=20))
def test_ids_are_one_by_their_text_and_keep_what_the_user_wrote_first(values):
    ids = read_ids(values, "agent", len(values))
    texts = [canonical_text(value) for value in values]
    # not by natural_key, for which 0 and -0 are equal
    assert sorted(set(texts)) == sorted(ids.texts)
    assert [ids.texts[code] for code in ids.codes] == texts
    assert [canonical_text(value) for value in ids.values] == list(ids.texts)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.uint64, object])
def test_integers_of_every_type_stay_integers(kind):
    ids = read_ids(np.array([5, 11, 5, 7], dtype=kind), "agent", 4)
    assert ids.values.tolist() == [5, 7, 11]
    assert all(type(value) is int for value in ids.values)
    assert ids.codes.tolist() == [0, 2, 0, 1]
    assert ids.take(np.array([1, 3])).values.tolist() == [7, 11]


def test_chunks_of_arrow_are_read_as_one_column():
    chunks = pa.chunked_array([["b", "10"], [], ["a", "b", "9"]])
    ids = read_ids(chunks, "entity", 5)
    assert list(ids.texts) == list(ids.values) == ["9", "10", "a", "b"]
    assert ids.codes.tolist() == [3, 1, 2, 3, 0]


def test_values_of_equal_text_are_written_as_the_first():
    ids = sorted_ids(Ids(Texts.of(["7", "7", "a"]), np.array([1, 2, 0]), np.array([7.0, 7, "a"], dtype=object)))
    assert ids.codes.tolist() == [0, 1, 0]
    assert [type(value) for value in ids.values] == [float, str]


@given(st.lists(st.tuples(st.integers(0, 4), ANY_TEXT), min_size=1, max_size=20), TEXTS)
def test_pairs_are_found_as_in_a_dictionary(pairs, others):
    agents = read_ids([agent for agent, _ in pairs], "agent", len(pairs))
    entities = read_ids([entity for _, entity in pairs], "entity", len(pairs))
    index, position = index_pairs(agents, entities, agents.codes, entities.codes)
    wanted = [*pairs, *((agent % 6, text) for agent, text in enumerate(others))]
    known = dict(zip(pairs, position.tolist(), strict=True))
    asked = [read_ids(list(column), "agent", len(wanted)) for column in zip(*wanted, strict=True)]
    found = index.find_entities(index.find_agents(asked[0]), asked[1])
    assert found.tolist() == [known.get(pair, UNKNOWN) for pair in wanted]
    assert (EntityIndex.empty().find_agents(asked[0]) == UNKNOWN).all()
    union, one, other = index.union(index)
    np.testing.assert_array_equal(one, other)
    assert union.agent_ids.tolist() == index.agent_ids.tolist()
    assert union.entity_ids.tolist() == index.entity_ids.tolist()
