"""Order statistics without sorting: against sorting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedhlcr.data.streaming import order_statistics as module
from fedhlcr.data.streaming.order_statistics import order_statistics

NUMBER = st.floats(-1e100, 1e100, allow_nan=False) | st.sampled_from([0.0, -0.0, 1.0, 1.0000001, 5e-324])


@pytest.mark.parametrize("few", [0, 3, 1 << 20])
@given(values=st.lists(NUMBER, min_size=1, max_size=60), data=st.data())
def test_values_are_those_of_a_sorted_column(few, values, data):
    ranks = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=5))
    column = np.array(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", few)
        found = order_statistics(lambda: iter(np.array_split(column, 4)), ranks)
    assert repr(found.tolist()) == repr((np.sort(column + 0.0)[ranks]).tolist())


def test_close_values_are_told_apart():
    rng = np.random.default_rng(3)
    column = 1000.0 + rng.normal(size=200_000) * 1e-9
    found = order_statistics(lambda: iter(np.array_split(column, 7)), [0, 99_999, 100_000, 199_999])
    assert found.tolist() == np.sort(column)[[0, 99_999, 100_000, 199_999]].tolist()
