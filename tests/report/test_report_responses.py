"""Reports on classifiers and count models."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr.analysis.axis_words import describe_effects
from fedhlcr.analysis.class_scores import ClassScores
from fedhlcr.analysis.ratios import cluster_ratios
from fedhlcr.analysis.response_rivals import RATE_PER_ENTITY
from fedhlcr.report import HeldOut, render_report
from fedhlcr.report.link_scores import score_link
from tests.reports import Page, public
from tests.responses import classifier, counter, events

REAL_WORDS = ("noise", "R²", "ridge", "Scatter:", "units of the target")


def page(model, with_events=True):
    frame, classes, visits = events()
    y = classes if hasattr(model, "classes_") else visits
    given = HeldOut(frame, y, "clinic", "patient") if with_events else None
    return render_report(model, given)


@pytest.mark.parametrize("fitted", [classifier, counter])
@pytest.mark.parametrize("with_events", [True, False])
def test_report_has_all_ratios_and_none_of_the_words_for_real_numbers(fitted, with_events):
    model = fitted()
    shown = Page(page(model, with_events))
    columns = shown.columns("clusters")
    for ratio in cluster_ratios(model)[0]:
        assert columns[ratio.feature] == [pytest.approx(ratio.ratio, rel=5e-3)]
    assert all(move in shown.text.replace("\N{NO-BREAK SPACE}", " ") for move in describe_effects(model)[0])
    assert not [word for word in REAL_WORDS if word in shown.text]


@pytest.mark.parametrize("fitted", [classifier, counter])
def test_report_without_a_table_draws_the_fitted_events(fitted):
    html = page(fitted(), with_events=False)
    assert 'class="event mean"' in html
    assert f"{len(events()[0])} events behind the dots" in html


@pytest.mark.parametrize("fitted", [classifier, counter])
def test_events_not_fitted_are_compared_with_simpler_models(fitted):
    model, (frame, classes, visits) = fitted(), events()
    y = classes if hasattr(model, "classes_") else visits
    half = slice(0, None, 2)
    scores = score_link(model, HeldOut(frame[half], y[half], "clinic", "patient"), 0.5)
    names = [difference.rival for difference in scores.comparison.differences]
    assert names == [name for name, _ in scores.rivals]
    assert RATE_PER_ENTITY in names
    rows = Page(render_report(model, HeldOut(frame[half], y[half], "clinic", "patient"))).text
    assert "the model predicts" in rows
    assert "the mean of each patient" in rows


def test_report_of_a_classifier_shows_scores_and_a_reliability_diagram():
    model, (frame, classes, _) = classifier(), events()
    html = page(model)
    shown, text = Page(html), Page(html).text
    probability = model.predict_proba(frame, agent="clinic", entity="patient")[:, 1]
    scores = ClassScores.of((classes == "severe").astype(float), probability)
    for figure in (scores.log_loss, scores.auc, scores.brier, scores.calibration_error):
        assert f"{figure:.3f}" in text
    assert ("svg", "reliability") in [(tag, attributes.get("class")) for tag, attributes in shown.tags]
    assert "These figures are optimistic." in text
    column = shown.columns("entities")["observed share"]
    assert np.mean(column) == pytest.approx((classes == "severe").mean(), abs=1e-3)


def test_report_of_counts_shows_deviance_coverage_and_dispersion():
    model = counter()
    text = Page(page(model)).text
    assert "Poisson deviance" in text
    assert "of these counts lie in their 90" in text
    assert "dispersion of the counts" in text
    assert "Pure chance, a Poisson law, would give" in text


def test_exposure_scales_the_predicted_counts():
    frame, _, visits = events()
    half = HeldOut(frame, visits, "clinic", "patient", exposure=0.5)
    assert "predicts worse than" in Page(render_report(counter(), half)).text


@pytest.mark.parametrize("fitted", [classifier, counter])
def test_public_models_can_be_reported(fitted):
    assert "It is public" in Page(page(public(fitted()))).text


def test_wrong_probabilities_are_doubted():
    frame, classes, _ = events()
    flipped = np.where(classes == "severe", "mild", "severe")
    text = Page(render_report(classifier(), HeldOut(frame, flipped, "clinic", "patient"))).text
    assert "Some probabilities are not what was observed" in text
    assert "the same prediction for all is better" in text
