"""The algebra of Gram matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedhlcr import HLCRRegressor
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.datasets import make_hlcr
from fedhlcr.kernels.grams import NOT_FINITE, NOT_POSITIVE, SOUND, change_units, check_grams, sum_by_cluster, sum_rows
from fedhlcr.model.gram import GramLayout, Standardization, agent_means, column_means, entity_grams

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
def test_rss_from_gram_equals_rss_from_events(rng, fit_intercept):
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


def test_coefficients_convert_back_to_user_units(rng):
    X = rng.normal(5.0, [0.1, 100.0], size=(50, 2))
    y = 3.0 + X @ [2.0, -0.5]
    layout, grams = grams_of(X, y, shift=(shift := np.append(X.mean(axis=0), y.mean())))
    units = Standardization.from_gram(layout, grams[0], shift, scale=True)
    normal = layout.normal_equations(units.rescale(layout, grams)[0])
    slopes, intercept = units.to_user_units(layout, np.linalg.solve(normal.xx, normal.xy))
    np.testing.assert_allclose(slopes, [2.0, -0.5])
    np.testing.assert_allclose(intercept, 3.0)


@pytest.mark.parametrize("shift", [1e8, -1e8])
def test_shifting_a_column_far_away_changes_no_prediction(small, shift):
    table, _ = small
    # eighths stay exact beside 10⁸: only the arithmetic may differ
    X = np.round(table.X * 8) / 8
    moved = X.copy()
    moved[:, 1] += shift
    ids = {"agent": table.agent, "entity": table.entity}
    near = HLCRRegressor(n_sweeps=40).fit(X, table.y, **ids)
    far = HLCRRegressor(n_sweeps=40).fit(moved, table.y, **ids)
    np.testing.assert_allclose(far.predict(moved, **ids), near.predict(X, **ids), rtol=1e-6, atol=1e-6)


def test_shifting_the_target_far_away_shifts_predictions(small):
    table, _ = small
    ids = {"agent": table.agent, "entity": table.entity}
    y = np.round(table.y * 8) / 8
    near = HLCRRegressor(n_sweeps=40).fit(table.X, y, **ids).predict(table.X, **ids)
    far = HLCRRegressor(n_sweeps=40).fit(table.X, y + 1e8, **ids).predict(table.X, **ids)
    np.testing.assert_allclose(far - 1e8, near, atol=1e-5)


def packed_grams(rng, n_matrices, n_rows, layout):
    x = rng.normal(size=(n_matrices, n_rows, layout.width))
    x[:, :, 0] = 1.0
    return layout.pack(np.einsum("mni,mnj->mij", x, x))


def test_change_of_units(rng):
    """From around each agent's own means to around a common shift, scaled: as if accumulated so at once."""
    table, _ = make_hlcr(9, 4, 5, 3, 2, 0.5, random_state=4)
    X = table.X * [1.0, 1e3, 1e-3] + [0.0, 1e6, 5.0] + table.agent[:, None]
    hierarchy = build_hierarchy(X, table.y, rng.uniform(0.5, 2.0, len(table)), table.agent, table.entity)
    layout, shift, scale = GramLayout(3), np.array([3.0, 1e6, 5.0, -1.0]), np.array([2.0, 1e3, np.inf, 0.5])
    own = agent_means(hierarchy)
    grams = entity_grams(hierarchy, layout, own)
    change_units(grams, hierarchy.index.agent_start, own - shift, 1.0 / scale)
    expected = Standardization(shift, scale).rescale(layout, entity_grams(hierarchy, layout, shift))
    np.testing.assert_allclose(grams, expected, rtol=1e-8, atol=1e-8)


def test_means_of_agents(rng):
    table, _ = make_hlcr(9, 4, 5, 3, 2, 0.5, random_state=4)
    X = table.X.copy()
    X[:, 1] = 0.1 + 1e7
    weight = rng.uniform(0.5, 2.0, len(table))
    hierarchy = build_hierarchy(X, table.y, weight, table.agent, table.entity)
    for i, agent in enumerate(np.unique(table.agent)):
        own = table.agent == agent
        columns = np.column_stack([X, table.y])[own]
        np.testing.assert_allclose(agent_means(hierarchy)[i], np.average(columns, axis=0, weights=weight[own]))
    assert (agent_means(hierarchy)[:, 1] == 0.1 + 1e7).all(), "of a constant, the constant itself"


