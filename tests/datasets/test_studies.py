"""The generated tables of the gallery: they look like real ones, and are drawn from the truth they come with."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from fedhlcr.datasets import make_clinic, make_growth, make_sales
from fedhlcr.datasets.growth import course
from fedhlcr.exceptions import ArgumentError

MAKERS = {"sales": make_sales, "growth": make_growth, "clinic": make_clinic}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_tables_are_seeded(make):
    first, same, other = (make(4, random_state=seed) for seed in (1, 1, 2))
    assert first[0].equals(same[0])
    assert first[1].equals(same[1])
    assert not first[0].equals(other[0])
    assert make(4, random_state=np.random.RandomState(3))[0].num_rows > 0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_truth_has_one_sorted_row_for_each_entity(make):
    table, truth = (part.to_pandas() for part in make(12, random_state=3))
    ids = list(truth.columns[:2])
    pairs = list(truth[ids].itertuples(index=False, name=None))
    assert pairs == sorted(set(table[ids].itertuples(index=False, name=None)))


def test_sales_follow_their_truth():
    table, truth = make_sales(n_stores=40, missing=0.0, random_state=5)
    sales = table.to_pandas().merge(truth.to_pandas(), on=["store", "product"])
    day = sales["date"].map(lambda date: date.timetuple().tm_yday - 1)
    season = np.cos(2 * np.pi * (day - 200) / 365.25)
    promoted = np.select(
        [sales["promotion"] == "leaflet", sales["promotion"] == "display"], [sales["leaflet"], sales["display"]], 0
    )
    left = np.log(sales["units"]) - sales["level"] - promoted - sales["summer"] * season
    usual = sales.groupby(["store", "product"])["price"].transform("median")
    log_ratio = np.log(sales["price"] / usual)
    for kind, elasticity in (("bargain", -2.8), ("staple", -0.7), ("summer", -1.4)):
        own = (sales["type"] == kind).to_numpy()
        slope = np.polyfit(log_ratio[own], left[own], 1)[0]
        assert slope == pytest.approx(elasticity, abs=0.15)
    assert truth.to_pandas().groupby("type")["elasticity"].std().to_numpy() == pytest.approx(0.25, abs=0.05)


def test_sales_have_gaps_texts_and_dates():
    sales = make_sales(missing=0.2)[0].to_pandas()
    assert sales[["price", "promotion"]].isna().mean().to_numpy() == pytest.approx(0.2, abs=0.02)
    assert not sales[["store", "product", "date", "units", "cost"]].isna().any(axis=None)
    assert set(sales["promotion"].dropna()) == {"none", "leaflet", "display"}
    assert sales["date"].nunique() == 104
    assert not sales.duplicated(["store", "product", "date"]).any()
    assert (sales["cost"] < sales["price"].fillna(np.inf)).all()


def test_growth_follows_its_truth():
    table, truth = make_growth(n_clinics=60, missing=0.0, random_state=2)
    visits = table.to_pandas().merge(truth.to_pandas(), on=["clinic", "child"])
    expected = course(visits["age"]) + (visits["sex"] == "boy") + 0.3 * (visits["mother"] - 165)
    expected += visits["level"] + visits["rate"] * (visits["age"] - 5)
    error = visits["height"] - expected
    assert error.std() == pytest.approx(0.7, rel=0.05)
    assert abs(error.mean()) < 0.05
    assert truth["rate"].to_numpy().std() == pytest.approx(0.55, rel=0.1)
    assert visits["age"].between(2, 9).all()


def test_growth_knows_a_mother_at_all_visits_or_at_none():
    visits = make_growth(missing=0.3)[0].to_pandas()
    known = visits.groupby(["clinic", "child"])["mother"].agg(["count", "size", "nunique"])
    assert ((known["count"] == 0) | (known["count"] == known["size"])).all()
    assert (known["nunique"] <= 1).all()
    assert (known["count"] == 0).mean() == pytest.approx(0.3, abs=0.08)


def test_clinic_follows_its_truth():
    table, truth = make_clinic(n_hospitals=60, random_state=4)
    months = table.to_pandas().merge(truth.to_pandas(), on=["hospital", "patient"], suffixes=("", "_effect"))
    log_odds = months["level"] + months["inhaler_effect"] * months["inhaler"]
    log_odds += months["pollen_effect"] * months["pollen"] + months["colds_effect"] * months["colds"]
    expected, happened = expit(log_odds), months["attack"] == "yes"
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1.0)):
        some = expected.between(low, high)
        error = 4 * np.sqrt(0.25 / some.sum())
        assert happened[some].mean() == pytest.approx(expected[some].mean(), abs=error)
    effects = truth.to_pandas().groupby("type")["inhaler"].mean()
    assert effects["allergic"] == pytest.approx(-2.4, abs=0.1)
    assert effects["infectious"] == pytest.approx(-0.2, abs=0.1)


@pytest.mark.parametrize(
    ("make", "argument", "value"),
    [
        (make_sales, "n_stores", 0),
        (make_sales, "n_products", 13),
        (make_sales, "mean_weeks", 105),
        (make_sales, "missing", 1.0),
        (make_growth, "children_per_clinic", 2.5),
        (make_growth, "mean_visits", 2),
        (make_growth, "missing", float("nan")),
        (make_clinic, "n_hospitals", True),
        (make_clinic, "mean_patients", 3),
        (make_clinic, "mean_months", 5),
    ],
)
def test_impossible_sizes_are_refused(make, argument, value):
    with pytest.raises(ArgumentError, match=f"`{argument}` must be"):
        make(**{argument: value})
