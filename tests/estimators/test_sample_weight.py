"""A weight says how often an event occurred."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedhlcr.datasets import make_hlcr
from tests.kinds import KINDS, is_federated

REAL = [pytest.param("real", kind, id=kind.__name__) for kind in KINDS["real"]]
LINKED = [pytest.param(t, kind, id=kind.__name__) for t in ("binary", "count") for kind in KINDS[t]]


def events(target, seed=3):
    table, _ = make_hlcr(20, 4, 6, 2, 2, target=target, random_state=seed)
    return table, np.random.default_rng(seed).integers(0, 3, len(table.y)).astype(float)


def fit(kind, table, rows=slice(None), weight=None, **more):
    length = {"rounds": 20} if is_federated(kind) else {"n_sweeps": 30}
    model = kind(**{"n_clusters": 2, **length, **more})
    return model.fit(
        table.X[rows], table.y[rows], agent=table.agent[rows], entity=table.entity[rows], sample_weight=weight
    )


@pytest.mark.parametrize(("target", "kind"), REAL)
@pytest.mark.parametrize("model", [{}, {"noise": "common"}, {"noise": "common", "effects": "none"}])
def test_weight_of_two_is_the_event_twice(target, kind, model):
    """Weights enter the sums of each entity, so the fit is the same but for rounding."""
    table, weight = events(target)
    twice = np.repeat(np.arange(len(weight)), weight.astype(int))
    weighted, repeated = fit(kind, table, weight=weight, **model), fit(kind, table, twice, **model)
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-9)
    np.testing.assert_array_equal(weighted.labels_, repeated.labels_)
    ids = {"agent": table.agent, "entity": table.entity}
    np.testing.assert_allclose(weighted.predict(table.X, **ids), repeated.predict(table.X, **ids), rtol=1e-7)
    # comparisons with simpler models need whole events
    assert weighted.comparison_ is None
    assert repeated.comparison_ is not None


@pytest.mark.slow
@pytest.mark.parametrize(("target", "kind"), LINKED)
def test_weight_of_two_has_the_same_posterior_as_the_event_twice(target, kind):
    """Classes and counts draw a random number for each event, so fits differ as two seeds do."""
    table, _ = events(target)
    # weights that change the slope
    weight = np.where((table.y > table.y.mean()) == (table.X[:, 0] > 0.0), 2.0, 1.0)
    twice = np.repeat(np.arange(len(weight)), weight.astype(int))
    length = {"rounds": 150, "patience": None} if is_federated(kind) else {"n_sweeps": 150}
    plain = {"n_clusters": 1, "effects": "none", **length}
    weighted, repeated = fit(kind, table, weight=weight, **plain), fit(kind, table, twice, **plain)
    ignored = fit(kind, table, **plain)
    assert np.abs(weighted.coef_ - repeated.coef_).max() < 0.08 < np.abs(ignored.coef_ - repeated.coef_).max()


@pytest.mark.parametrize(("target", "kind"), [*REAL, *LINKED])
def test_weight_of_zero_leaves_the_event_out(target, kind):
    table, weight = events(target)
    kept = np.flatnonzero(weight)
    np.testing.assert_array_equal(fit(kind, table, weight=weight).coef_, fit(kind, table, kept, weight[kept]).coef_)
    np.testing.assert_array_equal(fit(kind, table, weight=np.minimum(weight, 1.0)).coef_, fit(kind, table, kept).coef_)


@pytest.mark.parametrize(("target", "kind"), [*REAL, *LINKED])
def test_fractional_weights_add_up(target, kind):
    """An event in parts of a quarter and three quarters is one event."""
    table, _ = events(target)
    n = len(table.y)
    parts = fit(kind, table, np.tile(np.arange(n), 2), np.repeat([0.25, 0.75], n))
    assert np.isfinite(parts.coef_).all()
    layout, grams = parts.posterior_.layout, parts.posterior_.memory.entities.grams
    assert layout.n_events(grams).sum() == pytest.approx(n)
    if target == "real":
        np.testing.assert_allclose(parts.coef_, fit(kind, table, weight=np.ones(n)).coef_, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS["real"])
def test_student_noise_takes_zero_and_one_only(kind):
    table, weight = events("real")
    kept = np.flatnonzero(weight)
    with pytest.raises(ValueError, match="does not support `sample_weight` other than 0 and 1"):
        fit(kind, table, weight=weight, noise="student")
    np.testing.assert_array_equal(
        fit(kind, table, weight=np.minimum(weight, 1.0), noise="student").coef_,
        fit(kind, table, kept, noise="student").coef_,
    )


@pytest.mark.parametrize(("target", "kind"), [*REAL, *LINKED])
def test_weights_may_be_a_column(target, kind):
    table, weight = events(target)
    frame = pd.DataFrame(table.X, columns=["a", "b"]).assign(y=table.y, n=weight, who=table.agent, what=table.entity)
    length = {"rounds": 20} if is_federated(kind) else {"n_sweeps": 30}
    model = kind(n_clusters=2, **length).fit(frame, "y", agent="who", entity="what", sample_weight="n")
    assert list(model.feature_names_in_) == ["a", "b"]
    np.testing.assert_array_equal(model.coef_, fit(kind, table, weight=weight).coef_)
    ids = {"agent": table.agent, "entity": table.entity}
    expected = model.score(table_of(frame), table.y, **ids, sample_weight=weight)
    assert model.score(frame, sample_weight="n") == expected
    assert model.score(frame) != expected
    twice = frame.loc[np.repeat(frame.index, weight.astype(int))]
    assert float(model.score(twice)) == pytest.approx(float(expected))
    adapted, repeated = model.adapt(frame, sample_weight="n"), model.adapt(twice)
    if target == "real":
        np.testing.assert_allclose(adapted.predict(frame), repeated.predict(frame), rtol=1e-7)


def table_of(frame):
    return frame[["a", "b"]]
