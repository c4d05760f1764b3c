"""Curves: the functions that they append, and their prior."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fedhlcr.exceptions import CodecError
from fedhlcr.model.conjugate import SCALES, draw_curve_prior, log_curve_marginal
from fedhlcr.model.curves import Curves, can_curve, column_quantiles, pooled_quantiles, same_curves
from fedhlcr.model.gram import GramLayout
from fedhlcr.storage.reader import RecordReader

COLUMNS = {
    "normal": lambda rng: rng.normal(size=2000),
    "large mean": lambda rng: 1e8 + rng.normal(size=2000),
    "skewed": lambda rng: np.exp(2.0 * rng.normal(size=2000)),
    "heavy tails": lambda rng: rng.standard_t(1, size=2000),
    "few values": lambda rng: rng.integers(0, 6, 2000).astype(float),
}


def curves_of(*columns: np.ndarray) -> Curves:
    X = np.column_stack(columns)
    curves = Curves.from_quantiles(column_quantiles(X, np.ones(len(X))), range(X.shape[1]))
    assert curves is not None
    return curves


@pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)
def test_functions_are_orthonormal_and_orthogonal_to_the_line(rng, make):
    curves = curves_of(make(rng))
    q = curves.quantiles[0]
    functions = curves.appended(q[:, None])
    line = np.column_stack([np.ones_like(q), (q - q.mean()) / q.std()])
    np.testing.assert_allclose(functions.T @ functions / len(q), np.eye(functions.shape[1]), atol=1e-7)
    np.testing.assert_allclose(line.T @ functions / len(q), 0.0, atol=1e-7)


@pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_functions_are_straight_beyond_the_outer_knots(rng, make, side):
    curves = curves_of(make(rng))
    q = curves.quantiles[0]
    end, width = (q[-1] if side > 0 else q[0]), q[-1] - q[0]
    steps = np.array([0.0, 1.0, 2.0, 1e6])
    values = curves.appended((end + side * width * steps)[:, None])
    slope = values[1] - values[0]
    np.testing.assert_allclose(values[2] - values[1], slope, rtol=1e-5, atol=1e-6 * np.abs(values).max(axis=0).min())
    np.testing.assert_allclose(values[3] - values[0], 1e6 * slope, rtol=1e-3, atol=1e-3 * np.abs(values[3]).max())


def test_functions_are_smooth_at_the_knots(rng):
    curves = curves_of(rng.normal(size=500))
    x = np.linspace(*curves.quantiles[0, [0, -1]], 20_001)
    second = np.diff(curves.appended(x[:, None]), 2, axis=0) / (x[1] - x[0]) ** 2
    # the second derivative has no jumps
    assert np.abs(np.diff(second, axis=0)).max() < 0.01 * np.abs(second).max()


def test_a_spline_follows_a_bent_function(rng):
    x = rng.uniform(-2.0, 2.0, 3000)
    y = np.sin(1.5 * x) + 0.3 * x**2
    design = np.column_stack([np.ones_like(x), curves_of(x).expand(x[:, None])])
    errors = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    straight = y - np.polyval(np.polyfit(x, y, 1), x)
    assert (errors**2).mean() < 0.01 * (straight**2).mean()


def test_columns_without_enough_values_get_no_curve(rng):
    X = np.column_stack([rng.integers(0, 2, 300), np.full(300, 7.0), rng.normal(size=300), rng.integers(0, 4, 300)])
    curves = Curves.from_quantiles(column_quantiles(X, np.ones(300)), range(4))
    assert curves is not None
    assert curves.columns.tolist() == [2]
    assert Curves.from_quantiles(column_quantiles(X, np.ones(300)), [0, 1, 3]) is None
    # too few digits are left to tell the values apart
    assert not can_curve(column_quantiles(1e16 + X[:, [2]], np.ones(300))[0])


def test_weights_are_frequencies(rng):
    X, weight = rng.normal(size=(50, 2)), rng.integers(1, 5, 50)
    np.testing.assert_array_equal(
        column_quantiles(X, weight.astype(float)), column_quantiles(np.repeat(X, weight, axis=0), np.ones(weight.sum()))
    )


def test_quantiles_pool(rng):
    X = rng.normal(size=(400, 2))
    alone = column_quantiles(X, np.ones(400))
    np.testing.assert_array_equal(pooled_quantiles(alone[None], np.array([400.0])), alone)
    parts = np.stack([column_quantiles(X[part::4], np.ones(100)) for part in range(4)])
    np.testing.assert_allclose(pooled_quantiles(parts, np.full(4, 100.0)), alone, atol=0.4)
    # an agent of weight 0 does not matter
    far = np.concatenate([parts, parts[:1] + 100.0])
    np.testing.assert_array_equal(
        pooled_quantiles(far, np.array([100.0] * 4 + [0.0])), pooled_quantiles(parts, np.full(4, 100.0))
    )


def test_records_round_trip_and_are_checked(rng):
    curves = curves_of(rng.normal(size=100), rng.integers(0, 2, 100), rng.normal(size=100))
    record = curves.to_record()

    def read(**changed):
        return Curves.read(RecordReader(record | changed, "the test", "start again"), curves.n_features)

    assert same_curves(read(), curves)
    assert Curves.read(RecordReader({}, "the test", "start again"), 3) is None
    broken = curves.quantiles.copy()
    broken[0, 3] = broken[0, 5] + 1.0
    for changed in (
        {"curves.columns": np.array([2, 0])},
        {"curves.columns": np.array([0, curves.n_inputs])},
        {"curves.columns": np.array([0])},
        {"curves.quantiles": broken},
        {"curves.quantiles": np.full_like(broken, np.nan)},
        {"curves.quantiles": np.zeros_like(broken)},
    ):
        with pytest.raises(CodecError):
            read(**changed)


def test_layout_knows_its_curves():
    layout = GramLayout(9, True, (4, 2))
    assert (layout.n_inputs, layout.n_linear, layout.n_coef) == (3, 4, 10)
    assert layout.curve_spans == [slice(4, 8), slice(8, 10)]
    full = np.arange(121.0).reshape(11, 11)
    full += full.T
    kept = [0, 1, 2, 3, 10]
    small = GramLayout(3).pack(full[np.ix_(kept, kept)])
    np.testing.assert_array_equal(layout.without_curves(layout.pack(full)), small)


def _dense_marginal(coef: np.ndarray, spread: float) -> float:
    """The marginal density of a curve's coefficients, from dense covariances."""
    n, density = len(coef), 0.0
    for shared, own in itertools.product(SCALES, repeat=2):
        covariance = spread**2 * (own**2 * np.eye(n) + shared**2 * np.ones((n, n)))
        weight = 1.0 / (shared * own * (1.0 / SCALES).sum() ** 2)
        density += weight * np.prod([multivariate_normal.pdf(column, cov=covariance) for column in coef.T])
    return float(np.log(density))


