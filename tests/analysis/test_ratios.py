"""Ratios of classes and counts: the numbers of the coefficients."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from fedhlcr import HLCRClassifier, HLCRRegressor, describe_clusters, plot
from fedhlcr._support.wording import number
from fedhlcr.analysis.effects import coef_intervals, step_ratios, step_sizes, unit_changes
from fedhlcr.analysis.links import link_of
from fedhlcr.exceptions import ArgumentError
from tests.reports import recipe_of
from tests.responses import classifier, counter, events


@pytest.mark.parametrize("fitted", [classifier, counter])
def test_ratios_are_exponentials_of_coefficients_and_their_intervals(fitted):
    model = fitted()
    sizes, (lower, upper) = step_sizes(model), coef_intervals(model, 0.8)
    assert sizes[1] == 1.0
    np.testing.assert_allclose(sizes[[0, 2]], model.feature_spreads_[[0, 2]])
    ratio, low, high = (figures[0] for figures in step_ratios(model, 0.8))
    np.testing.assert_allclose(ratio, np.exp(model.coef_[0] * sizes))
    np.testing.assert_allclose(low, np.exp(lower[0] * sizes))
    np.testing.assert_allclose(high, np.exp(upper[0] * sizes))
    # no difference is outside the intervals of what matters
    np.testing.assert_array_equal((low > 1.0) | (high < 1.0), [True, True, False])
    assert link_of(model, "visits").subject in ("the odds of “severe”", "the rate of visits")


def test_classes_that_are_numbers_are_named_with_their_target():
    frame, classes, _ = events()
    model = HLCRClassifier(1, n_sweeps=10, n_threads=1).fit(
        frame, classes == "severe", agent="clinic", entity="patient"
    )
    model.recipe_ = recipe_of(["time", "treated", "nothing"], target="ill")
    assert link_of(model).subject == "the odds that ill is True"
    assert link_of(model).observed == "share where ill is True"


def test_levels_of_a_category_are_compared_with_all_others():
    model = classifier()
    recipe = recipe_of(["time", "treated", "nothing"], categorical={"treated": ["0", "1"]})
    frame = events()[0].rename(columns={"treated": "drug=b"})
    named = HLCRClassifier(1, n_sweeps=10, n_threads=1).fit(frame, events()[1], agent="clinic", entity="patient")
    named.recipe_ = dataclasses.replace(recipe, categorical={"drug": ["a", "b"]})
    assert step_sizes(named)[1] == 1.0
    np.testing.assert_allclose(step_ratios(named)[0][0, 1], np.exp(unit_changes(named)[0, 1]))
    assert model.recipe_.categorical == {}


def test_one_draw_has_no_intervals():
    frame, classes, _ = events()
    model = HLCRClassifier(1, n_sweeps=4, n_draws=1, n_threads=1).fit(frame, classes, agent="clinic", entity="patient")
    ratio, lower, upper = step_ratios(model)
    assert np.isfinite(ratio).all()
    assert np.isnan([lower, upper]).all()


def test_real_targets_have_no_ratios():
    frame, _, visits = events()
    model = HLCRRegressor(1, n_sweeps=4, n_threads=1).fit(frame, visits, agent="clinic", entity="patient")
    with pytest.raises(ArgumentError, match=r"`model` predicts real numbers.*coefficients"):
        plot.ratios(model)


def test_summary_of_a_classifier_speaks_of_odds_and_not_of_noise():
    model = classifier()
    text = str(model.summary())
    assert "mild and severe; odds and probabilities are those of severe" in text
    assert "odds ratio per standard deviation" in text
    assert "standard deviations of log odds" in text or "no effects beyond" in text
    assert "noise" not in text
    assert "units of the target" not in text
    assert number(step_ratios(model)[0][0, 0]) in text


def test_summary_of_counts_shows_the_dispersion():
    text = str(counter().summary())
    assert "\ndispersion" in text
    assert "rate ratio per standard deviation" in text
    assert "noise" not in text


def test_clusters_are_described_by_probabilities_and_rates():
    (of_classes,), (of_counts,) = describe_clusters(classifier()), describe_clusters(counter(), "visits")
    assert "the probability of “severe” is " in of_classes
    assert re.search(r"it falls from \d+ % to \d+ % as time goes from \d to \d", of_classes)
    assert "nothing" not in of_classes
    assert "the rate of visits is " in of_counts
