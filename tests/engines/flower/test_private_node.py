"""What a node refuses in private runs: second answers, more than its owner allows, and too little noise."""

from __future__ import annotations

import stat
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")
pytest.importorskip("opendp", reason="the privacy extra is not installed")

from fedhlcr import DifferentialPrivacy
from fedhlcr.engines.flower.node import Node
from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.engines.flower.records import RoundRequest, SumMessage
from fedhlcr.engines.flower.tally import TALLY_FILE, Tally
from fedhlcr.exceptions import Refusal
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.inquiry import Inquiry, read_sum
from fedhlcr.federation.private.run import plain_total
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.privacy.accounting import epsilon_of
from fedhlcr.privacy.noise import discrete_gaussian
from fedhlcr.privacy.secure_sum import SecureSum
from fedhlcr.privacy.terms import Terms
from tests.federations import hierarchy_of, server_for
from tests.flower_grid import node_config, write_table

SESSION, ROUNDS, DELTA = 1000, 3, 0.001
N_FEATURES = 7


def inquiry_of(server, session=SESSION):
    return Inquiry(session, server.plan, server.query())


def new_server(epsilon=3.0, seed=0, delta=DELTA, n_agents=12):
    privacy = DifferentialPrivacy(epsilon, delta, rounds=ROUNDS)
    names = [f"agent {number}" for number in range(n_agents)]
    return PrivateServer(
        FederationSettings(GramLayout(N_FEATURES), seed=seed, privacy=privacy), privacy.plan(n_agents), names
    )


@pytest.fixture
def make_node(tmp_path, table):
    """A node that holds all agents."""
    path = write_table(tmp_path / "table.csv", table)

    def make(experiment="experiment", mods=(), **more):
        config = node_config(path, table, **more)
        return Node(NodeOptions.from_context(config, {}), experiment, tuple(table.feature_names), mods)

    return make


def go_on(server, node, n_queries=1):
    """Let the node answer some queries of a run, and the server take them in without noise."""
    for _ in range(n_queries):
        inquiry = inquiry_of(server)
        answer = read_sum(node.answer_query(inquiry), inquiry, 12)
        server.accept(answer, np.arange(12))


def spent(node):
    return sum(run.spent for run in node.private.tally._read())


def test_a_node_answers_with_the_sum_of_clipped_vectors(make_node, table):
    """Exactly what agents in process send, and nothing else: run, session, place and values."""
    node, server = make_node(), new_server()
    go_on(server, node, 5)
    inquiry = inquiry_of(server)
    data = node.answer_query(inquiry)
    values = read_sum(data, inquiry, 12)
    secret, labels = node.private._saved(inquiry, node._held().source.digest, len(node._held().group.shard.grams))
    assert labels.min() >= 0
    assert len(data) < 8 * len(values) + 120
    # the same labels again, in process
    fresh, server = PrivateAgents(AgentShard.from_hierarchy(hierarchy_of(table)), secret=secret), new_server()
    while server.round < 1:
        total = plain_total(server.query(), fresh.answer(server.query(), np.arange(12)), no_noise)
        server.accept(total, np.arange(12))
    expected = plain_total(server.query(), fresh.answer(server.query(), np.arange(12)), no_noise)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(labels, fresh.labels)


def no_noise(_, size):
    return np.zeros(size, dtype=np.int64)


def test_each_query_is_answered_once(make_node):
    node, server = make_node(), new_server()
    votes = inquiry_of(server)
    go_on(server, node)
    locations = inquiry_of(server)
    limits = replace(locations.query.limits, most_events=3.0)
    other = replace(locations, query=replace(locations.query, limits=limits))
    go_on(server, node)
    for again in (votes, locations, other):
        with pytest.raises(Refusal, match="AlreadyAnswered"):
            node.answer_query(again)
    go_on(server, node, 2)
    first_round = inquiry_of(server)
    go_on(server, node)
    with pytest.raises(Refusal, match="AlreadyAnswered"):
        node.answer_query(first_round)
    go_on(server, node)
    assert spent(node) == pytest.approx(server.plan.mu_until(6) ** 2)


def test_all_queries_of_a_run_cost_what_the_plan_says(make_node):
    node, server = make_node(**{"max-epsilon": "3"}), new_server()
    go_on(server, node, 4 + ROUNDS)
    assert server.finished
    assert spent(node) == pytest.approx(server.plan.mu**2)
    with pytest.raises(Refusal, match="AlreadyAnswered"):
        node.answer_query(Inquiry(SESSION - 1, server.plan, new_server().query()))
    with pytest.raises(Refusal, match=r"PrivacyRefused.*would cost epsilon = .* but it allows 3"):
        node.answer_query(Inquiry(SESSION + 1, server.plan, new_server().query()))


def test_the_plan_of_a_run_cannot_change(make_node):
    node, server = make_node(), new_server()
    go_on(server, node)
    for other in (new_server(epsilon=4.0), new_server(epsilon=2.0), new_server(delta=0.002)):
        with pytest.raises(Refusal, match="another privacy plan"):
            node.answer_query(replace(inquiry_of(server), plan=other.plan))


