"""The rivals are what they claim to be: against other implementations, exact formulas, and data of their own making."""

import json
import re
import subprocess
import warnings

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone

from fedhlcr.analysis.mixed_model import MixedLikelihood
from fedhlcr.baselines import (
    FedAvgNetworkRegressor,
    FedAvgRegressor,
    FedEMRegressor,
    GroupedRidge,
    IFCARegressor,
    LCRRegressor,
    MixedModelRegressor,
)
from fedhlcr.baselines.mixtures import LEAST_VARIANCE, PENALTY, MixtureUnits, normalize
from fedhlcr.baselines.rival import Standardized
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.model.gram import GramLayout, Standardization, entity_grams
from tests.lme4 import require_lme4

RIVALS = [
    GroupedRidge("entity"),
    MixedModelRegressor(),
    LCRRegressor(2),
    LCRRegressor(2, label="entity"),
    IFCARegressor(2),
    IFCARegressor(2, level="entity"),
    FedEMRegressor(2),
    FedAvgRegressor(),
    FedAvgNetworkRegressor(n_rounds=5, learning_rate=0.1),
]

# in errors
A_COUNT, A_WEIGHT, A_SHARE = (
    f"{what} in the range {re.escape(span)}"
    for what, span in (("an int", "[1, inf)"), ("a float", "[0.0, inf)"), ("a float", "(0.0, 1.0]"))
)


def slopes_of_their_own(rng, n_entities=60, n_events=9, n_features=2):
    """Entities with random slopes: what the mixed model is made for."""
    entity = np.repeat(np.arange(n_entities), rng.integers(3, n_events, size=n_entities))
    X = rng.normal(size=(len(entity), n_features)) * [1.0, 5.0] + [2.0, -1.0]
    factor = np.array([[1.0, 0.0, 0.0], [0.4, 0.5, 0.0], [0.1, 0.0, 0.2]])
    own = rng.normal(size=(n_entities, 3)) @ factor.T + [3.0, -1.0, 0.5]
    design = np.column_stack([np.ones(len(X)), X])
    return X, (design * own[entity]).sum(axis=1) + rng.normal(size=len(X)), entity


def classes(rng, n_agents=20, n_entities=6, n_events=8, by="entity"):
    """Two classes of regressions, far apart, by entity or by agent."""
    agent = np.repeat(np.arange(n_agents), n_entities * n_events)
    entity = np.tile(np.repeat(np.arange(n_entities), n_events), n_agents)
    label = (agent if by == "agent" else agent + entity) % 2
    X = rng.normal(size=(len(agent), 2))
    coef = np.array([[2.0, -1.0, 1.0], [-2.0, 1.0, 3.0]])
    y = coef[label, 0] + (X * coef[label, 1:]).sum(axis=1) + 0.1 * rng.normal(size=len(X))
    return X, y, agent, entity, label


@pytest.mark.parametrize("rival", RIVALS, ids=str)
def test_baselines_share_one_interface(rival):
    X, y, agent, entity, _ = classes(np.random.default_rng(0))
    fitted = clone(rival).fit(X, y, agent=agent, entity=entity)
    order = np.random.default_rng(1).permutation(len(y))
    np.testing.assert_allclose(
        fitted.predict(X, agent=agent, entity=entity)[order], fitted.predict(X[order], agent[order], entity[order])
    )
    nobody = fitted.predict(X[:3], agent=[900, 901, 902], entity=["a", "b", "c"])
    np.testing.assert_allclose(nobody, fitted.predict(X[:3], agent=["x", "y", "z"]))
    shifted = clone(rival).fit(X * 3.0 + 7.0, y * 2.0 - 5.0, agent=agent, entity=entity)
    np.testing.assert_allclose(
        shifted.predict(X * 3.0 + 7.0, agent=agent, entity=entity),
        fitted.predict(X, agent=agent, entity=entity) * 2.0 - 5.0,
        rtol=1e-4,
        atol=1e-4,
    )
    with pytest.raises(ValueError, match="`y` has 2 rows but `X` has 3"):
        clone(rival).fit(X[:3], y[:2])


