"""Coefficients of a category with three or more levels are deviations from the average event, which data determine."""

from __future__ import annotations

import narwhals as nw
import numpy as np
import pandas as pd
import pytest

import fedhlcr
from fedhlcr import HLCRRegressor
from fedhlcr.posterior.user_units import coef_transform

LEVELS = np.array([0.0, 2.0, -1.0])


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(4)
    n = 900
    brand = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    price = rng.normal(5.0, 1.0, n)
    sales = 10.0 + LEVELS[brand] - 2.0 * price + rng.normal(0.0, 0.5, n)
    names = pd.Categorical.from_codes(brand, ["a", "b", "c"])
    return pd.DataFrame(
        {"shop": rng.integers(0, 30, n), "item": rng.integers(0, 3, n), "price": price, "brand": names, "sales": sales}
    )


def fitted(table, **params):
    params = {"n_clusters": 1, "n_sweeps": 200, "random_state": 1, **params}
    return HLCRRegressor(**params).fit(table, "sales", agent="shop", entity="item")


def by_formula(*args, **params):
    pytest.importorskip("formulaic", reason="the extra formula is not installed")
    return HLCRRegressor.from_formula(*args, **params)


@pytest.fixture(scope="module")
def plain(table):
    return fitted(table, effects="none")


@pytest.fixture(scope="module")
def with_effects(table):
    return fitted(table, effects="entity")


def encoded(table):
    return np.column_stack([table["price"], pd.get_dummies(table["brand"]).to_numpy(float)])


def regression(table):
    """Least squares with the level of the average event as the intercept: estimates and standard errors."""
    X = encoded(table)
    shares = X[:, 1:].mean(axis=0)
    # (price, two free deviations): those of the last level follow from a mean of zero
    free = np.vstack([np.eye(2), -shares[:2] / shares[2]])
    design = np.column_stack([np.ones(len(X)), X[:, 0], X[:, 1:] @ free])
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ design.T @ table["sales"].to_numpy()
    noise = ((table["sales"] - design @ found) ** 2).sum() / (len(X) - 4)
    back = np.zeros((5, 4))
    back[:2, :2], back[2:, 2:] = np.eye(2), free
    return back @ found, np.sqrt(noise * np.diag(back @ inverse @ back.T))


def test_estimates_and_deviations_are_those_of_least_squares(plain, table):
    expected, errors = regression(table)
    found = plain.coef_table()
    assert list(found["feature"]) == ["intercept", "price", "brand=a", "brand=b", "brand=c"]
    np.testing.assert_array_less(np.abs(found["mean"] - expected), 0.5 * errors)
    np.testing.assert_allclose(found["std"], errors, rtol=0.25)
    assert found["is_clear"].all()


def test_coefficients_have_a_mean_of_zero_over_the_events(plain, table):
    shares = encoded(table)[:, 1:].mean(axis=0)
    np.testing.assert_allclose(plain.coef_[:, 1:] @ shares, 0.0, atol=1e-12)


@pytest.mark.parametrize("name", ["plain", "with_effects"])
def test_intercept_and_coefficients_of_entities_add_up_to_predictions(name, table, request):
    model = request.getfixturevalue(name)
    place = {pair: n for n, pair in enumerate(model.pair_ids_)}
    rows = [place[pair] for pair in zip(table["shop"], table["item"], strict=True)]
    linear = model.entity_intercept_[rows] + (model.entity_coef_[rows] * encoded(table)).sum(axis=1)
    np.testing.assert_allclose(linear, model.predict(table), rtol=1e-9)


def test_entities_have_no_wider_intervals_than_the_data_leave(with_effects):
    found = with_effects.entity_table()
    assert (found["brand=a_upper"] - found["brand=a_lower"]).median() < 1.0
    assert (found["intercept_std"] < 1.0).all()
    np.testing.assert_allclose(found["brand=b"], with_effects.entity_coef_[:, 2])
    inside = (found["brand=b_lower"] <= found["brand=b"]) & (found["brand=b"] <= found["brand=b_upper"])
    assert inside.all()


