"""Coefficients have visible intervals, scales of their own, and numbers."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex

import fedhlcr
from fedhlcr import HLCRRegressor, plot
from fedhlcr.analysis.effects import coef_intervals
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import ArgumentError
from fedhlcr.figures.figure import spread_out
from fedhlcr.figures.palette import PALETTE, cluster_style, ink_on
from tests.responses import classifier, counter


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def ten():
    """Ten clusters, more than there are colours."""
    table, _ = make_hlcr(40, 5, 8, 3, 10, 0.3, random_state=2)
    model = HLCRRegressor(10, n_sweeps=60, n_threads=1)
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


def bars(ax):
    """Both ends of the intervals of each cluster."""
    return [np.array(c.get_segments())[:, :, 0] for c in ax.collections if isinstance(c, LineCollection)]


def points(ax):
    return {int(line.get_label()): line for line in ax.lines if line.get_label().isdigit()}


@pytest.mark.parametrize("fitted", [classifier, counter, None], ids=["classes", "counts", "real numbers"])
def test_bars_are_the_intervals_of_the_coefficients(fitted, ten):
    model = ten if fitted is None else fitted()
    ax = plot.coefficients(model, per="unit", level=0.8)
    expected = np.stack(coef_intervals(model, 0.8), axis=2)
    np.testing.assert_allclose(bars(ax), expected)
    caps = [line.get_xdata() for line in ax.lines if line.get_label() == "_end"]
    np.testing.assert_allclose(np.array(caps).reshape(model.n_clusters_, 2, -1).transpose(0, 2, 1), expected)


def test_each_feature_can_have_a_scale_of_its_own(ten):
    panels = plot.coefficients(ten, scale="own", level=0.8, target="weight in kg")
    lower, upper = coef_intervals(ten, 0.8)
    for f, ax in enumerate(panels):
        means = points(ax)
        spread = ten.feature_spreads_[f]
        for cluster in range(10):
            assert means[cluster].get_xdata() == pytest.approx([ten.coef_[cluster, f] * spread])
        np.testing.assert_allclose(np.concatenate(bars(ax)), np.stack([lower[:, f], upper[:, f]], axis=1) * spread)
        assert [text.get_text() for text in ax.get_yticklabels()] == [str(k) for k in range(10)]
    assert len({ax.get_xlim() for ax in panels}) == 3
    assert "weight in kg" in panels[0].figure.get_supxlabel()
    given = plt.subplots(1, 3)[1]
    assert (plot.coefficients(ten, scale="own", ax=given) == given).all()
    with pytest.raises(ArgumentError, match="`scale` must be 'common' or 'own', but is 'free'"):
        plot.coefficients(ten, scale="free")


def test_more_than_eight_clusters_differ_by_marker_line_and_number(ten):
    ax = plot.coefficients(ten)
    shown = points(ax)
    assert len(shown) == 10
    looks = {(to_hex(line.get_color()), line.get_marker()) for line in shown.values()}
    assert len(looks) == 10
    numbers = [text.get_text() for text in ax.texts]
    assert sorted(numbers, key=int) == [str(k) for k in range(10) for _ in range(3)]
    assert len({cluster_style(k) for k in range(32)}) == 32


def test_a_cluster_keeps_its_colour_whichever_others_are_shown(ten):
    for draw in (plot.coefficients, lambda m, clusters: plot.effects(m, 0, clusters=clusters)):
        line = points(draw(ten, clusters=[3, 1]))[3]
        assert to_hex(line.get_color()) == PALETTE[3].lower()
    weights = plot.cluster_weights(ten)
    assert [to_hex(bar.get_facecolor()) for bar in weights.patches] == [PALETTE[k % 8].lower() for k in range(10)]


def test_colours_are_those_of_the_report():
    css = (Path(fedhlcr.__file__).parent / "report" / "templates" / "report.css").read_text()
    light = dict(reversed(re.findall(r"--k([0-7]): (#[0-9a-f]{6})", css)))
    assert [light[str(k)] for k in range(8)] == [color.lower() for color in PALETTE]


def test_numbers_at_lines_are_moved_apart():
    moved = spread_out(np.array([0.1, 0.5, 0.5, 0.52, 1.0]), 0.1)
    assert (np.diff(moved) >= 0.1 - 1e-12).all()
    assert moved[0] == pytest.approx(0.1)
    assert moved[1:4].mean() == pytest.approx(np.mean([0.5, 0.5, 0.52]))
    assert moved[-1] == pytest.approx(1.0)
    np.testing.assert_allclose(spread_out(np.array([0.2, 0.8]), 0.1), [0.2, 0.8])


def test_text_on_a_colour_can_be_read():
    assert ink_on("#000000") == "white"
    assert ink_on("#ffffff") == "black"
    assert ink_on(PALETTE[1]) == "black"


def test_unknown_features_name_the_closest(ten):
    with pytest.raises(ArgumentError, match=r"'X1' is not a feature; did you mean 'x1'\?$"):
        plot.coefficients(ten, features=["X1"])
    with pytest.raises(ArgumentError, match=r"but is 'X1'; did you mean 'x1'\?$"):
        plot.effects(ten, "X1")
