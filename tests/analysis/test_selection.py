"""Cluster counts compared: the figures are what they say, and the right number comes out."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import mean_squared_error, r2_score

from fedhlcr import HLCRRegressor, compare_cluster_counts, hold_out_events
from fedhlcr.analysis.comparison import Comparison, CountResult
from fedhlcr.analysis.selection import DEFAULT_COUNTS
from fedhlcr.analysis.verdict import grouped_standard_error
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import FitInterruptedWarning, warn_user
from fedhlcr.plot import cluster_counts

# the paper's model, for which evidence is known
PLAIN = {"effects": "none", "noise": "common"}
QUICK = HLCRRegressor(n_sweeps=80, n_draws=30, n_threads=1, **PLAIN)


def compare(table, **settings):
    ids = {"agent": table.agent, "entity": table.entity}
    return compare_cluster_counts(table.X, table.y, **ids, **{"estimator": QUICK, **settings})


@pytest.fixture(scope="module")
def compared(small):
    table, _ = small
    told = []
    result = compare(table, counts=[4, 1, 2, 3, 6, 2], n_splits=2, progress=lambda *call: told.append(call))
    return result, told


def test_figures_are_those_of_fits_to_the_same_splits(compared, small):
    table, _ = small
    result, _ = compared
    rng = np.random.RandomState(0)
    densities, pairs, r2, mse = {2: [], 3: []}, [], [], []
    for _ in range(2):
        train, test = hold_out_events(table.agent, table.entity, random_state=rng)
        a, b = table[train], table[test]
        pairs.append(b.agent * 1000 + b.entity)
        for count, told in densities.items():
            model = HLCRRegressor(count, n_sweeps=80, n_draws=30, n_threads=1, **PLAIN)
            model.fit(a.X, a.y, agent=a.agent, entity=a.entity)
            told.append(model.log_density(b.X, b.y, b.agent, b.entity))
            if count == 2:
                predicted = model.predict(b.X, b.agent, b.entity)
                r2.append(r2_score(b.y, predicted))
                mse.append(mean_squared_error(b.y, predicted))
    two, three = (np.concatenate(densities[count]) for count in (2, 3))
    row = result.rows[1]
    assert row.n_clusters == 2
    assert row.log_density == pytest.approx(two.mean())
    assert row.log_density_se == pytest.approx(grouped_standard_error(two, np.concatenate(pairs)))
    assert (row.r2, row.mse) == pytest.approx((np.mean(r2), np.mean(mse)))
    # differences of differences: whichever the best is
    assert row.difference - result.rows[2].difference == pytest.approx((two - three).mean())
    assert result.n_held_out == len(two)


def test_differences_are_to_the_best_event_by_event(compared):
    result, _ = compared
    best = next(row for row in result.rows if row.n_clusters == result.best)
    assert (best.difference, best.difference_se) == (0.0, 0.0)
    for row in (*result.rows, result.auto):
        assert row.difference == pytest.approx(row.log_density - best.log_density)
    assert all(row.difference <= 0.0 for row in result.rows)
    near = result.rows[3]
    # what is common to both cancels
    assert 0.0 < near.difference_se < 0.3 * near.log_density_se


def test_the_number_that_made_the_data_comes_out(compared):
    result, _ = compared
    assert [row.n_clusters for row in result.rows] == [1, 2, 3, 4, 6]
    assert result.suggested == 3
    assert result.auto.occupied == (3, 3)
    evidence = {row.n_clusters: row.evidence for row in result.rows}
    assert evidence[3] > evidence[2] + 50
    assert evidence[3] > max(evidence.values()) - 3
    assert result.auto.evidence == pytest.approx(evidence[3], abs=5)
    assert result.rows[0].occupied == (1, 1)
    assert result.rows[2].r2 > result.rows[1].r2 > result.rows[0].r2


@pytest.mark.slow
def test_one_cluster_is_enough_for_data_of_one_cluster():
    table, _ = make_hlcr(40, 5, 6, 3, 1, 0.5, random_state=2)
    result = compare(table, counts=[1, 2, 4], n_splits=2)
    assert result.suggested == result.most_evident == 1


@pytest.mark.slow
def test_other_units_of_the_target_shift_both_figures(small):
    table, _ = small
    scaled = replace(table, y=8.0 * table.y)
    own, other = (compare(data, counts=[2], n_splits=1) for data in (table, scaled))
    assert other.rows[0].log_density == pytest.approx(own.rows[0].log_density - np.log(8.0), abs=1e-6)
    n_fitted = len(table) - own.n_held_out
    assert other.rows[0].evidence == pytest.approx(own.rows[0].evidence - n_fitted * np.log(8.0), abs=1e-4)
    assert other.rows[0].mse == pytest.approx(64.0 * own.rows[0].mse)


def test_progress_is_reported_after_each_fit(compared):
    _, told = compared
    assert [(done, total) for done, total, _ in told] == [(done, 12) for done in range(1, 13)]
    assert told[0][2].startswith("split 1 of 2, 1 clusters: log density -")
    assert told[11][2].startswith("split 2 of 2, auto clusters")


def test_settings_of_the_estimator_carry_over(small):
    table, _ = small
    prototype = HLCRRegressor(5, n_sweeps=10, n_draws=5, fit_intercept=False, n_threads=1, random_state=4)
    before = prototype.get_params()
    result = compare(table, counts=[2], n_splits=1, estimator=prototype, random_state=9)
    train, test = hold_out_events(table.agent, table.entity, random_state=9)
    a, b = table[train], table[test]
    own = HLCRRegressor(2, n_sweeps=10, n_draws=5, fit_intercept=False, n_threads=1, random_state=4)
    own.fit(a.X, a.y, agent=a.agent, entity=a.entity)
    assert result.rows[0].log_density == pytest.approx(own.log_density(b.X, b.y, b.agent, b.entity).mean())
    assert prototype.get_params() == before
    assert not hasattr(prototype, "posterior_")


@pytest.mark.slow
def test_columns_by_name_are_as_good_as_arrays(small):
    table, _ = small
    frame = table.to_pandas().drop(columns="target")
    short = {"counts": [1, 2], "n_splits": 1, "estimator": QUICK}
    named = compare_cluster_counts(frame, pd.Series(table.y), agent="agent", entity="entity", **short)
    assert named == compare(table, **{key: short[key] for key in ("counts", "n_splits")})


@pytest.mark.slow
def test_without_entities_or_agents(small):
    table, _ = small
    short = {"counts": [1, 2], "n_splits": 1, "estimator": QUICK}
    agents_only = compare_cluster_counts(table.X, table.y, agent=table.agent, **short)
    nothing = compare_cluster_counts(table.X, table.y, **short)
    sole = compare_cluster_counts(table.X, table.y, entity=table.agent * 1000 + table.entity, **short)
    for result in (agents_only, nothing, sole):
        assert result.best == 2
        assert 0.1 * len(table) < result.n_held_out < 0.3 * len(table)


def test_default_counts_stop_at_the_number_of_entities():
    table, _ = make_hlcr(2, 3, 6, 1, 2, 0.3, balanced=True, random_state=1)
    result = compare(table, n_splits=1, estimator=HLCRRegressor(n_sweeps=10, n_threads=1))
    assert [row.n_clusters for row in result.rows] == [count for count in DEFAULT_COUNTS if count <= 6]


def row(count, density, behind, error, evidence=0.0):
    return CountResult(count, density, 0.1, behind, error, evidence, 0.5, 1.0, (2,))


def test_the_smallest_within_one_standard_error_is_suggested():
    auto = row("auto", -1.4, -0.4, 0.01, -99.0)
    rows = (
        row(1, -2.0, -1.0, 0.9, 3.5),
        row(2, -1.1, -0.1, 0.1, 7.0),
        row(4, -1.0, 0.0, 0.0),
        row(8, -1.01, -0.01, 0.3, 8.0),
    )
    result = Comparison(rows, auto, 1, 10)
    assert (result.best, result.suggested, result.most_evident) == (4, 2, 2)
    unknown = tuple(replace(row, difference_se=float("nan")) for row in rows)
    assert Comparison(unknown, auto, 1, 10).suggested == 4


def with_auto(auto, *rows):
    result = Comparison(rows, auto, len(auto.occupied), 10)
    return result, (result.best, result.suggested, result.most_evident)


def test_auto_is_a_candidate_like_any_number():
    """Its number of clusters is the one that it found."""
    rows = (row(1, -2.0, -1.0, 0.1, -50.0), row(2, -1.2, -0.2, 0.1, -4.0), row(8, -1.01, -0.01, 0.1, -9.0))
    auto = replace(row("auto", -1.0, 0.0, 0.0, 0.0), occupied=(3, 5))
    result, chosen = with_auto(auto, *rows)
    assert chosen == ("auto", "auto", "auto")
    assert [found.n_clusters for found in result.candidates] == [1, 2, "auto", 8]
    assert result.verdict.startswith("Best: auto (3 to 5 clusters). Suggested: auto (3 to 5 clusters), the smallest ")
    assert "By evidence: auto (3 to 5 clusters), " in result.verdict
    assert next(line for line in str(result).splitlines() if "auto" in line).split()[3] == "best"
    # it is the best, but a smaller number is as good
    assert with_auto(replace(auto, occupied=(14,)), *rows)[1] == ("auto", 8, "auto")
    # of a number and an equal one that "auto" found, the number is suggested
    assert with_auto(replace(auto, occupied=(8,)), *rows)[1][1] == 8
    # it is no better, but found fewer clusters
    close = replace(row("auto", -1.05, -0.05, 0.1, -1.0), occupied=(1, 2))
    best = row(8, -1.0, 0.0, 0.0, 0.0)
    assert with_auto(close, rows[0], rows[1], best)[1] == (8, "auto", "auto")
    assert "Best: 8 clusters. Suggested: auto (1 to 2 clusters)" in with_auto(close, *rows[:2], best)[0].verdict


def test_differences_are_those_from_the_best_even_if_it_is_auto(compared):
    result, _ = compared
    best = next(found for found in result.candidates if found.n_clusters == result.best)
    assert best.log_density == max(found.log_density for found in result.candidates)
    assert best.difference == 0.0
    assert all(found.difference <= 0.0 for found in result.candidates)


def test_comparison_is_printed_and_converted_to_plain_values(compared):
    result, _ = compared
    lines = str(result).splitlines()
    assert lines[0].split() == [
        "clusters",
        "in",
        "use",
        "log",
        "density",
        "vs",
        "best",
        "±",
        "s.e.",
        "evidence",
        "R²",
        "MSE",
    ]
    assert lines[2 + [r.n_clusters for r in (*result.rows, result.auto)].index(result.best)].split()[3] == "best"
    assert lines[7].split()[0] == "auto"
    assert "Suggested: 3 clusters," in lines[-1]
    assert repr(result) == str(result)
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["suggested"] == 3
    assert plain["rows"][1]["n_clusters"] == 2
    assert plain["rows"][1]["evidence"] == result.rows[1].evidence
    assert plain["auto"]["occupied"] == [3, 3]
    unknown = replace(result, auto=replace(result.auto, difference_se=float("nan")))
    assert unknown.to_dict()["auto"]["difference_se"] is None


def test_default_model_is_compared_by_log_density_alone(small):
    table, _ = small
    estimator = HLCRRegressor(n_sweeps=60, n_draws=20, n_threads=1)
    result = compare(table, counts=[1, 3], n_splits=1, estimator=estimator)
    assert (result.best, result.suggested, result.most_evident) == (3, 3, None)
    assert not result.has_evidence
    assert "vidence" not in str(result)
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["most_evident"] is None
    assert plain["rows"][0]["evidence"] is None
    with pytest.raises(ValueError, match="the comparison has none; compare estimators with effects='none'"):
        cluster_counts(result, quantity="evidence")


def test_standard_errors_take_groups_together(rng):
    values = rng.standard_normal(400)
    alone = grouped_standard_error(values, np.arange(400))
    assert alone == pytest.approx(values.std(ddof=1) / 20)
    # four copies of each are no more than one of each
    copies, groups = np.tile(values, 4), np.tile(np.arange(400), 4)
    assert grouped_standard_error(copies, groups) == pytest.approx(alone)
    assert np.isnan(grouped_standard_error(values, np.zeros(400, dtype=int)))


def test_a_fit_that_was_stopped_ends_the_comparison(small, monkeypatch):
    def stopped(self, *args, **kwargs):
        warn_user("stopped", FitInterruptedWarning)
        return self

    monkeypatch.setattr(HLCRRegressor, "fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        compare(small[0], counts=[1], n_splits=1)


def test_refusals(small):
    table, _ = small
    with pytest.raises(TypeError, match=r"`estimator` must be an HLCRRegressor, but is of type RandomForestRegressor"):
        compare(table, estimator=RandomForestRegressor())
    for counts in ([], [0], [2.5], [True], ["auto"]):
        with pytest.raises(ValueError, match="`counts` must be a list of one or more whole numbers"):
            compare(table, counts=counts)
    for n_splits in (0, 1.5):
        with pytest.raises(ValueError, match="`n_splits` must be a whole number of at least 1"):
            compare(table, n_splits=n_splits)
    with pytest.raises(ValueError, match="`fraction` must lie between 0 and 1"):
        compare(table, fraction=1.5)
    with pytest.raises(ValueError, match=r"no events could be held out: .* leave out `entity`"):
        compare_cluster_counts(table.X, table.y, entity=np.arange(len(table)), estimator=QUICK)


def test_nothing_of_a_constant_target_is_explained(small):
    """What rounding leaves of its variance is no spread: R² is not a number, not one of 22 digits."""
    table, _ = small
    ids = {"agent": table.agent, "entity": table.entity}
    estimator = HLCRRegressor(n_sweeps=10, n_threads=1)
    result = compare_cluster_counts(
        table.X, np.full(len(table), 0.1), **ids, counts=[1], n_splits=1, estimator=estimator
    )
    assert np.isnan(result.rows[0].r2)


@pytest.mark.slow
@pytest.mark.parametrize("right", [1, 4, 8])
def test_the_right_number_on_many_tables(right):
    """By evidence on each; by one standard error, which chance exceeds now and then, on most."""
    suggested = []
    for seed in range(6):
        # all classes about as common: none of so few entities that there is no telling
        table, _ = make_hlcr(100, 6, 6, 4, right, 0.4, global_concentration=100.0, random_state=seed)
        around = sorted({1, max(right - 1, 1), right, right + 1, 2 * right})
        ids = {"agent": table.agent, "entity": table.entity}
        estimator = HLCRRegressor(**PLAIN)
        result = compare_cluster_counts(table.X, table.y, **ids, counts=around, n_splits=2, estimator=estimator)
        evidence = {row.n_clusters: row.evidence for row in result.rows}
        assert evidence[right] > max(evidence.values()) - 3
        assert right == 1 or evidence[right] > evidence[right - 1] + 10
        sizes = {row.n_clusters: row.size[0] for row in result.candidates}
        suggested.append(sizes[result.suggested] - right)
    assert np.mean(np.array(suggested) == 0) >= 0.6