@pytest.mark.parametrize(
    ("rival", "name", "wrong", "expected"),
    [
        (GroupedRidge, "level", "school", "a str among"),
        (MixedModelRegressor, "max_iter", 0, A_COUNT),
        (MixedModelRegressor, "reml", "yes", "an instance of 'bool'"),
        (LCRRegressor, "label", "agent", "a str among"),
        (LCRRegressor, "criterion", "aic", "a str among"),
        (LCRRegressor, "n_classes", "many", A_COUNT),
        (LCRRegressor, "n_classes", 2.0, A_COUNT),
        (LCRRegressor, "max_classes", 0, A_COUNT),
        (LCRRegressor, "n_init", 0, A_COUNT),
        (LCRRegressor, "short_iter", 0, A_COUNT),
        (LCRRegressor, "max_iter", 0, A_COUNT),
        (LCRRegressor, "tol", None, "a float in the range"),
        (LCRRegressor, "random_state", np.random.RandomState(0), r"an int in the range \[0, inf\) or None"),
        (IFCARegressor, "level", "school", "a str among"),
        (IFCARegressor, "n_clusters", 0, A_COUNT),
        (IFCARegressor, "n_clusters", "many", A_COUNT),
        (IFCARegressor, "penalty", 0.0, r"a float in the range \[1e-06, inf\)"),
        (IFCARegressor, "n_init", 0, A_COUNT),
        (IFCARegressor, "max_iter", 1.5, A_COUNT),
        (FedEMRegressor, "n_classes", 2.5, A_COUNT),
        (FedEMRegressor, "short_iter", 0, A_COUNT),
        (FedEMRegressor, "participation", 0.0, A_SHARE),
        (FedAvgRegressor, "n_rounds", None, A_COUNT),
        (FedAvgRegressor, "n_rounds", "auto", A_COUNT),
        (FedAvgRegressor, "local_steps", 0.5, A_COUNT),
        (FedAvgRegressor, "proximal", -1.0, A_WEIGHT),
        (FedAvgRegressor, "proximal", float("nan"), A_WEIGHT),
        (FedAvgRegressor, "participation", 1.5, A_SHARE),
        (FedAvgRegressor, "random_state", -1, r"an int in the range \[0, inf\) or None"),
        (FedAvgNetworkRegressor, "hidden", 32, "an instance of 'tuple' or an instance of 'list'"),
        (FedAvgNetworkRegressor, "n_rounds", 0, A_COUNT),
        (FedAvgNetworkRegressor, "batch_size", 0, A_COUNT),
        (FedAvgNetworkRegressor, "learning_rate", -0.1, A_WEIGHT),
    ],
)
def test_a_wrong_parameter_is_named(rival, name, wrong, expected):
    """What it is called, what it may be, and what came."""
    X, y, agent, entity, _ = classes(np.random.default_rng(0), n_agents=3)
    words = rf"'{name}' parameter of {rival.__name__} must be {expected}.* Got {re.escape(repr(wrong))} instead"
    with pytest.raises(ValueError, match=words):
        rival(**{name: wrong}).fit(X, y, agent=agent, entity=entity)


@pytest.mark.parametrize("rival", RIVALS, ids=str)
def test_every_parameter_is_checked(rival):
    assert set(rival._parameter_constraints) == set(rival.get_params())


# The mixed model


@pytest.mark.parametrize("reml", [True, False])
def test_the_gradient_of_the_mixed_model_is_its_gradient(reml):
    rng = np.random.default_rng(3)
    X, y, entity = slopes_of_their_own(rng)
    events = build_hierarchy(X, y, np.ones(len(y)), None, entity)
    layout = GramLayout(2)
    likelihood = MixedLikelihood(layout.normal_equations(entity_grams(events, layout, np.zeros(3))), reml=reml)
    for _ in range(3):
        point = likelihood.pack(rng.normal(size=(3, 3)) * 0.5)
        error = check_grad(lambda p: likelihood(p)[0], lambda p: likelihood(p)[1], point)
        assert error < 1e-3 * np.linalg.norm(likelihood(point)[1])