def test_deviations_from_the_cluster_add_up(with_effects):
    """Of the slopes; the level is a prediction at average features."""
    apart = with_effects.entity_coef_ - with_effects.coef_[0]
    np.testing.assert_allclose(with_effects.entity_effects_[:, 1:], apart, atol=1e-9)


def test_a_loaded_model_has_the_same_coefficients(plain, tmp_path):
    plain.save(tmp_path / "model.fedhlcr")
    loaded = fedhlcr.load(tmp_path / "model.fedhlcr")
    np.testing.assert_array_equal(loaded.coef_, plain.coef_)
    np.testing.assert_array_equal(loaded.intercept_, plain.intercept_)


def test_slopes_of_levels_are_differences_from_the_slope(table):
    model = by_formula(
        "sales ~ price*C(brand) | shop/item", n_clusters=1, n_sweeps=100, effects="none", random_state=1
    ).fit(table)
    names = list(model.feature_names_in_)
    slope, own = names.index("price"), [names.index(f"price:brand={level}") for level in "abc"]
    X = encoded(table)
    shares = X[:, 1:].mean(axis=0)
    assert model.coef_[0, slope] == pytest.approx(-2.0, abs=0.1)
    assert model.coef_[0, own] @ shares == pytest.approx(0.0, abs=1e-12)
    found = model.coef_table().set_index("feature")
    assert found.loc["price", "std"] < 0.05, "not as wide as the prior"
    columns = {f"brand={level}": X[:, 1 + n] for n, level in enumerate("abc")}
    columns |= {f"price:{name}": values * X[:, 0] for name, values in columns.items()} | {"price": X[:, 0]}
    linear = model.intercept_[0] + np.column_stack([columns[name] for name in names]) @ model.coef_[0]
    np.testing.assert_allclose(linear, model.predict(table), rtol=1e-9)
    np.testing.assert_allclose(model.entity_coef_[0], model.coef_[0], rtol=1e-9)
    entities = model.entity_table()
    np.testing.assert_allclose(entities["price_std"], found.loc["price", "std"], rtol=0.05)


def test_two_levels_have_one_coefficient(table):
    two = table.assign(brand=np.where(table["brand"] == "a", "a", "other")).astype({"brand": "category"})
    model = fitted(two, effects="none")
    assert list(model.feature_names_in_) == ["price", "brand=other"]
    others = table["brand"] != "a"
    share = (LEVELS[table["brand"].cat.codes[others]]).mean()
    assert model.coef_[0, 1] == pytest.approx(share, abs=0.3), "a difference from the other level"


def test_without_an_intercept_each_level_keeps_its_own(table):
    model = fitted(table, effects="none", fit_intercept=False)
    np.testing.assert_allclose(model.coef_[0, 1:], 10.0 + LEVELS, atol=1.0)


def test_entities_differ_by_as_much_as_their_effects(with_effects, table):
    """Effects of levels have a mean of zero over the events, as coefficients do; so have their standard deviations."""
    posterior = with_effects.posterior_
    raw = posterior.standardization.coef_transform(posterior.layout, with_effects.feature_means_)
    centred = raw.copy()
    centred[2:] -= encoded(table)[:, 1:].mean(axis=0) @ raw[2:]
    own = posterior.likelihood.differences(posterior.draws.stacked).entity_covariance
    expected = np.sqrt(np.einsum("if,dfg,ig->di", centred, own, centred)).mean(axis=0)
    assert not np.allclose(np.sqrt(np.einsum("if,dfg,ig->di", raw, own, raw)).mean(axis=0), expected, rtol=1e-3)
    np.testing.assert_allclose(with_effects.effect_scales_, expected)


@pytest.fixture(scope="module")
def crossed(table):
    """A table with another category, of three levels in three sizes, and one of two levels."""
    rng = np.random.default_rng(6)
    size, season = rng.choice(3, len(table), p=[0.5, 0.3, 0.2]), rng.choice(2, len(table))
    pairs = rng.normal(size=(3, 3))[table["brand"].cat.codes, size] + rng.normal(size=(3, 2))[size, season]
    names = {"size": pd.Categorical.from_codes(size, ["s", "m", "l"]), "season": np.array(["cold", "warm"])[season]}
    return table.assign(**names, sales=table["sales"] + pairs)


