"""Scores of counts, against scikit-learn's."""

import math

import numpy as np
import pytest
from sklearn.metrics import d2_tweedie_score, mean_absolute_error, mean_poisson_deviance

from fedhlcr.analysis.count_scores import CountScores, poisson_deviance

RNG = np.random.default_rng(4)
MEAN = np.exp(RNG.normal(1.0, 0.8, size=3000))
Y = RNG.poisson(MEAN).astype(float)


def test_figures_are_those_of_scikit_learn():
    lower, upper = np.floor(0.5 * MEAN), np.ceil(2.0 * MEAN)
    scores = CountScores.of(Y, MEAN, lower, upper, 0.8)
    assert scores.n_events == 3000
    assert scores.deviance == pytest.approx(mean_poisson_deviance(Y, MEAN), rel=1e-12)
    assert scores.d2 == pytest.approx(d2_tweedie_score(Y, MEAN, power=1), rel=1e-12)
    assert scores.mae == pytest.approx(mean_absolute_error(Y, MEAN), rel=1e-12)
    assert scores.coverage == np.mean((lower <= Y) & (upper >= Y))
    assert scores.width == pytest.approx(np.mean(upper - lower))
    assert scores.level == 0.8


def test_equal_counts_have_no_share_explained():
    scores = CountScores.of(np.full(3, 2.0), np.full(3, 1.0), np.zeros(3), np.ones(3), 0.9)
    assert math.isnan(scores.d2)
    assert scores.coverage == 0.0


def test_a_mean_of_zero_is_perfect_for_zeros_and_bad_otherwise():
    assert poisson_deviance(np.zeros(3), np.zeros(3)) == pytest.approx(0.0)
    assert 100 < poisson_deviance(np.ones(3), np.zeros(3)) < math.inf
