"""Effects in plain words: what is said, and that its figures are those of the model."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from fedhlcr import HLCRClassifier, HLCRRegressor, describe_clusters
from fedhlcr._support.wording import number
from fedhlcr.analysis.axes import axis_of, feature_axes
from fedhlcr.analysis.axis_words import axis_phrase, describe_effects, told_axes
from fedhlcr.analysis.contrasts import contrast_effects, contrasts_of, level_shares, usual_range
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.ticks import range_text
from tests.reports import recipe_of
from tests.responses import classifier, counter

N = 600


def fit(frame, y, **recipe):
    ids = {"agent": np.zeros(len(frame), int), "entity": np.arange(len(frame)) % 6}
    model = HLCRRegressor(1, n_sweeps=60, effects="none", noise="common").fit(frame, y, **ids)
    model.recipe_ = recipe_of(recipe.pop("features", frame.columns), **recipe)
    return model


@pytest.fixture(scope="module")
def travel():
    """Highest in January; 2 less with each doubling of the distance; 3 more where it rains."""
    rng = np.random.default_rng(5)
    day, miles, rain = rng.random(N), np.exp(rng.normal(6.0, 0.8, N)), rng.random(N) < 0.4
    angle = 2.0 * np.pi * day
    frame = pd.DataFrame(
        {
            "sin_y": np.sin(angle),
            "cos_y": np.cos(angle),
            "log_miles": np.log(miles),
            "rain": rain.astype(float),
            "age": rng.normal(40.0, 10.0, N),
        }
    )
    phase = 2.0 * np.pi * 0.5 / 12.0
    y = 5.0 * np.cos(angle - phase) - 2.0 * np.log2(miles) + 3.0 * rain + 0.2 * frame["age"]
    return fit(frame, y + rng.normal(0.0, 0.1, N), target="minutes")


def phrase(model, name):
    axis = next(axis for axis in feature_axes(model) if axis.name == name)
    return axis_phrase(model, axis, 0)


def test_seasons_doublings_switches_and_ranges_have_their_own_words(travel):
    assert phrase(travel, "month").startswith("is highest in January and lowest in July (5 above and below the year’s")
    assert phrase(travel, "miles") == "falls 2 with each doubling of miles"
    assert phrase(travel, "rain") == "is 3 higher where rain is 1 than where it is 0"
    assert phrase(travel, "age") == "rises 4 as age goes from 30 to 50"


def test_the_strongest_effects_come_first_and_weak_ones_are_left_out(travel):
    axes = feature_axes(travel)
    (told,) = told_axes(travel, axes, 9)
    assert axes[told[0]].name == "month"
    assert {axes[a].name for a in told} == {"month", "age", "miles", "rain"}
    spreads = [travel.coef_[0, axes[a].columns[0]] * travel.feature_spreads_[axes[a].columns[0]] for a in told[1:]]
    assert (np.diff(np.abs(spreads)) <= 1e-9).all()
    assert describe_effects(travel, 1) == [[phrase(travel, axes[told[0]].name)]]
    assert phrase(travel, axes[told[0]].name) in describe_clusters(travel)[0]


def test_levels_are_told_by_their_extremes():
    rng = np.random.default_rng(1)
    city = rng.choice(["Oslo", "Paris", "Rome"], N)
    frame = pd.DataFrame({f"city={level}": (city == level).astype(float) for level in ("Oslo", "Paris", "Rome")})
    y = np.select([city == "Oslo", city == "Paris"], [4.0, 1.0], 2.0) + rng.normal(0.0, 0.05, N)
    model = fit(frame, y, features=["city"], categorical={"city": ["Oslo", "Paris", "Rome"]})
    assert phrase(model, "city") == "is highest where city is Oslo (3 more than where it is Paris, the lowest)"
    oslo = contrasts_of(model, feature_axes(model)[0])[0]
    assert oslo.words == "city: Oslo against all others"
    effect, _, _ = contrast_effects(model, oslo)
    assert effect[0] == pytest.approx(y[city == "Oslo"].mean() - y[city != "Oslo"].mean(), abs=0.03)
    np.testing.assert_allclose(
        level_shares(model, feature_axes(model)[0]), [(city == level).mean() for level in ("Oslo", "Paris", "Rome")]
    )


def test_a_bend_is_told_by_its_top():
    rng = np.random.default_rng(2)
    age = rng.normal(40.0, 10.0, N)
    y = -((age - 42.0) ** 2) / 50.0 + rng.normal(0.0, 0.1, N)
    model = fit(pd.DataFrame({"age": age, "age_sq": age**2}), y)
    told = phrase(model, "age")
    assert told.startswith("is highest near age 4")
    assert re.search(r"\(\d\.\d more than at (29|30|50|51)\)$", told)


def test_logarithms_of_the_target_change_in_per_cent():
    rng = np.random.default_rng(3)
    price = np.exp(rng.normal(0.0, 0.5, N))
    y = 7.0 - 2.0 * np.log(price) + rng.normal(0.0, 0.05, N)
    model = fit(pd.DataFrame({"log_price": np.log(price)}), y, target="log_units")
    assert phrase(model, "price") == "falls 75 % with each doubling of price"
    assert "units is 1,0" in describe_clusters(model)[0]


def test_seasons_of_a_logarithm_are_not_as_far_below_the_mean_as_above():
    rng = np.random.default_rng(4)
    angle = 2.0 * np.pi * rng.random(N)
    # highest in mid-January: three times the mean, and a third of it in July
    season = np.log(3.0) * np.cos(angle - 2.0 * np.pi * 0.5 / 12.0)
    frame = pd.DataFrame({"sin_y": np.sin(angle), "cos_y": np.cos(angle)})
    model = fit(frame, 5.0 + season + rng.normal(0.0, 0.01, N), target="log_units")
    told = phrase(model, "month")
    assert told == "is highest in January (3 times the year’s mean) and lowest in July (67 % below)"


def test_levels_that_multiply_a_logarithm_are_told_as_factors():
    rng = np.random.default_rng(6)
    offer, sort = rng.random(N) < 0.5, rng.choice(["bulk", "fine", "raw"], N)
    frame = pd.DataFrame(
        {"offer": offer.astype(float)} | {f"sort={s}": (sort == s).astype(float) for s in ("bulk", "fine", "raw")}
    )
    y = np.log(4.0) * offer + np.log(5.0) * (sort == "fine") + np.log(1.2) * (sort == "raw")
    levels = {"sort": ["bulk", "fine", "raw"]}
    model = fit(frame, y + rng.normal(0.0, 0.01, N), features=["offer", "sort"], categorical=levels, target="log_units")
    assert phrase(model, "offer") == "is 4 times as high where offer is 1 as where it is 0"
    assert phrase(model, "sort") == "is highest where sort is fine (5 times as high as where it is bulk, the lowest)"


def test_probabilities_and_rates_are_told_from_and_to():
    model = classifier()
    low, high = usual_range(model, axis_of(feature_axes(model), 0))
    assert f"as time goes from {number(low)} to {number(high)}" in describe_effects(model)[0][0]
    assert "%" in describe_effects(model)[0][0]
    assert "where treated is" in " ".join(describe_effects(counter())[0])


def test_contrasts_have_intervals_around_their_means(travel):
    for axis in feature_axes(travel):
        for contrast in contrasts_of(travel, axis):
            mean, lower, upper = contrast_effects(travel, contrast)
            assert (lower < mean).all()
            assert (mean < upper).all()
    season = contrasts_of(travel, feature_axes(travel)[0])[0]
    assert season.words == "month: January against July"
    mean, _, _ = contrast_effects(travel, season)
    assert mean[0] == pytest.approx(10.0, abs=0.2)


def test_a_cycle_without_a_unit_is_told_by_the_part_of_the_way():
    rng = np.random.default_rng(2)
    angle = 2.0 * np.pi * rng.random(N)
    frame = pd.DataFrame({"sin1": np.sin(angle), "cos1": np.cos(angle)})
    model = fit(frame, 3.0 * frame["sin1"] + rng.normal(0.0, 0.1, N))
    words = phrase(model, "part of the cycle")
    found = re.match(r"is highest (\d+) % of the way through the cycle and lowest (\d+) % of the way", words)
    assert abs(int(found[1]) - 25) <= 1
    assert abs(int(found[2]) - 75) <= 1


def test_both_ends_of_a_range_are_written_alike():
    assert range_text(1990.0, 2010.0) == "1990 to 2010"
    assert range_text(4000.0, 12_000.0) == "4,000 to 12,000"
    assert range_text(-0.5, 2.5) == "−0.5 to 2.5"
    assert range_text(500_000.0, 2e6) == "500,000 to 2M"


@pytest.mark.parametrize(("classes", "told"), [((0.0, 1.0), "is 1"), ((False, True), "is True")])
def test_classes_that_are_whole_numbers_have_no_decimals(classes, told):
    rng = np.random.default_rng(3)
    x = rng.normal(size=200)
    y = np.array(classes)[(x + rng.normal(size=200) > 0.0).astype(int)]
    model = HLCRClassifier(1, n_sweeps=20).fit(x[:, None], y, entity=np.arange(200) % 10)
    assert link_of(model).response.endswith(told)
