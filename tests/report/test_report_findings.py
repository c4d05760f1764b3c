"""Figures of the report against other ways of computing them."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from fedhlcr import NEW, HLCRRegressor
from fedhlcr._support.wording import Noun
from fedhlcr.analysis import facts as facts_module
from fedhlcr.analysis.effects import effect_sizes
from fedhlcr.analysis.evaluation import MODEL, evaluate
from fedhlcr.analysis.facts import SURE, AgentFacts
from fedhlcr.analysis.ridges import PENALTIES
from fedhlcr.analysis.simpler import RIDGE_PER_ENTITY, SimplerModels
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.report import HeldOut, render_report
from fedhlcr.report.findings import Findings
from fedhlcr.report.story import agents_in_words
from tests.reports import Page, fitted, held_out


def test_scores_are_those_of_scikit_learn(model, split):
    test = split[1]
    ids = {"agent": test.agent, "entity": test.entity}
    scores = evaluate(model, held_out(test))
    predicted = model.predict(test.X, **ids)
    lower, upper = model.predict_interval(test.X, **ids, level=0.9)
    assert scores.model["r2"] == pytest.approx(r2_score(test.y, predicted))
    assert scores.model["mse"] == pytest.approx(mean_squared_error(test.y, predicted))
    assert scores.model["mae"] == pytest.approx(mean_absolute_error(test.y, predicted))
    assert scores.model["coverage"] == pytest.approx(((lower <= test.y) & (test.y <= upper)).mean())
    assert (scores.n_events, scores.n_new_agents, scores.n_new_entities) == (len(test), 0, 0)
    agent = test.agent == model.agent_ids_[3]
    expected = np.sqrt(mean_squared_error(test.y[agent], predicted[agent]))
    assert scores.agent_errors[MODEL][3] == pytest.approx(expected)
    assert scores.agent_events.sum() == len(test)


def restricted_likelihood(groups, penalty):
    """log p(y) of groups of raw events by dense covariances, the intercepts free and σ maximised out."""
    quadratic = determinants = freedom = 0.0
    for X, y in groups:
        covariance = np.eye(len(y)) + X @ X.T / penalty
        inverse, ones = np.linalg.inv(covariance), np.ones(len(y))
        intercept = ones @ inverse @ y / (ones @ inverse @ ones)
        quadratic += (y - intercept) @ inverse @ (y - intercept)
        determinants += np.linalg.slogdet(covariance)[1] + np.log(ones @ inverse @ ones)
        freedom += len(y) - 1
    return -0.5 * freedom * np.log(quadratic) - 0.5 * determinants


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "factors"),
    [({}, (1, 1, 1)), ({"standardize": False}, (1, 50, 0.02)), ({"fit_intercept": False}, (1, 1, 1))],
)
def test_ridges_equal_those_of_the_raw_events(split, parameters, factors):
    train, test = (replace(table, X=table.X * factors + 3.0) for table in split)
    model = fitted(train, n_sweeps=20, **parameters)
    scores, simpler = evaluate(model, held_out(test)), SimplerModels.of(model.posterior_)

    def standard(X):
        return (X - train.X.mean(axis=0)) / train.X.std(axis=0)

    groups = {pair: (train.agent == pair[0]) & (train.entity == pair[1]) for pair in model.pair_ids_}
    events = [(standard(train.X[rows]), train.y[rows]) for rows in groups.values()]
    everything = [(standard(train.X), train.y)]
    for ridge, own in ((simpler.one_ridge, everything), (simpler.ridge_per_entity, events)):
        assert ridge.penalty == PENALTIES[np.argmax([restricted_likelihood(own, penalty) for penalty in PENALTIES])]
    one = SklearnRidge(alpha=simpler.one_ridge.penalty).fit(*everything[0]).predict(standard(test.X))
    each = np.empty(len(test))
    for pair, (X, y) in zip(groups, events, strict=True):
        rows = (test.agent == pair[0]) & (test.entity == pair[1])
        if rows.any():
            each[rows] = SklearnRidge(alpha=simpler.ridge_per_entity.penalty).fit(X, y).predict(standard(test.X[rows]))
    assert list(scores.rivals) == ["one ridge", "ridge per entity", "mixed model"]
    for score, predicted in zip(scores.rivals.values(), (one, each), strict=False):
        assert score["r2"] == pytest.approx(r2_score(test.y, predicted), abs=1e-7)
        assert score["mae"] == pytest.approx(mean_absolute_error(test.y, predicted), abs=1e-7)


def test_new_entities_fall_back_to_the_one_ridge(model, split):
    test = split[1]
    strangers = HeldOut(test.X, test.y, test.agent, np.full(len(test), "nobody knows it"))
    scores = evaluate(model, strangers)
    assert list(scores.rivals) == ["one ridge", "mixed model"]
    assert RIDGE_PER_ENTITY not in scores.agent_errors
    assert (scores.n_new_entities, scores.n_new_agents) == (len(test), 0)
    bare = evaluate(model, HeldOut(test.X, test.y, NEW))
    assert bare.n_new_agents == len(test)
    assert not bare.agent_errors
    features, posterior = model.posterior_.standardization.apply(test.X), model.posterior_
    predicted = SimplerModels.of(posterior).predict(features, np.where(np.arange(len(test)) % 2, UNKNOWN, 0))
    by_one, by_entity = predicted["one ridge"], predicted["ridge per entity"]
    target = posterior.standardization.apply_target(test.y)
    for one, each in ((by_one.mean, by_entity.mean), (by_one.log_density(target), by_entity.log_density(target))):
        np.testing.assert_array_equal(one[1::2], each[1::2])
        assert (one[::2] != each[::2]).all()


@pytest.mark.parametrize(
    ("entity", "name"),
    [
        ("AA JFK–LAX", "AA JFK–LAX"),
        ("AA-1", "AA-1"),
        ("AAB", "AAB of AA"),
        ("JFK–AAX", "JFK–AAX of AA"),
        ("AA", "AA of AA"),
        ("7", "entity 7 of AA"),
    ],
)
def test_an_entity_is_named_with_its_agent_unless_its_id_contains_it(model, entity, name):
    entities = Findings(model).entities
    entities = replace(entities, agents=["AA", "B"], entities=[entity], agent=np.array([0]), entity=np.array([0]))
    assert entities.name(0) == name


def test_a_table_with_id_columns_is_read_as_in_fit(split):
    train, test = (table.to_pandas() for table in split)
    model = HLCRRegressor(n_sweeps=20).fit(
        train.drop(columns="target"), train["target"], agent="agent", entity="entity"
    )
    scores = evaluate(model, HeldOut(test.drop(columns="target"), test["target"]))
    assert scores.n_new_agents == 0
    assert scores.model["r2"] == pytest.approx(model.score(test.drop(columns="target"), test["target"]))


def test_figures_on_fitted_events_are_called_optimistic(model, split):
    train, test = split
    assert evaluate(model, held_out(train)).was_fitted
    shuffled = np.random.default_rng(0).permutation(len(train))
    assert evaluate(model, held_out(train[shuffled])).was_fitted
    assert not evaluate(model, held_out(test)).was_fitted
    assert "These figures are optimistic" in Page(render_report(model, held_out(train))).text
    assert "optimistic" not in Page(render_report(model, held_out(test))).text


def test_fitted_rows_without_ids_are_noticed_too(split):
    train, test = split
    model = HLCRRegressor(n_sweeps=5).fit(train.X, train.y)
    assert evaluate(model, HeldOut(train.X, train.y)).was_fitted
    assert not evaluate(model, HeldOut(test.X, test.y, NEW)).was_fitted


def test_entities_are_in_the_cluster_of_their_label(model, monkeypatch):
    # labels that are all wrong: the report must not put right what the model says everywhere else
    relabelled = copy.copy(model)
    relabelled.alignment_ = model.alignment_
    vars(check_model(relabelled))["labels_"] = (model.labels_ + 1) % model.n_clusters_
    counts = np.bincount(relabelled.labels_, minlength=model.n_clusters_).tolist()
    for most in (facts_module.MAX_EXACT, 20):
        monkeypatch.setattr(facts_module, "MAX_EXACT", most)
        found = Findings(relabelled)
        assert [cluster.n_entities for cluster in found.clusters] == counts
        assert (found.entities.runner_up != found.entities.label).all()
    monkeypatch.undo()
    np.testing.assert_array_equal(Findings(relabelled).entities.label, relabelled.labels_)


def test_entities_have_the_probabilities_of_the_model(model):
    found = Findings(model).entities
    agents, ids = (np.array(column, dtype=object) for column in zip(*model.pair_ids_, strict=True))
    probability = model.responsibilities(agents, ids)
    rows = np.arange(len(probability))
    np.testing.assert_array_equal(found.label, model.labels_)
    np.testing.assert_allclose(found.certainty, probability[rows, found.label])
    others = probability.copy()
    others[rows, found.label] = -1.0
    np.testing.assert_array_equal(found.runner_up, others.argmax(axis=1))
    assert found.n_uncertain == (found.certainty < SURE).sum()
    assert [found.agents[a] for a in found.agent] == [str(agent) for agent in agents]
    assert [found.entities[e] for e in found.entity] == [str(entity) for entity in ids]


def test_scatter_and_variance_explained_are_those_of_the_events(model, split):
    train = split[0]
    found = Findings(model)
    position = {pair: row for row, pair in enumerate(model.pair_ids_)}
    rows = np.array([position[pair] for pair in zip(train.agent, train.entity, strict=True)])
    residual = train.y - model.entity_intercept_[rows] - (model.entity_coef_[rows] * train.X).sum(axis=1)
    squares = np.bincount(rows, weights=residual**2) / np.bincount(rows)
    np.testing.assert_allclose(found.entities.scatter, np.sqrt(squares))
    assert found.explained == pytest.approx(1.0 - (residual**2).mean() / train.y.var())


def test_agents_have_the_shares_of_their_entities(model):
    found = Findings(model).agents
    labels = model.posterior_.memory.labels
    own = [row for row, (agent, _) in enumerate(model.pair_ids_) if agent == model.agent_ids_[5]]
    told = model.alignment_.target[np.arange(len(labels))[:, None], labels[:, own]]
    np.testing.assert_allclose(found.weights[5], np.bincount(told.ravel(), minlength=model.n_clusters_) / told.size)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0)
    assert found.n_entities.sum() == len(model.pair_ids_)


def test_of_very_many_entities_the_least_certain_are_listed(model, monkeypatch):
    monkeypatch.setattr(facts_module, "MAX_EXACT", 20)
    found = Findings(model).entities
    assert (len(found), found.n_all) == (20, len(model.pair_ids_))
    page = Page(render_report(model))
    assert f"the table lists the 20 of {len(model.pair_ids_)} entities whose cluster is least certain." in page.text
    monkeypatch.undo()
    everyone = Findings(model).entities
    assert found.certainty.min() == everyone.certainty.min()


def test_spreads_are_those_of_the_features_without_standardization(split):
    train = replace(split[0], X=split[0].X * [1.0, 50.0, 0.02])
    model = fitted(train, n_sweeps=10, standardize=False)
    np.testing.assert_allclose(model.feature_spreads_, train.X.std(axis=0))
    np.testing.assert_allclose(effect_sizes(model), model.coef_ * train.X.std(axis=0))


def test_a_tie_is_no_main_cluster():
    weights = np.array([[0.34, 0.33, 0.33], [0.5, 0.5, 0.0], [0.6, 0.3, 0.1]])
    names = (Noun("cafe", "cafes"), Noun("drink", "drinks"))
    (told,) = agents_in_words(AgentFacts(["a", "b", "c"], np.full(3, 6), np.full(3, 60.0), weights), names)
    assert told.startswith("1 cafe of 3 has cluster 0 as the main cluster.")
    (told,) = agents_in_words(AgentFacts(["a", "b"], np.full(2, 6), np.full(2, 60.0), weights[:2]), names)
    assert told.startswith("No cafe has one main cluster.")
