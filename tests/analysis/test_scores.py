"""Scores of each family against scikit-learn's, in batches as at once; calibration of predictions that are right."""

import math

import numpy as np
import pytest
from sklearn import metrics

from fedhlcr.analysis.scores import calibration_bins, log_fit, running_scores, scores_of
from fedhlcr.data.families import BINARY, COUNT, FAMILIES, REAL

N = 500
RNG = np.random.default_rng(3)
PROBABILITY = np.round(RNG.beta(0.7, 1.2, size=5000), 2)
CLASSES = (RNG.random(5000) < PROBABILITY).astype(float)
RATES = np.exp(RNG.normal(1.0, 0.8, size=3000))
COUNTS = RNG.poisson(RATES).astype(float)


def test_scores_of_classes_are_those_of_scikit_learn():
    scores = scores_of(BINARY, CLASSES, PROBABILITY)
    assert scores.n_events == 5000
    assert scores["share"] == CLASSES.mean()
    assert scores["log_loss"] == pytest.approx(metrics.log_loss(CLASSES, PROBABILITY), rel=1e-12)
    assert scores["auc"] == pytest.approx(metrics.roc_auc_score(CLASSES, PROBABILITY), rel=1e-12)
    assert scores["brier"] == pytest.approx(metrics.brier_score_loss(CLASSES, PROBABILITY), rel=1e-12)
    assert scores["accuracy"] == metrics.accuracy_score(CLASSES, PROBABILITY > 0.5)
    constant = metrics.log_loss(CLASSES, np.full(5000, CLASSES.mean()))
    assert scores.explained == pytest.approx(1.0 - scores["log_loss"] / constant, rel=1e-12)


def test_scores_of_counts_are_those_of_scikit_learn():
    lower, upper = np.floor(0.5 * RATES), np.ceil(2.0 * RATES)
    scores = scores_of(COUNT, COUNTS, RATES, np.column_stack([lower, upper]), 0.8)
    assert scores.n_events == 3000
    assert scores["deviance"] == pytest.approx(metrics.mean_poisson_deviance(COUNTS, RATES), rel=1e-12)
    assert scores["d2"] == pytest.approx(metrics.d2_tweedie_score(COUNTS, RATES, power=1), rel=1e-12)
    assert scores.explained == scores["d2"]
    assert scores["mae"] == pytest.approx(metrics.mean_absolute_error(COUNTS, RATES), rel=1e-12)
    assert scores["coverage"] == np.mean((lower <= COUNTS) & (upper >= COUNTS))
    assert scores["width"] == pytest.approx(np.mean(upper - lower))
    assert scores["level"] == 0.8


def test_scores_of_real_targets_are_those_of_scikit_learn():
    y, mean = RATES + RNG.normal(size=3000), RATES
    density = RNG.normal(size=3000)
    scores = scores_of(REAL, y, mean, log_density=density)
    assert scores["r2"] == scores.explained == pytest.approx(metrics.r2_score(y, mean), rel=1e-12)
    assert scores["mse"] == pytest.approx(metrics.mean_squared_error(y, mean), rel=1e-12)
    assert scores["rmse"] == pytest.approx(metrics.root_mean_squared_error(y, mean), rel=1e-12)
    assert scores["mae"] == pytest.approx(metrics.mean_absolute_error(y, mean), rel=1e-12)
    assert scores["log_density"] == pytest.approx(density.mean())
    assert "coverage" not in scores.figures


def events(kind, far):
    """Outcomes and predictions, of agents that may differ far more from each other than their events do."""
    rng = np.random.default_rng(4)
    groups = rng.integers(0, 7, N)
    centre = rng.normal(size=7)[groups] * far
    if kind == "real":
        y, mean = centre + rng.normal(size=N), centre
    elif kind == "count":
        mean = np.exp(rng.normal(size=N))
        y = rng.poisson(mean).astype(np.float64)
    else:
        mean = rng.uniform(size=N).round(2)
        y = (rng.uniform(size=N) < mean).astype(np.float64)
    return groups, y, mean, np.column_stack([mean - 1.0, mean + 1.5])


