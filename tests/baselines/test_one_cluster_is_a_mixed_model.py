"""With one cluster, effects of entities and common noise, the model is lme4's: posterior means are its predictors."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr._support.streams import Stream
from fedhlcr.analysis.mixed_model import MixedModel
from fedhlcr.baselines import MixedModelRegressor
from fedhlcr.model.gram import NormalEquations
from fedhlcr.model.mixed import MixedCommonNoise
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Stage
from fedhlcr.samplers import blocked
from tests.effects_enumeration import deviations
from tests.effects_problems import Events

SETTINGS = {"n_clusters": 1, "effects": "entity", "noise": "common", "n_sweeps": 600, "n_draws": 300, "random_state": 0}


def sleepstudy(n_subjects, seed=1, n_days=10):
    """Reaction times by days without sleep: what lme4's sleepstudy looks like."""
    rng = np.random.default_rng(seed)
    days, subject = np.tile(np.arange(float(n_days)), n_subjects), np.repeat(np.arange(n_subjects), n_days)
    own = rng.multivariate_normal([251.0, 10.5], [[600.0, 10.0], [10.0, 35.0]], size=n_subjects)[subject]
    return days[:, None], own[:, 0] + own[:, 1] * days + 25.0 * rng.standard_normal(len(days)), subject


def coefficients(model, n_subjects):
    """(subjects, 2) intercept and slope of each subject, from predictions on two days."""
    at = np.repeat(np.arange(n_subjects), 2)
    first, second = model.predict(np.tile([0.0, 1.0], n_subjects)[:, None], entity=at).reshape(-1, 2).T
    return np.column_stack([first, second - first])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.DataWarning")
@pytest.mark.parametrize(("n_subjects", "tolerance"), [(18, 0.35), (80, 0.1)])
def test_posterior_means_are_best_linear_unbiased_predictors(n_subjects, tolerance):
    """The prior of the variances matters with 18 subjects, and hardly with 80; differences in posterior deviations."""
    X, y, subject = sleepstudy(n_subjects)
    model = HLCRRegressor(**SETTINGS).fit(X, y, agent=subject, entity=subject)
    predictors = coefficients(MixedModelRegressor().fit(X, y, entity=subject), n_subjects)
    found = np.column_stack([model.entity_intercept_, model.entity_coef_])
    spread = np.column_stack([model.entity_intercept_std_, model.entity_coef_std_])
    assert np.sqrt((((found - predictors) / spread) ** 2).mean()) < tolerance


class FixedCovariance(MixedCommonNoise):
    """D stays as it is. The coefficients w + b of each entity, which agents draw and do not keep, can be looked at."""

    entity_coef: np.ndarray

    def _with_effect_covariance(self, drawn, sums, spec, rng):
        return drawn

    def sweeps_at_once(self, current):
        return False

    def _old_effects(self, part, current):
        self.entity_coef = np.empty((len(part.entities.grams), self.layout.n_coef))
        return super()._old_effects(part, current)._replace(coef=self.entity_coef)


class Chain(NamedTuple):
    """A mixed model, its entities, and draws at its variances: w (draws, 2), and w + b of each entity."""

    reference: MixedModel
    entities: NormalEquations
    coef: np.ndarray
    entity_coef: np.ndarray  # (draws, entities, 2)


@cache
def chain_at_the_same_variances(n_subjects, n_sweeps=1_500) -> Chain:
    X, y, subject = sleepstudy(n_subjects)
    units = MixedModelRegressor().fit(X, y, entity=subject).standardization_
    events = Events(units.apply(X).reshape(n_subjects, -1, 1), (1,) * n_subjects)
    entities = events.entities(FixedCovariance, units.apply_target(y).reshape(n_subjects, -1))
    equations = entities.layout.normal_equations(entities.grams)
    reference = MixedModel.fit(equations)
    spec = ModelSpec(noise_scale=np.sqrt(reference.noise_variance), coef_scale=1e3, effects="entity")
    stream = Stream(1)
    state = blocked.initial_state(entities, spec, 1, stream).at(Stage.EXACT, entities.likelihood, spec)
    state = replace(state, globals=replace(state.globals, effect_covariance=reference.covariance))
    coef, entity_coef = [], []
    for _ in range(n_sweeps):
        state = blocked.step(entities, spec, state, stream)
        coef.append(state.globals.coef[0])
        entity_coef.append(entities.likelihood.entity_coef)
    return Chain(reference, equations, np.array(coef)[50:], np.array(entity_coef)[50:])


@pytest.mark.slow
@pytest.mark.parametrize("n_subjects", [18, 80])
def test_at_the_same_variances_means_agree_within_the_error_of_the_chain(n_subjects):
    chain = chain_at_the_same_variances(n_subjects)
    assert np.abs(deviations(chain.coef, chain.reference.fixed)).max() < 4


def predictor_deviations(chain, model):
    """Of means and variances of the entities' coefficients from a mixed model's, in standard errors of the chain."""
    law = model.law(chain.entities)
    variances = model.noise_variance * np.diagonal(law.covariance, axis1=1, axis2=2)
    draws = chain.entity_coef.reshape(len(chain.entity_coef), -1)
    squares = (draws - draws.mean(axis=0)) ** 2
    return deviations(draws, law.mean.ravel()), deviations(squares, variances.ravel())


@pytest.mark.parametrize("n_subjects", [18, 80])
def test_at_the_same_variances_entities_agree_with_their_predictors_within_the_error_of_the_chain(n_subjects):
    """There are up to 160 coefficients, so the largest deviation of a correct chain is about 3 standard errors."""
    chain = chain_at_the_same_variances(n_subjects)
    means, variances = predictor_deviations(chain, chain.reference)
    assert np.abs(means).max() < 4.5
    assert np.abs(variances).max() < 4.5


@pytest.mark.parametrize("n_subjects", [18, 80])
def test_predictors_at_half_the_variances_do_not_agree(n_subjects):
    chain = chain_at_the_same_variances(n_subjects)
    other = replace(chain.reference, factor=np.sqrt(0.5) * chain.reference.factor)
    means, variances = predictor_deviations(chain, other)
    assert np.abs(means).max() > 15
    assert np.abs(variances).max() > 6


R_SCRIPT = """
library(lme4); d <- read.csv(file("stdin"))
m <- lmer(y ~ x + (x | s), d, control = lmerControl(optCtrl = list(xtol_abs = 1e-9, ftol_abs = 1e-9)))
cat(as.matrix(coef(m)$s), sep = "\\n")
"""


def has_lme4() -> bool:
    if shutil.which("Rscript") is None:
        return False
    return subprocess.run(["Rscript", "-e", "library(lme4)"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_lme4(), reason="R with lme4 is not installed")
@pytest.mark.parametrize("n_subjects", [18, 80])
def test_the_mixed_model_is_lme4s(n_subjects):
    X, y, subject = sleepstudy(n_subjects)
    table = "\n".join(
        ["x,y,s", *(f"{a!r},{b!r},{c}" for a, b, c in zip(X[:, 0].tolist(), y.tolist(), subject, strict=True))]
    )
    out = subprocess.run(["Rscript", "-e", R_SCRIPT], input=table, capture_output=True, text=True, check=True).stdout
    expected = np.array(out.split(), dtype=float).reshape(2, n_subjects).T
    found = coefficients(MixedModelRegressor().fit(X, y, entity=subject), n_subjects)
    # R sorts subjects as numbers, as they are here
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