@pytest.mark.parametrize("n_clusters", [1, 4])
def test_curve_marginal_is_that_of_dense_covariances(rng, n_clusters):
    coef = 0.3 + 0.1 * rng.standard_normal((n_clusters, 3))
    assert log_curve_marginal(coef, 2.0) == pytest.approx(_dense_marginal(coef, 2.0), abs=1e-9)


def test_scale_and_mean_follow_the_coefficients(rng):
    def mean_draw(coef):
        draws = [draw_curve_prior(rng, coef, 1.0) for _ in range(400)]
        return np.mean([d.mean for d in draws], axis=0), np.mean([d.scale for d in draws], axis=0)

    _, scale = mean_draw(0.003 * rng.standard_normal((8, 4)))
    assert (scale < 0.02).all()
    mean, scale = mean_draw(0.5 * rng.standard_normal((8, 4)))
    assert (scale > 0.3).all()
    mean, scale = mean_draw(np.array([0.5, -0.2]) + 0.02 * rng.standard_normal((8, 2)))
    np.testing.assert_allclose(mean, [0.5, -0.2], atol=0.05)
    assert (scale < 0.05).all()


@pytest.mark.slow
def test_draws_follow_the_exact_conditional(rng):
    """Frequencies of τ, and the mean of μ, against the posterior computed with dense covariances."""
    coef, n_draws = 0.1 + 0.05 * rng.standard_normal((3, 2)), 20_000
    weight, mean = np.zeros(len(SCALES)), np.zeros(2)
    for (_, shared), (place, own) in itertools.product(enumerate(SCALES), repeat=2):
        covariance = own**2 * np.eye(3) + shared**2 * np.ones((3, 3))
        joint = np.prod([multivariate_normal.pdf(column, cov=covariance) for column in coef.T]) / (shared * own)
        weight[place] += joint
        mean += joint * (shared**2 * np.ones(3) @ np.linalg.solve(covariance, coef))
    draws = [draw_curve_prior(rng, coef, 1.0) for _ in range(n_draws)]
    found = np.mean([np.isclose(draw.scale[0], SCALES) for draw in draws], axis=0)
    np.testing.assert_allclose(found, weight / weight.sum(), atol=0.015)
    np.testing.assert_allclose(np.mean([draw.mean for draw in draws], axis=0), mean / weight.sum(), atol=0.002)


def test_a_curve_without_clusters_is_drawn_from_its_prior(rng):
    prior = draw_curve_prior(rng, np.empty((0, 3)), 1.0)
    assert prior.mean.shape == prior.scale.shape == (3,)
    assert log_curve_marginal(np.empty((0, 3)), 1.0) == pytest.approx(0.0)
