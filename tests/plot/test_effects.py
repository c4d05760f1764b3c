"""Features against the target, and single entities: lines, bands and dots are what Python says."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from fedhlcr import HLCRRegressor, plot
from fedhlcr.analysis.axes import feature_axes
from fedhlcr.analysis.axis_lines import axis_line, entity_feature_means, entity_line, entity_strengths
from fedhlcr.datasets import make_hlcr
from fedhlcr.estimators import loading, saving
from fedhlcr.exceptions import ArgumentError
from fedhlcr.figures.palette import PALETTE
from tests.kinds import KINDS, is_federated

TARGETS = {kind: target for target, kinds in KINDS.items() for kind in kinds}


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module", params=list(TARGETS), ids=lambda kind: kind.__name__)
def fitted(request):
    """An estimator of each kind, and its events: a month, a logarithm, and a number."""
    kind = request.param
    return fit(kind, TARGETS[kind])


def fit(kind, target):
    table, _ = make_hlcr(12, 4, 12, 3, 2, 0.6, random_state=4, target=target)
    rng = np.random.default_rng(1)
    day = 2.0 * np.pi * rng.random(len(table.y))
    frame = pd.DataFrame({"log_income": table.X[:, 0], "dose": table.X[:, 1], "age": table.X[:, 2]})
    frame["sin_year"], frame["cos_year"] = np.sin(day), np.cos(day)
    length = {"rounds": 30} if is_federated(kind) else {"n_sweeps": 60}
    model = kind(2, n_draws=20, n_threads=1, **length)
    model.fit(frame, table.y, agent=table.agent, entity=table.entity)
    return model, {"X": frame, "y": table.y, "agent": table.agent, "entity": table.entity}


def labelled(ax, label):
    return [line for line in ax.lines if line.get_label() == label]


def axis_named(model, name, X=None):
    axes = feature_axes(model, None if X is None else np.asarray(X, dtype=float))
    return next(axis for axis in axes if axis.name == name)


def test_lines_and_bands_are_those_of_the_clusters(fitted):
    model, events = fitted
    for given, name in (("month", "month"), ("cos_year", "month"), ("log_income", "income"), (2, "age")):
        ax = plot.effects(model, given, **events, level=0.8)
        assert ax.get_xlabel() == name
        for cluster in range(2):
            expected = axis_line(model, axis_named(model, name, events["X"]), cluster, level=0.8)
            (line,) = labelled(ax, str(cluster))
            np.testing.assert_array_equal(line.get_xdata(), expected.places)
            np.testing.assert_array_equal(line.get_ydata(), expected.mean)
            assert to_hex(line.get_color()) == PALETTE[cluster].lower()
            ends = labelled(ax, "_end")[2 * cluster : 2 * cluster + 2]
            np.testing.assert_array_equal([end.get_ydata() for end in ends], [expected.lower, expected.upper])
    assert [text.get_text() for text in ax.texts if text.get_text().isdigit()]
    assert not labelled(plot.effects(model, "age", level=None), "_end")


def test_dots_are_the_events_of_the_cluster_adjusted_to_average_other_features(fitted):
    model, events = fitted
    panels = plot.effects(model, "income", **events, layout="panels")
    label = dict(zip(model.pair_ids_, model.labels_, strict=True))
    own = np.array([label[pair] for pair in zip(events["agent"], events["entity"], strict=True)])
    predicted = model.predict_moments(events["X"], events["agent"], events["entity"]).mean
    for cluster in np.unique(own):
        ax = panels[cluster]
        (line,) = labelled(ax, str(cluster))
        income = np.exp(events["X"]["log_income"].to_numpy()[own == cluster])
        on_line = np.interp(np.log(income), np.log(line.get_xdata()), line.get_ydata())
        values = on_line + (events["y"] - predicted)[own == cluster]
        if not model.family.has_link:
            (dots,) = labelled(ax, "_event")
            assert len(dots.get_xdata()) == min((own == cluster).sum(), 250)
            shown = np.isin(np.round(income, 9), np.round(dots.get_xdata(), 9))
            np.testing.assert_allclose(np.sort(dots.get_ydata()), np.sort(values[shown]), rtol=1e-9)
        else:
            (means,) = labelled(ax, "_mean")
            groups = np.array_split(np.argsort(income, kind="stable"), len(means.get_xdata()))
            mine = np.flatnonzero(own == cluster)
            # one expected event is added to what was observed
            expected = np.array([predicted[mine[rows]].mean() for rows in groups])
            n = np.array([len(rows) for rows in groups])
            seen = (np.array([events["y"][mine[rows]].sum() for rows in groups]) + expected) / (n + 1)
            middle = np.array([on_line[rows].mean() for rows in groups])
            if model.family.has_classes:
                odds = [share / (1.0 - share) for share in (middle, seen, expected)]
                expected = 1.0 / (1.0 + odds[2] / (odds[0] * odds[1]))
            else:
                expected = middle * seen / expected
            np.testing.assert_allclose(means.get_ydata(), expected, rtol=1e-9)
        assert f"cluster {cluster}" in ax.get_title()


def test_a_plot_draws_on_what_it_is_given_and_changes_no_setting(fitted):
    model, events = fitted
    settings = dict(mpl.rcParams)
    figure, given = plt.subplots(1, 2)
    assert plot.effects(model, "age", **events, ax=given[0]) is given[0]
    assert not given[1].has_data()
    assert (plot.effects(model, "age", ax=given) == given).all()
    pair = model.pair_ids_[0]
    assert plot.entity(model, *pair, ax=given[1]) is given[1]
    assert plot.posterior_predictive(model, **events, ax=given[0], n_replicates=20) is given[0]
    figure.canvas.draw()
    assert plt.get_fignums() == [figure.number]
    assert dict(mpl.rcParams) == settings


def test_nothing_is_cut_off_in_new_figures(fitted):
    model, events = fitted
    drawn = [
        plot.effects(model, **events),
        *plot.effects(model, layout="panels"),
        plot.entity(model, *model.pair_ids_[0]),
        plot.posterior_predictive(model, **events, n_replicates=20),
        *plot.coefficients(model, scale="own"),
    ]
    for ax in drawn:
        ax.figure.canvas.draw()
        inside, whole = ax.get_tightbbox(), ax.figure.bbox.padded(2.0)
        assert whole.x0 <= inside.x0 < inside.x1 <= whole.x1
        assert whole.y0 <= inside.y0 < inside.y1 <= whole.y1


def test_an_entity_has_its_own_line_at_its_own_averages(fitted):
    model, events = fitted
    position = 5
    agent, entity = model.pair_ids_[position]
    own = (events["agent"] == agent) & (events["entity"] == entity)
    X, y = events["X"][own], events["y"][own]
    ax = plot.entity(model, agent, entity, "age", X, y)
    (line,), (shared,) = labelled(ax, "this entity"), labelled(ax, f"cluster {model.labels_[position]}")
    others = X.to_numpy().mean(axis=0)
    np.testing.assert_allclose(entity_feature_means(model, np.array([position]))[0], others, atol=1e-9)
    at = pd.DataFrame(np.tile(others, (len(line.get_xdata()), 1)), columns=X.columns)
    at["age"] = line.get_xdata()
    ids = [np.full(len(at), one) for one in (agent, entity)]
    np.testing.assert_allclose(line.get_ydata(), model.predict_moments(at, *ids).mean, rtol=1e-6)
    axis = axis_named(model, "age", X)
    expected = axis_line(model, axis, int(model.labels_[position]), others=others)
    np.testing.assert_allclose(shared.get_ydata(), expected.mean, rtol=1e-9)
    (dots,) = [line for line in ax.lines if line.get_label() in ("its events", "means of its events")]
    assert len(dots.get_xdata()) == (max(len(y) // 5, 1) if model.family.has_link else len(y))
    bars = ax.child_axes[0].patches
    assert sum(bar.get_width() for bar in bars) == pytest.approx(1.0, abs=0.02)
    top = int(model.responsibilities(agent, entity).argmax())
    assert to_hex(bars[0].get_facecolor()) == PALETTE[top].lower()


def test_the_band_of_an_entity_is_that_of_its_regression_without_noise():
    model, events = fit(HLCRRegressor, "real")
    axis = axis_named(model, "age")
    line = entity_line(model, axis, 3, level=0.9)
    agent, entity = model.pair_ids_[3]
    at = np.tile(entity_feature_means(model, np.array([3]))[0], (len(line.places), 1))
    at[:, 2] = line.places
    moments = model.predict_moments(
        pd.DataFrame(at, columns=events["X"].columns), [agent] * len(at), [entity] * len(at), (0.05, 0.95)
    )
    assert (line.lower < line.mean).all()
    assert (line.mean < line.upper).all()
    # predictions have the noise too
    assert (line.lower > moments.quantiles[:, 0]).all()
    assert (line.upper < moments.quantiles[:, 1]).all()
    # at no features, the regression is the intercept, whose posterior standard deviation is known
    origin = entity_line(model, axis, 3, np.zeros(1), others=np.zeros(5))
    assert origin.mean[0] == pytest.approx(model.entity_intercept_[3], abs=1e-9)
    width = (origin.upper - origin.lower)[0] / (2 * 1.645)
    assert width == pytest.approx(model.entity_intercept_std_[3], rel=0.25)


def test_the_strongest_feature_of_an_entity_varies_within_it():
    table, _ = make_hlcr(10, 4, 10, 2, 2, 0.3, random_state=4)
    X = table.X.copy()
    X[:, 0] = 3.0 * (table.entity % 2) - 1.5
    model = HLCRRegressor(2, n_sweeps=40, n_threads=1)
    model.fit(X, table.y + 2.0 * X[:, 0], agent=table.agent, entity=table.entity)
    strengths = entity_strengths(model, feature_axes(model), 0)
    assert strengths[0] == pytest.approx(0.0, abs=1e-6)
    assert plot.entity(model, *model.pair_ids_[0]).get_xlabel() == "x1"
    assert plot.effects(model).get_xlabel() == "x0"


def test_a_category_of_many_levels_without_effect_is_not_the_strongest_feature():
    rng = np.random.default_rng(6)
    n = 1200
    kind = pd.Categorical(rng.choice(list("abcdefgh"), n))
    frame = pd.DataFrame({"shop": np.arange(n) % 4, "item": np.arange(n) % 10, "x": rng.normal(size=n), "kind": kind})
    y = 0.3 * frame["x"] + rng.normal(0.0, 0.5, n)
    model = HLCRRegressor(1, n_sweeps=60, n_threads=1).fit(frame, y, agent="shop", entity="item")
    axes = feature_axes(model)
    assert [axis.name for axis in axes] == ["x", "kind"]
    strengths = np.array([entity_strengths(model, axes, entity) for entity in range(len(model.pair_ids_))])
    assert (strengths[:, 0] > strengths[:, 1]).all()
    np.testing.assert_allclose(strengths[:, 0], 0.3, atol=0.15)


def test_categories_are_points_with_whiskers_at_their_levels():
    table, _ = make_hlcr(10, 4, 10, 2, 2, 0.3, random_state=4)
    X = table.X.copy()
    X[:, 0] = np.random.default_rng(0).integers(0, 2, len(X))
    model = HLCRRegressor(2, n_sweeps=40, n_threads=1).fit(X, table.y, agent=table.agent, entity=table.entity)
    ax = plot.effects(model, 0, X, table.y, table.agent, table.entity)
    expected = axis_line(model, feature_axes(model)[0], 1)
    (points,) = labelled(ax, "1")
    np.testing.assert_allclose(points.get_ydata(), expected.mean)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "1"]
    label = dict(zip(model.pair_ids_, model.labels_, strict=True))
    own = np.bincount([label[pair] for pair in zip(table.agent, table.entity, strict=True)])
    assert [len(line.get_xdata()) for line in labelled(ax, "_event")] == np.minimum(own, 250).tolist()


def test_events_of_new_entities_are_left_out_and_public_models_draw_lines_only():
    model, events = fit(HLCRRegressor, "real")
    some = np.isin(events["agent"], np.unique(events["agent"])[:3])
    renamed = {**events, "agent": np.where(some, events["agent"], events["agent"] + 1000)}
    ax = plot.effects(model, "age", **renamed)
    assert sum(len(line.get_xdata()) for line in labelled(ax, "_event")) == some.sum()
    public = loading.from_bytes(saving.to_bytes(model, public=True))
    assert plot.effects(public, "month").lines
    assert plot.posterior_predictive(public, **events, n_replicates=20).lines
    with pytest.raises(ArgumentError, match="no event belongs to an entity that the model knows"):
        plot.effects(public, "month", **events)
    with pytest.raises(ArgumentError, match="`model` is public"):
        plot.entity(public, *model.pair_ids_[0])


def test_errors_name_the_argument_and_the_cure():
    model, events = fit(HLCRRegressor, "real")
    with pytest.raises(ArgumentError, match=r"`feature` must be 'log_income', .* 'month', .* did you mean 'month'\?"):
        plot.effects(model, "Month ")
    with pytest.raises(ArgumentError, match="or a position from 0 to 4, but is 7"):
        plot.effects(model, 7)
    with pytest.raises(ArgumentError, match="the target y is None; pass one target"):
        plot.effects(model, "age", **events | {"y": None})
    with pytest.raises(ArgumentError, match="`X` is missing; pass both"):
        plot.effects(model, "age", y=events["y"])
    with pytest.raises(ArgumentError, match="`layout` must be 'panels' or 'together', but is 'grid'"):
        plot.effects(model, "age", layout="grid")
    with pytest.raises(ArgumentError, match="`layout` is 'panels', but `ax` is one Axes"):
        plot.effects(model, "age", layout="panels", ax=plt.subplots()[1])
    with pytest.raises(ArgumentError, match="name no entity that the model knows; `pair_ids_`"):
        plot.entity(model, "nobody", "nothing")
    with pytest.raises(ArgumentError, match="pass `agent` too"):
        plot.entity(model, entity=model.pair_ids_[0][1])
    with pytest.raises(ArgumentError, match="must be the ids of one fitted entity"):
        plot.entity(model)
