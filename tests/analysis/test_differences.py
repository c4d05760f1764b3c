"""How much entities of one cluster differ: scales in the user's units, and lines of a summary."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedhlcr import HLCRRegressor
from fedhlcr.analysis.effects import entity_differences
from fedhlcr.analysis.words import scales_in_words
from fedhlcr.model.arguments import Differences
from tests.reports import public

LEVEL, SLOPE = 3.0, 0.5


@pytest.fixture(scope="module")
def table():
    """One cluster. The level at the mean of `speed` and the slope of `speed` differ between entities; `colour` is a
    number that each entity has, so it has no slope of its own.
    """
    rng = np.random.default_rng(3)
    entity = np.repeat(np.arange(120), 12)
    frame = pd.DataFrame({"speed": 100.0 + 20.0 * rng.normal(size=len(entity)), "colour": rng.normal(size=120)[entity]})
    effects = rng.normal(size=(120, 2)) * [LEVEL, SLOPE]
    noise = np.exp(0.5 * rng.normal(size=120))
    y = 7.0 + effects[entity, 0] + (frame["speed"] - 100.0) * (2.0 + effects[entity, 1]) + frame["colour"]
    return frame, (y + noise[entity] * rng.normal(size=len(entity))).to_numpy(), entity // 10, entity


def fit(table, **parameters):
    X, y, agent, entity = table
    return HLCRRegressor(n_clusters=1, n_sweeps=100, **parameters).fit(X, y, agent=agent, entity=entity)


@pytest.fixture(scope="module")
def model(table):
    return fit(table, effects="entity")


def facts(model):
    return {name: str(value) for name, value in model.summary().facts}


def test_scales_are_those_of_the_effects(model):
    level, speed, colour = model.effect_scales_
    assert level == pytest.approx(LEVEL, rel=0.25)
    assert speed == pytest.approx(SLOPE, rel=0.25)
    assert colour == 0.0
    np.testing.assert_array_equal(model.agent_effect_scales_, np.zeros(3))
    # the effects themselves are shrunken a little
    np.testing.assert_allclose(model.entity_effects_[:, :2].std(axis=0), [level, speed], rtol=0.2)


def test_summary_says_how_entities_differ(model):
    lines = facts(model)
    assert lines["entities differ"].startswith("level ")
    assert lines["entities differ"].endswith("(standard deviations); no effects on the slope of colour")
    assert "agents differ" not in lines
    assert "for 80 % of the entities" in lines["noise scale"]
    assert "model" not in lines
    # nothing of this is private
    assert {**facts(public(model)), "data": ""} == {**lines, "data": ""}


def test_paper_model_is_named(table):
    lines = facts(fit(table, effects="none", noise="common"))
    assert lines["model"] == "the paper's: entities of one cluster are equal, and all have the same noise"
    assert "entities differ" not in lines
    assert lines["noise scale"].endswith("in units of the target")


def test_noise_alone_may_differ(table):
    model = fit(table, effects="none")
    assert facts(model)["entities differ"] == "no effects beyond their clusters"
    assert not model.effect_scales_.any()
    assert entity_differences(model).noise_range is not None


def test_range_of_the_noise_is_that_of_the_law():
    found = Differences(np.zeros((2, 1, 1)), np.zeros((2, 1, 1)), np.array([2.0, 2.0]), np.array([8.0, 8.0]))
    law = stats.invgamma(4.0, scale=4.0 * 2.0**2)
    for level in (0.1, 0.9):
        assert found.noise_quantile(level) == pytest.approx(np.sqrt(law.ppf(level)))
    same = found._replace(noise_shape=np.full(2, np.inf))
    assert same.noise_quantile(0.9) == 2.0
    assert not same.noise_differs


def words(scales, names, spreads=None):
    scales = np.array(scales)
    size = scales if spreads is None else scales * np.array(spreads)
    return scales_in_words(scales, scales > 0.0, size, list(names), "standard deviations")


def test_words_name_the_strongest_first_and_count_the_rest():
    assert words([0.0, 1.0, 2.0], "ab", [1.0, 5.0, 1.0]) == (
        "slopes: a 1 and b 2 (standard deviations); no effects on the level"
    )
    assert words([0.5, 0.0, 0.0], "ab") == "level 0.5 (standard deviations); no effects on slopes"
    many = words([1.0, *([2.0] * 8)], "abcdefgh")
    assert "slopes: a 2, b 2, c 2, d 2, e 2 and 3 more" in many
    # braces in a name are nothing special
    assert "{x} 2" in words([1.0, 2.0], ["{x}"])
