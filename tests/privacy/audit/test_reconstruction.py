"""The reconstruction attack: it finds what sums give away, claims nothing else, and reads nothing but the view."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.privacy.audit.attack_score import Truth, exposure, rows_in, score, weighted_alone
from fedhlcr.privacy.audit.reconstruction import reconstruct
from fedhlcr.privacy.audit.recording_engine import record_run
from fedhlcr.privacy.audit.tables import as_hierarchy
from fedhlcr.privacy.audit.view import EVERYONE, NO_STATEMENT, ServerView, Statement

LAYOUT = GramLayout(3)
PLAIN = {"effects": "none", "noise": "common"}


def gram_of(rows):
    """The packed matrix of events (x, y)."""
    whole = np.column_stack([np.ones(len(rows)), rows])
    return LAYOUT.pack(whole.T @ whole)


def entities(*sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [gram_of(rng.normal(size=(size, 4))) for size in sizes]


def statement(number, groups, grams, changed, since=None):
    """What an agent states whose cluster k holds the entities groups[k]."""
    clusters = [k for k, group in enumerate(groups) if group]
    sums = np.array([sum(grams[e] for e in groups[k]) for k in clusters])
    counts = np.array([len(groups[k]) for k in clusters], dtype=float)
    before = (number - 1 if number else NO_STATEMENT) if since is None else since
    return Statement(number, before, np.array(clusters, dtype=np.int32), counts, sums, changed, np.arange(len(groups)))


def found_in(*statements):
    units = Standardization(np.zeros(4), np.ones(4))
    return reconstruct(ServerView(LAYOUT, units, {"agent": list(statements)}))


def is_claimed(gram, claims, reason=None):
    return any(np.allclose(claim.gram, gram) and reason in (None, claim.reason) for claim in claims)


@pytest.fixture(scope="module")
def run():
    """A run of a made-up table, and its truth."""
    table, _ = make_hlcr(12, 8, 3, 4, 4, 1.0, random_state=3)
    hierarchy = as_hierarchy(table)
    engine = InProcessEngine.from_hierarchy(hierarchy, failure_rate=0.1, seed=0, n_threads=1)
    settings = FederationSettings(GramLayout(4), rounds=40, patience=None, **PLAIN)
    server, recording = record_run(settings, engine)
    view = recording.view()
    return server, view, Truth.of(hierarchy, view.layout, view.units), hierarchy


@pytest.mark.parametrize("n_events", [1, 2])
def test_matrix_of_one_or_two_events_gives_the_rows(n_events):
    rows = np.random.default_rng(0).normal(size=(n_events, 4)) * [1, 5, 100, 20] + [0, 3, 500, 7]
    found = rows_in(LAYOUT, gram_of(rows))
    np.testing.assert_allclose(found[np.argsort(found[:, 0])], rows[np.argsort(rows[:, 0])], rtol=1e-7)


def test_two_equal_events_give_the_same_row_twice():
    rows = np.full((2, 4), 3.0)
    np.testing.assert_allclose(rows_in(LAYOUT, gram_of(rows)), rows)


def test_three_events_give_no_row():
    assert len(rows_in(LAYOUT, entities(3)[0])) == 0


def test_entity_alone_in_its_cluster_is_found():
    grams = entities(9, 9, 9)
    claims = found_in(statement(0, [[0], [1, 2]], grams, 3))
    assert [claim.reason for claim in claims] == ["alone"]
    assert is_claimed(grams[0], claims)


def test_single_mover_is_found_whatever_its_number_of_events():
    grams = entities(9, 9, 9, 9)
    claims = found_in(
        statement(0, [[0, 1], [2, 3]], grams, 4),
        statement(1, [[0], [1, 2, 3]], grams, 1),
    )
    assert is_claimed(grams[1], claims, "moved")


def test_two_movers_between_two_clusters_are_not_taken_for_one():
    grams = entities(9, 9, 9, 9, 9)
    claims = found_in(
        statement(0, [[0, 1, 4], [2, 3]], grams, 5),
        # two entities go and one comes: the count changes by one, but three labels have changed
        statement(1, [[4, 2], [0, 1, 3]], grams, 3),
    )
    assert claims == []


def test_entity_that_leaves_a_merged_cluster_is_found():
    grams = entities(9, 9, 9, 9, 9)
    merged = np.array([0, 0, 1])
    before = replace(statement(0, [[0], [1, 2], [3, 4]], grams, 5), cluster_of=merged)
    # the agent of entity 1 has answered: its entity is now in cluster 0; another one has moved to and fro
    after = replace(statement(1, [[0, 1, 3], [2], [4]], grams, 7), cluster_of=merged)
    assert is_claimed(grams[1], found_in(before, after), "left")


def test_entity_that_one_cluster_lost_and_another_gained_is_found():
    """Others move too, so the number of changed labels proves nothing."""
    grams = entities(9, 9, 9, 9, 9, 9, 9, 9)
    claims = found_in(
        statement(0, [[0, 1], [2, 3], [4, 5], [6, 7]], grams, 8),
        statement(1, [[0], [1, 2, 3], [6, 7], [4, 5]], grams, 5),
    )
    assert [claim.reason for claim in claims if np.allclose(claim.gram, grams[1])] == ["matched"]


def test_sums_of_distant_rounds_that_differ_by_a_small_entity_are_found_by_rank():
    grams = entities(3, 9, 9, 9)
    claims = found_in(
        statement(0, [[0, 1], [2, 3]], grams, 4),
        statement(4, [[2, 3, 0], [1, 1]], grams, 9, since=NO_STATEMENT),
    )
    assert is_claimed(grams[0], claims, "rank")


def test_known_entity_is_peeled_from_a_swap():
    grams = entities(3, 3, 9, 9, 9, 9)
    claims = found_in(
        statement(0, [[0], [1, 2], [3, 4, 5]], grams, 6),
        statement(1, [[3, 1], [0, 2], [4, 5]], grams, 3),
    )
    assert is_claimed(grams[0], claims, "alone")
    assert is_claimed(grams[1], claims, "peeled")


def test_last_entity_follows_from_the_total():
    grams = entities(9, 9, 9)
    first = statement(0, [[0], [1, 2]], grams, 3)
    second = statement(1, [[0, 2], [1]], grams, 3, since=NO_STATEMENT)
    claims = found_in(first, second)
    assert is_claimed(grams[2], claims, "last")


def test_attack_on_a_run_claims_only_true_matrices(run):
    _, view, truth, _ = run
    found = score(reconstruct(view), truth, view.layout)
    assert found.n_wrong == 0
    assert found.entities > 0.7 * found.n_entities
    assert found.rows > 0.7 * found.n_small


def test_rows_found_are_rows_of_the_table(run):
    _, view, _, hierarchy = run
    table = np.column_stack([hierarchy.X, hierarchy.y])
    rows = np.concatenate([rows_in(view.layout, claim.gram) for claim in reconstruct(view)])
    found = rows * view.units.scale + view.units.shift
    nearest = np.abs(found[:, None] - table).max(axis=2).min(axis=1)
    assert len(found) > 10
    assert (nearest < 1e-6).all()


def test_made_up_claim_is_wrong(run):
    _, view, truth, _ = run
    claims = reconstruct(view)[:5]
    invented = [replace(claim, gram=claim.gram * 1.001) for claim in claims]
    found = score(invented, truth, view.layout)
    assert (found.entities, found.rows, found.n_wrong) == (0, 0, len(claims))


def test_claim_about_another_agent_is_wrong(run):
    _, view, truth, _ = run
    claims = reconstruct(view)[:1]
    other = next(name for name in truth.agents if name != claims[0].sender)
    assert score([replace(claims[0], sender=other)], truth, view.layout).n_wrong == 1
    assert score([replace(claims[0], sender=EVERYONE)], truth, view.layout).n_wrong == 0


@pytest.fixture(scope="module")
def totals():
    """The server's totals in a run in which half of the agents answer, and its truth."""
    table, _ = make_hlcr(12, 8, 3, 4, 4, 1.0, random_state=3)
    hierarchy = as_hierarchy(table)
    engine = InProcessEngine.from_hierarchy(hierarchy, failure_rate=0.1, seed=0, n_threads=1)
    settings = FederationSettings(GramLayout(4), rounds=40, patience=None, participation=0.5, fixed_point=True, **PLAIN)
    server, recording = record_run(settings, engine)
    view = recording.total_view()
    return server, recording, view, Truth.of(hierarchy, view.layout, view.units)


