"""The plot of curves."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from fedhlcr import HLCRRegressor, plot
from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import ArgumentError


@pytest.fixture(scope="module")
def model():
    table, _ = make_hlcr(20, 4, 6, 3, 2, 0.3, random_state=4)
    fitted = HLCRRegressor(2, curves=[1], n_sweeps=20, n_draws=5)
    return fitted.fit(table.X, table.y + table.X[:, 1] ** 2, agent=table.agent, entity=table.entity)


def test_lines_and_bands_are_those_of_the_model(model):
    ax = plot.curves(model, level=0.8)
    lines = [line for line in ax.lines if line.get_label() in ("0", "1")]
    assert len(lines) == len(ax.collections) == 2
    for cluster, line in enumerate(lines):
        expected = model.curve(1, cluster, line.get_xdata(), level=0.8)
        np.testing.assert_allclose(line.get_ydata(), expected.effect, atol=1e-12)
        ends = [own for own in ax.lines if own.get_label() == "_end"][2 * cluster : 2 * cluster + 2]
        np.testing.assert_allclose([own.get_ydata() for own in ends], [expected.lower, expected.upper], atol=1e-12)
    assert ax.get_xlabel() == "x1"


def test_bands_can_be_left_out_and_features_chosen(model):
    ax = plot.curves(model, "x0", level=None, clusters=[1], x=[-1.0, 0.0, 1.0])
    assert len(ax.collections) == 0
    line = next(line for line in ax.lines if line.get_label() == "1")
    np.testing.assert_allclose(np.diff(line.get_ydata(), 2), 0.0, atol=1e-12)


def test_unknown_features_are_refused(model):
    with pytest.raises(ArgumentError, match="`feature` must be 'x0', 'x1' or 'x2', or a position from 0 to 2"):
        plot.curves(model, "size")


def test_all_features_with_curves_have_a_panel_in_the_readers_units():
    table, _ = make_hlcr(20, 4, 6, 3, 2, 0.3, random_state=4)
    frame = pd.DataFrame(table.X, columns=["age", "log_income", "dose"])
    fitted = HLCRRegressor(2, curves=["age", "log_income"], n_sweeps=20, n_draws=5)
    fitted.fit(frame, table.y + table.X[:, 1] ** 2, agent=table.agent, entity=table.entity)
    panels = plot.curves(fitted)
    assert [ax.get_xlabel() for ax in panels] == ["age", "income"]
    line = next(line for line in panels[1].lines if line.get_label() == "1")
    expected = fitted.curve("log_income", 1, np.log(line.get_xdata()))
    np.testing.assert_allclose(line.get_ydata(), expected.effect, atol=1e-12)
    with pytest.raises(ArgumentError, match="`x` needs one feature"):
        plot.curves(fitted, x=[1.0])
    given = plt.subplots(1, 2)[1]
    assert (plot.curves(fitted, ax=given) == given).all()
    with pytest.raises(ArgumentError, match="`ax` has 1 Axes, but 2 are drawn"):
        plot.curves(fitted, ax=given[0])
    plt.close("all")
