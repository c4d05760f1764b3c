"""The data behind the explorer: probabilities, lines, events and neighbours are those of the model."""

from __future__ import annotations

import base64

import matplotlib.pyplot as plt
import numpy as np
import pytest

from fedhlcr import HLCRClassifier, HLCRCountRegressor, HLCRRegressor, hold_out_events, plot
from fedhlcr.analysis.axis_lines import axis_line, features_along
from fedhlcr.datasets import make_hlcr
from fedhlcr.report import HeldOut, render_report
from fedhlcr.report.entity_lines import drawn_axes
from fedhlcr.report.events import drawn_events
from fedhlcr.report.explorer import N_NEIGHBOURS, coordinates, explorer_section, nearest
from fedhlcr.report.findings import Findings
from fedhlcr.report.packing import NO_VALUE, STEPS, Steps, pack, pack_shares
from tests.reports import HOSTILE, Page, fitted, held_out, public, unpacked


def numbers(packed):
    width, text = packed
    return np.frombuffer(base64.urlsafe_b64decode(text), dtype=f"<u{width}").astype(np.int64)


def shares(packed):
    """A list of {cluster: share} for each row."""
    counts, clusters, values = (numbers(packed[name]) for name in ("counts", "clusters", "shares"))
    ends = np.cumsum(counts)
    return [
        dict(zip(clusters[end - n : end].tolist(), (values[end - n : end] / 10_000).tolist(), strict=True))
        for n, end in zip(counts, ends, strict=True)
    ]


def explored(model, events=None):
    section = explorer_section(model, Findings(model), None if events is None else drawn_events(model, events), None)
    return section, unpacked(section["data"])


def lines(data, which):
    """(entities, points, 4) or (clusters, points, 3)"""
    packed, n_points = data["lines"], sum(len(axis["points"]) for axis in data["axes"])
    steps = numbers(packed[which]).reshape(-1, n_points, 4 if which == "entities" else 3)
    assert (steps != NO_VALUE).all()
    return packed["low"] + (packed["high"] - packed["low"]) * steps / STEPS