def test_a_node_refuses_more_than_its_owner_allows(make_node):
    node = make_node(**{"max-epsilon": "2.9"})
    with pytest.raises(Refusal, match=r"would cost epsilon = 3, but it allows 2.9"):
        node.answer_query(inquiry_of(new_server(3.0)))
    with pytest.raises(Refusal, match=r"delta of the run is 0.065, but the node allows 0.01"):
        node.answer_query(inquiry_of(new_server(1.0, delta=None)))
    go_on(new_server(2.9), node)


def test_a_node_has_a_largest_delta_of_its_own(make_node):
    node = make_node(**{"max-epsilon": "3", "max-delta": "0.0001"})
    with pytest.raises(Refusal, match=r"delta of the run is 0.001, but the node allows 0.0001"):
        node.answer_query(inquiry_of(new_server(1.0)))
    go_on(new_server(1.0, delta=1e-4), node)


def test_a_larger_delta_does_not_reopen_a_budget(make_node):
    """ε of all runs together is taken at the smallest δ of them."""
    strict, lax = new_server(3.0, delta=1e-8), new_server(0.5, delta=0.01)
    go_on(strict, make_node("first", **{"max-epsilon": "3"}), 4 + ROUNDS)
    with pytest.raises(Refusal, match="all private runs of the node together"):
        make_node("second", **{"max-epsilon": "3"}).answer_query(inquiry_of(lax))
    assert epsilon_of(np.hypot(strict.plan.mu, lax.plan.mu), 0.01) < 3.0


def test_budgets_of_runs_add_up_whatever_they_are_called(make_node):
    first, second = (make_node(name, **{"max-epsilon": "3"}) for name in ("first", "second"))
    one, other = new_server(2.5), new_server(2.5)
    go_on(one, first)
    # what is left of the first run is not counted, because it may never be asked
    go_on(other, second, 4 + ROUNDS)
    with pytest.raises(Refusal, match="all private runs of the node together"):
        go_on(one, first, 3 + ROUNDS)
    assert one.round < ROUNDS
    with pytest.raises(Refusal, match="all private runs of the node together"):
        make_node("third", **{"max-epsilon": "3"}).answer_query(inquiry_of(new_server(2.5)))
    make_node("third", **{"max-epsilon": "5"}).answer_query(inquiry_of(new_server(2.5)))


def test_a_node_with_a_budget_takes_part_in_nothing_else(make_node):
    node = make_node(**{"max-epsilon": "3"})
    survey = server_for(N_FEATURES).open_round(["1"]).broadcast.to_bytes()
    with pytest.raises(Refusal, match=r"PrivacyRequired.*start the run with `epsilon`"):
        node.answer(RoundRequest(survey, ["1"], [-1]))


def test_a_node_that_insists_on_masks_does_not_answer_in_the_open(make_node):
    with pytest.raises(Refusal, match="PlainRefused"):
        make_node(aggregation="secure").answer_query(inquiry_of(new_server()))


def test_a_node_with_mods_does_not_answer(make_node):
    with pytest.raises(Refusal, match="mods"):
        make_node(mods=(lambda broadcast, answer: answer(broadcast),)).answer_query(inquiry_of(new_server()))


def test_a_node_that_cannot_read_its_tally_answers_nothing(make_node, logged):
    node, server = make_node(), new_server()
    go_on(server, node)
    path = node.options.state_dir / TALLY_FILE
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Refusal, match="so it answers nothing") as told:
        node.answer_query(inquiry_of(server))
    assert "what the node has answered since is not counted" in told.value.detail


def test_files_are_readable_by_their_owner_only(make_node):
    node, server = make_node(), new_server()
    go_on(server, node, 5)
    for name in (TALLY_FILE, "experiment.private"):
        assert stat.S_IMODE((node.options.state_dir / name).stat().st_mode) == 0o600


def test_lost_labels_are_drawn_anew(make_node, logged):
    node, server = make_node(), new_server()
    go_on(server, node, 5)
    (node.options.state_dir / "experiment.private").write_bytes(b"damaged")
    go_on(server, node)
    assert "the labels are lost" in logged.text


def test_agents_that_stay_out_add_nothing(make_node):
    """The disclosure rule of the node holds in private runs too."""
    node, server = make_node(**{"min-events": "100000"}), new_server()
    inquiry = inquiry_of(server)
    assert not read_sum(node.answer_query(inquiry), inquiry, 0).any()


def test_absurd_units_cause_no_error(make_node):
    """An error that depends on the data would tell the server something that the plan does not count."""
    node, server = make_node(), new_server()
    go_on(server, node, 4)
    inquiry = inquiry_of(server)
    units = inquiry.query.units
    tiny = replace(units, scale=np.full_like(units.scale, 1e-200))
    absurd = replace(inquiry, query=replace(inquiry.query, units=tiny))
    read_sum(node.answer_query(absurd), inquiry, 12)


