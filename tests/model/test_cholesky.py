"""Factors of precisions whose columns are collinear: they exist, and say what the independent columns say."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr.model import regression
from fedhlcr.model.gram import NormalEquations
from fedhlcr.model.regression import CoefPrior, Factors, coef_posterior, draw_coef, stable_cholesky

NOISE_SCALE = 0.1


def probabilities(rng, n_events=2_000, n_columns=62):
    X = rng.dirichlet(np.full(n_columns, 0.3), size=n_events)
    return (X - X.mean(axis=0)) / X.std(axis=0)


def duplicated(rng):
    X = rng.normal(size=(2_000, 4))
    return np.column_stack([X, X[:, 1]])


def multiple(rng):
    X = rng.normal(size=(2_000, 4))
    return np.column_stack([X, 1e8 * X[:, 1]])


def constant(rng):
    return np.column_stack([np.ones(2_000), rng.normal(size=(2_000, 3)), np.full(2_000, 3.7)])


def all_constant(rng):
    return np.full((2_000, 3), [1.0, 2.5, -1e6])


DESIGNS = [probabilities, duplicated, multiple, constant, all_constant]


def equations(X, y, n_copies):
    """Of a table that holds every event n_copies times."""
    return NormalEquations(n_copies * float(len(y)), n_copies * (X.T @ X), n_copies * (X.T @ y), n_copies * (y @ y))


def plain_cholesky(matrices):
    return Factors(np.linalg.cholesky(matrices), np.zeros(matrices.shape[:-2], dtype=bool))


@pytest.mark.parametrize("n_copies", [1.0, 400.0, 1e9, 1e14])
@pytest.mark.parametrize("design", DESIGNS)
def test_collinear_columns_predict_as_the_independent_ones_do(design, n_copies, rng):
    X = design(rng)
    prior = CoefPrior(np.zeros(X.shape[1]), 1.0 / X.std(axis=0).clip(min=np.abs(X).max(axis=0) * 1e-6))
    y = (X * prior.scale) @ rng.normal(size=X.shape[1]) + NOISE_SCALE * rng.normal(size=len(X))
    posterior = coef_posterior(equations(X, y, n_copies), NOISE_SCALE, prior)
    expected = X @ np.linalg.lstsq(X, y, rcond=1e-10)[0]
    for coef in (posterior.mean, draw_coef(posterior, rng)):
        assert np.sqrt(((X @ coef - expected) ** 2).mean()) < 0.3 * NOISE_SCALE
        assert np.abs(coef / prior.scale).max() < 50
    assert np.isfinite(posterior.log_evidence)


@pytest.mark.parametrize("design", [probabilities, duplicated, multiple, all_constant])
def test_without_raising_many_events_break_the_fit(design, rng, monkeypatch):
    """The mutant: the factorisation fails, or its pivots are noise and the coefficients huge."""
    monkeypatch.setattr(regression, "stable_cholesky", plain_cholesky)
    X = design(rng)

    def breaks(n_copies):
        try:
            test_collinear_columns_predict_as_the_independent_ones_do(design, n_copies, rng)
        except (np.linalg.LinAlgError, AssertionError):
            return True
        return False

    # which of them break depends on how the machine's BLAS rounds
    assert any(breaks(n_copies) for n_copies in (1e13, 1e14, 1e15, 1e16))
    assert np.linalg.matrix_rank(X) < X.shape[1]


def test_sound_matrices_are_factored_as_they_are(rng):
    X = rng.normal(size=(3, 20, 4))
    sound = np.einsum("kni,knj->kij", X, X)
    stack = np.concatenate([sound, np.ones((1, 4, 4))])
    lower, raised = stable_cholesky(stack)
    np.testing.assert_array_equal(raised, [False, False, False, True])
    np.testing.assert_array_equal(lower[:3], np.linalg.cholesky(sound))
    np.testing.assert_allclose(lower[3] @ lower[3].T, np.ones((4, 4)), atol=1e-9)


def test_columns_are_raised_by_their_own_size():
    """A column of tiny values keeps its coefficient beside a collinear pair of huge ones."""
    small = 1e-12
    matrix = np.array([[small, 0.0, 0.0], [0.0, 1e12, 1e12], [0.0, 1e12, 1e12]])
    lower, raised = stable_cholesky(matrix)
    assert raised
    assert (lower @ lower.T)[0, 0] == pytest.approx(small, rel=1e-9)


@pytest.mark.parametrize("excess", [1e-14, 1e-9, 1e-4, 0.5])
def test_raising_goes_on_until_the_pivots_are_sound(excess):
    matrix = np.array([[1.0, 1.0 + excess], [1.0 + excess, 1.0]])
    lower, raised = stable_cholesky(matrix)
    assert raised
    assert np.isfinite(lower).all()
    # at most a hundred times what is needed
    assert np.diagonal(lower @ lower.T).max() <= 1.0 + 201 * max(excess, 1e-10)


@pytest.mark.parametrize("matrix", [np.zeros((2, 2)), -np.eye(2), np.full((2, 2), np.nan)])
def test_no_factor_without_a_positive_diagonal(matrix):
    with pytest.raises(np.linalg.LinAlgError, match="not finite, or its diagonal is not positive"):
        stable_cholesky(matrix)
