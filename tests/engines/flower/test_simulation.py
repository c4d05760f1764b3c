"""Flower's simulation runtime, with Ray: the same model as in one process."""

import pytest

pytest.importorskip("ray", reason="the simulation extra is not installed")

from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.flower.app_folder import write_app
from fedhlcr.engines.flower.loopback import Loopback
from fedhlcr.posterior import PublicModel
from tests.flower_grid import assert_same_model, node_config, write_table


@pytest.mark.slow
@pytest.mark.ci
def test_simulated_nodes_give_the_model_of_one_process(tmp_path):
    table, _ = make_hlcr(n_agents=30, random_state=5)
    whole = write_table(tmp_path / "whole.parquet", table)
    told = {f"simulation.{name}": value for name, value in node_config(whole, table).items()}
    write_app(tmp_path / "app", {"seed": 7, "rounds": 8, "participation": 0.5, "min-nodes": 5, **told})
    with Loopback(tmp_path / "loopback", simulated_nodes=5) as federation:
        federation.start_superlink()
        federation.follow(federation.start_run(tmp_path / "app"), limit=300)
        model = PublicModel.load(federation.folder / "fedhlcr-output" / "experiment.model")
    alone = FedHLCRRegressor(rounds=8, participation=0.5, random_state=7)
    alone.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    assert_same_model(model, alone.posterior_, tolerance=1e-9)
