"""Draws that are kept in files give the same model as draws in memory."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.posterior import alignment
from fedhlcr.posterior import memory as memory_module
from fedhlcr.samplers.chain import ChainPlan
from fedhlcr.storage import scratch


def fitted(**settings):
    table, _ = make_hlcr(n_agents=12, n_clusters=3, random_state=1)
    model = HLCRRegressor(n_sweeps=30, n_draws=8, max_clusters=8, **settings)
    model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    ends = model.predict_interval(table.X, agent=table.agent, entity=table.entity)
    return model, np.column_stack([model.predict(table.X, agent=table.agent, entity=table.entity), *ends])


@pytest.mark.parametrize("far_apart", [0, 100], ids=["few rows", "many rows"])
@pytest.mark.parametrize("settings", [{"effects": "none"}, {"effects": "entity+agent", "noise": "entity"}], ids=str)
def test_draws_in_files_are_those_in_memory(settings, far_apart, monkeypatch):
    expected, predicted = fitted(**settings)
    monkeypatch.setattr(memory_module, "FAR_APART", far_apart)
    monkeypatch.setattr(scratch, "LARGE", 0)
    monkeypatch.setattr(scratch, "LARGE_ROW", 0)
    monkeypatch.setattr(alignment, "ENTITIES_AT_ONCE", 5)
    monkeypatch.setattr(alignment, "CELLS_AT_ONCE", 20)
    model, again = fitted(**settings)
    memory = model.posterior_.memory
    for array in (memory.labels, *memory.agent_state.values()):
        assert scratch.mapping_of(array) is not None
    np.testing.assert_array_equal(memory.labels, expected.posterior_.memory.labels)
    for name, values in memory.agent_state.items():
        np.testing.assert_array_equal(values, expected.posterior_.memory.agent_state[name])
    np.testing.assert_array_equal(again, predicted)
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    np.testing.assert_array_equal(model.agent_weights_, expected.agent_weights_)
    compositions = [alignment.mean_compositions(m.posterior_.memory, m.alignment_) for m in (model, expected)]
    np.testing.assert_allclose(*compositions, rtol=1e-15)


def test_a_chain_keeps_the_last_draws_of_its_second_half():
    model, _ = fitted(effects="none")
    kept = model.trace_["sweep"][model.trace_["kept"]]
    plan = ChainPlan(n_sweeps=30, n_draws=8)
    assert kept.tolist() == [s for s in range(plan.first_kept + 1, 31) if s % plan.thinning == 0][-8:]
    assert len(model.posterior_.draws) == len(kept)
