"""Pólya–Gamma numbers have the right distribution, and depend on their keys only."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from numba import njit
from scipy.stats import ks_2samp

from fedhlcr.kernels.polyagamma import keyed_polya_gamma, polya_gamma_mean, polya_gamma_variance
from fedhlcr.kernels.uniforms import keyed_uniforms
from tests.plain_python import check_without_compiler

PURPOSE = np.uint64(4 << 10)
# shapes and tilts of all three methods, on both sides of each change of method
CASES = [
    (1.0, 0.0), (1.0, 1.2), (1.0, -2.9), (1.0, 3.1), (1.0, 12.0),
    (0.05, 0.0), (0.3, 2.0), (0.9, -0.5), (0.6, 15.0),
    (1.001, 2.9), (1.4, 1.0), (3.7, 0.0), (3.7, -2.0), (3.7, 4.2), (3.7, 4.4), (3.7, 30.0),
]  # fmt: skip
LARGE = [(50.0, 4.0), (2e4, 0.5), (1e7, 10.0), (300.0, 40.0)]
# Standard errors, and √n times the largest difference of distribution functions: exceeded once in 100,000 cases.
ERRORS, FAR = 4.5, 2.5


@njit
def fill(stream, round_number, purpose, shape, tilt, out):
    for i in range(out.shape[0]):
        out[i] = keyed_polya_gamma(stream, np.uint64(i), round_number, purpose, shape, tilt)


def draws(shape, tilt, n=200_000, stream=8, round_number=3, purpose=PURPOSE):
    out = np.empty(n)
    fill(np.uint64(stream), round_number, purpose, shape, tilt, out)
    return out


def log_laplace(t, shape, tilt):
    """log E exp(−tω) = b log(cosh(c/2) / cosh(√(c²/4 + t/2)))."""

    def log_cosh(w):
        return w + np.log1p(np.exp(-2 * w)) - np.log(2)

    return shape * (log_cosh(abs(tilt) / 2) - log_cosh(np.sqrt(tilt**2 / 4 + t / 2)))


def distribution(x, shape, tilt, n_nodes=64):
    """P(ω ≤ x) for shapes up to about 5: the inverse Laplace transform on Talbot's contour (Weideman 2006)."""
    angle = (np.arange(-n_nodes / 2, n_nodes / 2) + 0.5) * 2 * np.pi / n_nodes
    cot = 1 / np.tan(0.6407 * angle)
    node = n_nodes * (0.5017 * angle * cot - 0.6122 + 0.2645j * angle)
    slope = n_nodes * (0.5017 * cot - 0.5017 * 0.6407 * angle / np.sin(0.6407 * angle) ** 2 + 0.2645j)
    terms = np.exp(node + log_laplace(node / x[:, np.newaxis], shape, tilt)) / node * slope
    return np.real(terms.sum(axis=1) / (1j * n_nodes))


def sum_of_gammas(shape, tilt, n, rng, n_terms=2000):
    """PG(b, c) by its definition, n times: 2,000 terms, and the mean of all others."""
    k = np.arange(1, n_terms + 1)
    scales = 1 / (2 * np.pi**2 * ((k - 0.5) ** 2 + tilt**2 / (4 * np.pi**2)))
    others = shape * (np.tanh(tilt / 2) / (2 * tilt) if tilt else 0.25) - shape * scales.sum()
    return np.array([scales @ rng.gamma(shape, size=n_terms) for _ in range(n)]) + others


def assert_near(found, expected, error):
    assert abs(found - expected) < ERRORS * error


@pytest.mark.parametrize(("shape", "tilt"), CASES + LARGE)
def test_mean_and_variance(shape, tilt):
    sample = draws(shape, tilt)
    mean, variance = polya_gamma_mean(shape, tilt), polya_gamma_variance(shape, tilt)
    square = (sample - mean) ** 2
    assert_near(sample.mean(), mean, math.sqrt(variance / len(sample)))
    assert_near(square.mean(), variance, square.std() / math.sqrt(len(sample)))


