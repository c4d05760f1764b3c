"""FedHLCRRegressor: the centralised fit's twin, and what it tells of its rounds."""

from __future__ import annotations

import logging
import math
import time
import warnings
from itertools import islice

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fedhlcr import NEW, FedHLCRRegressor, FitInterruptedWarning, HLCRRegressor, hold_out_events
from fedhlcr._support.streams import Stream
from fedhlcr.datasets import load_flights, make_hlcr
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.estimators import federated
from fedhlcr.estimators.progress import FitClock
from fedhlcr.federation import run
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.convergence import has_settled, in_view_of, stable_reason
from fedhlcr.federation.held_out import HeldOutErrors
from fedhlcr.kernels.compiling import waiting
from fedhlcr.model.gram import GramLayout, Standardization, column_means, entity_grams
from fedhlcr.model.priors import ModelSpec
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT, Diagnostic
from fedhlcr.samplers.state import EntityData
from tests.federations import (
    FIXED,
    centralised_states,
    four_clusters,
    hierarchy_of,
    in_process,
    one_cluster,
    run_rounds,
    server_for,
)
from tests.problems import PAPER


def fit(table, **params):
    return FedHLCRRegressor(**params).fit(table.X, table.y, agent=table.agent, entity=table.entity)


def test_all_airlines_in_every_round_are_the_centralised_chain_of_the_flights():
    """Round t is sweep t − 1: the same labels, and coefficients to rounding errors, in every kept draw."""
    table, engines = load_flights(), []

    def keep(hierarchy, **given):
        engines.append(InProcessEngine.from_hierarchy(hierarchy, **given))
        return engines[-1]

    ids = {"agent": table.agent, "entity": table.entity}
    together = HLCRRegressor(n_sweeps=120).fit(table.X, table.y, **ids)
    apart = FedHLCRRegressor(rounds=121, patience=None, engine=keep).fit(table.X, table.y, **ids)
    np.testing.assert_allclose(apart.history_["log_joint"][2:], together.trace_["log_joint"], rtol=1e-12)
    # round 121 is the last sweep, whose draw is kept
    labels = apart.server_.rule.cluster_of[engines[0].everyone.pending]
    np.testing.assert_array_equal(labels, together.posterior_.memory.labels[-1])
    np.testing.assert_allclose(apart.posterior_.draws.coef, together.posterior_.draws.coef, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(apart.coef_, together.coef_, rtol=1e-9)
    np.testing.assert_allclose(apart.intercept_, together.intercept_, rtol=1e-9)


def test_a_fit_says_how_long_it_computed_and_how_long_it_scored(split, monkeypatch):
    train, test, _ = split
    given = {"X": train.X, "y": train.y, "agent": train.agent, "entity": train.entity}
    slow = HeldOutErrors.predict

    def waiting(*args):
        time.sleep(0.01)
        return slow(*args)

    monkeypatch.setattr(HeldOutErrors, "predict", waiting)
    before = time.perf_counter()
    scored = FedHLCRRegressor(rounds=20, n_threads=1).fit(**given, validation=(test.X, test.y, test.agent, test.entity))
    whole = time.perf_counter() - before
    assert scored.fit_seconds_.scoring >= 0.2
    assert sum(scored.fit_seconds_) == pytest.approx(whole, rel=0.05)
    plain = FedHLCRRegressor(rounds=20).fit(**given)
    central = HLCRRegressor(n_sweeps=20).fit(**given)
    for model in (plain, central):
        assert model.fit_seconds_.scoring == 0.0
        assert model.fit_seconds_.computing > 0.0


def test_compiling_is_not_counted_as_computing():
    clock = FitClock()
    with clock.scoring(), waiting.counted():
        time.sleep(0.05)
    with waiting.counted():
        time.sleep(0.05)
    seconds = clock.seconds()
    assert seconds.compiling >= 0.1
    assert seconds.scoring + seconds.computing < 0.05


def test_rounds_are_scored_as_they_were_when_they_ended(split):
    """Several rounds are scored together, on any number of threads; each with the draws that were kept then."""
    train, test, _ = split
    held_out, errors = (test.X, test.y, test.agent, test.entity), []
    for at_once, n_threads in ((1, 1), (7, 1), (16, 2)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(federated, "SCORED_AT_ONCE", at_once)
            model = FedHLCRRegressor(rounds=30, patience=None, n_draws=5, n_threads=n_threads)
            model.fit(train.X, train.y, agent=train.agent, entity=train.entity, validation=held_out)
        errors.append(model.history_["validation_mse"])
    assert np.isfinite(errors[0][1:]).all()
    assert len(set(errors[0][1:])) > 20
    np.testing.assert_array_equal(errors[0], errors[1])
    np.testing.assert_array_equal(errors[0], errors[2])


@pytest.fixture(scope="module")
def split():
    table, truth = make_hlcr(50, 5, 8, 3, 3, 0.4, random_state=21)
    train, test = hold_out_events(table.agent, table.entity, random_state=2)
    return table[train], table[test], truth


def assert_centralised(table, seed, n_rounds, **model):
    """Round t draws the numbers of sweep t − 1: the same labels, coefficients to the last digits of their sums.

    Returns the numbers of clusters after each round.
    """
    hierarchy, layout = hierarchy_of(table), GramLayout(table.X.shape[1])
    shift = column_means(hierarchy)
    grams = entity_grams(hierarchy, layout, shift)
    units = Standardization.from_gram(layout, grams.sum(axis=0), shift, scale=True)
    server = server_for(layout.n_features, seed=seed, max_clusters=20, patience=None, **model)
    engine = in_process(table)
    run_rounds(server, engine, 1)
    entities = EntityData(server.likelihood, hierarchy.index, units.rescale(layout, grams))
    spec, n_clusters = ModelSpec(effects=server.settings.effects), []
    for state in islice(centralised_states(entities, spec, 20, Stream(seed)), n_rounds):
        run_rounds(server, engine, 1)
        np.testing.assert_array_equal(server.rule.cluster_of[engine.everyone.pending], state.labels)
        drawn, expected = server.kept_draws[-1].globals, state.globals
        np.testing.assert_allclose(drawn.coef, expected.coef, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(drawn.log_weights, expected.log_weights, rtol=1e-9)
        for q in drawn.quantities():
            if not q.axes:
                assert getattr(drawn, q.name) == pytest.approx(getattr(expected, q.name), rel=1e-9)
        sums = server.rule.account.total().regroup(server.rule.cluster_of)
        for name, block in sums.blocks.items():
            np.testing.assert_allclose(block, state.sums.blocks[name], rtol=1e-7, atol=1e-7)
        assert sums.scalars == pytest.approx(state.sums.scalars, rel=1e-7, abs=1e-7)
        n_clusters.append(state.globals.n_clusters)
    return n_clusters


MODELS = {"paper": PAPER, "default": {}, "agent effects": {"effects": "entity+agent"}}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_with_all_agents_it_is_the_centralised_chain(small, seed, model):
    assert assert_centralised(small[0], seed, 110, **MODELS[model])[-1] == 3


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_with_all_agents_it_is_the_centralised_chain_though_it_ends_with_one_cluster(seed):
    """Through the comparison of several clusters with one."""
    n_clusters = assert_centralised(one_cluster(seed), seed, 125)
    assert n_clusters[-1] == 1
    assert max(n_clusters[50:]) > 1


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_with_all_agents_it_is_the_centralised_chain_though_it_goes_back_to_several_clusters(seed):
    n_clusters = np.array(assert_centralised(four_clusters(seed)[0], seed, 125))
    is_one = np.flatnonzero(n_clusters == 1)
    assert len(is_one) > 30
    assert (n_clusters[is_one[0] - 1], n_clusters[-1]) == (4, 4)


def test_it_predicts_as_the_centralised_fit_does(split):
    train, test, _ = split
    central = HLCRRegressor().fit(train.X, train.y, agent=train.agent, entity=train.entity)
    for params in ({}, {"participation": 0.3, "failure_rate": 0.3}):
        federated = fit(train, **params)
        ids = {"agent": test.agent, "entity": test.entity}
        mse = [np.mean((model.predict(test.X, **ids) - test.y) ** 2) for model in (federated, central)]
        assert mse[0] < 1.02 * mse[1]
        assert federated.n_clusters_ == central.n_clusters_ == 3
        np.testing.assert_allclose(np.sort(federated.intercept_), np.sort(central.intercept_), atol=0.1)
        lower, upper = federated.predict_interval(test.X, **ids)
        assert 0.85 < np.mean((lower <= test.y) & (test.y <= upper)) < 0.95


def test_threads_and_order_of_rows_change_nothing(split):
    train, test, _ = split
    params = {"rounds": 30, "participation": 0.5, "failure_rate": 0.2}
    one, two = (fit(train, n_threads=n, **params) for n in (1, 2))
    np.testing.assert_array_equal(one.posterior_.draws.coef, two.posterior_.draws.coef)
    np.testing.assert_array_equal(one.predict(test.X, agent=NEW), two.predict(test.X, agent=NEW))
    shuffled = train[np.random.default_rng(0).permutation(len(train))]
    np.testing.assert_allclose(fit(shuffled, **params).predict(test.X, NEW), one.predict(test.X, NEW), rtol=1e-6)
    assert (fit(train, random_state=5, **params).predict(test.X, NEW) != one.predict(test.X, NEW)).any()


def test_history_has_every_round_and_its_participants(split):
    train, test, _ = split
    model = FedHLCRRegressor(participation=0.2, failure_rate=0.5, rounds=40, patience=None)
    validation = (test.X, test.y, test.agent, test.entity)
    model.fit(train.X, train.y, agent=train.agent, entity=train.entity, validation=validation)
    frame = pd.DataFrame(model.history_)
    assert frame["round"].tolist() == list(range(41))
    assert model.n_rounds_ == 40
    assert model.stop_reason_ == "reached the maximum of 40 rounds"
    assert (frame["n_asked"][1:] == 10).all()
    assert frame["n_asked"][0] >= 30, "the survey goes on until enough have been heard"
    assert 0 < frame["n_accepted"].mean() < 7
    assert frame["n_refused"].sum() > 0, "late replies"
    assert [len(who) for who in frame["participants"]] == frame["n_accepted"].tolist()
    assert set(np.concatenate(frame["participants"])) <= set(train.agent)
    assert (frame["bytes_down"] > 0).all()
    assert (frame["bytes_up"][frame["n_accepted"] > 0] > 0).all()
    later = frame[1:]
    assert np.isfinite(later["log_joint"]).all()
    assert later["validation_mse"].iloc[-1] < 0.8 * later["validation_mse"].iloc[0]
    mse = np.mean((model.predict(test.X, agent=test.agent, entity=test.entity) - test.y) ** 2)
    assert later["validation_mse"].iloc[-1] == pytest.approx(mse, rel=0.05)
    assert later["noise_scale"].iloc[-1] == pytest.approx(0.4, rel=0.2)
    assert 3 <= later["n_clusters"].iloc[-1] <= 5


def test_it_stops_by_itself_when_converged(split):
    train, _, _ = split
    model = fit(train)
    assert model.server_.stop_reason.startswith("stopped: the log joint has been stable for ")
    agree = all(d.r_hat <= R_HAT_LIMIT for d in model.diagnostics_)
    assert model.stop_reason_.startswith("converged: " if agree else "stopped: ")
    assert model.n_rounds_ < 150
    patient = fit(train, patience=40)
    assert patient.n_rounds_ > model.n_rounds_


@pytest.mark.parametrize(
    ("r_hats", "how"),
    [((1.0, 1.1), "converged"), ((1.0, 1.11), "stopped"), ((1.0, math.nan), "stopped"), ((), "stopped")],
)
def test_a_run_converged_only_if_every_r_hat_is_known_and_small(r_hats, how):
    diagnostics = [Diagnostic(f"quantity {i}", r_hat, 10.0) for i, r_hat in enumerate(r_hats)]
    reason = in_view_of(stable_reason(34), diagnostics)
    assert reason.startswith(f"{how}: the log joint has been stable for 34 rounds")
    assert in_view_of(reason, diagnostics) == reason
    assert in_view_of(reason, [Diagnostic("predictions", 1.65, 4.0)]) == stable_reason(34)
    assert in_view_of("reached the maximum of 3 rounds", diagnostics) == "reached the maximum of 3 rounds"


def test_adapting_does_not_leave_converged_beside_a_high_r_hat(split, monkeypatch):
    train, test, _ = split
    model = fit(train, rounds=20)
    model.stop_reason_ = in_view_of(stable_reason(34), [Diagnostic("predictions", 1.0, 50.0)])
    monkeypatch.setattr(federated, "diagnose", lambda posterior: (Diagnostic("predictions", 1.65, 4.0),))
    adapted = model.adapt(test.X, test.y, agent=test.agent, entity=test.entity)
    assert adapted.stop_reason_ == stable_reason(34)


def test_only_a_stable_series_has_settled():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=400)
    assert not has_settled(list(range(30)), 20), "too short to tell"
    assert not has_settled(list(np.arange(100.0)), 20), "it climbs"
    assert not has_settled(list(-np.arange(100.0)), 20), "it falls: new agents come in"
    assert not has_settled(list(np.arange(100.0) + noise[:100]), 20)
    settled = [has_settled(list(noise[start : start + 40]), 20) for start in range(360)]
    assert np.mean(settled) > 0.9


def test_blend_takes_all_as_given(split):
    train, test, _ = split
    with pytest.raises(ValueError, match=r"cannot learn `n_clusters`, `noise_scale`.*use rule='delta'"):
        fit(train, rule="blend")
    with pytest.raises(ValueError, match="cannot learn `coef_scale`"):
        fit(train, rule="blend", n_clusters=3, **{**FIXED, "coef_scale": "learn"})
    params = {**FIXED, "noise_scale": 0.4, "coef_scale": 0.6}
    model = fit(train, rule="blend", n_clusters=3, learning_rate=0.5, rounds=60, patience=None, **params)
    assert model.n_clusters_ == 3
    baseline = np.var(test.y)
    assert np.mean((model.predict(test.X, agent=test.agent, entity=test.entity) - test.y) ** 2) < 0.6 * baseline
    with pytest.raises(RuntimeError, match="Use rule='delta' where agents may withdraw"):
        model.server_.forget(train.agent[0])


def test_scaling_keeps_the_statistics_whole(split):
    """With a fifth of the agents per round, as published the statistics settle at a fifth of the data."""
    train, _, _ = split
    shares = {}
    for scaling in (True, False):
        params = {"participation": 0.2, "learning_rate": 0.1, "participation_scaling": scaling}
        server = server_for(3, rule="blend", n_clusters=3, rounds=150, patience=None, **FIXED, **params)
        run_rounds(server, in_process(train), 151)
        shares[scaling] = server.rule._blended.grams[:, 0].sum() / len(train)
    assert shares[True] == pytest.approx(1.0, abs=0.15)
    assert shares[False] == pytest.approx(0.2, abs=0.04)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"participation": 0.0}, "participation"),
        ({"participation": 1.5}, "participation"),
        ({"failure_rate": 1.0}, "failure_rate"),
        ({"rounds": 0}, "rounds"),
        ({"patience": 0}, "patience"),
        ({"rule": "average"}, "rule"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"limits": 5}, "limits"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
    ],
)
def test_bad_parameters_are_named(small, params, message):
    table, _ = small
    with pytest.raises(ValueError, match=message):
        fit(table, **params)


