"""The section of the report on how entities of one cluster differ."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr.cli.descriptions import model_facts
from fedhlcr.report import render_report
from tests.reports import Page, fitted, public


@pytest.fixture(scope="module")
def differing():
    """A table of one cluster whose entities differ in level, slope and noise."""
    rng = np.random.default_rng(8)
    entity = np.repeat(np.arange(60), 10)
    X = rng.normal(size=(len(entity), 2)) + 5.0
    noise = np.exp(0.6 * rng.normal(size=60))[entity]
    y = 2.0 * rng.normal(size=60)[entity] + X[:, 0] * (1.0 + rng.normal(size=60)[entity])
    return X, y + noise * rng.normal(size=len(entity)), entity // 6, entity


def fit(table, **parameters):
    X, y, agent, entity = table
    return HLCRRegressor(n_clusters=1, n_sweeps=60, **parameters).fit(X, y, agent=agent, entity=entity)


def section(html):
    return Page(html[html.index('<section id="differences"') : html.index('<section id="agents"')]).text


def test_report_says_how_entities_differ(differing):
    model = fit(differing, effects="entity+agent")
    page = render_report(model)
    text = section(page)
    assert "Entities are alike, not equal: each has its own regression around the common one." in text
    assert "Of the effects, that of x0 differs most" in text
    assert "between agents" in text
    assert "Some entities are noisier than others" in text
    assert f"{model.effect_scales_[0]:.3g}" in text
    columns = Page(page).columns("entities")
    np.testing.assert_allclose(columns["noise"], model.entity_noise_, rtol=1e-2)


def test_scatter_is_around_the_regression_of_the_entity(differing):
    X, y, agent, entity = differing
    model = fit(differing, effects="entity")
    residual = y - model.predict(X, agent=agent, entity=entity)
    own = np.sqrt(np.bincount(entity, residual**2) / 10)
    order = [model.pair_ids_.index((e // 6, e)) for e in range(60)]
    scatter = np.array(Page(render_report(model)).columns("entities")["scatter"])
    np.testing.assert_allclose(scatter[order], own, rtol=0.02)


def test_report_names_the_paper_model(split):
    text = section(render_report(fitted(split[0], effects="none", noise="common")))
    assert "This is the model of the paper" in text
    assert "alike, not equal" not in text


def test_report_of_noise_alone_and_of_common_noise(differing):
    text = section(render_report(fit(differing, effects="none")))
    assert "no differences between the regressions of entities." in text
    text = section(render_report(fit(differing, effects="entity", noise="common")))
    assert "The noise is the same for all entities" in text


def test_student_noise_has_one_scale_in_summary_and_report(differing):
    model = fit(differing, noise="student")
    scale, level = f"{model.noise_scale_:.3g}", f"{model.posterior_.noise_level():.3g}"
    assert scale != level
    tails = f"Student-t with {model.noise_shape_:.3g} degrees of freedom, so its standard deviation is {level}"
    assert tails in dict(model.summary().facts)["noise scale"]
    html = render_report(model)
    assert f"Its scale is {scale}; {tails}." in section(html)
    assert "noise scale" not in Page(html).text
    assert "standard deviation of the noise, in units of" in Page(html).text
    assert model_facts(model)["noise_shape"] == model.noise_shape_


def test_public_models_say_the_same(differing):
    model = fit(differing, effects="entity")
    html = render_report(public(model))
    assert "Entities are alike, not equal" in Page(html).text