@pytest.mark.parametrize(("shape", "tilt"), CASES + LARGE)
def test_laplace_transform(shape, tilt):
    sample = draws(shape, tilt)
    for times in (0.3, 3.0):
        t = times / math.sqrt(polya_gamma_variance(shape, tilt))
        # around the mean, because E exp(−tω) is too small for a float where the shape is large
        centre = polya_gamma_mean(shape, tilt)
        first, second = (math.exp(log_laplace(s, shape, tilt) + s * centre) for s in (t, 2 * t))
        error = math.sqrt((second - first**2) / len(sample))
        assert_near(np.exp(-t * (sample - centre)).mean(), first, error)


@pytest.mark.parametrize(("shape", "tilt"), [case for case in CASES if case != (3.7, 30.0)])
def test_distribution_function(shape, tilt):
    sample = np.sort(draws(shape, tilt, 500_000))
    x = np.quantile(sample, np.linspace(0.0005, 0.9995, 1000))
    exact = distribution(x, shape, tilt)
    assert exact[0] < 0.002
    assert exact[-1] > 0.998
    empirical = np.searchsorted(sample, x, side="right") / len(sample)
    assert np.abs(empirical - exact).max() < FAR / math.sqrt(len(sample))


@pytest.mark.parametrize(("shape", "tilt"), [(1.0, 0.0), (1.0, 4.0), (0.3, 1.0), (2.3, 1.5)])
def test_draws_and_sums_of_gammas_have_one_distribution(shape, tilt, rng):
    assert ks_2samp(draws(shape, tilt), sum_of_gammas(shape, tilt, 5_000, rng)).pvalue > 1e-5


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="polyagamma has no wheels for this Python")
@pytest.mark.parametrize(("shape", "tilt"), [(1.0, 0.0), (1.0, 2.5), (1.0, 20.0), (1.3, 0.0), (3.7, 2.0), (40.0, 3.0)])
def test_draws_and_the_package_polyagamma_have_one_distribution(shape, tilt):
    """By the package's exact methods: its default for large shapes is a normal distribution."""
    from polyagamma import random_polyagamma

    method = "devroye" if shape.is_integer() else "alternate"
    other = random_polyagamma(shape, tilt, size=200_000, method=method, random_state=5)
    assert ks_2samp(draws(shape, tilt), other).pvalue > 1e-5


@pytest.mark.parametrize(("first", "second", "tilt"), [(0.4, 1.3, 0.0), (0.25, 0.75, 1.5), (1.7, 2.6, 2.0), (1, 1, 1)])
def test_shapes_add_up(first, second, tilt):
    parts = draws(float(first), tilt, stream=1) + draws(float(second), tilt, stream=2)
    assert ks_2samp(parts, draws(float(first + second), tilt, stream=3)).pvalue > 1e-5


def readable_draws(tilt, n):
    """PG(1, c) for |c| < 3, from the same keys: points below an envelope that are below the density of 4ω, too."""
    z, cut, edge = abs(tilt) / 2, 0.64, 1.25
    rate, slope = np.pi**2 / 8 + z**2 / 2, (edge + math.sqrt(edge**2 + 4)) / 2
    right = np.pi / (2 * rate) * math.exp(-rate * cut)
    left = 2 * math.sqrt(2 / np.pi) * math.exp(slope**2 / 2 - slope * edge) / slope
    found = np.full(n, np.nan)
    for step in range(12):
        u, v, w = np.array(
            [keyed_uniforms(np.uint64(8), np.uint64(i), 3, PURPOSE + np.uint64(step)) for i in range(n)]
        ).T
        is_right = w < right / (right + left)
        x = np.where(is_right, cut - np.log(u) / rate, (edge - np.log(u) / slope) ** -2.0)
        tail = np.pi / 2 * np.exp(-rate * x)
        envelope = np.where(is_right, tail, np.sqrt(2 / np.pi) * x**-1.5 * np.exp(slope**2 / 2 - slope / np.sqrt(x)))
        k = np.arange(30)[:, np.newaxis]
        density = (-1.0) ** k * (2 * k + 1) * np.exp(-((2 * k + 1) ** 2) / (2 * x)) / np.sqrt(2 * np.pi * x**3)
        accepted = np.isnan(found) & (v * envelope < 2 * density.sum(axis=0) * np.exp(-(z**2) * x / 2))
        found[accepted] = x[accepted] / 4
    return found


@pytest.mark.parametrize("tilt", [0.0, 2.5])
def test_draws_equal_readable_version(tilt):
    """Later terms of the density decide about a thousandth of the points, which statistics cannot see."""
    np.testing.assert_allclose(draws(1.0, tilt, 15_000), readable_draws(tilt, 15_000), rtol=1e-12)