def test_bad_validation_is_named(small):
    table, _ = small
    for validation in (table.X, (table.X,), (table.X, table.y, None, None, None, None)):
        with pytest.raises(ValueError, match="`validation` must be a tuple"):
            FedHLCRRegressor(rounds=2).fit(table.X, table.y, validation=validation)


def test_columns_by_name_and_validation(split):
    train, test, _ = split

    def frame(part):
        columns = {f"x{i}": part.X[:, i] for i in range(3)}
        return pd.DataFrame({"who": part.agent, "what": part.entity, **columns})

    model = FedHLCRRegressor(rounds=10)
    model.fit(frame(train), train.y, agent="who", entity="what", validation=(frame(test), test.y))
    assert np.isfinite(model.history_["validation_mse"][1:]).all()
    assert model.predict(frame(test)).shape == (len(test),)


def interrupt_after(n_rounds, monkeypatch):
    """Ctrl-C when so many rounds are done; −1 before the survey."""
    run_round = run.run_round

    def impatient(server, engine):
        if server.round == n_rounds:
            raise KeyboardInterrupt
        return run_round(server, engine)

    monkeypatch.setattr(run, "run_round", impatient)


def test_interruption_leaves_a_usable_model(split, monkeypatch):
    train, test, _ = split
    interrupt_after(20, monkeypatch)
    with pytest.warns(FitInterruptedWarning, match="after 20 of at most 200 rounds"):
        model = fit(train)
    assert model.stop_reason_ == "interrupted"
    assert np.isfinite(model.predict(test.X, agent=NEW)).all()


