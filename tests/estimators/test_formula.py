"""Estimators that are told target, features and groups by a formula."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

import fedhlcr
from fedhlcr import HLCRRegressor
from fedhlcr._support.extras import install_command
from fedhlcr.data.recipe import Recipe
from fedhlcr.exceptions import (
    ArgumentError,
    ArgumentTypeError,
    CategoriesWarning,
    CodecError,
    DataError,
    MissingDependencyError,
    MissingValuesError,
    MissingValuesWarning,
    ModelFileError,
)
from fedhlcr.report import render_report
from tests.shops import CASES, CENTRAL, LIBRARIES, NAMES, formula_shop, settings

GROUPS = "store/product"
SHOP = formula_shop()
IDS = {"agent": SHOP["store"].to_numpy(), "entity": SHOP["product"].to_numpy()}
PRICE, SIZE = SHOP["price"].to_numpy(), SHOP["unit size"].to_numpy()
BRANDS = [(SHOP["brand"] == level).to_numpy(float) for level in ("acme", "bolt", "core")]
NO, YES = ((SHOP["promo"] == level).to_numpy(float) for level in ("no", "yes"))
SHELVES = [(SHOP["shelf"] == level).to_numpy(float) for level in (1, 2, 3)]


def fitted(terms: str, frame=SHOP, **more) -> HLCRRegressor:
    return HLCRRegressor.from_formula(f"sales ~ {terms} | {GROUPS}", **CENTRAL, **more).fit(frame)


def assert_same(model, columns, **more) -> None:
    """The model is that of the same columns made by hand."""
    X = np.column_stack(columns)
    by_hand = HLCRRegressor(**CENTRAL, **more).fit(X, SHOP["sales"], **IDS)
    np.testing.assert_array_equal(model.posterior_.draws.coef, by_hand.posterior_.draws.coef)
    np.testing.assert_array_equal(model.predict(SHOP), by_hand.predict(X, **IDS))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("target", "kind"), CASES, ids=NAMES)
def test_formula_is_the_same_as_columns_made_by_hand(target, kind, library):
    frame = LIBRARIES[library](SHOP)
    formula = f"{target} ~ log(price) + C(brand) + promo:`unit size` | {GROUPS}"
    model = kind.from_formula(formula, **settings(kind), categories=["promo"]).fit(frame)
    X = np.column_stack([np.log(PRICE), *BRANDS, NO * SIZE, YES * SIZE])
    by_hand = kind(**settings(kind)).fit(X, SHOP[target].to_numpy(), **IDS)
    np.testing.assert_array_equal(model.posterior_.draws.coef, by_hand.posterior_.draws.coef)
    np.testing.assert_array_equal(model.predict(frame), by_hand.predict(X, **IDS))
    assert float(model.score(frame)) == float(by_hand.score(X, SHOP[target].to_numpy(), **IDS))
    assert list(model.feature_names_in_) == [
        "log(price)",
        *(f"brand={level}" for level in ("acme", "bolt", "core")),
        *(f"promo={level}:unit size" for level in ("no", "yes")),
    ]
    assert (model.agent_column_, model.entity_column_) == ("store", "product")


@pytest.mark.parametrize(
    ("terms", "columns", "names"),
    [
        ("price", [PRICE], ["price"]),
        ("I(price**2) + price", [PRICE**2, PRICE], ["I(price ** 2)", "price"]),
        ("{price / `unit size`}", [PRICE / SIZE], ["price / `unit size`"]),
        ("price*`unit size`", [PRICE, SIZE, PRICE * SIZE], ["price", "unit size", "price:unit size"]),
        ("(price + `unit size`)**2", [PRICE, PRICE * SIZE, SIZE], ["price", "price:unit size", "unit size"]),
        ("log(price):sqrt(price)", [np.log(PRICE) * np.sqrt(PRICE)], ["log(price):sqrt(price)"]),
        # one of two levels, as far as other terms have the other one
        ("C(promo)", [YES], ["promo=yes"]),
        ("C(promo)*price", [YES, PRICE, YES * PRICE], ["promo=yes", "price", "promo=yes:price"]),
        ("C(promo):price", [NO * PRICE, YES * PRICE], ["promo=no:price", "promo=yes:price"]),
        (
            "C(promo):C(shelf) + C(shelf)",
            [*(YES * shelf for shelf in SHELVES), *SHELVES],
            [*(f"promo=yes:shelf={n}" for n in (1, 2, 3)), *(f"shelf={n}" for n in (1, 2, 3))],
        ),
        ("shelf", [SHOP["shelf"].to_numpy()], ["shelf"]),
    ],
)
def test_terms(terms, columns, names):
    model = fitted(terms)
    assert list(model.feature_names_in_) == names
    assert_same(model, columns)


@pytest.mark.parametrize("terms", ["0 + C(promo) + price", "C(promo) + price - 1", "C(promo) + price + 0"])
def test_formula_without_intercept(terms):
    model = fitted(terms)
    assert list(model.feature_names_in_) == ["promo=no", "promo=yes", "price"]
    assert not model.intercept_.any()
    assert_same(model, [NO, YES, PRICE], fit_intercept=False)
    assert_same(fitted("C(promo) + price", fit_intercept=False), [NO, YES, PRICE], fit_intercept=False)


def test_intercept_belongs_to_the_formula_of_the_last_fit():
    model = fitted("0 + price").set_params(formula=f"sales ~ price | {GROUPS}").fit(SHOP)
    assert_same(model, [PRICE])


def test_dot_stands_for_all_other_columns():
    frame = SHOP.drop(columns=["sold", "count"]).assign(weight=1.0)
    model = HLCRRegressor.from_formula(f"sales ~ . - shelf | {GROUPS}", **CENTRAL, categories=["brand", "promo"])
    model.fit(frame, sample_weight="weight")
    assert model.recipe_.features == ("price", "unit size", "brand", "promo")
    assert model.recipe_.terms is None


def test_texts_are_categories_as_in_any_table():
    with pytest.warns(CategoriesWarning, match="'brand'"):
        model = fitted("price + brand")
    assert_same(model, [PRICE, *BRANDS])


def test_entity_alone_means_one_agent():
    model = HLCRRegressor.from_formula("sales ~ price | product", **CENTRAL).fit(SHOP)
    by_hand = HLCRRegressor(**CENTRAL).fit(PRICE[:, None], SHOP["sales"], entity=IDS["entity"])
    np.testing.assert_array_equal(model.coef_, by_hand.coef_)
    assert model.agent_column_ is None


@pytest.mark.parametrize("library", LIBRARIES)
def test_columns_may_be_in_any_order_with_others_among_them(library):
    model = fitted("log(price)*C(brand)")
    shuffled = SHOP[SHOP.columns[::-1]].assign(note="x").drop(columns=["sold", "unit size"])
    frame = LIBRARIES[library](shuffled)
    np.testing.assert_array_equal(model.predict(frame), model.predict(SHOP))
    assert float(model.score(frame)) == float(model.score(SHOP))
    np.testing.assert_array_equal(model.adapt(frame).predict(frame), model.adapt(SHOP).predict(SHOP))
    with pytest.raises(ValueError, match="price"):
        model.predict(LIBRARIES[library](shuffled.drop(columns="price")))


@pytest.mark.parametrize(("target", "kind"), CASES, ids=NAMES)
def test_clone_and_file_keep_the_formula(target, kind, tmp_path):
    formula = f"{target} ~ log(price)*C(brand) - 1 | {GROUPS}"
    model = kind.from_formula(formula, **settings(kind)).fit(SHOP)
    assert clone(model).formula == formula == model.get_params()["formula"]
    np.testing.assert_array_equal(clone(model).fit(SHOP).coef_, model.coef_)
    model.save(tmp_path / "m")
    loaded = fedhlcr.load(tmp_path / "m")
    assert loaded.formula == formula
    assert loaded.recipe_ == model.recipe_
    np.testing.assert_array_equal(loaded.predict(SHOP), model.predict(SHOP))
    np.testing.assert_array_equal(clone(loaded).fit(SHOP).coef_, model.coef_)


def test_scikit_learn_searches_and_scores_without_a_target():
    model = HLCRRegressor.from_formula(f"sales ~ price | {GROUPS}", **CENTRAL)
    formulas = [f"sales ~ {terms} | {GROUPS}" for terms in ("price", "log(price) + C(promo)*`unit size`")]
    search = GridSearchCV(model, {"formula": formulas}, cv=2).fit(SHOP)
    assert search.best_params_ == {"formula": formulas[1]}
    assert len(cross_val_score(model, SHOP, cv=2)) == 2


def test_missing_values_of_columns_are_those_of_their_terms():
    frame = SHOP.copy()
    frame.loc[::20, "price"] = np.nan
    complete = frame["price"].notna().to_numpy()
    with pytest.raises(MissingValuesError, match="'price' 12"):
        fitted("log(price):`unit size`", frame)
    with pytest.warns(MissingValuesWarning, match="12 of 240"):
        dropped = fitted("log(price):`unit size`", frame, missing="drop")
    np.testing.assert_array_equal(dropped.coef_, fitted("log(price):`unit size`", SHOP[complete]).coef_)
    with pytest.warns(MissingValuesWarning, match="get NaN: 12 of 240"):
        assert (np.isnan(dropped.predict(frame)) == ~complete).all()
    filled = frame.fillna({"price": float(np.median(frame["price"][complete]))})
    imputed = fitted("log(price):`unit size`", frame, missing="impute")
    np.testing.assert_array_equal(imputed.coef_, fitted("log(price):`unit size`", filled).coef_)
    np.testing.assert_array_equal(imputed.predict(frame), imputed.predict(filled))


def test_logarithms_of_other_than_positive_numbers_are_counted():
    frame = SHOP.copy()
    frame.loc[:2, "price"] = [0.0, -867.5309, -1.0]
    for read in (lambda: fitted("log(price)", frame), lambda: fitted("log(price)").predict(frame)):
        with pytest.raises(DataError, match=r"`log\(price\)` needs positive numbers.* in 3 of 240 rows") as caught:
            read()
        assert "867" not in str(caught.value)


def test_report_says_how_to_fit_the_model_again(tmp_path):
    page = render_report(fitted("log(price) + C(brand):`unit size`"))
    assert "model.fit(frame)" in page
    assert "They enter the model as “log(price)” and “brand:unit size”." in page


BAD_FORMULAS = {
    "price | product": "no target",
    "~ price | product": "no target",
    "sales ~ price": "no groups",
    "sales ~ price |": "groups",
    "sales ~ price | store + product": "agent/entity",
    "sales ~ price | store/product/shelf": "agent/entity",
    "sales ~ price | log(product)": "agent/entity",
    "sales ~ price | store | product": "more than one bar",
    "sales ~ prize | product": "did you mean 'price'?",
    "sales ~ log(prize) | product": "did you mean 'price'?",
    "sails ~ price | product": "did you mean 'sales'?",
    "sales ~ price + sales | product": "'sales' is the target",
    "sales ~ log(sales) | product": "'sales' is the target",
    "sales ~ C(store) | store/product": "'store' is the agent",
    "sales ~ price | sales": "cannot also be the agent",
    "sales ~ 1 | product": "no feature",
    "log(sales) ~ price | product": "must be one column",
    "sales + count ~ price | product": "must be one column",
    "sales ~ price + (1 + price | product)": "from_formula('sales ~ price | product', effects='entity')",
    "sales ~ price + (1 | store/product)": "from_formula('sales ~ price | store/product', effects='entity+agent')",
    "sales ~ price + (price | store) + (1 | store:product)": "'sales ~ price | store/product', effects='entity+agent'",
    "sales ~ (1 + price || product)": "from_formula('sales ~ 1 + price | product', effects='entity')",
    "sales ~ price | (1 + price | product)": "from_formula('sales ~ price | product', effects='entity')",
    "sales ~ price + price**2 | product": "I(price**2)",
    "sales ~ log(price)^2 | product": "I(log(price)**2)",
    "sales ~ 1/price | product": "I(1/x)",
    "sales ~ (price + shelf)**9 | product": "more than 3 factors",
    "sales ~ poly(price, 2) | product": "curves",
    "sales ~ bs(price, df=4) | product": "curves",
    "sales ~ cr(price) | product": "curves",
    "sales ~ scale(price) | product": "standardises",
    "sales ~ center(price) | product": "standardises",
    "sales ~ np.log(price) | product": "log(x) in place of np.log(x)",
    "sales ~ C(brand, contr.sum) | product": "one column alone",
    "sales ~ price + | product": "not valid",
    "sales ~ (price | product": "not valid",
    "sales ~ I(__import__('os').system('true')) | product": "not allowed",
    "sales ~ __import__('os') | product": "not a function",
    "sales ~ {open('x')} | product": "not a function",
    "sales ~ I(price.__class__) | product": "not allowed",
    "sales ~ I(__builtins__) | product": "not allowed",
    "sales ~ price" + " + price" * 1000 + " | product": "characters",
}


@pytest.mark.parametrize("formula", BAD_FORMULAS)
def test_bad_formulas_are_answered_with_a_cure(formula):
    model = HLCRRegressor(formula=formula, **CENTRAL)
    with pytest.raises(ArgumentError) as caught:
        model.fit(SHOP)
    assert BAD_FORMULAS[formula] in str(caught.value)


def test_wrong_terms_are_refused_before_a_table_is_there():
    with pytest.raises(ArgumentError, match="curves"):
        HLCRRegressor.from_formula("sales ~ bs(price) | product")
    with pytest.raises(ArgumentTypeError, match="must be a text"):
        HLCRRegressor.from_formula(3)


def test_arithmetic_with_a_category_is_refused():
    with pytest.raises(DataError, match="'brand' is a category"):
        fitted("log(brand)", categories=["brand"])


def test_interaction_of_too_many_levels_is_refused():
    frame = SHOP.assign(a=np.arange(240) % 60, b=np.arange(240) % 80)
    with pytest.raises(DataError, match="4,800 features"):
        fitted("C(a):C(b)", frame)


def test_formula_names_what_is_not_passed():
    model = HLCRRegressor.from_formula(f"sales ~ price | {GROUPS}", **CENTRAL)
    with pytest.raises(ArgumentError, match="leave `y` out"):
        model.fit(SHOP, SHOP["sales"])
    with pytest.raises(ArgumentError, match="leave `agent` out"):
        model.fit(SHOP, agent=SHOP["store"])
    with pytest.raises(ArgumentTypeError, match="needs a dataframe"):
        model.fit(PRICE[:, None])
    with pytest.raises(ArgumentError, match="requires y"):
        HLCRRegressor(**CENTRAL).fit(SHOP[["price"]])


def test_formulaic_is_needed_to_fit_but_not_to_predict(tmp_path, monkeypatch):
    model = fitted("log(price)*C(brand)")
    expected = model.predict(SHOP)
    model.save(tmp_path / "m")
    for name in ("formulaic", "formulaic.errors", "formulaic.parser"):
        monkeypatch.setitem(sys.modules, name, None)
    np.testing.assert_array_equal(fedhlcr.load(tmp_path / "m").predict(SHOP), expected)
    with pytest.raises(MissingDependencyError, match=re.escape(install_command("formula"))):
        fitted("price")


RECIPE = Recipe("y", None, "e", ("a", "b"), {"b": ["x", "y"]}, {}, terms=((), ("log(a)",), ("a", "b")))
BAD_TERMS = {
    "code": [["__import__('os').system('true')"], ["a", "b"]],
    "call": [["eval(a)"], ["b"]],
    "attribute": [["a.tofile"], ["a", "b"]],
    "unknown column": [["log(c)"], ["a", "b"]],
    "column that no term takes": [["log(a)"]],
    "arithmetic with a category": [["log(b)"], ["a"]],
    "no list": "log(a)",
    "no lists": ["log(a)", "b"],
    "no texts": [[1], ["a", "b"]],
    "the same term twice": [["a", "b"], ["b", "a"]],
    "the same factor twice": [["a", "a", "b"]],
    "nested": [["(" * 240 + "a" + ")" * 240, "b"]],
    "long": [["a" + " + a" * 1000, "b"]],
}


def test_recipe_with_terms_is_read_as_it_was_written():
    assert Recipe.from_json(json.loads(json.dumps(RECIPE.to_json()))) == RECIPE
    assert RECIPE.encoded_features == ("log(a)", "a:b=x", "a:b=y")


@pytest.mark.parametrize("case", BAD_TERMS)
def test_terms_of_hostile_files_are_refused(case):
    with pytest.raises(CodecError, match="terms"):
        Recipe.from_json(RECIPE.to_json() | {"terms": BAD_TERMS[case]})


def test_model_file_with_hostile_terms_is_refused(tmp_path):
    """The file is otherwise valid, as one that a forger writes."""
    model = fitted("log(price)")
    marker = tmp_path / "executed"
    bad = f"__import__('pathlib').Path({str(marker)!r}).touch() or price"
    object.__setattr__(model.recipe_, "terms", ((), (bad,)))
    model.feature_names_in_ = np.array([bad], dtype=object)
    model.save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="terms"):
        fedhlcr.load(tmp_path / "m")
    assert not marker.exists()
