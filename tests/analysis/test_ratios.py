"""Ratios of classes and counts: the numbers of the coefficients, in exact words."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from fedhlcr import HLCRClassifier, HLCRRegressor, describe_clusters
from fedhlcr._support.wording import number
from fedhlcr.analysis.effects import coef_intervals
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.ratios import cluster_ratios, step_sizes
from fedhlcr.exceptions import ArgumentError
from tests.reports import recipe_of
from tests.responses import classifier, counter, events


@pytest.mark.parametrize("fitted", [classifier, counter])
def test_ratios_are_exponentials_of_coefficients_and_their_intervals(fitted):
    model = fitted()
    sizes, (lower, upper) = step_sizes(model), coef_intervals(model, 0.8)
    assert sizes[1] == 1.0
    np.testing.assert_allclose(sizes[[0, 2]], model.feature_spreads_[[0, 2]])
    found = cluster_ratios(model, 0.8)[0]
    np.testing.assert_allclose([r.ratio for r in found], np.exp(model.coef_[0] * sizes))
    np.testing.assert_allclose([r.lower for r in found], np.exp(lower[0] * sizes))
    np.testing.assert_allclose([r.upper for r in found], np.exp(upper[0] * sizes))
    assert [r.is_clear for r in found] == [True, True, False]
    assert all("80 % interval" in r.sentence for r in found)


def test_sentences_of_odds():
    time, treated, nothing = cluster_ratios(classifier())[0]
    assert time.sentence.startswith("With each further standard deviation (")
    assert "of time, the odds of “severe” fall by" in time.sentence
    assert treated.sentence.startswith("Where treated is 1, compared with 0, the odds of “severe” are ")
    assert "times as high (90 % interval: " in treated.sentence
    assert "the odds of “severe” do not clearly change (90 % interval: " in nothing.sentence
    assert " lower to " in nothing.sentence


def test_sentences_of_rates():
    model = counter()
    time, treated, _ = cluster_ratios(model)[0]
    assert "the rate rises by" in time.sentence
    assert "the rate is" in treated.sentence
    assert "% lower (90 % interval: " in treated.sentence
    assert treated.lower < 0.5 < treated.upper or treated.ratio == pytest.approx(0.5, rel=0.15)
    assert link_of(model, "visits").subject == "the rate of visits"


def test_the_smaller_change_comes_first_in_an_interval():
    fall = cluster_ratios(classifier())[0][0]
    assert fall.upper < 1.0
    near, far = round(100 * (1 - fall.upper)), round(100 * (1 - fall.lower))
    assert f"interval: {near} % to {far} %)" in fall.sentence


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
    assert cluster_ratios(named)[0][1].sentence.startswith("Where drug is b, compared with elsewhere, the odds")
    assert model.recipe_.categorical == {}


def test_one_draw_has_no_intervals_and_no_clear_ratios():
    frame, classes, _ = events()
    model = HLCRClassifier(1, n_sweeps=4, n_draws=1, n_threads=1).fit(frame, classes, agent="clinic", entity="patient")
    found = cluster_ratios(model)[0]
    assert not any(r.is_clear for r in found)
    assert not any("interval" in r.sentence for r in found)


def test_real_targets_have_no_ratios():
    frame, _, visits = events()
    model = HLCRRegressor(1, n_sweeps=4, n_threads=1).fit(frame, visits, agent="clinic", entity="patient")
    with pytest.raises(ArgumentError, match="predicts real numbers"):
        cluster_ratios(model)


def test_summary_of_a_classifier_speaks_of_odds_and_not_of_noise():
    model = classifier()
    text = str(model.summary())
    assert "mild and severe; odds and probabilities are those of severe" in text
    assert "odds ratio per standard deviation" in text
    assert "standard deviations of log odds" in text or "no effects beyond" in text
    assert "noise" not in text
    assert "units of the target" not in text
    assert number(cluster_ratios(model)[0][0].ratio) in text


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
