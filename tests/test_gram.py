"""The algebra of Gram matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedhlcr import HLCRRegressor
from fedhlcr.gram import GramLayout, Standardization, column_means, entity_grams
from fedhlcr.hierarchy import build_hierarchy

numbers = st.floats(-1e3, 1e3, allow_nan=False, width=32)


def grams_of(X, y, weight=None, shift=None, entity=None):
    weight = np.ones(len(y)) if weight is None else weight
    hierarchy = build_hierarchy(X, y, weight, None, np.zeros(len(y)) if entity is None else entity)
    layout = GramLayout(X.shape[1])
    return layout, entity_grams(hierarchy, layout, np.zeros(X.shape[1] + 1) if shift is None else shift)


@settings(deadline=None)
@given(st.integers(1, 6), st.data())
def test_pack_and_unpack_round_trip_exactly(n_features, data):
    layout = GramLayout(n_features)
    packed = data.draw(arrays(np.float64, (2, layout.packed_size), elements=numbers))
    full = layout.unpack(packed)
    np.testing.assert_array_equal(full, np.swapaxes(full, -1, -2))
    np.testing.assert_array_equal(layout.pack(full), packed)


@settings(deadline=None)
@given(arrays(np.float64, (7, 3), elements=numbers), arrays(np.int64, 7, elements=st.integers(0, 3)))
def test_merging_entities_is_a_sum(rows, weight):
    X, y = rows[:, :2], rows[:, 2]
    weight = weight + 1.0
    layout, whole = grams_of(X, y, weight)
    _, parts = grams_of(X, y, weight, entity=np.arange(7) % 3)
    np.testing.assert_allclose(parts.sum(axis=0), whole[0], rtol=1e-12, atol=1e-6)
    augmented = np.column_stack([np.ones(7), rows])
    np.testing.assert_allclose(layout.unpack(whole[0]), (augmented.T * weight) @ augmented, rtol=1e-12, atol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rss_is_that_of_the_events(rng, fit_intercept):
    X, y = rng.normal(size=(9, 3)), rng.normal(size=9)
    _, grams = grams_of(X, y)
    layout = GramLayout(3, fit_intercept)
    design = np.column_stack([np.ones(9), X]) if fit_intercept else X
    coef = rng.normal(size=(4, layout.n_coef))
    expected = ((y - coef @ design.T) ** 2).sum(axis=1)
    np.testing.assert_allclose(layout.rss(grams, coef), expected, rtol=1e-12)
    normal = layout.normal_equations(grams[0])
    np.testing.assert_allclose(normal.xx, design.T @ design, rtol=1e-12)
    np.testing.assert_allclose(normal.xy, design.T @ y, rtol=1e-12)


def test_standardising_is_a_congruence(rng):
    X, y = rng.normal(3.0, 5.0, size=(40, 2)), rng.normal(-2.0, 4.0, size=40)
    layout, grams = grams_of(X, y)
    shift, scale = np.append(X.mean(axis=0), y.mean()), np.append(X.std(axis=0), y.std())
    transform = np.diag(np.append(1.0, 1.0 / scale))
    transform[1:, 0] = -shift / scale
    direct = grams_of((X - shift[:2]) / scale[:2], (y - shift[2]) / scale[2])[1]
    congruent = layout.pack(transform @ layout.unpack(grams) @ transform.T)
    np.testing.assert_allclose(congruent, direct, atol=1e-9)
    around = grams_of(X, y, shift=shift)[1]
    units = Standardization.from_gram(layout, around[0], shift, scale=True)
    np.testing.assert_allclose(units.rescale(layout, around), direct, atol=1e-9)


def test_weighted_means(rng):
    X, y, weight = rng.normal(size=(8, 2)), rng.normal(size=8), rng.uniform(0.5, 3, 8)
    hierarchy = build_hierarchy(X, y, weight, None, np.arange(8) % 3)
    expected = np.average(np.column_stack([X, y]), axis=0, weights=weight)
    np.testing.assert_allclose(column_means(hierarchy), expected)


def test_coefficients_return_to_the_users_units(rng):
    X = rng.normal(5.0, [0.1, 100.0], size=(50, 2))
    y = 3.0 + X @ [2.0, -0.5]
    layout, grams = grams_of(X, y, shift=(shift := np.append(X.mean(axis=0), y.mean())))
    units = Standardization.from_gram(layout, grams[0], shift, scale=True)
    normal = layout.normal_equations(units.rescale(layout, grams)[0])
    slopes, intercept = units.to_user_units(layout, np.linalg.solve(normal.xx, normal.xy))
    np.testing.assert_allclose(slopes, [2.0, -0.5])
    np.testing.assert_allclose(intercept, 3.0)


@pytest.mark.parametrize("shift", [1e8, -1e8])
def test_a_far_away_column_changes_nothing(small, shift):
    table, _ = small
    # eighths stay exact beside 10⁸: only the arithmetic may differ
    X = np.round(table.X * 8) / 8
    moved = X.copy()
    moved[:, 1] += shift
    ids = {"agent": table.agent, "entity": table.entity}
    near = HLCRRegressor(n_sweeps=40).fit(X, table.y, **ids)
    far = HLCRRegressor(n_sweeps=40).fit(moved, table.y, **ids)
    np.testing.assert_allclose(far.predict(moved, **ids), near.predict(X, **ids), rtol=1e-6, atol=1e-6)


def test_a_far_away_target_moves_the_predictions_with_it(small):
    table, _ = small
    ids = {"agent": table.agent, "entity": table.entity}
    y = np.round(table.y * 8) / 8
    near = HLCRRegressor(n_sweeps=40).fit(table.X, y, **ids).predict(table.X, **ids)
    far = HLCRRegressor(n_sweeps=40).fit(table.X, y + 1e8, **ids).predict(table.X, **ids)
    np.testing.assert_allclose(far - 1e8, near, atol=1e-5)
