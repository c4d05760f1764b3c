"""What a node would send, and which of its agents take part."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from fedhlcr.cli import run
from fedhlcr.cli.shell import BAD_DATA, WRONG_USAGE
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.exceptions import Refusal
from fedhlcr.privacy.disclosure import DEFAULT_RULE, NO_RULE, DisclosureRule

SHOPS = {"north": (8, 10), "south": (3, 20), "tiny": (2, 1), "west": (12, 2)}
COLUMNS = ("--target", "sales", "--features", "price,deal", "--agent", "shop", "--entity", "item")


@pytest.fixture
def table(tmp_path):
    """Two shops with enough items and sales, one with few items, one with few of both; of west one item sold once."""
    rng, lines = np.random.default_rng(0), ["shop,item,price,deal,sales"]
    for shop, (n_items, n_sales) in SHOPS.items():
        for item in range(n_items):
            for _ in range(1 if (shop, item) == ("west", 0) else n_sales):
                price, deal, noise = rng.normal(size=3)
                lines.append(f"{shop},{shop}{item},{price:.4f},{deal:.4f},{price + deal + noise:.4f}")
    path = tmp_path / "shops.csv"
    path.write_text("\n".join(lines))
    return path


def shown(capsys, *arguments):
    assert run(["flower", "preview", *(str(argument) for argument in arguments)]) == 0
    return capsys.readouterr().out


def test_it_says_who_takes_part_and_why_not(table, capsys):
    text = shown(capsys, table, *COLUMNS)
    assert "Who takes part: 2 of 4 agents" in text
    assert "An agent needs 12 events and 5 entities" in text
    assert "stays out: 3 entities, fewer than 5" in text
    assert "stays out: 2 events, fewer than 12 and 2 entities, fewer than 5" in text


def test_it_counts_what_is_sent_and_the_worst_case(table, capsys):
    text = shown(capsys, table, *COLUMNS, "--clusters", "10")
    assert "all columns: 10 numbers" in text
    assert "for each of 10 clusters" in text
    assert "1 entity of 20 has one event" in text
    assert "11 entities of 20 have two events" in text
    for mode in ("plain", "secure"):
        assert f"\n  {mode}" in text
    assert "With differential privacy (`epsilon` of the run) none of these sums are sent" in text


def test_scalars_of_a_round_are_named(table, capsys):
    text = shown(capsys, table, *COLUMNS)
    assert "two draws for the concentrations: 4 numbers" in text
    # 6 for each of two features, and 18
    assert "with effects: 30 more sums" in text


def test_entities_that_do_not_exist_are_not_mentioned(table, capsys):
    only_large = table.with_name("large.csv")
    only_large.write_text("\n".join(line for line in table.read_text().splitlines() if "west" not in line))
    text = shown(capsys, only_large, *COLUMNS)
    assert "in the worst case (8 entities)" in text
    assert "one event" not in text
    assert "two events" not in text


def test_bytes_are_those_of_a_real_contribution(table, capsys):
    """The size does not depend on the agent."""
    from fedhlcr.federation import Agent
    from tests.federations import server_for
    from tests.problems import PAPER

    agent = Agent("agent", np.eye(2), [1.0, 2.0], disclosure=None)
    server = server_for(2, max_clusters=10, **PAPER)
    sizes = []
    for _ in range(2):
        call = server.open_round(["agent"])
        sizes.append(len(agent.round(call.broadcast).to_bytes()))
        server.accept(agent.round(call.broadcast))
        server.close_round()
    text = shown(capsys, table, *COLUMNS, "--clusters", "10")
    assert f"{sizes[0]:,} bytes in all, before compression" in text
    assert f"{sizes[1]:,} bytes for the plain model" in text


def test_no_value_of_the_table_is_shown(table, capsys):
    text = shown(capsys, table, *COLUMNS)
    for line in table.read_text().splitlines()[1:]:
        for value in line.split(",")[1:]:
            assert value not in text.split()


def test_a_node_that_sends_nothing(table, capsys):
    text = shown(capsys, table, *COLUMNS, "--min-events", "1000")
    assert "Who takes part: 0 of 4 agents" in text
    assert "would send no sums" in text
    assert "Who sees it" not in text


def test_the_rule_can_be_changed(table, capsys):
    assert "Who takes part: 4 of 4" in shown(capsys, table, *COLUMNS, "--min-events", "0", "--min-entities", "0")


def test_a_wrong_column_is_an_error_in_one_line(table, capsys):
    assert run(["flower", "preview", str(table), "--target", "nothing", *COLUMNS[2:]]) == BAD_DATA
    assert "nothing" in capsys.readouterr().err
    assert run(["flower", "preview", str(table), *COLUMNS[:4]]) == WRONG_USAGE
    assert "agent-name" in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"PAR1 and no more", b"", b"shop,item,price,deal,sales\na,b,1,2,text\n"])
def test_a_table_that_cannot_be_used_is_bad_data_as_elsewhere(data, table, capsys):
    table.write_bytes(data)
    assert run(["flower", "preview", str(table), *COLUMNS]) == BAD_DATA
    assert "'shops.csv'" in capsys.readouterr().err


def config_of(table, tmp_path, **more):
    columns = {"target": "sales", "features": "price,deal", "agent": "shop", "entity": "item"}
    return {"data-path": str(table), **columns, "state-dir": str(tmp_path / "state"), **more}


def test_a_node_names_only_agents_that_take_part(table, tmp_path, caplog):
    options = NodeOptions.from_context(config_of(table, tmp_path), {})
    assert Node(options, "e").names() == ["north", "west"]
    assert "2 of 4 agents did not take part" in caplog.text
    everyone = config_of(table, tmp_path, **{"min-events": "0", "min-entities": "0"})
    assert Node(NodeOptions.from_context(everyone, {}), "e").names() == list(SHOPS)
    nobody = NodeOptions.from_context(config_of(table, tmp_path, **{"min-events": 500}), {})
    with pytest.raises(Refusal, match="enough events and entities"):
        Node(nobody, "e").names()


def test_rules_of_real_and_simulated_nodes(table, tmp_path):
    config = config_of(table, tmp_path)
    assert NodeOptions.from_context(config, {}).disclosure == DEFAULT_RULE
    simulated = {f"simulation.{name}": value for name, value in config.items() if name != "state-dir"}
    share = {"partition-id": 0, "num-partitions": 2}
    assert NodeOptions.from_context(share, simulated, simulated=True).disclosure == NO_RULE
    given = NodeOptions.from_context({**config, "min-entities": "7"}, {})
    assert given.disclosure == DisclosureRule(None, 7)
    with pytest.raises(Refusal, match="`min-events` of the node-config must be a whole number"):
        NodeOptions.from_context({**config, "min-events": "-3"}, {})
