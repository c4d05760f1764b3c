"""Lines along an axis, of formulas with products: factors take their products along."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr.analysis.axes import feature_axes
from fedhlcr.analysis.axis_lines import axis_line, axis_strengths, entity_line
from fedhlcr.data.terms import product_features
from fedhlcr.report.entity_lines import DrawnAxis, entity_lines

LEVELS, SLOPES = np.array([0.0, 1.0, -1.0]), np.array([1.0, 2.0, -0.5])


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(8)
    n = 1200
    brand, price = rng.choice(3, n, p=[0.5, 0.3, 0.2]), rng.normal(4.0, 1.0, n)
    sales = LEVELS[brand] + SLOPES[brand] * price + rng.normal(0.0, 0.3, n)
    table = pd.DataFrame({"item": rng.integers(0, 20, n), "price": price, "brand": np.array(list("abc"))[brand]})
    formula = "sales ~ price*C(brand) | item"
    return HLCRRegressor.from_formula(formula, n_clusters=1, effects="none", n_sweeps=60).fit(table.assign(sales=sales))


def axis(model, name):
    return next(own for own in feature_axes(model) if own.name == name)


def test_products_name_their_factors():
    categorical = {"brand": ["a", "b", "c"], "size": ["s", "l"]}
    terms = [(), ("price",), ("brand",), ("size",), ("price", "brand"), ("brand", "size"), ("price", "log(age)")]
    # price, three brands, size=l, three products with price, three with size; log(age) is no feature of its own
    expected = [(5, {0, 1}), (6, {0, 2}), (7, {0, 3}), (8, {1, 4}), (9, {2, 4}), (10, {3, 4})]
    assert [(place, set(factors)) for place, factors in product_features(terms, categorical)] == expected


@pytest.mark.parametrize("of_entity", [False, True])
def test_the_line_of_a_number_has_the_mean_slope(model, of_entity):
    shares = model.feature_means_[[list(model.feature_names_in_).index(f"brand={level}") for level in "abc"]]
    line = (entity_line if of_entity else axis_line)(model, axis(model, "price"), 0)
    slope = (line.mean[-1] - line.mean[0]) / (line.places[-1] - line.places[0])
    if of_entity:
        assert slope == pytest.approx(SLOPES @ shares, abs=0.5), "with the shares of the entity's own brands"
    else:
        assert slope == pytest.approx(model.coef_[0, list(model.feature_names_in_).index("price")], abs=1e-9)
        assert slope == pytest.approx(SLOPES @ shares, abs=0.05)
    assert (line.upper - line.lower).max() < 0.2, "as the data determine it, not the prior"


def test_the_line_of_a_category_is_at_the_mean_of_numbers(model):
    line = axis_line(model, axis(model, "brand"), 0)
    np.testing.assert_allclose(line.mean, LEVELS + SLOPES * 4.0, atol=0.15)
    assert (line.upper - line.lower).max() < 0.2


def test_the_report_draws_the_same_line_of_an_entity(model):
    price = axis(model, "price")
    drawn = DrawnAxis(price, price.grid())
    found = entity_lines(model, [drawn], np.array([3]))[0][0]
    expected = entity_line(model, drawn.axis, 3, drawn.places)
    np.testing.assert_allclose(found[:, :3], np.column_stack([expected.mean, expected.lower, expected.upper]))


def test_products_are_told_by_their_factors(model):
    strengths = axis_strengths(model, feature_axes(model))[0]
    names = [own.name for own in feature_axes(model)]
    assert [name for name, size in zip(names, strengths, strict=True) if size == 0.0] == [n for n in names if ":" in n]
    # asked for by name, a product's line is as the data determine it, not the prior
    line = axis_line(model, axis(model, "price:brand=c"), 0)
    assert (line.upper - line.lower).max() < 1.0