@pytest.mark.parametrize(
    ("terms", "feature"),
    [
        ("C(brand)*C(season)", "brand=a:season=warm"),
        ("C(brand)*C(size)", "brand=a:size=m"),
        ("C(brand):C(size)", "brand=a:size=m"),
        ("C(brand) + C(brand):C(size)", "brand=a:size=m"),
        ("0 + C(brand) + C(size)", "brand=a"),
        ("price:C(brand) + price + C(brand)", "price:brand=a"),
        ("price*C(brand)*C(size)", "price:brand=a:size=m"),
    ],
)
def test_data_determine_coefficients_of_products(terms, feature, crossed):
    """A change of the model's coefficients that changes no prediction changes no coefficient that is reported."""
    model = by_formula(
        f"sales ~ {terms} + price | shop/item", n_clusters=1, n_sweeps=60, effects="none", random_state=1
    ).fit(crossed)
    assert feature in model.feature_names_in_
    X = model.recipe_.encode_features(nw.from_native(crossed), "refuse").table.matrix
    np.testing.assert_allclose(model.intercept_[0] + X @ model.coef_[0], model.predict(crossed), rtol=1e-9)
    posterior = model.posterior_
    design = np.array([posterior.standardization.coef_transform(posterior.layout, row)[0] for row in X[:300]])
    _, sizes, directions = np.linalg.svd(design)
    unseen = directions[sizes < 1e-9 * sizes[0]]
    assert len(unseen), "there is more than one way to write the same predictions"
    np.testing.assert_allclose(coef_transform(model, np.zeros(X.shape[1])) @ unseen.T, 0.0, atol=1e-9)


def test_slopes_are_weighted_by_events_wherever_the_category_stands(table):
    model = by_formula(
        "sales ~ price + price:C(brand) + C(brand) | shop/item", n_clusters=1, n_sweeps=60, effects="none"
    ).fit(table)
    own = [list(model.feature_names_in_).index(f"price:brand={level}") for level in "abc"]
    assert model.coef_[0, own] @ encoded(table)[:, 1:].mean(axis=0) == pytest.approx(0.0, abs=1e-12)


def test_products_that_never_occur_leave_the_others_determined(crossed):
    table = crossed[(crossed["brand"] != "a") | (crossed["size"] != "l")]
    model = by_formula("sales ~ C(brand)*C(size) + price | shop/item", n_clusters=1, n_sweeps=100, effects="none").fit(
        table
    )
    found = model.coef_table().set_index("feature")["std"]
    assert found["brand=a:size=l"] > 0.5, "only the prior knows it"
    assert found[["size=l", "brand=b:size=l", "brand=c:size=l"]].max() < 0.2


def test_levels_that_never_meet_leave_nothing_to_the_prior():
    """What no prediction depends on does not move any coefficient of a combination that occurs."""
    rng = np.random.default_rng(9)
    a, b = rng.integers(0, 3, (2, 600))
    a[(a == 2) & (b == 2)] = 0
    frame = pd.DataFrame({"item": np.arange(600) % 20, "a": np.array(list("uvw"))[a], "b": np.array(list("xyz"))[b]})
    model = by_formula("y ~ C(a)*C(b) | item", n_clusters=1, n_sweeps=60, effects="none")
    model.fit(frame.assign(y=a - b + rng.normal(0.0, 0.3, 600)))
    found = model.coef_table().set_index("feature").drop(index="a=w:b=z")
    assert found["std"].max() < 0.1
    names = list(model.feature_names_in_)
    one = {f"a={level}": frame["a"] == level for level in "uvw"} | {
        f"b={level}": frame["b"] == level for level in "xyz"
    }
    X = np.column_stack([np.prod([one[part] for part in name.split(":")], axis=0) for name in names])
    linear = model.intercept_[0] + X @ model.coef_[0]
    np.testing.assert_allclose(linear, model.predict(frame), rtol=1e-9, atol=1e-9)
