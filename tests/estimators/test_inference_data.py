"""ArviZ's view of a fitted model: named draws, and log likelihoods that give the right leave-one-out densities."""

from __future__ import annotations

import copy
import re
import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

from fedhlcr import FedHLCRRegressor, HLCRClassifier, HLCRCountRegressor, HLCRRegressor
from fedhlcr._support.extras import install_command
from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr.analysis.leave_one_out import (
    FittedEvents,
    cluster_laws,
    log_density_left_out,
    log_density_left_out_of_entities,
)
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import ArgumentError, DataWarning, MissingDependencyError, MissingValuesWarning
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.posterior.pointwise import KnownEvents, draw_events, known_entities

with warnings.catch_warnings():
    # ArviZ announces its next version on import
    warnings.simplefilter("ignore")
    az = pytest.importorskip("arviz")

# ArviZ warns of constant quantities, and of its own next version.
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::FutureWarning", "ignore::UserWarning")
PAPER = {"effects": "none", "noise": "common"}


def two_clusters(seed=0, n_entities=24, n_events=6, effect=0.0):
    rng = np.random.default_rng(seed)
    entity = np.repeat(np.arange(n_entities), n_events)
    X = rng.standard_normal((len(entity), 2)) + 3.0
    slopes = np.array([[2.0, 1.0], [-2.0, 0.0]])[np.arange(n_entities) % 2]
    slopes = slopes + effect * rng.standard_normal(slopes.shape)
    linear = (slopes[entity] * (X - 3.0)).sum(axis=1)
    return X, linear, entity // 4, entity, rng


@pytest.fixture(scope="module")
def plain():
    X, linear, agent, entity, rng = two_clusters()
    y = 5.0 * (linear + rng.standard_normal(len(linear)))
    events = {"X": X, "y": y, "agent": agent, "entity": entity}
    model = HLCRRegressor(2, n_sweeps=200, n_chains=2, **PAPER).fit(**events)
    return model, events, model.to_inference_data(**events)


