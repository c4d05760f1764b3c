"""A page stays small whatever the names are: data are compressed, and what does not fit is left out and said so."""

from __future__ import annotations

import random
import string
import uuid

import numpy as np
import pytest

from fedhlcr import HLCRRegressor, hold_out_events
from fedhlcr.analysis.names import LONGEST, NO_NAME, names_to_show
from fedhlcr.datasets import make_hlcr
from fedhlcr.report import HeldOut, packing, render_report
from fedhlcr.report.findings import Findings
from fedhlcr.report.packing import size_of_names, to_block
from tests.reports import HOSTILE, Page, held_out, unpacked

MEGABYTES = 3_000_000


def test_blocks_come_back_and_cannot_end_their_element():
    data = {"words": [HOSTILE, "שלום", "//example.org/x", "\u2028", "\ud800"], "values": [0.25, None, 3]}
    block = str(to_block(data))
    assert set(block) <= set(string.ascii_letters + string.digits + "-_=")
    assert unpacked(block) == data | {"words": [*data["words"][:-1], "?"]}


def test_sizes_of_names_are_those_of_their_blocks():
    numbers = random.Random(0)
    for names in (
        [f"store-{n // 8:05d}/product-{n % 8:06d}-eu-west" for n in range(9_000)],
        [str(uuid.UUID(int=numbers.getrandbits(128))) for _ in range(9_000)],
        ["".join(numbers.choices(string.ascii_letters, k=30)) for _ in range(50_000)],
    ):
        assert size_of_names(names) == pytest.approx(len(to_block(names)), rel=0.1)
    assert size_of_names([]) < 20


def test_very_long_names_lose_their_middle():
    long, empty, plain = names_to_show(["a" * 300 + "b" * 300, "", "\0one\ntwo"])
    assert len(long) <= LONGEST
    assert (long[:50], long[-50:]) == ("a" * 50, "b" * 50)
    assert "…" in long
    assert (empty, plain) == (NO_NAME, "one two")


def test_rows_without_room_are_left_out_and_the_page_says_so(model, split, monkeypatch):
    everyone = Findings(model).entities
    sizes = packing.size_of_entities(everyone.entities, everyone.probability, everyone.n_all)
    agents = Findings(model).agents
    monkeypatch.setattr(packing, "LEAST_DETAILS", 0)
    monkeypatch.setattr(packing, "ROOM", packing.size_of_agents(agents.ids, agents.weights) + sizes / 2)
    findings = Findings(model)
    found, n_all = findings.entities, len(model.labels_)
    assert len(found) == pytest.approx(n_all / 2, abs=1)
    assert found.n_all == n_all
    assert found.certainty.max() <= np.partition(everyone.certainty, len(found))[len(found)]
    # what is said about all entities does not change
    assert found.n_uncertain == everyone.n_uncertain
    assert findings.certainty == Findings(model).certainty
    page = Page(render_report(model, held_out(split[1])))
    assert f"To keep this page small, the table lists the {len(found)} of {n_all} entities" in page.text
    assert f"You can look up the {len(found)} entities in their table" in page.text
    pairs = [(str(agent), str(entity)) for agent, entity in np.array(model.pair_ids_, dtype=object)[found.position]]
    columns = page.columns("entities")
    assert list(zip(columns["agent"], columns["entity"], strict=True)) == pairs


def test_names_that_are_not_listed_are_not_on_the_page(split, monkeypatch):
    train = split[0]
    entity = np.array([f"{a}-{e}" for a, e in zip(train.agent, train.entity, strict=True)], dtype=object)
    model = HLCRRegressor(n_sweeps=10).fit(train.X, train.y, agent=train.agent, entity=entity)
    monkeypatch.setattr("fedhlcr.analysis.facts.MAX_EXACT", 7)
    page = Page(render_report(model))
    words = next(column["words"] for column in page.table("entities") if column["link"] == "entity")
    assert len(words) == 7
    assert set(words) == set(page.columns("entities")["entity"])


def test_names_of_agents_are_stored_once(model):
    page = Page(render_report(model))
    assert page.table("entities")[0]["words"] == "agents"
    assert page.table("agents")[0]["words"] == [str(agent) for agent in model.agent_ids_]
    assert page.columns("entities")["agent"] == [str(agent) for agent, _ in model.pair_ids_]


def test_details_get_the_room_that_is_left():
    assert packing.room_for_details(0.0, 0.0) == packing.MOST_DETAILS
    assert packing.room_for_details(100_000.0, packing.ROOM - 300_000.0) == 200_000.0
    assert packing.room_for_details(packing.ROOM, 0.0) == packing.LEAST_DETAILS
    assert packing.rows_that_fit(40_000, 0.0, 2.0 * (packing.ROOM - packing.LEAST_DETAILS)) == 20_000
    assert packing.rows_that_fit(40_000, 10.0 * packing.ROOM, 1.0) == 1


def big_report(name, agent_name=str, n_clusters="auto", noise=0.3, **options):
    """A page about 40,000 entities of 5,000 agents, and the model."""
    table, _ = make_hlcr(5000, 8, 4, 3, 6, noise, random_state=3)
    train, test = hold_out_events(table.agent, table.entity)
    pairs, pair_of = np.unique(np.column_stack([table.agent, table.entity]).astype(int), axis=0, return_inverse=True)
    entity = np.array([name(*pair) for pair in pairs.tolist()], dtype=object)[pair_of.ravel()]
    agent = np.array([agent_name(a) for a in range(5000)], dtype=object)[table.agent.astype(int)]
    model = HLCRRegressor(n_clusters, n_sweeps=6)
    model.fit(table.X[train], table.y[train], agent=agent[train], entity=entity[train])
    judged, events = (HeldOut(table.X[rows], table.y[rows], agent[rows], entity[rows]) for rows in (test, train))
    return model, render_report(model, judged, events=events, **options)


@pytest.mark.slow
@pytest.mark.ci
def test_random_names_of_many_entities_fit():
    numbers = random.Random(0)

    def unique(*_):
        return str(uuid.UUID(int=numbers.getrandbits(128)))

    model, html = big_report(unique, unique)
    assert len(html.encode()) < MEGABYTES
    assert len(Page(html).columns("entities")["entity"]) == len(model.labels_) > 40_000


@pytest.mark.slow
def test_structured_names_of_many_entities_take_little_room():
    model, html = big_report(lambda agent, entity: f"store-{agent:05d}/product-{agent * 8 + entity:06d}-eu-west")
    assert len(html.encode()) < 0.6 * MEGABYTES
    assert len(Page(html).columns("entities")["entity"]) == len(model.labels_)


@pytest.mark.slow
def test_very_long_random_names_with_a_map_and_many_clusters_fit():
    numbers = random.Random(0)
    _, html = big_report(
        lambda *_: "".join(numbers.choices(string.ascii_letters + string.digits, k=300)),
        lambda agent: f"{agent}-" + "".join(numbers.choices(string.ascii_letters, k=60)),
        n_clusters=15,
        noise=2.0,
        places=lambda _: (numbers.uniform(-60.0, 60.0), numbers.uniform(-170.0, 170.0)),
    )
    assert len(html.encode()) < MEGABYTES
    page = Page(html)
    n_listed = len(page.columns("entities")["entity"])
    assert 1_000 < n_listed < 40_000
    assert f"the table lists the {n_listed:,} of 40,002 entities" in page.text