@pytest.mark.parametrize("reml", [True, False])
def test_the_mixed_model_is_the_gaussian_it_claims_to_be(reml):
    """Likelihood, fixed effects and predictors from the dense covariance of all events, at the fitted variances."""
    X, y, entity = slopes_of_their_own(np.random.default_rng(4), n_entities=12)
    model = MixedModelRegressor(reml=reml).fit(X, y, entity=entity)
    units = model.standardization_
    Z, t = np.column_stack([np.ones(len(X)), units.apply(X)]), (y - units.shift[-1]) / units.scale[-1]
    same = entity[:, None] == entity[None]
    covariance = np.where(same, Z @ model.covariance_ @ Z.T, 0.0) + model.noise_scale_**2 * np.eye(len(t))
    precision = np.linalg.inv(covariance)
    information = Z.T @ precision @ Z
    fixed = np.linalg.solve(information, Z.T @ precision @ t)
    np.testing.assert_allclose(model.fixed_, fixed, atol=1e-8)
    residual = t - Z @ fixed
    deviance = np.linalg.slogdet(covariance)[1] + residual @ precision @ residual + len(t) * np.log(2 * np.pi)
    if reml:
        deviance += np.linalg.slogdet(information)[1] - 3 * np.log(2 * np.pi)
    assert model.log_likelihood_ == pytest.approx(-0.5 * deviance, abs=1e-7)
    blup = np.where(same, Z @ model.covariance_ @ Z.T, 0.0) @ precision @ residual
    np.testing.assert_allclose(
        model.predict(X, entity=entity), units.restore_target(Z @ fixed + blup), rtol=1e-8, atol=1e-8
    )


def test_the_mixed_model_agrees_with_statsmodels():
    statsmodels = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    X, y, entity = slopes_of_their_own(np.random.default_rng(5), n_entities=80)
    model = MixedModelRegressor().fit(X, y, entity=entity)
    units = model.standardization_
    Z, t = np.column_stack([np.ones(len(X)), units.apply(X)]), (y - units.shift[-1]) / units.scale[-1]
    with warnings.catch_warnings():
        # on its way its optimiser comes by singular covariances
        warnings.simplefilter("ignore")
        other = statsmodels.MixedLM(t, Z, entity, exog_re=Z).fit(reml=True)
    assert model.log_likelihood_ >= other.llf - 1e-4
    np.testing.assert_allclose(model.fixed_, other.fe_params, atol=2e-3)
    np.testing.assert_allclose(model.covariance_, other.cov_re, atol=2e-2 * np.abs(other.cov_re).max())
    assert model.noise_scale_ == pytest.approx(np.sqrt(other.scale), rel=5e-3)


LME4 = """
suppressMessages(library(lme4))
data <- read.csv(file("stdin"))
data$entity <- factor(data$entity)
model <- lmer(y ~ a + b + (a + b | entity), data, control = lmerControl(optimizer = "bobyqa"))
cat(sprintf('{"loglik": %.12g, "sigma": %.12g, "fixed": [%s], "fitted": [%s]}', as.numeric(logLik(model)), sigma(model),
    paste(sprintf("%.12g", fixef(model)), collapse = ","), paste(sprintf("%.12g", fitted(model)), collapse = ",")))
"""


