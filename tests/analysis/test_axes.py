"""Features as a reader sees them: axes undo logarithms, cycles, squares and categories."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedhlcr import HLCRClassifier, HLCRRegressor
from fedhlcr.analysis.axes import axis_of, feature_axes
from fedhlcr.analysis.axis_lines import axis_is_clear, axis_line, axis_strengths, target_axis
from fedhlcr.analysis.axis_names import base_of_log
from fedhlcr.analysis.effects import typical_levels
from fedhlcr.analysis.ticks import log_ticks, nice_ticks, tick_text
from fedhlcr.data.recipe import Recipe

N = 600


@pytest.fixture(scope="module")
def table():
    """Columns of all kinds, and a target that is their sum in every entity."""
    rng = np.random.default_rng(7)
    day, hour, age = rng.uniform(0, 365, N), rng.integers(0, 24, N), rng.uniform(20, 60, N)
    frame = pd.DataFrame(
        {
            "sin_y": np.sin(2 * np.pi * day / 365),
            "cos_y": np.cos(2 * np.pi * day / 365),
            "hour_sin": np.sin(2 * np.pi * hour / 24),
            "hour_cos": np.cos(2 * np.pi * hour / 24),
            "log_price": rng.normal(2.0, 0.5, N),
            "deal": rng.integers(0, 2, N).astype(float),
            "age": age,
            "age_sq": (age - 30.0) ** 2,
            "sin_of_nothing": rng.normal(size=N),
            "cos_of_nothing": rng.normal(size=N),
            "brand=b": (brand := rng.integers(0, 3, N)) == 1,
            "brand=c": brand == 2,
            "brand=a": brand == 0,
        }
    ).astype(float)
    frame = frame[[*frame.columns[:10], "brand=a", "brand=b", "brand=c"]]
    return frame, frame @ np.linspace(0.5, -0.5, 13) + 0.1 * rng.normal(size=N), day, hour


@pytest.fixture(scope="module")
def model(table):
    frame, y, *_ = table
    model = HLCRRegressor(n_clusters=1, n_sweeps=60).fit(frame, y, agent=np.arange(N) % 5, entity=np.arange(N) % 30)
    features = tuple(dict.fromkeys(name.split("=")[0] for name in frame.columns))
    model.recipe_ = Recipe("log_sales", "store", "item", features, {"brand": ["a", "b", "c"]})
    return model


def test_columns_of_one_thing_share_an_axis(model, table):
    axes = feature_axes(model, table[0].to_numpy())
    assert [(axis.name, axis.kind, axis.columns) for axis in axes] == [
        ("month", "cycle", (0, 1)),
        ("hour", "cycle", (2, 3)),
        ("price", "log", (4,)),
        ("deal", "switch", (5,)),
        ("age", "number", (6, 7)),
        ("sin_of_nothing", "number", (8,)),
        ("cos_of_nothing", "number", (9,)),
        ("brand", "category", (10, 11, 12)),
    ]
    assert axis_of(axes, 7).name == "age"


def test_places_and_features_are_inverse(model, table):
    X = table[0].to_numpy()
    for axis in feature_axes(model, X):
        np.testing.assert_allclose(axis.features(axis.places(X)), X[:, list(axis.columns)], atol=1e-9)


def test_places_are_in_the_readers_units(model, table):
    X, axes = table[0].to_numpy(), feature_axes(model, table[0].to_numpy())
    np.testing.assert_allclose(axis_of(axes, 0).places(X), table[2] / 365 * 12, atol=1e-9)
    np.testing.assert_allclose(axis_of(axes, 2).places(X), table[3], atol=1e-9)
    np.testing.assert_allclose(axis_of(axes, 4).places(X), np.exp(X[:, 4]))


def test_without_events_a_shifted_square_is_not_trusted(model):
    assert axis_of(feature_axes(model), 7).columns == (7,)


def test_line_is_the_prediction_at_average_other_features(model, table):
    X = table[0].to_numpy()
    for axis in feature_axes(model, X):
        line = axis_line(model, axis, 0)
        rows = np.tile(model.feature_means_, (len(line.places), 1))
        rows[:, list(axis.columns)] = axis.features(line.places)
        np.testing.assert_allclose(line.mean, model.intercept_[0] + rows @ model.coef_[0], rtol=1e-9)
        assert (line.lower < line.mean).all()
        assert (line.mean < line.upper).all()


def test_line_of_a_curve_bends_as_curve_says(table):
    frame, y, *_ = table
    model = HLCRRegressor(n_clusters=1, n_sweeps=60, curves=["log_price"])
    model.fit(frame[["log_price", "deal"]], y, agent=np.arange(N) % 5, entity=np.arange(N) % 30)
    axis = axis_of(feature_axes(model), 0)
    line = axis_line(model, axis, 0)
    expected = model.curve("log_price", 0, np.log(line.places)).effect + typical_levels(model)[0]
    np.testing.assert_allclose(line.mean, expected, rtol=1e-9)


def test_line_of_a_classifier_is_a_probability(table):
    frame, y, *_ = table
    model = HLCRClassifier(n_sweeps=60).fit(frame[["age"]], y > y.median(), agent=np.arange(N) % 5, entity=np.arange(N))
    line = axis_line(model, feature_axes(model)[0], 0)
    assert (line.lower > 0.0).all()
    assert (line.upper < 1.0).all()
    ticks = target_axis(model).ticks(0.0, 1.0)
    assert ticks[-1] == (1.0, "100 %")


def test_adjusted_events_without_residuals_lie_on_the_line(model, table):
    X = table[0].to_numpy()
    for axis in feature_axes(model, X):
        line, places = axis_line(model, axis, 0), np.clip(axis.places(X), axis.low, axis.high)
        rows = np.tile(model.feature_means_, (N, 1))
        rows[:, list(axis.columns)] = axis.features(places)
        expected = model.intercept_[0] + rows @ model.coef_[0]
        np.testing.assert_allclose(line.adjusted(places, np.zeros(N)), expected, atol=0.05)


def test_strength_is_the_spread_of_an_axis_effect(model, table):
    X = table[0].to_numpy()
    axes = feature_axes(model, X)
    for axis, strength in zip(axes, axis_strengths(model, axes)[0], strict=True):
        columns = list(axis.columns)
        assert strength == pytest.approx((X[:, columns] @ model.coef_[0, columns]).std(), rel=1e-6)
    assert axis_is_clear(model, axes)[0, 0]


def test_harmonics_of_one_cycle_share_an_axis():
    rng = np.random.default_rng(1)
    turn = 2 * np.pi * rng.uniform(size=N)
    frame = pd.DataFrame({f"{wave.__name__}{n}": wave(n * turn) for n in (1, 2, 3) for wave in (np.sin, np.cos)})
    model = HLCRRegressor(n_clusters=1, n_sweeps=20).fit(frame, rng.normal(size=N), entity=np.arange(N) % 30)
    axes = feature_axes(model)
    # the third harmonic cannot be told from its moments, so it stays as it is
    assert [axis.columns for axis in axes] == [(0, 1, 2, 3), (4,), (5,)]
    X = frame.to_numpy()
    np.testing.assert_allclose(axes[0].features(axes[0].places(X)), X[:, :4], atol=1e-9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log_dist", (np.e, 0.0, "dist")),
        ("log10 price", (10.0, 0.0, "price")),
        ("ln(wage)", (np.e, 0.0, "wage")),
        ("log1p_visits", (np.e, 1.0, "visits")),
        ("logBroodSize", (np.e, 0.0, "BroodSize")),
        ("log10X", (10.0, 0.0, "X")),
        ("login_count", None),
        ("LOGIN", None),
        ("logistics", None),
        ("blog_posts", None),
    ],
)
def test_logarithms_are_recognised_by_their_names(name, expected):
    assert base_of_log(name) == expected


def test_target_axis_undoes_a_logarithm(model):
    axis = target_axis(model)
    assert (axis.name, axis.is_log) == ("sales", True)
    assert axis.ticks(np.log(80.0), np.log(2500.0)) == [
        (pytest.approx(np.log(value)), tick_text(value)) for value in (100.0, 200.0, 500.0, 1000.0, 2000.0)
    ]
    assert axis.text(np.log(150.0)) == "150"


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.2, 8.1), (0.001, 0.0042), (1950.0, 2010.0), (-1e6, 1e6)])
def test_ticks_are_few_round_and_inside(low, high):
    ticks = nice_ticks(low, high)
    assert 2 <= len(ticks) <= 5
    assert min(ticks) >= low - 1e-9 * abs(low)
    assert max(ticks) <= high + 1e-9 * abs(high)
    assert all(float(f"{tick:.2g}") == tick or tick % 10 == 0 for tick in ticks)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1000.0), (9.4, 14.6), (0.003, 20.0), (1.0, 1e9)])
def test_ticks_of_a_logarithmic_axis_are_few_and_inside(low, high):
    ticks = log_ticks(low, high)
    assert 2 <= len(ticks) <= 5
    assert all(low * 0.999 <= tick <= high * 1.001 for tick in ticks)


def test_years_have_no_separator():
    assert [tick_text(value) for value in (1990.0, -0.5, 25000.0)] == ["1990", "−0.5", "25,000"]
    assert [tick_text(value) for value in (2.5e6, -1e8, 3e9, 1e15)] == ["2.5M", "−100M", "3bn", "1e+15"]