def test_adapt_summary_and_clone(split):
    train, test, _ = split
    model = fit(train, rounds=30)
    adapted = model.adapt(test.X, test.y, agent=test.agent, entity=test.entity)
    assert isinstance(adapted, FedHLCRRegressor)
    before, after = (
        np.mean((m.predict(test.X, agent=test.agent, entity=test.entity) - test.y) ** 2) for m in (model, adapted)
    )
    assert after < before
    assert "entities" in str(model.summary())
    assert clone(model).get_params() == model.get_params()


def test_limits_can_be_given(split, caplog):
    train, _, _ = split
    most = int(np.bincount(train.agent).max())
    model = fit(train, rounds=5, limits=ReplyLimits(max_events=most - 1))
    assert model.history_["n_refused"].sum() > 0
    assert "more events than `max_events`" in caplog.text


@pytest.mark.parametrize("n_clusters", [2, 3])
def test_a_wanted_number_of_clusters_is_kept_to(split, n_clusters, monkeypatch):
    """Though nobody answers when clusters are merged, or the run is interrupted before."""
    train, _, _ = split
    for seed in range(6):
        # one agent a round, and mostly it fails
        model = fit(train, rounds=6, n_clusters=n_clusters, participation=0.02, failure_rate=0.6, random_state=seed)
        assert model.n_clusters_ == n_clusters
    interrupt_after(5, monkeypatch)
    with pytest.warns(FitInterruptedWarning, match="uses the 1 draw kept"):
        assert fit(train, n_clusters=n_clusters).n_clusters_ == n_clusters