@pytest.mark.parametrize("far", [1.0, 1e4])
@pytest.mark.parametrize("kind", ["real", "binary", "count"])
def test_batches_have_the_scores_of_all_events(kind, far):
    groups, y, mean, ends = events(kind, far)
    running = running_scores(FAMILIES[kind], 0.8)
    for rows in np.array_split(np.arange(N), 9):
        running.add(y[rows], mean[rows], ends[rows], groups[rows])
    # around their common mean the events of far groups have few digits left
    found, whole = running.overall(), scores_of(FAMILIES[kind], y, mean, ends, 0.8)
    assert found.figures == pytest.approx(whole.figures, rel=1e-9 if far == 1.0 else 1e-7)
    assert found.n_events == N
    for group in range(7):
        own = groups == group
        expected = scores_of(FAMILIES[kind], y[own], mean[own], ends[own], 0.8)
        assert running.of_group(group).figures == pytest.approx(expected.figures, rel=1e-9)
        assert running.of_group(group).n_events == own.sum()


@pytest.mark.parametrize("family", [REAL, COUNT])
@pytest.mark.parametrize("value", [0.0, 2.0, 1e9 + 0.1])
@pytest.mark.parametrize("n_events", [1, 7])
def test_constant_targets_explain_nothing(family, value, n_events):
    y = np.full(n_events, value)
    running = running_scores(family, 0.9)
    running.add(y, y + 1.0, np.column_stack([y - 1, y + 2]), np.arange(n_events) % 2)
    scores = running.overall()
    assert math.isnan(scores.explained)
    assert scores["mae"] == pytest.approx(1.0)
    assert (scores["coverage"], scores["width"]) == (1.0, pytest.approx(3.0))


def test_one_class_has_no_log_loss_to_explain():
    assert math.isnan(scores_of(BINARY, np.ones(3), np.full(3, 0.9)).explained)


def test_a_mean_of_zero_is_perfect_for_zeros_and_bad_otherwise():
    assert log_fit(COUNT, np.zeros(3), np.zeros(3)) == pytest.approx(0.0)
    assert 100 < -2.0 * log_fit(COUNT, np.ones(1), np.zeros(1))[0] < math.inf


def test_calibration_error_tells_right_probabilities_from_overconfident_ones():
    log_odds = np.log(np.clip(PROBABILITY, 0.01, 0.99) / (1 - np.clip(PROBABILITY, 0.01, 0.99)))
    overconfident = 1 / (1 + np.exp(-2.5 * log_odds))
    assert scores_of(BINARY, CLASSES, PROBABILITY)["calibration_error"] < 0.02
    assert scores_of(BINARY, CLASSES, overconfident)["calibration_error"] > 0.05


def test_bins_hold_about_equally_many_events_in_ascending_order():
    bins = calibration_bins(CLASSES, RNG.permutation(5000) / 5000)
    assert [part.n_events for part in bins] == [500] * 10
    assert [part.predicted for part in bins] == sorted(part.predicted for part in bins)
    assert all(0 <= part.lower < part.observed < part.upper <= 1 for part in bins)


def test_intervals_of_observed_shares_hold_the_predicted_ones():
    bins = calibration_bins(CLASSES, PROBABILITY, n_bins=20)
    assert sum(part.lower <= part.predicted <= part.upper for part in bins) >= 0.7 * len(bins)


def test_events_of_equal_probability_share_a_bin():
    (only,) = calibration_bins(CLASSES, np.full(5000, 0.3))
    assert only.n_events == 5000
    assert only.observed == CLASSES.mean()
    first, second = calibration_bins(CLASSES, np.where(PROBABILITY < 0.9, 0.1, 0.8))
    assert (first.predicted, second.predicted) == pytest.approx((0.1, 0.8))


def test_events_of_one_class_have_no_auc_and_certain_wrong_predictions_a_finite_loss():
    scores = scores_of(BINARY, np.ones(4), np.array([0.0, 1.0, 1.0, 1.0]))
    assert math.isnan(scores["auc"])
    assert 1 < scores["log_loss"] < 100
    (wrong, right) = calibration_bins(np.ones(4), np.array([0.0, 1.0, 1.0, 1.0]))
    assert wrong.upper == right.upper == 1.0
