"""The plot of curves."""

from __future__ import annotations

import numpy as np
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
        expected = model.curve(1, cluster, level=0.8)
        np.testing.assert_array_equal(line.get_xdata(), expected.x)
        np.testing.assert_array_equal(line.get_ydata(), expected.effect)
    assert ax.get_xlabel() == "x1"


def test_bands_can_be_left_out_and_features_chosen(model):
    ax = plot.curves(model, "x0", level=None, clusters=[1], x=[-1.0, 0.0, 1.0])
    assert len(ax.collections) == 0
    line = next(line for line in ax.lines if line.get_label() == "1")
    np.testing.assert_allclose(np.diff(line.get_ydata(), 2), 0.0, atol=1e-12)


def test_unknown_features_are_refused(model):
    with pytest.raises(ArgumentError, match="`feature` refers to 'size', but the features are 'x0', 'x1' and 'x2'"):
        plot.curves(model, "size")
