"""The weight of an agent in the server's sums."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr import FedHLCRRegressor
from fedhlcr.datasets import load_flights, make_hlcr
from fedhlcr.federation import FederationSettings, GramLayout, Server, run
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.weights import FEWEST_AGENTS, MAX_WEIGHT, agent_weights, usual_limit
from tests.federations import OneByOneEngine, agents_of, grams_of, in_process, run_rounds, server_for, with_grams
from tests.problems import PAPER


def weights_of(sizes, max_weight=MAX_WEIGHT):
    return agent_weights(np.column_stack([sizes, sizes, sizes, np.ones(len(sizes))]), max_weight)


def test_usual_agents_have_weight_one(rng):
    for spread in (0.0, 0.3, 1.2):
        sizes = np.exp(spread * np.clip(rng.normal(size=200), -2.4, 2.4)) * 1e3
        assert (weights_of(sizes) == 1.0).all()


def test_no_agent_counts_for_more_than_the_limit():
    sizes = np.append(np.full(29, 100.0), 1e7)
    weights = weights_of(sizes)
    assert (weights[:-1] == 1.0).all()
    assert weights[-1] * sizes[-1] == pytest.approx(MAX_WEIGHT * 100.0)


def test_a_third_of_the_agents_does_not_move_the_limit_far():
    honest = np.exp(0.5 * np.random.default_rng(0).normal(size=20))
    alone = usual_limit(honest, MAX_WEIGHT)
    assert usual_limit(np.append(honest, np.full(10, 1e9)), MAX_WEIGHT) < 5 * alone
    assert usual_limit(np.append(honest, np.full(10, 1e-9)), MAX_WEIGHT) < 5 * alone


def test_few_agents_have_no_limit():
    assert (weights_of(np.append(np.ones(FEWEST_AGENTS - 2), 1e9)) == 1.0).all()
    assert weights_of(np.append(np.ones(FEWEST_AGENTS - 1), 1e9))[-1] < 1e-6


def test_a_small_share_of_many_agents_is_never_scaled_down():
    sizes = np.append(np.ones(999), 29.0)
    assert (weights_of(sizes) == 1.0).all()


def test_sums_of_all_kinds_are_scaled(small):
    """The total is that of the other agents and a part of the large one's, the same part of every sum."""
    table, _ = small
    server, agents = server_for(3, seed=1, max_clusters=6, **PAPER), agents_of(table)
    run_rounds(server, OneByOneEngine(agents), 3)
    account, large = server.rule.account, 5
    page = account.pages[0]
    own = page.take(np.array([large]))
    own.blocks["grams"][:] *= 1e4
    account.replace(np.array([large]), own)
    weight = account.weights()[large]
    assert 0.0 < weight < 0.1
    assert (np.delete(account.weights(), large) == 1.0).all()
    total = account.total()
    rest = page.take(np.delete(np.arange(len(page)), large)).total(total.n_clusters)
    whole = own.total(total.n_clusters)
    np.testing.assert_allclose(total.grams - rest.grams, weight * whole.grams, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(total.entity_counts - rest.entity_counts, weight * whole.entity_counts)
    np.testing.assert_allclose(total.table_counts - rest.table_counts, weight * whole.table_counts)
    name = "log_beta_draws"
    assert total.scalars[name] - rest.scalars[name] == pytest.approx(weight * whole.scalars[name])


def test_unequal_airlines_lose_nothing():
    """Airlines, the largest with a dozen times the median number of events: nobody is scaled down."""
    table = load_flights()
    model = FedHLCRRegressor(rounds=12, random_state=1, limits=ReplyLimits(max_weight=MAX_WEIGHT))
    model.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    assert (model.server_.rule.account.weights() == 1.0).all()


def fit_with_giant(**params):
    """A simulated federation in which agent 3 has a thousand times the events of the others."""
    table, _ = make_hlcr(20, 5, 6, 3, 3, 0.4, random_state=2)
    weight = np.where(table.agent == 3, 1000.0, 1.0)
    model = FedHLCRRegressor(rounds=5, random_state=1, **PAPER, **params)
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity, sample_weight=weight)


