"""Reports on classifiers and count models."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedhlcr import HLCRClassifier, HLCRCountRegressor
from fedhlcr.analysis.axis_words import describe_effects
from fedhlcr.analysis.effects import step_ratios
from fedhlcr.analysis.evaluation import evaluate
from fedhlcr.analysis.scores import scores_of
from fedhlcr.analysis.simpler import MIXED_MODEL, RATE_PER_ENTITY
from fedhlcr.analysis.verdict import Difference, FitComparison
from fedhlcr.data.families import BINARY
from fedhlcr.report import HeldOut, render_report
from fedhlcr.report.doubts import find_doubts
from fedhlcr.report.findings import Findings
from fedhlcr.report.verdict import find_verdict
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
    for feature, ratio in zip(model.feature_names_in_, step_ratios(model)[0][0], strict=True):
        assert columns[feature] == [pytest.approx(ratio, rel=5e-3)]
    assert all(move in shown.text.replace("\N{NO-BREAK SPACE}", " ") for move in describe_effects(model)[0])
    assert not [word for word in REAL_WORDS if word in shown.text]


@pytest.mark.parametrize("fitted", [classifier, counter])
def test_report_without_a_table_draws_the_fitted_events(fitted):
    html = page(fitted(), with_events=False)
    assert 'class="mean ' in html
    assert f"{len(events()[0])} events behind the dots" in html


@cache
def held_out(kind):
    """A model of every second event, the other events, and their scores."""
    frame, classes, visits = events()
    is_count = kind is HLCRCountRegressor
    y = visits if is_count else classes
    model = kind(1, n_sweeps=120, n_draws=60, n_threads=1).fit(frame[::2], y[::2], agent="clinic", entity="patient")
    other = HeldOut(frame[1::2], y[1::2], "clinic", "patient")
    return model, other, evaluate(model, other.read(model))


ESTIMATORS = pytest.mark.parametrize("kind", [HLCRClassifier, HLCRCountRegressor])


def own_regression(kind):
    """The names of a regression for each entity: in tables, and in sentences."""
    law = "Poisson" if kind is HLCRCountRegressor else "logistic"
    return f"{law} regression per entity", f"a {law} regression per patient"


@ESTIMATORS
def test_events_not_fitted_are_compared_with_simpler_models(kind):
    model, other, scores = held_out(kind)
    names = [difference.rival for difference in scores.densities.differences]
    assert names == list(scores.rivals)
    assert {RATE_PER_ENTITY, MIXED_MODEL, own_regression(kind)[0]} < set(names)
    assert scores.densities.n_entities == 32
    text = Page(render_report(model, other)).text
    for words in ("the mean of each patient", own_regression(kind)[1], "a mixed model", "may deviate"):
        assert words in text
    assert "It was not compared with a mixed model" not in text


@ESTIMATORS
def test_comparison_is_paired_by_event_and_bars_agree_with_it(kind):
    model, other, scores = held_out(kind)
    mixed = scores.rivals[MIXED_MODEL]
    (gain,) = (d.gain for d in scores.densities.differences if d.rival == MIXED_MODEL)
    own = scores.model
    if kind is HLCRClassifier:
        assert gain == pytest.approx(mixed["log_loss"] - own["log_loss"])
    else:
        assert gain == pytest.approx(0.5 * (mixed["deviance"] - own["deviance"]))
    bars = {name: share for name, share, _ in find_verdict(Findings(model), scores).bars}
    assert bars["this model"] == pytest.approx(own.explained)
    assert bars["a mixed model"] == pytest.approx(mixed.explained)
    assert (bars["this model"] > bars["a mixed model"]) == (gain > 0.0)
    assert "How much of the" in Page(render_report(model, other)).text


@ESTIMATORS
@pytest.mark.parametrize(
    ("gain", "name", "said"),
    [
        (1.0, "better", "better than one ridge for all or a mixed model"),
        (0.1, "about the same", "about as well as a mixed model. "),
        (-1.0, "worse", "a mixed model predicts the "),
    ],
)
def test_verdict_on_responses_says_what_to_use(kind, gain, name, said):
    model, _, scores = held_out(kind)
    found = FitComparison((Difference("one ridge", 2.0, 0.2, 32), Difference(MIXED_MODEL, gain, 0.2, 32)), 100, 32)
    verdict = find_verdict(Findings(model), replace(scores, densities=found))
    assert verdict.name == name
    assert said in verdict.sentences[0]
    advised = f'`{kind.__name__}(n_clusters=1, effects="entity")`'
    assert (advised in verdict.advice) == (name == "worse")


def test_one_cluster_with_effects_is_called_a_mixed_model():
    model, _, scores = held_out(HLCRClassifier)
    found = FitComparison((Difference(MIXED_MODEL, 0.1, 0.2, 32),), 100, 32)
    scores, findings = replace(scores, densities=found), Findings(model)
    differences = findings.differences
    for has_effect in (True, False):
        findings.differences = differences._replace(has_entity_effect=np.array([has_effect, False]))
        verdict = find_verdict(findings, scores)
        assert ("With one cluster it is a mixed model itself." in verdict.sentences[0]) == has_effect
        assert ("may be chance" in verdict.sentences[0]) != has_effect


@ESTIMATORS
def test_other_rivals_on_responses_can_be_used_too(kind):
    model, _, scores = held_out(kind)
    for name in scores.rivals:
        found = FitComparison((Difference(name, -1.0, 0.2, 32),), 100, 32)
        verdict = find_verdict(Findings(model), replace(scores, densities=found))
        assert verdict.advice.startswith("If you want predictions, use ")
        assert ("`" in verdict.advice) == (name != RATE_PER_ENTITY)
        assert ("not compared with a mixed model" in " ".join(verdict.sentences)) == (name != MIXED_MODEL)


@ESTIMATORS
def test_slight_differences_of_responses_are_called_slight(kind):
    model, _, scores = held_out(kind)
    near = replace(scores.model, explained=scores.model.explained * 1.001)
    found = FitComparison((Difference(MIXED_MODEL, -1.0, 0.2, 32),), 100, 32)
    verdict = find_verdict(
        Findings(model), replace(scores, scores={**scores.scores, MIXED_MODEL: near}, densities=found)
    )
    assert verdict.badge == "Slightly worse"
    assert "slightly better than the model does" in verdict.sentences[0]


@ESTIMATORS
def test_a_better_rival_of_responses_is_doubted_in_its_place(kind):
    model, _, scores = held_out(kind)
    found = FitComparison((Difference(MIXED_MODEL, -1.0, 0.2, 32),), 100, 32)
    worse = replace(scores, densities=found)
    headlines = [doubt.headline for doubt in find_doubts(Findings(model), worse)]
    assert "On held-out events a mixed model predicts better than HLCR" in headlines
    quiet = [doubt.headline for doubt in find_doubts(Findings(model), replace(worse, was_fitted=True))]
    assert "On held-out events a mixed model predicts better than HLCR" not in quiet


def test_report_of_a_classifier_shows_scores_and_a_reliability_diagram():
    model, (frame, classes, _) = classifier(), events()
    html = page(model)
    shown, text = Page(html), Page(html).text
    probability = model.predict_proba(frame, agent="clinic", entity="patient")[:, 1]
    scores = scores_of(BINARY, (classes == "severe").astype(float), probability)
    for figure in (scores[name] for name in ("log_loss", "auc", "brier", "calibration_error")):
        assert f"{figure:.3f}" in text
    told = [attributes.get("aria-label", "") for tag, attributes in shown.tags if tag == "svg"]
    assert any(words.startswith("Observed share against predicted probability: ") for words in told)
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
    assert "worse than the plain mean" in Page(render_report(counter(), half)).text


@pytest.mark.parametrize("fitted", [classifier, counter])
def test_public_models_can_be_reported(fitted):
    assert "It is public" in Page(page(public(fitted()))).text


def test_wrong_probabilities_are_doubted():
    frame, classes, _ = events()
    flipped = np.where(classes == "severe", "mild", "severe")
    text = Page(render_report(classifier(), HeldOut(frame, flipped, "clinic", "patient"))).text
    assert "Some probabilities are not what was observed" in text
    assert "the same prediction for all is better" in text