def test_draws_depend_on_their_keys_only():
    sample = draws(1.0, 0.7, 1000)
    np.testing.assert_array_equal(sample, draws(1.0, 0.7, 1000))
    np.testing.assert_array_equal(sample, draws(1.0, -0.7, 1000))
    assert len(np.unique(sample)) == 1000
    for shape in (0.5, 1.0, 3.7):
        sample = draws(shape, 0.7, 20_000)
        for other in ({"stream": 9}, {"round_number": 4}, {"purpose": PURPOSE + np.uint64(64)}):
            assert abs(np.corrcoef(sample, draws(shape, 0.7, 20_000, **other))[0, 1]) < ERRORS / math.sqrt(20_000)


@pytest.mark.parametrize("tilt", [0.0, 1e-320, 1e-12, 1e-3, 1.0, 30.0, 1e3, -1e6, 1e160, 1e308])
@pytest.mark.parametrize("shape", [1e-3, 0.3, 1.0, 1.5, 1e3, 1e6, 1e7])
def test_extreme_arguments(shape, tilt):
    sample = draws(shape, tilt, 300)
    assert sample.min() > 0
    assert np.isfinite(sample).all()
    if shape >= 0.3 and abs(tilt) < 1e100:
        mean, variance = polya_gamma_mean(shape, tilt), polya_gamma_variance(shape, tilt)
        assert_near(sample.mean(), mean, math.sqrt(variance / len(sample)))


def test_nan_gives_nan():
    assert np.isnan(draws(1.0, np.nan, 3)).all()
    assert np.isnan(draws(np.nan, 1.0, 3)).all()


@pytest.mark.parametrize("tilt", [0.0, 1e-320, 1e-7, 9e-5, 2e-4, 0.3, 0.999, 1.001, 7.0, 60.0, -900.0])
def test_moments_are_exact(tilt):
    """Against Σ_k λ_k and Σ_k λ_k², whose later terms are an integral (Euler–Maclaurin)."""
    last = 20_000
    scales = 2 / ((2 * np.arange(last, 0, -1) - 1) ** 2 * np.pi**2 + tilt**2)
    ratio = abs(tilt) / (2 * np.pi * last)
    later = (math.atan(ratio) / ratio if ratio > 1e-300 else 1.0) / (2 * np.pi**2 * last)
    squares = 1 / (12 * np.pi**4 * last**3 * (1 + ratio**2))
    assert polya_gamma_mean(2.5, tilt) == pytest.approx(2.5 * (scales.sum() + later), rel=1e-12)
    assert polya_gamma_variance(2.5, tilt) == pytest.approx(2.5 * ((scales**2).sum() + squares), rel=1e-12)


# What the kernels gave when they were written, from key 0 on.
WRITTEN = {
    (1.0, 0.0): [0.06687484857492804, 0.23595122931031637, 0.4922315688125126, 0.7484184249897525],
    (1.0, 1.2): [0.06687484857492804, 0.2262807080146006, 0.4499300486069131, 0.6734978086768045],
    (1.0, 3.1): [0.07502563682172465, 0.29976920617440245, 0.2686705490250048, 0.0726296361252998],
    (0.3, 2.0): [0.01507128161818464, 0.019815120332275452, 0.22848973124796712, 0.014211304397797737],
    (0.05, 0.0): [0.0006556925222512386, 0.0010166618809041154, 0.0015154027168535133, 0.0006009084609302764],
    (3.7, 0.0): [0.5133489088615466, 0.5788973230682931, 1.1404702558581288, 0.6326334480740171],
    (3.7, 4.4): [0.2991024681106857, 0.5529642165871174, 0.5263454716236192, 0.29464043623325636],
    (2e4, 0.5): [4868.370856270733, 4870.491043759351, 4918.113336846965, 4875.198728411857],
}


@pytest.mark.parametrize(("shape", "tilt"), list(WRITTEN))
def test_numbers_do_not_change(shape, tilt):
    np.testing.assert_allclose(draws(shape, tilt, len(WRITTEN[shape, tilt])), WRITTEN[shape, tilt], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.ci
def test_kernels_without_the_compiler():
    """The same numbers from the kernels as plain Python."""
    check_without_compiler(__file__, "numbers_do_not_change or moments_are_exact")
