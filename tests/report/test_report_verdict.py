"""The verdict at the top of a report, and how sure it is who is in which cluster."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest

from fedhlcr.analysis.evaluation import MODEL, entity_groups, evaluate
from fedhlcr.analysis.facts import SURE, LabelCertainty
from fedhlcr.analysis.simpler import MIXED_MODEL, ONE_RIDGE, RIDGE_PER_ENTITY
from fedhlcr.analysis.verdict import Difference, FitComparison
from fedhlcr.analysis.words import cluster_numbers, how_sure, mixed_group
from fedhlcr.data.hierarchy import UNKNOWN
from fedhlcr.report import render_report
from fedhlcr.report.findings import Findings
from fedhlcr.report.panels import MOST_PANELS, shown_clusters
from fedhlcr.report.verdict import find_verdict
from tests.reports import Page, fitted, held_out, public, recipe_of, with_figures


def compared(**gains):
    """A comparison in which a gain of 1 is clear, and one of 0.1 is not."""
    names = {"one": ONE_RIDGE, "each": RIDGE_PER_ENTITY, "mixed": MIXED_MODEL}
    return FitComparison(tuple(Difference(names[name], gain, 0.2, 20) for name, gain in gains.items()), 100, 20)


@pytest.fixture(scope="module")
def scores(model, split):
    return evaluate(model, held_out(split[1]))


@pytest.mark.parametrize(
    ("errors", "densities", "name", "said"),
    [
        ((2.0, 1.0), (2.0, 1.0), "better", "predicts the target better than one ridge for all or a mixed model"),
        ((2.0, 0.1), (2.0, -0.1), "about the same", "about as well as a mixed model. The difference"),
        ((2.0, -1.0), (2.0, -0.1), "worse", "a mixed model predicts the target better than the model does"),
        ((2.0, 0.1), (2.0, -1.0), "worse", "but a mixed model says better how far off its predictions may be"),
        (
            (2.0, 0.1),
            (2.0, 1.0),
            "better",
            "about as accurate as a mixed model (the difference may be chance). It says better than",
        ),
        ((2.0, -1.0), (2.0, 1.0), "about the same", "less accurate than those of a mixed model, but it says better"),
    ],
)
def test_errors_and_densities_of_held_out_events_decide(model, scores, errors, densities, name, said):
    found = replace(
        scores,
        errors=compared(one=errors[0], mixed=errors[1]),
        densities=compared(one=densities[0], mixed=densities[1]),
    )
    verdict = find_verdict(Findings(model), found)
    assert verdict.name == name
    assert said in verdict.sentences[0]
    assert ("MixedModelRegressor" in verdict.advice) == (name == "worse" or errors[1] == -1.0)


@pytest.mark.parametrize(
    ("errors", "densities", "badge", "hint"),
    [
        (0.1, 1.0, "≈ About as accurate", "and better at saying how sure it is"),
        (0.1, -1.0, "≈ About as accurate", "but worse at saying how sure it is"),
        (1.0, -1.0, "≈ More accurate", "but worse at saying how sure it is"),
        (-1.0, 1.0, "≈ Less accurate", "but better at saying how sure it is"),
        (1.0, 0.1, "▲ Better", "than simpler models"),
    ],
)
def test_the_badge_says_no_more_than_the_bars(model, scores, errors, densities, badge, hint):
    found = replace(scores, errors=compared(mixed=errors), densities=compared(mixed=densities))
    verdict = find_verdict(Findings(model), found)
    assert (f"{verdict.sign} {verdict.badge}", verdict.badge_hint) == (badge, hint)
    assert verdict.css == ("better" if badge.startswith("▲") else "about")


@pytest.mark.parametrize(("gain", "name"), [(1.0, "better"), (-1.0, "worse")])
def test_differences_of_less_than_a_point_are_slight(model, scores, gain, name):
    near = replace(scores.model, explained=scores.model.explained - 0.004 * gain)
    both = {MODEL: scores.model, MIXED_MODEL: near}
    found = replace(scores, scores=both, errors=compared(mixed=gain), densities=compared(mixed=gain))
    verdict = find_verdict(Findings(model), found)
    assert verdict.name == name
    assert verdict.badge == f"Slightly {name}"
    assert "slightly better than" in verdict.sentences[0]


def test_errors_of_a_logarithm_are_told_in_per_cent(model, scores):
    logged = copy.copy(model)
    logged.recipe_ = recipe_of(["x0", "x1", "x2"], target="log_units")
    own = with_figures(scores, mae=0.2)
    assert find_verdict(Findings(logged), own).sentences[1] == "The model is typically off by about 22 %."


def test_a_ridge_per_entity_is_recommended_where_it_is_best(model, scores):
    worse = compared(one=1.0, each=-1.0, mixed=-0.5)
    verdict = find_verdict(Findings(model), replace(scores, errors=worse, densities=worse))
    assert verdict.name == "worse"
    assert 'GroupedRidge(level="entity")' in verdict.advice
    assert verdict.badge == "Worse"


def test_bars_are_the_shares_of_variance_explained(model, scores):
    verdict = find_verdict(Findings(model), scores)
    assert [name for name, _, _ in verdict.bars] == [
        "this model",
        "one ridge for all",
        "a ridge per entity",
        "a mixed model",
    ]
    np.testing.assert_allclose(
        [share for _, share, _ in verdict.bars], [max(s.explained, 0.0) for s in scores.scores.values()]
    )


def test_comparisons_are_paired_by_event(model, scores, split):
    test = split[1]
    predicted = model.predict(test.X, agent=test.agent, entity=test.entity)
    assert scores.errors.strongest.gain == pytest.approx(
        min(rival["mse"] for rival in scores.rivals.values()) - ((test.y - predicted) ** 2).mean()
    )
    assert scores.densities.n_entities == len(set(zip(test.agent.tolist(), test.entity.tolist(), strict=True)))


def test_without_events_the_comparison_after_the_fit_decides(model):
    doubted = copy.copy(model)
    doubted.comparison_ = compared(one=1.0, mixed=-1.0)
    verdict = find_verdict(Findings(doubted), None)
    assert verdict.name == "worse"
    assert "each predicted from all others" in verdict.sentences[1]
    doubted.comparison_ = None
    assert find_verdict(Findings(doubted), None).badge == "Not evaluated"


def test_fitted_events_do_not_decide(model, scores):
    unknown = copy.copy(model)
    unknown.comparison_ = None
    verdict = find_verdict(Findings(unknown), replace(scores, was_fitted=True))
    assert verdict.name == "unknown"
    assert "were fitted" in verdict.sentences[0]


def test_a_public_model_cannot_be_compared(model, split):
    bare = public(model)
    bare.comparison_ = None
    page = Page(render_report(bare, held_out(split[1])))
    assert "Not evaluated" in page.text
    assert "it cannot be compared with them" in page.text


def test_new_entities_are_groups_of_their_own():
    entities = np.array([0, 0, UNKNOWN, UNKNOWN, UNKNOWN, 3])
    agent = np.array(["a", "a", "b", "b", "c", "a"])
    entity = np.array([1, 1, 7, 7, 7, 2])
    groups = entity_groups(entities, agent, entity)
    assert groups[0] == groups[1]
    assert groups[2] == groups[3]
    assert len(set(groups.tolist())) == 4
    assert len(set(entity_groups(entities, None, None).tolist())) == 5


def test_the_verdict_stands_before_everything_else(model, split):
    html = render_report(model, held_out(split[1]))
    order = [
        html.index(part) for part in ('class="badge"', 'id="picture"', 'id="clusters"', 'id="effects"', 'id="good"')
    ]
    assert order == sorted(order)


def certainty_of(model):
    return Findings(model).certainty


def test_certainty_counts_sure_members(model):
    findings = Findings(model)
    certainty = findings.certainty
    sure = findings.entities.certainty >= SURE
    assert certainty.n_sure == sure.sum()
    assert certainty.n_all == len(model.labels_)
    counts = np.bincount(model.labels_, minlength=model.n_clusters_)
    members = np.bincount(model.labels_[sure], minlength=model.n_clusters_)
    assert list(findings.certainty.sure_of_cluster) == members.tolist()
    blurred = [k for k in range(model.n_clusters_) if members[k] < 0.5 * counts[k] or not counts[k]]
    assert list(certainty.blurred) == blurred
    assert sorted(certainty.clear + certainty.blurred) == list(range(model.n_clusters_))


def test_uncertain_clusters_are_told_as_one_mixed_group(model):
    findings = Findings(model)
    some = LabelCertainty(100, 60, (0, 1), (2, 3, 4), 0.12)
    assert how_sure(some, findings.names) == "60 % of entities are surely in their cluster."
    told = mixed_group(some, findings.names)
    assert told == (
        "Clusters 2 to 4 hold 12 % of entities, and fewer than half of them for certain: read them as one mixed group."
    )
    assert shown_clusters(some) == [(0,), (1,), (2, 3, 4)]


def test_clusters_without_certain_members_are_no_finding(model):
    names = Findings(model).names
    none = LabelCertainty(100, 8, (0,), (1, 2), 0.7)
    assert not none.is_finding
    assert how_sure(none, names).startswith("The clusters are not a finding here: only 8 % of entities")
    assert mixed_group(none, names) == ""
    assert shown_clusters(none) == [(0, 1, 2)]


def test_many_clear_clusters_share_the_last_panel():
    many = LabelCertainty(100, 100, tuple(range(14)), (), 0.0)
    shown = shown_clusters(many)
    assert len(shown) == MOST_PANELS
    assert [k for own in shown for k in own] == list(range(14))


def test_an_uncertain_fit_says_so_on_the_page(split):
    page = render_report(fitted(split[0], n_clusters=9, n_sweeps=30, effects="none", noise="common"))
    certainty = certainty_of(fitted(split[0], n_clusters=9, n_sweeps=30, effects="none", noise="common"))
    assert certainty.blurred
    assert "faded" in page
    words = Page(page).text.replace("\N{NO-BREAK SPACE}", " ")
    assert ("read them as one mixed group" in words) or ("not a finding here" in words)


def test_one_cluster_is_told_as_one_regression(split):
    page = Page(render_report(fitted(split[0], n_clusters=1), held_out(split[1])))
    assert "follow one common regression" in page.text
    assert "There are no groups to tell apart" in page.text
    assert "surely" not in page.text


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((3,), "cluster 3"),
        ((3, 5), "clusters 3 and 5"),
        ((3, 4, 5), "clusters 3 to 5"),
        ((1, 3, 4), "clusters 1, 3 and 4"),
    ],
)
def test_clusters_are_named_by_number(numbers, words):
    assert cluster_numbers(numbers) == words


def test_other_events_can_be_drawn_than_those_that_judge(model, split):
    train, test = split
    judged = render_report(model, held_out(test))
    both = render_report(model, held_out(test), events=held_out(train))
    pages = [Page(page).data for page in (judged, both)]
    explorers = [page.pop("explorer") for page in pages]
    assert pages[0] == pages[1]
    assert explorers[0]["agents"] == explorers[1]["agents"]
    assert explorers[0]["events"] != explorers[1]["events"]
    assert f"{len(train)}" in both
    with pytest.raises(TypeError, match="`events` must be a HeldOut"):
        render_report(model, events=(train.X, train.y))
    assert "give the report a table of events" in Page(render_report(model)).text