@pytest.mark.parametrize("largest", [0, 255, 256, 65_535, 65_536])
def test_packed_numbers_come_back(largest):
    values = np.array([0, largest // 2, largest])
    packed = pack(values)
    np.testing.assert_array_equal(numbers(packed), values)
    assert packed[0] == (1 if largest < 256 else 2 if largest < 65_536 else 4)


def test_quantised_values_are_close_and_unknown_ones_are_marked():
    values = np.array([-3.0, 0.1, 7.0, np.nan, 9.0])
    steps = Steps(-3.0, 7.0).quantise(values)
    np.testing.assert_allclose(-3.0 + 10.0 * steps[:3] / STEPS, values[:3], atol=10.0 / STEPS)
    assert steps[3:].tolist() == [NO_VALUE, NO_VALUE]


def test_shares_under_a_hundredth_are_left_out_and_never_rounded_to_all_or_nothing():
    rows = np.array([[0.995, 0.005, 0.0], [0.2, 0.3, 0.5], [0.99999, 0.00001, 0.0], [0.0, 1.0, 0.0]])
    assert shares(pack_shares(rows, 12)) == [{0: 0.995}, {2: 0.5, 1: 0.3, 0: 0.2}, {0: 0.9999}, {1: 1.0}]
    assert shares(pack_shares(rows, 2))[1] == {2: 0.5, 1: 0.3}


def test_probabilities_are_those_of_the_model(model):
    _, data = explored(model)
    agents, entities = zip(*model.pair_ids_, strict=True)
    expected = model.responsibilities(list(agents), list(entities))
    found = shares(data["shares"])
    assert len(found) == len(expected)
    for row, own in zip(expected, found, strict=True):
        assert set(own) >= set(np.flatnonzero(row >= 0.0101))
        for k, share in own.items():
            assert share == pytest.approx(row[k], abs=1e-4)


@pytest.mark.parametrize("target", ["real", "binary", "count"])
def test_lines_are_predictions_at_the_entity_s_own_averages(target):
    table, _ = make_hlcr(30, 3, 6, 3, 2, 0.3, target=target, random_state=4)
    kind = {"real": HLCRRegressor, "binary": HLCRClassifier, "count": HLCRCountRegressor}[target]
    model = kind(n_sweeps=40).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    _, data = explored(model)
    found, axes = lines(data, "entities"), drawn_axes(model, None)
    assert len(axes) == 3
    predict = (lambda *a, **k: model.predict_proba(*a, **k)[:, 1]) if target == "binary" else model.predict
    for place in (0, 7, len(model.labels_) - 1):
        agent, entity = model.pair_ids_[place]
        others = table.X[(table.agent == agent) & (table.entity == entity)].mean(axis=0)
        X = np.concatenate([features_along(model, axis.axis, axis.places, others) for axis in axes])
        expected = predict(X, agent=[agent] * len(X), entity=[entity] * len(X))
        step = (data["lines"]["high"] - data["lines"]["low"]) / STEPS
        np.testing.assert_allclose(found[place, :, 0], expected, atol=step, rtol=1e-6)
        shared = [axis_line(model, axis.axis, model.labels_[place], axis.places, others=others).mean for axis in axes]
        np.testing.assert_allclose(found[place, :, 3], np.concatenate(shared), atol=step, rtol=1e-6)


@pytest.mark.parametrize("target", ["real", "binary", "count"])
def test_the_explorer_and_the_plot_draw_the_same_line(target):
    """The same mean, band and cluster, for entities whose features are far from those of all others too."""
    table, _ = make_hlcr(12, 3, 8, 2, 2, 0.4, target=target, random_state=6)
    X = table.X + np.asarray(table.agent, dtype=float)[:, None] / 4.0
    kind = {"real": HLCRRegressor, "binary": HLCRClassifier, "count": HLCRCountRegressor}[target]
    model = kind(n_sweeps=60).fit(X, table.y, agent=table.agent, entity=table.entity)
    _, data = explored(model, HeldOut(X, table.y, table.agent, table.entity))
    axes = drawn_axes(model, drawn_events(model, HeldOut(X, table.y, table.agent, table.entity)))
    height = np.ptp(lines(data, "entities")[..., 0])
    for place in (0, 17, 35):
        first = 0
        for drawn in axes:
            found = lines(data, "entities")[place, first : first + len(drawn.places)]
            first += len(drawn.places)
            ax = plot.entity(model, *model.pair_ids_[place], drawn.axis.name)
            own, shared = (
                next(line for line in ax.lines if line.get_label() == label)
                for label in ("this entity", f"cluster {model.labels_[place]}")
            )
            ends = band(ax)
            inside = (drawn.places >= own.get_xdata().min()) & (drawn.places <= own.get_xdata().max())
            assert inside.sum() >= 2
            for column, (x, y) in ((0, own.get_data()), (3, shared.get_data()), (1, ends[0]), (2, ends[1])):
                expected = np.interp(drawn.places[inside], x, y)
                # the plot is interpolated here, and ends of intervals may jump between draws
                accuracy = 0.005 if column in (0, 3) else 0.02
                np.testing.assert_allclose(found[inside, column], expected, atol=accuracy * height)
            plt.close(ax.figure)


def band(ax):
    """(places, values) of the lower and the upper end of the only band."""
    (area,) = ax.collections
    x, y = area.get_paths()[0].vertices.T
    places = np.unique(x)
    return [(places, np.array([of(y[x == at]) for at in places])) for of in (np.min, np.max)]


def test_events_are_thinned_evenly_and_keep_their_residuals(split):
    train, test = split
    model = fitted(train)
    events = drawn_events(model, held_out(test))
    section, data = explored(model, held_out(test))
    assert section["has_events"]
    counts = numbers(data["events"]["counts"])
    expected = np.bincount(events.entity[events.entity >= 0], minlength=len(model.labels_))
    np.testing.assert_array_equal(counts, expected.clip(max=40))
    place = int(expected.argmax())
    first = int(counts[:place].sum())
    own = numbers(data["events"]["values"])[first : first + counts[place]]
    low, high = data["events"]["low"], data["events"]["high"]
    np.testing.assert_allclose(
        low + (high - low) * own / STEPS, events.residuals[events.entity == place], atol=(high - low) / STEPS
    )
    axis = drawn_axes(model, events)[0].axis
    at = numbers(data["events"]["at"][0])[first : first + counts[place]] / STEPS
    np.testing.assert_allclose(at, axis.fractions(axis.places(events.X))[events.entity == place], atol=1e-4)


def test_many_events_of_one_entity_are_thinned(rng):
    X = rng.normal(size=(400, 1))
    y = X[:, 0] + rng.normal(size=400)
    entity = np.repeat(["a", "b"], [300, 100])
    model = HLCRRegressor(n_sweeps=10, n_clusters=1).fit(X, y, entity=entity)
    _, data = explored(model, HeldOut(X, y, None, entity))
    assert numbers(data["events"]["counts"]).tolist() == [40, 40]
    assert data["agents"] is None


def test_neighbours_are_the_nearest_regressions(model):
    points = coordinates(model)
    # the level at average features, then the change per standard deviation
    means, spreads = model.feature_means_, model.feature_spreads_
    np.testing.assert_allclose(points[:, 0], model.entity_intercept_ + model.entity_coef_ @ means)
    np.testing.assert_allclose(points[:, 1:4], model.entity_coef_ * spreads)
    _, data = explored(model)
    found = numbers(data["neighbours"]).reshape(len(points), N_NEIGHBOURS)
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    np.fill_diagonal(distance, np.inf)
    assert (found != np.arange(len(points))[:, None]).all()
    np.testing.assert_allclose(
        np.take_along_axis(distance, found, axis=1), np.sort(distance, axis=1)[:, :N_NEIGHBOURS], atol=1e-9
    )


def test_equal_points_are_not_their_own_neighbours():
    found = nearest(np.zeros((9, 2)), 5)
    assert found.shape == (9, 5)
    assert (found != np.arange(9)[:, None]).all()
    assert all(len(set(row)) == 5 for row in found.tolist())
    assert nearest(np.zeros((1, 2)), 5).shape == (1, 0)
    assert nearest(np.array([[0.0], [1.0], [5.0]]), 5).tolist() == [[1, 2], [0, 2], [1, 0]]


def test_agents_have_their_shares_errors_and_likes(split):
    train, test = split
    model = fitted(train)
    findings = Findings(model)
    events = drawn_events(model, held_out(test))
    data = unpacked(explorer_section(model, findings, None, events)["data"])["agents"]
    for row, own in zip(findings.agents.weights, shares(data["shares"]), strict=True):
        assert all(share == pytest.approx(row[k], abs=1e-4) for k, share in own.items())
    error = np.sqrt((events.residuals[events.agent == 3] ** 2).mean())
    assert float(data["errors"]["own"][3]) == pytest.approx(error, rel=5e-3)
    assert float(data["errors"]["all"]) == pytest.approx(np.sqrt((events.residuals**2).mean()), rel=5e-3)
    weights = findings.agents.weights
    found = numbers(data["neighbours"]).reshape(len(weights), N_NEIGHBOURS)
    distance = np.sqrt(((weights[:, None] - weights[None]) ** 2).sum(axis=2))
    np.fill_diagonal(distance, np.inf)
    np.testing.assert_allclose(
        np.take_along_axis(distance, found, axis=1), np.sort(distance, axis=1)[:, :N_NEIGHBOURS], atol=1e-9
    )


def test_the_first_entity_has_the_most_events(model):
    findings = Findings(model)
    data = unpacked(explorer_section(model, findings, None, None)["data"])
    assert findings.entities.n_events[data["first"]] == findings.entities.n_events.max()


def test_public_models_have_no_explorer(model):
    other = public(model)
    assert explorer_section(other, Findings(other), None, None) is None
    assert "explorer" not in Page(render_report(other)).data


def test_hostile_names_stay_data(split):
    train = split[0]
    agent = np.array([f"{HOSTILE}\u202e{agent}" for agent in train.agent], dtype=object)
    entity = np.array([f"<i>{entity}" + "long" * 100 for entity in train.entity], dtype=object)
    model = HLCRRegressor(n_sweeps=10).fit(train.X, train.y, agent=agent, entity=entity)
    html = render_report(model)
    start = html.index('id="data-explorer"')
    assert "<" not in html[start : html.index("</script>", start)].replace(">", "", 1)
    assert Page(html).data["explorer"]["target"]["name"] == "the target"


@pytest.mark.slow
@pytest.mark.ci
def test_pages_of_many_entities_stay_small():
    table, _ = make_hlcr(5000, 8, 10, 3, 6, 0.3, random_state=3)
    train, test = (table[rows] for rows in hold_out_events(table.agent, table.entity))
    model = HLCRRegressor(n_sweeps=6).fit(train.X, train.y, agent=train.agent, entity=train.entity)
    html = render_report(model, held_out(test), events=held_out(train))
    assert len(html.encode()) < 3_000_000
    data = Page(html).data["explorer"]
    rows = numbers(data["detailed"])
    assert 1_000 < len(rows) < len(model.labels_)
    assert (np.diff(rows) > 0).all()
    findings = Findings(model)
    # the largest and the least certain are among them, and others from everywhere
    assert np.isin(np.argsort(-findings.entities.n_events, kind="stable")[:300], rows).all()
    assert np.isin(np.argsort(findings.entities.certainty, kind="stable")[:300], rows).all()
    assert np.histogram(rows, bins=20, range=(0, len(model.labels_)))[0].min() > 20
    assert len(shares(data["shares"])) == len(model.labels_)
    assert f"{len(rows):,} of {len(model.labels_):,} entities have a line of their own" in Page(html).text
    found = lines(data, "entities")[5, :, 0]
    agent, entity = model.pair_ids_[rows[5]]
    others = train.X[(train.agent == agent) & (train.entity == entity)].mean(axis=0)
    axes = drawn_axes(model, drawn_events(model, held_out(train)))
    X = np.concatenate([features_along(model, axis.axis, axis.places, others) for axis in axes])
    expected = model.predict(X[: len(found)], agent=[agent] * len(found), entity=[entity] * len(found))
    np.testing.assert_allclose(found, expected, atol=1e-3)