def test_totals_are_those_of_the_server(totals):
    server, recording, view, _ = totals
    total = view.statements[EVERYONE][-1]
    kept = server.rule.account.total()
    counts, grams = total.dense(len(total.cluster_of))
    np.testing.assert_array_equal(counts, kept.entity_counts)
    np.testing.assert_array_equal(grams, kept.grams)
    assert total.labels_changed == kept.scalars["labels_changed"]
    assert [own.round for own in recording.totals] == list(range(1, 41))


def test_total_gives_less_than_the_sums_of_agents(run, totals):
    _, view, truth, _ = run
    plain = score(reconstruct(view), truth, view.layout)
    _, _, view, truth = totals
    total = score(reconstruct(view), truth, view.layout)
    assert total.n_wrong <= 0.05 * total.n_claims
    assert 0 < total.entities < plain.entities


def test_entities_that_leave_a_merged_cluster_are_found(totals):
    """Sums of absent agents stay in clusters that were merged away; who answers next leaves them."""
    _, _, view, truth = totals
    claims = [claim for claim in reconstruct(view) if claim.reason == "left"]
    assert score(claims, truth, view.layout).n_wrong == 0


def test_movers_that_are_alone_in_the_total_are_counted(totals):
    _, _, view, truth = totals
    shown = exposure(view, truth)
    assert 0 < shown.rounds <= shown.n_rounds
    assert 0 < shown.entities <= len(truth.grams)


def test_weighted_sums_show_features_of_lonely_entities():
    """With noise of entities the plain attack ends, but features of an entity alone in a cluster stay exact."""
    table, _ = make_hlcr(8, 4, 6, 3, 6, 0.3, random_state=5)
    hierarchy = as_hierarchy(table)
    engine = InProcessEngine.from_hierarchy(hierarchy, failure_rate=0.0, seed=0, n_threads=1)
    _, recording = record_run(FederationSettings(GramLayout(3), rounds=60, patience=None, effects="entity"), engine)
    view = recording.view()
    statements = next(iter(view.statements.values()))
    assert {own.is_exact for own in statements} == {True, False}
    assert weighted_alone(view, Truth.of(hierarchy, view.layout, view.units)) > 0