def test_groups_have_names_and_the_users_units(plain):
    model, events, data = plain
    assert set(data.groups()) == {
        *("posterior", "sample_stats", "log_likelihood", "posterior_predictive", "observed_data", "constant_data"),
    }
    coef = data.posterior["coef"]
    assert coef.dims == ("chain", "draw", "cluster", "feature")
    assert list(coef.coords["feature"].values) == ["x0", "x1"]
    assert coef.shape == (2, 100, 2, 2)
    np.testing.assert_allclose(coef.mean(("chain", "draw")), model.coef_, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(
        data.posterior["intercept"].mean(("chain", "draw")), model.intercept_, rtol=0.02, atol=0.1
    )
    np.testing.assert_allclose(data.posterior["cluster_weights"].mean(("chain", "draw")), model.cluster_weights_)
    np.testing.assert_allclose(data.posterior["noise_scale"].mean(), model.noise_scale_)
    np.testing.assert_allclose(data.posterior["agent_concentration"].mean(), model.agent_concentration_)
    np.testing.assert_array_equal(data.sample_stats["lp"].values.ravel(), model.posterior_.draws.log_joint)
    np.testing.assert_allclose(data.observed_data["y"], events["y"])
    np.testing.assert_allclose(data.constant_data["X"], events["X"])
    assert list(data.constant_data["entity"].values[:7]) == [*["0"] * 6, "1"]


@quiet
def test_summary_agrees_with_diagnostics(plain):
    model, _, data = plain
    table = az.summary(data)
    assert len(table) > 10
    for name, variable in (("log joint", data.sample_stats["lp"]), ("noise scale", data.posterior["noise_scale"])):
        [own] = [d for d in model.diagnostics_ if d.quantity == name]
        key = variable.name
        np.testing.assert_allclose(float(az.rhat(variable)[key]), own.r_hat, rtol=1e-9)
        np.testing.assert_allclose(float(az.ess(variable)[key]), own.effective_size, rtol=0.05)


def brute_force(model, events, shift=0):
    """(draws, events) log N(y; wᵀx, σ²) with the label of each draw, written out; labels of the draw `shift` before."""
    draws, memory, units = model.posterior_.draws, model.posterior_.memory, model.posterior_.standardization
    out = []
    for s in range(len(draws)):
        labels = memory.labels[s - shift][events["entity"]]
        slopes, intercepts = units.to_user_units(model.posterior_.layout, draws.coef[s])
        mean = intercepts[labels] + (slopes[labels] * events["X"]).sum(axis=1)
        out.append(stats.norm.logpdf(events["y"], mean, draws.noise_scale[s] * units.scale[-1]))
    return np.array(out)


def test_log_likelihood_is_that_of_the_labels_of_each_draw():
    X, linear, agent, entity, rng = two_clusters(n_events=4)
    # so noisy that labels change from draw to draw
    events = {"X": X, "y": linear + 2.5 * rng.standard_normal(len(linear)), "agent": agent, "entity": entity}
    model = HLCRRegressor(2, n_sweeps=200, **PAPER).fit(**events)
    own = model.to_inference_data(**events).log_likelihood["y"].values[0]
    np.testing.assert_allclose(own, brute_force(model, events), rtol=1e-9)
    assert np.abs(own - brute_force(model, events, shift=1)).max() > 0.1


@quiet
def test_loo_agrees_with_leave_one_out_of_the_package(plain):
    model, events, data = plain
    posterior = model.posterior_
    found = az.loo(data, pointwise=True)
    known = KnownEvents.read(posterior, events["X"], events["y"], None, events["entity"])
    fitted = FittedEvents(known.design, known.target, known.entities)
    own = log_density_left_out(posterior, fitted, cluster_laws(posterior, fitted))
    own = own - np.log(posterior.standardization.scale[-1])
    # the package integrates the label out in each draw, so single events differ a little
    np.testing.assert_allclose(found.elpd_loo, own.sum(), atol=1.0)
    assert np.corrcoef(found.loo_i, own)[0, 1] > 0.99
    assert (found.pareto_k < 0.7).mean() > 0.95


@pytest.mark.slow
@pytest.mark.ci
@quiet
def test_loo_of_one_conjugate_regression_is_exact():
    """With given σ and δ the posterior is normal, so the densities of events left out are known."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 2))
    y = X @ [1.0, -2.0] + 0.8 * rng.standard_normal(40)
    scale, delta = 0.8, 1.5
    model = HLCRRegressor(
        1, noise_scale=scale, coef_scale=delta, n_sweeps=4000, n_draws=2000, standardize=False, **PAPER
    ).fit(X, y, entity=np.arange(40) // 4)
    data = model.to_inference_data(X, y, entity=np.arange(40) // 4)
    units = model.posterior_.standardization
    design, target = np.column_stack([np.ones(40), units.apply(X)]), units.apply_target(y)
    exact = []
    for n in range(40):
        rest = np.arange(40) != n
        precision = design[rest].T @ design[rest] / scale**2 + np.eye(3) / delta**2
        mean = np.linalg.solve(precision, design[rest].T @ target[rest] / scale**2)
        spread = scale**2 + design[n] @ np.linalg.solve(precision, design[n])
        exact.append(stats.norm.logpdf(target[n], design[n] @ mean, np.sqrt(spread)))
    found = az.loo(data, pointwise=True)
    np.testing.assert_allclose(found.loo_i, exact, atol=0.15)
    np.testing.assert_allclose(found.elpd_loo, np.sum(exact), atol=0.5)
    assert (found.pareto_k < 0.7).all()


@pytest.mark.slow
@pytest.mark.ci
@quiet
def test_loo_with_effects_agrees_with_leave_one_out_of_the_package():
    X, linear, agent, entity, rng = two_clusters(n_entities=30, n_events=10, effect=0.6)
    y = linear + 0.5 * rng.standard_normal(len(linear))
    model = HLCRRegressor(1, effects="entity", n_sweeps=600, n_draws=300).fit(X, y, agent=agent, entity=entity)
    found = az.loo(model.to_inference_data(X, y, agent, entity), pointwise=True)
    posterior = model.posterior_
    own = log_density_left_out_of_entities(posterior, X, posterior.standardization.apply_target(y), entity)
    own = own - np.log(posterior.standardization.scale[-1])
    np.testing.assert_allclose(found.elpd_loo, own.sum(), atol=0.05 * abs(own.sum()) + 5.0)
    assert np.corrcoef(found.loo_i, own)[0, 1] > 0.97


def fitted(kind):
    X, linear, agent, entity, rng = two_clusters(effect=0.5, n_entities=32)
    ids = {"agent": agent, "entity": entity}
    if kind == "student":
        y = linear + 0.5 * rng.standard_t(3, len(linear))
        return HLCRRegressor(2, noise="student", effects="entity", n_sweeps=200).fit(X, y, **ids), X, y, ids
    if kind == "binary":
        y = np.where(rng.random(len(linear)) < 1 / (1 + np.exp(-linear)), "yes", "no")
        return HLCRClassifier(2, effects="entity", n_sweeps=200).fit(X, y, **ids), X, y, ids
    ids["exposure"] = rng.uniform(1.0, 3.0, len(linear))
    y = rng.poisson(ids["exposure"] * np.exp(0.3 * linear + 1.0))
    return HLCRCountRegressor(2, effects="entity", n_sweeps=200).fit(X, y, **ids), X, y, ids


@pytest.mark.slow
@pytest.mark.ci
@quiet
@pytest.mark.parametrize("kind", ["student", "binary", "count"])
def test_models_that_keep_events_need_none(kind):
    model, X, y, ids = fitted(kind)
    kept, given = model.to_inference_data(), model.to_inference_data(X, y, **ids)
    # rows are sorted by agent and entity already
    np.testing.assert_allclose(kept.log_likelihood["y"], given.log_likelihood["y"], rtol=1e-9, atol=1e-12)
    # averaged over the draws, these are the densities that the model predicts its events with
    values = given.log_likelihood["y"].values.reshape(-1, len(y))
    average = np.log(np.exp(values).mean(axis=0))
    own = model.log_density(X, y, **ids)
    np.testing.assert_allclose(average.mean(), own.mean(), atol=0.03)
    assert np.corrcoef(average, own)[0, 1] > 0.97
    predicted, numbers = given.posterior_predictive["y"].values, check_model(model).numeric_target(y, len(y))
    np.testing.assert_allclose(predicted.mean(), numbers.mean(), atol=0.15 * numbers.std())
    assert ("exposure" in given.constant_data) == (kind == "count")
    assert np.isfinite(az.loo(kept).elpd_loo)
    assert len(az.summary(kept))


def test_effects_have_the_conditional_law():
    """Mean and covariance of the drawn coefficients against the formula for one entity, with a dense inverse."""
    X, linear, agent, entity, rng = two_clusters(effect=0.6)
    model = HLCRRegressor(1, effects="entity+agent", n_sweeps=100).fit(
        X, linear + 0.5 * rng.standard_normal(len(linear)), agent=agent, entity=entity
    )
    posterior, draw, chosen = model.posterior_, 7, np.array([5])
    given, known = posterior.draws.globals(draw), known_entities(posterior, chosen, draw)
    at = posterior.likelihood.entity_coef(given, known, np.zeros((1, 3)))[0]
    steps = [posterior.likelihood.entity_coef(given, known, row[None])[0] - at for row in np.eye(3)]
    normal = posterior.layout.normal_equations(known.grams)
    variance = posterior.likelihood.variance(known.agent_state, given)[0]
    base = given.coef[known.labels[0]] + known.agent_state["agent_effects"][0]
    used = given.effect_columns
    precision = normal.xx[0][np.ix_(used, used)] / variance
    precision = precision + np.linalg.inv(given.effect_covariance[np.ix_(used, used)])
    gap = (normal.xy[0] - normal.xx[0] @ base)[used] / variance
    np.testing.assert_allclose(at[used], base[used] + np.linalg.solve(precision, gap), rtol=1e-8)
    np.testing.assert_allclose(
        np.transpose(steps)[used] @ np.array(steps)[:, used], np.linalg.inv(precision), rtol=1e-7
    )


def test_draws_of_an_entity_do_not_depend_on_other_events(plain):
    X, linear, agent, entity, rng = two_clusters(effect=0.6)
    y = linear + 0.5 * rng.standard_normal(len(linear))
    model = HLCRRegressor(1, effects="entity", n_sweeps=60).fit(X, y, agent=agent, entity=entity)
    rows = np.flatnonzero(entity == 9)
    stream, draws = Stream(model.seed_, ReservedChain.POINTWISE), np.arange(len(model.posterior_.draws))
    both = [
        draw_events(model.posterior_, KnownEvents.read(model.posterior_, X[r], y[r], None, entity[r]), draws, stream)
        for r in (np.arange(len(y)), rows)
    ]
    np.testing.assert_allclose(both[0].log_likelihood[:, rows], both[1].log_likelihood, rtol=1e-10)


@quiet
def test_empty_clusters_are_unknown_and_summaries_still_run():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 1))
    model = HLCRRegressor(3, n_sweeps=60, **PAPER).fit(X, X[:, 0] + rng.standard_normal(60), entity=np.arange(60) // 5)
    data = model.to_inference_data()
    sizes, coef = data.posterior["cluster_sizes"].values, data.posterior["coef"].values[..., 0]
    sometimes = (sizes > 0).any(axis=(0, 1))
    assert np.isnan(coef[(sizes == 0) & sometimes]).all()
    assert np.isfinite(coef[sizes > 0]).all()
    assert (sizes == 0).any()
    assert len(az.summary(data, skipna=True))


def test_chains_are_cut_to_the_shortest(plain):
    model, events, data = plain
    shorter = copy.copy(model)
    draws = model.posterior_.draws
    chain = np.where(np.arange(200) < 70, 0, 1)
    shorter.posterior_ = replace(model.posterior_, draws=replace(draws, chain=chain))
    cut = shorter.to_inference_data(**events)
    assert cut.posterior["coef"].shape[:2] == (2, 70)
    np.testing.assert_array_equal(cut.sample_stats["lp"].values[1], draws.log_joint[-70:])
    np.testing.assert_array_equal(cut.log_likelihood["y"].values[0], data.log_likelihood["y"].values[0, :70])


def test_rows_without_entities_are_found_by_their_order():
    X, linear, agent, _, rng = two_clusters()
    y = linear + rng.standard_normal(len(linear))
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = HLCRRegressor(2, n_sweeps=40, **PAPER).fit(frame, y, agent=agent)
    data = model.to_inference_data(frame, y, agent=agent)
    np.testing.assert_allclose(data.observed_data["y"], y)
    with pytest.warns(DataWarning, match="not all events"):
        model.to_inference_data(frame[::-1], y[::-1], agent=agent[::-1])


@pytest.mark.parametrize("missing", ["drop", "impute"])
def test_dataframes_are_read_as_in_the_fit(missing):
    X, linear, agent, entity, rng = two_clusters()
    table = {"a": X[:, 0], "kind": np.where(X[:, 1] > 3.0, "high", "low"), "store": agent, "product": entity}
    frame = pd.DataFrame(table | {"sold": linear + rng.standard_normal(len(linear))})
    frame.loc[::20, "a"] = np.nan
    settings = {"categories": ["kind"], "missing": missing, "n_sweeps": 40, **PAPER}
    model, events, shuffled = HLCRRegressor(2, **settings), frame, pl.from_pandas(frame[frame.columns[::-1]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingValuesWarning)
        model.fit(events, "sold", agent="store", entity="product")
        data, again = model.to_inference_data(events), model.to_inference_data(shuffled)
    kept = frame.dropna() if missing == "drop" else frame
    np.testing.assert_allclose(data.observed_data["y"], kept["sold"])
    np.testing.assert_array_equal(data.log_likelihood["y"], again.log_likelihood["y"])
    with pytest.raises(ArgumentError, match="`y` is missing"):
        model.to_inference_data(kept.drop(columns="sold"))


def test_other_events_are_warned_of_or_refused(plain):
    model, events, _ = plain
    half = {name: values[:50] for name, values in events.items()}
    with pytest.warns(DataWarning, match=r"az\.loo and az\.waic need the events of the fit"):
        model.to_inference_data(**half)
    with pytest.raises(ArgumentError, match=r"does not know the entities of 144 events of 144"):
        model.to_inference_data(**{**events, "entity": events["entity"] + 1000})
    with pytest.raises(ArgumentError, match="`entity` is missing"):
        model.to_inference_data(events["X"], events["y"], events["agent"])
    with pytest.raises(ArgumentError, match="`X` is missing"):
        model.to_inference_data(y=events["y"])
    with pytest.raises(ArgumentError, match="`y` is missing"):
        model.to_inference_data(events["X"])


def test_federated_model_and_draws_without_events():
    table, _ = make_hlcr(8, 3, 5, 2, 2, 0.3, random_state=1)
    model = FedHLCRRegressor(rounds=30, n_clusters=2).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    assert set(model.to_inference_data().groups()) == {"posterior", "sample_stats"}
    assert "log_likelihood" in model.to_inference_data(table.X, table.y, table.agent, table.entity).groups()


def test_arviz_is_an_extra(plain, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(MissingDependencyError, match=re.escape(install_command("arviz"))):
        plain[0].to_inference_data()


def test_arviz_without_inference_data_gets_a_tree(plain, monkeypatch):
    monkeypatch.delattr(az, "InferenceData")
    tree = plain[0].to_inference_data()
    assert set(tree.children) == {"posterior", "sample_stats"}
