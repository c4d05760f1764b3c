"""Scores of probabilities, against scikit-learn's; calibration against predictions that are right by construction."""

import math

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score

from fedhlcr.analysis.class_scores import ClassScores, calibration_bins

RNG = np.random.default_rng(3)
PROBABILITY = np.round(RNG.beta(0.7, 1.2, size=5000), 2)
Y = (RNG.random(5000) < PROBABILITY).astype(float)


def test_figures_are_those_of_scikit_learn():
    scores = ClassScores.of(Y, PROBABILITY)
    assert scores.n_events == 5000
    assert scores.share == Y.mean()
    assert scores.log_loss == pytest.approx(log_loss(Y, PROBABILITY), rel=1e-12)
    assert scores.auc == pytest.approx(roc_auc_score(Y, PROBABILITY), rel=1e-12)
    assert scores.brier == pytest.approx(brier_score_loss(Y, PROBABILITY), rel=1e-12)
    assert scores.accuracy == accuracy_score(Y, PROBABILITY > 0.5)
    assert scores.d2 == pytest.approx(1.0 - log_loss(Y, PROBABILITY) / log_loss(Y, np.full(5000, Y.mean())), rel=1e-12)


def test_one_class_has_no_log_loss_to_explain():
    assert math.isnan(ClassScores.of(np.ones(3), np.full(3, 0.9)).d2)


def test_calibration_error_tells_right_probabilities_from_overconfident_ones():
    log_odds = np.log(np.clip(PROBABILITY, 0.01, 0.99) / (1 - np.clip(PROBABILITY, 0.01, 0.99)))
    overconfident = 1 / (1 + np.exp(-2.5 * log_odds))
    assert ClassScores.of(Y, PROBABILITY).calibration_error < 0.02
    assert ClassScores.of(Y, overconfident).calibration_error > 0.05


def test_bins_hold_about_equally_many_events_in_ascending_order():
    bins = calibration_bins(Y, RNG.permutation(5000) / 5000)
    assert [part.n_events for part in bins] == [500] * 10
    assert [part.predicted for part in bins] == sorted(part.predicted for part in bins)
    assert all(0 <= part.lower < part.observed < part.upper <= 1 for part in bins)


def test_intervals_of_observed_shares_hold_the_predicted_ones():
    bins = calibration_bins(Y, PROBABILITY, n_bins=20)
    assert sum(part.lower <= part.predicted <= part.upper for part in bins) >= 0.7 * len(bins)


def test_events_of_equal_probability_share_a_bin():
    (only,) = calibration_bins(Y, np.full(5000, 0.3))
    assert only.n_events == 5000
    assert only.observed == Y.mean()
    first, second = calibration_bins(Y, np.where(PROBABILITY < 0.9, 0.1, 0.8))
    assert (first.predicted, second.predicted) == pytest.approx((0.1, 0.8))


def test_events_of_one_class_have_no_auc_and_certain_wrong_predictions_a_finite_loss():
    scores = ClassScores.of(np.ones(4), np.array([0.0, 1.0, 1.0, 1.0]))
    assert math.isnan(scores.auc)
    assert 1 < scores.log_loss < 100
    (wrong, right) = calibration_bins(np.ones(4), np.array([0.0, 1.0, 1.0, 1.0]))
    assert wrong.upper == right.upper == 1.0