def test_matrices_are_summed_by_agent_and_cluster(rng):
    grams, labels = rng.normal(size=(30, 6)), rng.integers(4, size=30).astype(np.int32)
    agent_start = np.array([0, 7, 7, 20, 30])
    agents = np.array([0, 1, 3])
    counts = np.array([np.bincount(labels[agent_start[a] : agent_start[a + 1]], minlength=4) for a in agents])
    row_start = np.concatenate([[0], np.cumsum((counts > 0).sum(axis=1))])
    out = np.full((row_start[-1], 6), np.nan)
    sum_by_cluster(grams, agent_start, agents, labels, row_start, counts, out)
    expected = [
        grams[first:last][labels[first:last] == k].sum(axis=0)
        for first, last in zip(agent_start[agents], agent_start[agents + 1], strict=True)
        for k in np.unique(labels[first:last])
    ]
    np.testing.assert_allclose(out, expected)


@pytest.mark.parametrize("n_matrices", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("n_rows", [1, 3, 50])
def test_invalid_matrices_are_detected(rng, n_matrices, n_rows):
    """As by eigenvalues, with the tolerance; matrices of few events are singular, and sound."""
    layout = GramLayout(4)
    sound = packed_grams(rng, n_matrices, n_rows, layout)
    units, verdicts = np.ones(layout.width), np.empty(n_matrices, dtype=np.int64)
    check_grams(sound, units, 1e-8, verdicts)
    assert (verdicts == SOUND).all()
    for less, expected in [(1e-4, NOT_POSITIVE), (1e-12, SOUND)]:
        values, vectors = np.linalg.eigh(layout.unpack(sound))
        lowered = sound - layout.pack(
            (values[:, :1, None] + less * n_rows) * vectors[:, :, :1] * np.swapaxes(vectors[:, :, :1], 1, 2)
        )
        check_grams(lowered, units, 1e-8, verdicts)
        assert (verdicts == expected).all(), less
    broken = sound.copy()
    broken[::2, 5] = np.nan
    broken[1::2, 7] = -np.inf
    check_grams(broken, units, 1e-8, verdicts)
    assert (verdicts == NOT_FINITE).all()


def test_nonzero_entry_beside_zero_diagonal_is_detected():
    layout, verdict = GramLayout(1), np.empty(1, dtype=np.int64)
    full = np.array([[3.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 2.0]])
    check_grams(layout.pack(full)[None], np.zeros(3), 1e-8, verdict)
    assert verdict[0] == SOUND
    full[1, 2] = full[2, 1] = 1e-3
    check_grams(layout.pack(full)[None], np.zeros(3), 1e-8, verdict)
    assert verdict[0] == NOT_POSITIVE


def test_matrices_equal_plain_sums_for_any_number_of_threads(rng):
    X, y, entity = rng.normal(size=(4000, 3)) + 5.0, rng.normal(size=4000), rng.integers(0, 600, size=4000)
    layout, built = GramLayout(3), []
    for n_threads in (1, 2, 3):
        hierarchy = build_hierarchy(X, y, np.ones(4000), None, entity, None, n_threads)
        shift = column_means(hierarchy, n_threads)
        grams = entity_grams(hierarchy, layout, shift, n_threads)
        units = Standardization.from_gram(layout, sum_rows(grams), shift, scale=True)
        built.append(units.rescale(layout, grams, n_threads))
    assert np.array_equal(built[0], built[1])
    assert np.array_equal(built[0], built[2])
    rows = np.column_stack([X, y])
    standard = np.column_stack([np.ones(4000), (rows - rows.mean(axis=0)) / rows.std(axis=0)])
    for place, own in enumerate(np.unique(entity)):
        of_entity = standard[entity == own]
        np.testing.assert_allclose(layout.unpack(built[0][place]), of_entity.T @ of_entity, atol=1e-9)


@pytest.mark.parametrize("rows", [np.arange(12, dtype=np.int32).reshape(4, 3), np.zeros((0, 5))])
def test_sum_of_rows_equals_numpys(rows):
    assert np.array_equal(sum_rows(rows), rows.sum(axis=0, dtype=np.float64))


def test_sum_of_rows_has_the_digits_of_numpys(rng):
    rows = rng.normal(size=(3000, 7)) * 10.0 ** rng.integers(-9, 9, size=(3000, 7))
    assert np.array_equal(sum_rows(rows), rows.sum(axis=0))
