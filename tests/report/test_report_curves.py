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
    return model.fit(train.X, train.y, agent=train.agent, entity=train.entity), test


def test_every_curve_has_a_chart_with_bands(bent):
    model, test = bent
    page = render_report(model, HeldOut(test.X, test.y, test.agent, test.entity))
    section = page[page.index("<h3>Curves</h3>") : page.index('<section id="agents"')]
    assert re.findall(r"<figcaption>(\w+)", section) == ["x0", "x2"]
    assert section.count('class="band') == section.count('class="line') == 2 * 3


def test_bands_enclose_their_lines(bent):
    model, _ = bent
    page = render_report(model)
    section = page[page.index("<h3>Curves</h3>") :]
    band, line = (re.search(rf'class="{kind} l0" d="M([^"]*)"', section)[1] for kind in ("band", "line"))
    heights = np.array([float(point.split()[1]) for point in band.rstrip("Z").split("L")])
    middle = np.array([float(point.split()[1]) for point in line.split("L")])
    upper, lower = heights[: len(middle)], heights[len(middle) :][::-1]
    assert (upper <= middle + 0.1).all()
    assert (middle <= lower + 0.1).all()


def test_without_curves_there_is_no_section(model):
    assert "<h3>Curves</h3>" not in render_report(model)
