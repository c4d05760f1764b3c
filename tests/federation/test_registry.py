"""The registry: positions never change, and records are checked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhlcr.exceptions import CodecError
from fedhlcr.federation.messages import NEVER
from fedhlcr.federation.registry import UNREGISTERED, Registry
from fedhlcr.storage.reader import checkpoint_reader
from fedhlcr.storage.records import from_record, to_record

NAMES = st.lists(st.sampled_from(["1", "2", "10", "a", "b", "a10", "a9"]))


@given(st.lists(NAMES))
def test_positions_never_change(groups):
    registry, positions = Registry(), {}
    for names in groups:
        found = registry.register(names).tolist()
        positions = dict(zip(names, found, strict=True)) | positions
        assert found == [positions[name] for name in names]
        assert [registry.names[position] for position in found] == names
    assert len(registry) == len(positions) == len(registry.accepted_round) == len(registry.withdrawn)


def test_agents_registered_together_are_in_natural_order():
    registry = Registry()
    assert registry.register(["10", "9", "1"]).tolist() == [2, 1, 0]
    assert registry.register(["2", "10"]).tolist() == [3, 2]
    assert registry.names == ["1", "9", "10", "2"]


def test_new_agents_have_contributed_nothing():
    registry = Registry()
    registry.register(["a", "b"])
    registry.accepted_round[:], registry.withdrawn[1] = 7, True
    registry.register(["c"])
    assert registry.accepted_round.tolist() == [7, 7, NEVER]
    assert registry.withdrawn_names == {"b"}
    assert registry.find(["c", "nobody"]).tolist() == [2, UNREGISTERED]


def some_agents():
    registry = Registry()
    registry.register(["b", "a"])
    registry.register(["A"])
    registry.accepted_round[:], registry.withdrawn[:] = [3, NEVER, 5], [False, True, False]
    return registry


def test_records_round_trip():
    registry, again = some_agents(), from_record(Registry, checkpoint_reader(to_record(some_agents())))
    assert again.names == registry.names
    np.testing.assert_array_equal(again.accepted_round, registry.accepted_round)
    np.testing.assert_array_equal(again.withdrawn, registry.withdrawn)
    assert again.find(registry.names).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("agents", lambda names: [*names[:-1], names[0]]),
        ("accepted_round", lambda rounds: rounds[:-1]),
        ("accepted_round", lambda rounds: rounds - 10),
        ("withdrawn", lambda flags: flags.astype(np.int64)),
    ],
)
def test_inconsistent_records_are_refused(field, change):
    record = to_record(some_agents())
    with pytest.raises(CodecError, match=rf"`{field}` is missing or has a wrong value"):
        from_record(Registry, checkpoint_reader({**record, field: change(record[field])}))