@pytest.mark.parametrize("limits", [None, ReplyLimits(max_change=np.inf)], ids=["default", "other limits"])
def test_nobody_is_scaled_down_in_a_simulation(limits, caplog):
    fitted = fit_with_giant(limits=limits)
    assert (fitted.server_.rule.account.weights() == 1.0).all()
    trusting = fit_with_giant(limits=ReplyLimits(max_weight=np.inf))
    np.testing.assert_array_equal(fitted.coef_, trusting.coef_)
    assert not caplog.records


def test_nobody_is_scaled_down_in_a_simulation_of_the_blend_rule():
    blend = {"rule": "blend", "n_clusters": 3, "noise_scale": 0.5, "coef_scale": 1.0, "global_concentration": 1.0,
             "agent_concentration": 1.0}  # fmt: skip
    plain, trusting, strict = (
        fit_with_giant(**blend, limits=limits)
        for limits in (None, ReplyLimits(max_weight=np.inf), ReplyLimits(max_weight=MAX_WEIGHT))
    )
    np.testing.assert_array_equal(plain.coef_, trusting.coef_)
    assert not np.array_equal(plain.coef_, strict.coef_)


def test_a_server_without_a_simulation_keeps_the_limit():
    settings = FederationSettings(GramLayout(2))
    assert settings.max_weight == MAX_WEIGHT
    assert Server(settings).settings.max_weight == MAX_WEIGHT
    table, _ = make_hlcr(4, 2, 3, 2, 2, random_state=0)
    simulated = run.settings_for(settings, in_process(table))
    assert simulated.max_weight == np.inf
    # a checkpoint of one cannot be mistaken for that of the other
    assert simulated.run_text != settings.run_text
    assert run.settings_for(settings, OneByOneEngine(agents_of(table))).max_weight == MAX_WEIGHT


def test_the_log_names_an_agent_that_is_scaled_down_once(caplog):
    fit_with_giant(limits=ReplyLimits(max_weight=MAX_WEIGHT))
    (message,) = [record.getMessage() for record in caplog.records]
    assert "agent '3' is far larger than most agents" in message
    assert "max_weight" in message


def test_a_reply_that_differs_from_the_survey_is_refused(small, caplog):
    table, _ = small
    server, agents = server_for(3, seed=1, max_clusters=6, **PAPER), agents_of(table)
    engine = OneByOneEngine(agents)
    run_rounds(server, engine, 2)
    call = server.open_round(engine.agents())
    reply = agents[2].round(call.broadcast.acknowledging(int(call.acknowledged[2])))
    assert server.accept(with_grams(reply, 1.01 * grams_of(reply))) == 0
    assert "its events are not those of its earlier replies" in caplog.text
    # labels may be anything: only the total counts
    moved = np.zeros_like(grams_of(reply))
    moved[0] = grams_of(reply).sum(axis=0)
    counts = np.zeros_like(reply.entity_counts)
    counts[0] = reply.entity_counts.sum() + 1
    from dataclasses import replace

    tables = np.minimum(counts, 1).astype(np.int32)
    assert server.accept(with_grams(reply, moved, entity_counts=counts, table_counts=tables)) == 0
    assert "its entities are not those of its earlier replies" in caplog.text
    counts[0] -= 1
    fewer = replace(reply, scalars=reply.scalars)
    assert server.accept(with_grams(fewer, moved, entity_counts=counts, table_counts=tables)) == 1


def test_claims_survive_a_restart(small):
    table, _ = small
    server, agents = server_for(3, seed=1, max_clusters=6, **PAPER), agents_of(table)
    engine = OneByOneEngine(agents)
    run_rounds(server, engine, 2)
    again = type(server).from_bytes(server.settings, server.to_bytes())
    again.session = server.session + 1
    call = again.open_round(engine.agents())
    reply = agents[2].round(call.broadcast.acknowledging(int(call.acknowledged[2])))
    assert again.accept(with_grams(reply, 2.0 * grams_of(reply))) == 0
    assert again.accept(reply) == 1