def test_interrupted_before_there_is_anything(split, monkeypatch):
    train, _, _ = split
    interrupt_after(-1, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fit(train)


@pytest.mark.slow
def test_a_column_that_hardly_varies_among_those_surveyed(rng):
    """A strong feature that few agents have; one of each agent; and agents with a single event, one asked a round."""
    n_agents = 60
    agent = np.repeat(np.arange(n_agents), 20)
    entity = np.tile(np.repeat(np.arange(4), 5), n_agents)
    rare = (agent % 10 == 3) * (rng.random(len(agent)) < 0.5)
    X = np.column_stack([rng.normal(size=len(agent)), rare, np.sin(agent) + 1e-9 * rng.normal(size=len(agent))])
    y = X @ [1.0, 20.0, 5.0] + 0.3 * rng.normal(size=len(agent))
    for seed in range(2):
        model = FedHLCRRegressor(participation=0.15, random_state=seed).fit(X, y, agent=agent, entity=entity)
        assert model.score(X, y, agent=agent, entity=entity) > 0.97
        assert model.history_["n_refused"].sum() == 0
    lone = FedHLCRRegressor(participation=0.02, rounds=200).fit(
        X[:60], y[:60], agent=np.arange(60), entity=np.arange(60)
    )
    assert lone.score(X[:60], y[:60]) > 0.9


def test_settings_are_checked():
    for name, value in [
        ("rule", "blendd"), ("coef_prior", "zero"), ("patience", 0), ("n_clusters", 0), ("seed", 2**64), ("seed", None),
        ("participation", 0.0), ("participation", "half"), ("learning_rate", 2.0), ("noise_scale", -1.0),
        ("rounds", 1.5),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            server_for(3, **{name: value})
    assert (
        server_for(3, participation=np.float64(0.5), seed=np.int64(3)).run
        == server_for(3, participation=0.5, seed=3).run
    )


def test_agents_come_and_go(split):
    """Simulated: some come late, some leave for good and are forgotten."""
    train, _, _ = split
    server, engine = server_for(3, seed=1, patience=None), in_process(train)
    late = engine.agents()[40:]
    engine.send_away(late)
    run_rounds(server, engine, 20)
    assert len(server.registry) == 40
    engine.bring_back(late)
    leaver = engine.agents()[3]
    engine.send_away([leaver])
    server.forget(leaver)
    run_rounds(server, engine, 20)
    events = server.rule.account.total().grams[:, 0].sum()
    assert events == pytest.approx(np.sum(train.agent.astype(str) != leaver))


def test_late_replies_are_no_warning(split, caplog):
    train, _, _ = split
    with caplog.at_level(logging.WARNING), warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(train, rounds=10, failure_rate=0.6)
    assert not caplog.records


def test_progress_shows_the_figures_that_matter(split, capsys):
    train, test, _ = split
    FedHLCRRegressor(rounds=5, verbose=True).fit(
        train.X, train.y, agent=train.agent, entity=train.entity, validation=(test.X, test.y, test.agent, test.entity)
    )
    shown = capsys.readouterr().err
    for figure in ("agents 50/50", "clusters ", "noise ", "labels changed ", "MB ", "MSE "):
        assert figure in shown
