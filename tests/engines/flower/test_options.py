"""Options of a run and of a node."""

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")


from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.engines.flower.options import RunOptions
from fedhlcr.engines.flower.refusal import Refusal

NODE = {"data-path": "events.csv", "target": "y", "agent": "a", "features": "x, z"}


def test_options_reach_the_settings():
    options = RunOptions.from_config(
        {"rounds": 0, "patience": 0, "clusters": 5, "noise-scale": 2, "draws": 7, "limits.max-events": 10.0, "seed": 3}
    )
    settings = options.settings(2)
    assert (settings.rounds, settings.patience, settings.n_clusters, settings.noise_scale) == (None, None, 5, 2.0)
    assert (settings.n_draws, settings.limits.max_events, settings.seed) == (7, 10.0, 3)


@pytest.mark.parametrize(("curves", "positions"), [("none", ()), ("auto", (0, 1, 2)), ("c, a", (0, 2))])
def test_curves_reach_the_settings_as_positions(curves, positions):
    options = RunOptions.from_config({"curves": curves})
    assert options.settings(3, ("a", "b", "c")).curves == positions


def test_unknown_curves_are_refused():
    with pytest.raises(ValueError, match="`curves` names the column 'd'"):
        RunOptions.from_config({"curves": "a,d"}).settings(3, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"round": 3}, "there is no option `round` in the run-config; did you mean `rounds`"),
        ({"zzz": 3}, "there is no option `zzz` in the run-config; known are"),
        ({"rounds": "many"}, "`rounds` must be a whole number, but is 'many'"),
        ({"rounds": 1.5}, "`rounds` must be a whole number"),
        ({"resume": "yes"}, "`resume` must be true or false"),
        ({"rule": "average"}, "`rule` must be one of delta, blend"),
        ({"participation": 1.5}, "`participation` must be"),
        ({"rule": "blend"}, "cannot learn"),
        ({"min-nodes": 0}, "`min-nodes` must be a finite number of at least 1"),
        ({"round-timeout": 0.0}, "`round-timeout` must be a finite number of at least"),
        ({"wait-for-nodes": float("inf")}, "`wait-for-nodes` must be a finite number"),
        ({"output-dir": " "}, "`output-dir` is empty"),
        ({"features": "a,b,a"}, "`features` names a column twice"),
        ({"experiment": "../x"}, "`experiment` must consist of"),
    ],
)
def test_wrong_run_option_is_refused(config, words):
    with pytest.raises(ValueError, match=words):
        RunOptions.from_config(config)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data-path": ""}, "lacks `data-path`"),
        ({"features": ""}, "lacks `features`"),
        ({"agent": ""}, "set either `agent`"),
        ({"agent-name": "north"}, "set either `agent`"),
        ({"features": "x,y"}, "a column is named twice"),
        ({"entitty": "e"}, "did you mean `entity`"),
    ],
)
def test_wrong_node_option_is_refused(change, words):
    with pytest.raises(Refusal, match=words):
        NodeOptions.from_context(NODE | change, {})


def test_server_cannot_choose_a_nodes_files(tmp_path):
    """A server cannot make a real node read another file, nor write elsewhere."""
    evil = {"simulation.data-path": "/etc/passwd", "simulation.target": "root", "output-dir": "/"}
    options = NodeOptions.from_context(NODE | {"partition-id": 0, "num-partitions": 1}, evil)
    assert options.data_path.name == "events.csv"
    assert options.state_dir.name == "events.csv.state"
    for told in ({}, {"partition-id": 0, "num-partitions": 1}):
        with pytest.raises(Refusal, match="the node-config lacks"):
            NodeOptions.from_context(told, evil)


def test_unknown_node_options_are_ignored():
    assert NodeOptions.from_context(NODE | {"favourite-colour": "blue"}, {}).features == ("x", "z")