@pytest.mark.slow
@pytest.mark.ci
def test_the_mixed_model_agrees_with_lme4():
    require_lme4()
    X, y, entity = slopes_of_their_own(np.random.default_rng(6), n_entities=80)
    model = MixedModelRegressor().fit(X, y, entity=entity)
    rows = "\n".join(f"{a!r},{b!r},{t!r},{e}" for (a, b), t, e in zip(X.tolist(), y.tolist(), entity, strict=True))
    done = subprocess.run(
        ["Rscript", "-e", LME4], input=f"a,b,y,entity\n{rows}\n", capture_output=True, text=True, check=True
    )
    other = json.loads(done.stdout)
    scale = model.standardization_.scale[-1]
    # lme4 is in the user's units
    volume = np.log(scale) * (len(y) - 3) + np.log(model.standardization_.scale[:-1]).sum()
    assert model.log_likelihood_ - volume == pytest.approx(other["loglik"], abs=1e-3)
    assert model.noise_scale_ * scale == pytest.approx(other["sigma"], rel=1e-3)
    np.testing.assert_allclose(model.predict(X, entity=entity), other["fitted"], atol=2e-3)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "extra",
    [lambda X: np.full(len(X), 2.0), lambda X: X[:, 0], lambda X: 3.0 * X[:, 0] - X[:, 1] + 5.0],
    ids=["constant", "duplicate", "sum"],
)
def test_a_column_that_says_nothing_new_changes_nothing_in_the_mixed_model(extra, place):
    X, y, entity = slopes_of_their_own(np.random.default_rng(22))
    wide = np.insert(X, place, extra(X), axis=1)
    plain, model = (MixedModelRegressor().fit(features, y, entity=entity) for features in (X, wide))
    assert np.count_nonzero(model.fixed_) == 3
    np.testing.assert_allclose(model.predict(wide), plain.predict(X), atol=1e-3)
    np.testing.assert_allclose(model.predict(wide, entity=entity), plain.predict(X, entity=entity), atol=1e-3)


def test_a_column_that_says_little_new_is_kept_by_the_mixed_model():
    rng = np.random.default_rng(23)
    X, y, entity = slopes_of_their_own(rng)
    news = rng.normal(size=len(X))
    wide, y = np.column_stack([X, X[:, 0] + 1e-4 * news]), y + 10.0 * news
    plain, model = (MixedModelRegressor().fit(features, y, entity=entity) for features in (X, wide))
    assert model.score(wide, y) > 0.9 > 0.5 > plain.score(X, y)


@pytest.mark.parametrize("reml", [True, False])
def test_the_mixed_model_bears_targets_that_a_line_fits(reml):
    X, _, entity = slopes_of_their_own(np.random.default_rng(24))
    for y in (np.full(len(X), 3.0), X @ [1.0, -2.0]):
        model = MixedModelRegressor(reml=reml).fit(X, y, entity=entity)
        np.testing.assert_allclose(model.predict(X, entity=entity), y, atol=1e-3)
    for n_events in (1, 2, 3):
        few = MixedModelRegressor(reml=reml).fit(X[:n_events], y[:n_events], entity=entity[:n_events])
        assert np.isfinite(few.predict(X, entity=entity)).all()


def test_the_mixed_model_wins_where_slopes_are_their_own():
    X, y, entity = slopes_of_their_own(np.random.default_rng(7), n_entities=200)
    test = np.arange(len(y)) % 4 == 0
    scores = {
        rival: rival.fit(X[~test], y[~test], entity=entity[~test]).score(X[test], y[test], entity=entity[test])
        for rival in (MixedModelRegressor(), GroupedRidge("all"), GroupedRidge("entity"), LCRRegressor(label="entity"))
    }
    assert max(scores, key=scores.__getitem__).__class__ is MixedModelRegressor


# Classes


