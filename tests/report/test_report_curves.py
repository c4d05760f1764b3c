"""The report of a model with curves."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr.report import HeldOut, render_report


@pytest.fixture(scope="module")
def bent(split):
    train, test = split
    model = HLCRRegressor(3, curves=[0, 2], n_sweeps=20, n_draws=5)
    bends = train.y + 2.0 * (train.X[:, [0, 2]] ** 2).sum(axis=1)
    return model.fit(train.X, bends, agent=train.agent, entity=train.entity), test


def panels(page, axis):
    """The pictures of an axis: their bands and lines, as arrays of points."""
    group = page[page.index(f'aria-label="the target over {axis}"') :]
    group = group[: group.find('class="axis-group', 10)] if 'class="axis-group' in group[10:] else group

    def points(kind):
        return [
            np.array([point.split() for point in path.rstrip("Z").split("L")], dtype=float)
            for path in re.findall(rf'class="{kind} [^"]*" d="M([^"]*)"', group)
        ]

    return points("band"), points("line")


def test_every_curve_is_drawn_with_a_band(bent):
    model, test = bent
    page = render_report(model, HeldOut(test.X, test.y, test.agent, test.entity))
    for axis in ("x0", "x2"):
        _, lines = panels(page, axis)
        assert len(lines) == 3
        # a curve is no straight line
        assert max(np.abs(np.diff(line[:, 1], 2)).max() for line in lines) > 0.05


def test_bands_enclose_their_lines(bent):
    model, _ = bent
    bands, lines = panels(render_report(model), "x0")
    assert bands
    for band, line in zip(bands, lines, strict=False):
        upper, lower = band[: len(line), 1], band[len(line) :][::-1, 1]
        assert (upper <= line[:, 1] + 0.1).all()
        assert (line[:, 1] <= lower + 0.1).all()