def opening(server, number=1, fewest=3, **wrong):
    """The first message of a secure sum, and its query."""
    inquiry = inquiry_of(server)
    query = inquiry.query
    values = {"run": query.run, "session": SESSION, "epoch": query.place, "n_values": query.n_values} | wrong
    terms = Terms(round=number, min_parties=fewest, **values)
    others = [f"other {i}" for i in range(fewest)]
    return SecureSum(terms, ["node", *others]), inquiry


def simulated(node):
    """The node without a key, as a simulated one."""
    return replace(node, options=replace(node.options, share=(0, 1)))


@pytest.mark.parametrize("wrong", [{"run": 1}, {"session": SESSION + 1}, {"epoch": 1}, {"n_values": 10}])
def test_terms_of_another_query_are_refused(make_node, wrong):
    node, (exchange, inquiry) = simulated(make_node()), opening(new_server(), **wrong)
    with pytest.raises(Refusal, match="not those of the query"):
        node.add_up(SumMessage("node", exchange.begin()["node"], []), inquiry)


def test_a_sum_is_asked_for_again_until_masked_values_are_sent(make_node):
    from fedhlcr.privacy.party import Party

    node, server = simulated(make_node()), new_server()

    def advance(number, n_stages):
        exchange, inquiry = opening(server, number)
        parties = {name: Party(name, exchange.terms) for name in exchange.parties if name != "node"}
        messages = exchange.begin()
        for stage in range(n_stages):
            values = np.zeros(exchange.terms.n_values, dtype=np.uint64)
            replies = {name: party.handle(messages[name], lambda: values) for name, party in parties.items()}  # noqa: B023
            asked = SumMessage("node", messages["node"], [])
            replies["node"] = node.add_up(asked, inquiry if stage == 0 else None)
            messages = exchange.proceed(replies)
        return exchange

    for number in (1, 2):
        advance(number, 2)
        assert spent(node) == 0.0
    done = advance(3, 4)
    assert done.result is not None
    assert spent(node) == pytest.approx(server.plan.mu_until(1) ** 2)
    with pytest.raises(Refusal, match="AlreadyAnswered"):
        advance(4, 1)
    noise = done.result.values.view(np.int64)
    server.accept(noise, np.arange(12))
    advance(5, 3)
    # whether the sum was revealed or not: the values have been sent
    with pytest.raises(Refusal, match="AlreadyAnswered"):
        advance(6, 1)


def test_masked_values_are_not_sent_if_they_cannot_be_counted(make_node):
    """The tally has vanished in the middle of a sum."""
    from fedhlcr.privacy.party import Party

    node, (exchange, inquiry) = simulated(make_node()), opening(new_server())
    parties = {name: Party(name, exchange.terms) for name in exchange.parties if name != "node"}
    values, messages = np.zeros(exchange.terms.n_values, dtype=np.uint64), exchange.begin()
    for stage in range(2):
        replies = {name: party.handle(messages[name], lambda: values) for name, party in parties.items()}
        replies["node"] = node.add_up(SumMessage("node", messages["node"], []), inquiry if stage == 0 else None)
        messages = exchange.proceed(replies)
    node.private.tally.path.unlink()
    with pytest.raises(Refusal, match="no run that the node knows"):
        node.add_up(SumMessage("node", messages["node"], []), None)


def test_a_private_run_leaves_the_state_of_an_ordinary_one(make_node):
    node = make_node()
    node.names()
    before = node.state_path.read_bytes()
    held = node._held()
    units = Standardization(np.zeros(N_FEATURES + 1), np.ones(N_FEATURES + 1))
    held.group.shard.enter_run(1, GramLayout(N_FEATURES), units)
    node._save(held)
    converted = node.state_path.read_bytes()
    go_on(new_server(), node)
    assert node.state_path.read_bytes() == converted != before


def test_a_node_adds_the_noise_of_the_fewest_nodes(make_node):
    """Its share is 1/√(fewest nodes) of the plan's noise, whatever else the server says."""
    node, server = simulated(make_node()), new_server(0.5)
    _, inquiry = opening(server)
    node.names()
    held = node._held()
    values, _ = node.private.answer(inquiry, held.group, held.source.digest)
    scale = inquiry.query.blocks[0].lattice_scale
    for fewest in (3, 12):
        exchange, _ = opening(server, fewest=fewest)
        noisy = node.private.with_noise(values, inquiry, exchange.terms).view(np.int64)
        share = (noisy - values).astype(float)
        n = len(share)
        assert (share**2).mean() * fewest / scale**2 == pytest.approx(1.0, abs=5 * np.sqrt(2 / n))


def test_a_node_wants_enough_nodes_in_a_sum(make_node):
    node, (exchange, inquiry) = simulated(make_node(**{"min-cohort": "4"})), opening(new_server())
    with pytest.raises(Refusal, match="CohortError"):
        node.add_up(SumMessage("node", exchange.begin()["node"], []), inquiry)


def test_node_draws_its_noise_from_the_operating_system(make_node):
    assert make_node().private.source is discrete_gaussian


def test_an_empty_tally_knows_nothing(tmp_path):
    assert not Tally.of(tmp_path, None).has("experiment")
    assert list(tmp_path.iterdir()) == []