def test_latent_classes_of_entities_are_found_and_their_number_too():
    X, y, agent, entity, label = classes(np.random.default_rng(8))
    model = LCRRegressor(label="entity", max_classes=6).fit(X, y, agent=agent, entity=entity)
    assert model.n_classes_ == 2
    assert model.score(X, y, agent=agent, entity=entity) > 0.99
    found = model.mixture_.responsibilities.argmax(axis=1)
    assert len(set(zip(found, label[:: len(y) // len(found)], strict=True))) == 2


@pytest.mark.parametrize("label", ["event", "entity"])
def test_each_step_of_em_is_likelier_than_the_one_before(label):
    X, y, agent, entity, _ = classes(np.random.default_rng(9), n_agents=6)
    ends = [
        LCRRegressor(2, label=label, n_init=1, max_iter=steps, short_iter=1, tol=-np.inf).fit(
            X, y, agent=agent, entity=entity
        )
        for steps in range(1, 12)
    ]
    grown = np.diff([model.mixture_.log_likelihood for model in ends])
    # the penalty that keeps equations regular costs a little
    assert grown.min() > -1e-3 * len(y)
    assert grown.max() > 1.0


def test_an_event_is_an_entity_of_its_own():
    X, y, agent, _, _ = classes(np.random.default_rng(20), n_agents=5)
    by_event, by_entity = (LCRRegressor(2, label=label).fit(X, y, agent=agent) for label in ("event", "entity"))
    assert by_event.mixture_.log_likelihood == pytest.approx(by_entity.mixture_.log_likelihood)
    np.testing.assert_allclose(by_event.mixture_.coef, by_entity.mixture_.coef)


def test_both_steps_of_em_are_what_they_are_event_by_event():
    """A readable twin: weighted least squares class by class, and normal densities."""
    rng = np.random.default_rng(21)
    X, y = rng.normal(size=(50, 2)), rng.normal(size=50)
    events = build_hierarchy(X, y, np.ones(50), None, None)
    data = Standardized.of(events, GramLayout(2), Standardization(np.zeros(3), np.ones(3)))
    units = MixtureUnits.events(data)
    shares = rng.dirichlet(np.ones(3), size=50).T
    coef, variance = units.regressions(shares)
    Z, t = data.design(), data.target()
    for own, w, v in zip(shares, coef, variance, strict=True):
        penalty = np.diag([1e-9, PENALTY, PENALTY])
        np.testing.assert_allclose(w, np.linalg.solve(Z.T @ (own[:, None] * Z) + penalty, Z.T @ (own * t)))
        assert v == pytest.approx((own @ (t - Z @ w) ** 2 + LEAST_VARIANCE) / (own.sum() + 1.0))
    log_joint = np.log([0.2, 0.3, 0.5])[:, None] + norm.logpdf(t, coef @ Z.T, np.sqrt(variance)[:, None])
    found, evidence = normalize(units.log_densities(coef, variance) + np.log([0.2, 0.3, 0.5])[:, None])
    np.testing.assert_allclose(evidence, logsumexp(log_joint, axis=0))
    np.testing.assert_allclose(found, np.exp(log_joint - evidence))


def test_one_class_is_one_regression_whatever_has_it():
    X, y, agent, entity, _ = classes(np.random.default_rng(10))
    expected = GroupedRidge("all").fit(X, y).predict(X)
    for label in ("event", "entity"):
        model = LCRRegressor(1, label=label).fit(X, y, agent=agent, entity=entity)
        np.testing.assert_allclose(model.predict(X, agent=agent, entity=entity), expected, atol=0.02)


def test_a_class_per_event_cannot_tell_the_class_of_a_new_one():
    """The paper's ancestor: its mixture is right, and its prediction is the mean all the same."""
    X, y, agent, entity, _ = classes(np.random.default_rng(11))
    model = LCRRegressor(2).fit(X, y, agent=agent, entity=entity)
    assert np.sqrt(model.mixture_.variance).max() * model.standardization_.scale[-1] == pytest.approx(0.1, rel=0.2)
    assert model.score(X, y, agent=agent, entity=entity) < 0.5


@pytest.mark.parametrize("level", ["agent", "entity"])
def test_ifca_finds_hard_clusters(level):
    X, y, agent, entity, label = classes(np.random.default_rng(12), by=level)
    model = IFCARegressor(level=level).fit(X, y, agent=agent, entity=entity)
    assert model.score(X, y, agent=agent, entity=entity) > 0.99
    fixed = IFCARegressor(2, level=level).fit(X, y, agent=agent, entity=entity)
    groups = label[:: len(y) // len(fixed.labels_)]
    assert len(set(zip(fixed.labels_, groups, strict=True))) == 2


def test_ifca_by_agent_cannot_tell_entities_apart():
    X, y, agent, entity, _ = classes(np.random.default_rng(13), by="entity")
    by_agent, by_entity = (
        IFCARegressor(4, level=level).fit(X, y, agent=agent, entity=entity) for level in ("agent", "entity")
    )
    assert by_agent.score(X, y, agent=agent, entity=entity) < 0.5 < by_entity.score(X, y, agent=agent, entity=entity)


def test_soft_em_finds_the_proportions_of_agents():
    rng = np.random.default_rng(14)
    agent = np.repeat(np.arange(10), 80)
    share = np.linspace(0.1, 0.9, 10)
    label = (rng.random(len(agent)) < share[agent]).astype(int)
    X = rng.normal(size=(len(agent), 1))
    y = np.array([-3.0, 3.0])[label] + np.array([1.0, -2.0])[label] * X[:, 0] + 0.1 * rng.normal(size=len(agent))
    model = FedEMRegressor(2).fit(X, y, agent=agent)
    second = np.argmax(model.coef_[:, 0])
    np.testing.assert_allclose(model.agent_weights_[:, second], np.bincount(agent, label) / 80, atol=0.02)
    assert model.score(X, y, agent=agent) > GroupedRidge("all").fit(X, y).score(X, y) + 0.1


def test_averaging_ends_at_the_pooled_regression_where_agents_are_alike():
    rng = np.random.default_rng(15)
    agent = np.repeat(np.arange(10), 50)
    X = rng.normal(size=(500, 2))
    y = 1.0 + X @ [2.0, -1.0] + 0.1 * rng.normal(size=500)
    pooled = GroupedRidge("all").fit(X, y).predict(X)
    for params in ({}, {"proximal": 1.0}, {"participation": 0.3, "n_rounds": 300}):
        model = FedAvgRegressor(**params).fit(X, y, agent=agent)
        np.testing.assert_allclose(model.predict(X), pooled, atol=0.05)
    assert model.n_rounds_ == 300


def test_one_local_step_is_gradient_descent_and_many_are_a_mean_of_local_regressions():
    """Agents that differ in the law of x as well: averaging what each would like best is not what is best for all."""
    rng = np.random.default_rng(16)
    agent = np.repeat([0, 1], 400)
    X = rng.normal(size=(800, 1)) * np.where(agent == 0, 1.0, 3.0)[:, None]
    y = np.where(agent == 0, 2.0, -1.0) * X[:, 0] + 0.1 * rng.normal(size=800)
    pooled = GroupedRidge("all").fit(X, y).score(X, y)
    scores = [FedAvgRegressor(2000, steps).fit(X, y, agent=agent).score(X, y) for steps in (1, 200)]
    assert scores[0] == pytest.approx(pooled, abs=1e-3)
    assert scores[1] < pooled - 0.01
    near = FedAvgRegressor(2000, 200, proximal=30.0).fit(X, y, agent=agent).score(X, y)
    assert near > scores[1] + 0.01


@pytest.mark.parametrize("rival", [GroupedRidge("entity"), MixedModelRegressor(), IFCARegressor(2, level="entity")])
def test_ids_may_be_columns_of_a_frame(rival, small):
    table, _ = small
    frame = table.to_arrow().drop_columns("target")
    by_arrays = clone(rival).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    by_names = clone(rival).fit(frame, table.y, agent="agent", entity="entity")
    assert list(by_names.feature_names_in_) == list(table.feature_names)
    expected = by_arrays.predict(table.X, agent=table.agent, entity=table.entity)
    np.testing.assert_array_equal(by_names.predict(frame), expected)


def test_without_an_agent_the_sole_one_is_meant(small):
    table, _ = small
    own = table[table.agent == table.agent[0]]
    rival = GroupedRidge("agent").fit(own.X, own.y, agent=own.agent, entity=own.entity)
    np.testing.assert_array_equal(rival.predict(own.X), rival.predict(own.X, agent=own.agent))
