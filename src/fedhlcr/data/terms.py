"""Terms of a formula: products of columns, of categories, and of expressions such as log(price)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.expressions import read_expression
from fedhlcr.exceptions import ArgumentError, DataError

# The factors of a product: names of columns, or expressions. The empty product is the intercept.
Term = tuple[str, ...]
INTERCEPT: Term = ()
# Features that one term may become.
MOST_FEATURES = 1_000


def term_name(term: Term) -> str:
    """A term as a formula writes it."""
    return ":".join(term) if term else "1"


def columns_of(term: Term, columns: Collection[str]) -> tuple[str, ...]:
    """The columns that a term takes; a factor that is the name of a column is that column."""
    taken = [(factor,) if factor in columns else read_expression(factor).columns for factor in term]
    return tuple(dict.fromkeys(name for names in taken for name in names))


def codings(terms: Sequence[Term], categorical: Mapping[str, list[str]]) -> list[list[tuple[str, list[int]]]]:
    """The factors of each term but the intercept, with the levels of categories that become features, by position.

    A category of two levels is one feature, if the rest of its term is a term too. Otherwise each level is one: a
    product with `price` must have a slope for either level, unless `price` alone has the slope of the first.
    """
    known = {frozenset(term) for term in terms}

    def levels(term: Term, factor: str) -> list[int]:
        n_levels = len(categorical.get(factor, ()))
        has_rest = frozenset(term) - {factor} in known
        return list(range(1 if n_levels == 2 and has_rest else 0, n_levels))

    return [[(factor, levels(term, factor)) for factor in term] for term in terms if term]


def feature_names(terms: Sequence[Term], categorical: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Names of the features that terms become: log(price), or price:brand=x for a level of a category."""
    names: list[str] = []
    for factors in codings(terms, categorical):
        _require_few([len(levels) for factor, levels in factors if factor in categorical], factors)
        parts = [
            [f"{factor}={categorical[factor][level]}" for level in levels] if factor in categorical else [factor]
            for factor, levels in factors
        ]
        names += [":".join(combination) for combination in product(*parts)]
    return tuple(names)


class LevelFeatures(NamedTuple):
    """Features, one for each level of a category, that add up to another feature or to 1.

    Attributes
    ----------
    category : its column
    features : their positions among the features
    total : position of the feature that they add up to; None if they add up to 1, which the intercept belongs to
    """

    category: str
    features: list[int]
    total: int | None


def level_features(terms: Sequence[Term], categorical: Mapping[str, list[str]]) -> list[LevelFeatures]:
    """The features of all terms with one category that add up to the feature of another term.

    So `brand` adds up to the intercept, and `price:brand` to `price`, if the formula has these terms.
    """
    place: dict[Term, int | None] = {INTERCEPT: None} if INTERCEPT in terms else {}
    ranges: dict[Term, range] = {}
    first = 0
    for factors in codings(terms, categorical):
        term = tuple(sorted(factor for factor, _ in factors))
        ranges[term] = range(first, first + math.prod(len(levels) or 1 for _, levels in factors))
        first = ranges[term].stop
        if not any(factor in categorical for factor in term):
            place[term] = ranges[term].start
    found = []
    for term, features in ranges.items():
        rest = tuple(factor for factor in term if factor not in categorical)
        category = next((factor for factor in term if factor in categorical), None)
        if len(rest) == len(term) - 1 and rest in place and category is not None and len(features) > 1:
            found.append(LevelFeatures(category, list(features), place[rest]))
    return found


def feature_columns(
    terms: Sequence[Term], categorical: Mapping[str, list[str]], columns: Mapping[str, FloatArray | IndexArray]
) -> list[FloatArray]:
    """The features that terms become.

    Parameters
    ----------
    terms : products
    categorical : levels of the columns that are categories
    columns : (rows,) numbers of each column; of a category, the positions of its levels
    """
    numbers: Mapping[str, Any] = {name: values for name, values in columns.items() if name not in categorical}
    out: list[FloatArray] = []
    for factors in codings(terms, categorical):
        parts: list[list[FloatArray]] = [
            [(columns[factor] == level).astype(np.float64) for level in levels]
            if factor in categorical
            else [numbers[factor] if factor in numbers else read_expression(factor).compute(numbers)]
            for factor, levels in factors
        ]
        out += [math.prod(combination[1:], start=combination[0]) for combination in product(*parts)]
    return out


def refuse_texts(terms: Iterable[Term], columns: Collection[str], categorical: Collection[str]) -> None:
    """Refuse arithmetic with categories."""
    for factor in (factor for term in terms for factor in term if factor not in columns):
        if texts := [name for name in read_expression(factor).columns if name in categorical]:
            raise DataError(
                f"the term `{factor}` of the formula needs numbers, but the column {texts[0]!r} is a category; name "
                "the column alone, or as C(…)."
            )


def are_sound(terms: Any, columns: Sequence[str], categorical: Collection[str]) -> bool:
    """Return whether terms from a model file are those of a formula on these columns, and safe to compute."""
    if not isinstance(terms, list) or not all(isinstance(term, list) for term in terms):
        return False
    if not all(isinstance(factor, str) for term in terms for factor in term):
        return False
    try:
        used = {name for term in terms for name in columns_of(tuple(term), columns)}
        refuse_texts(map(tuple, terms), columns, categorical)
    except (ArgumentError, DataError):
        return False
    distinct = {frozenset(term) for term in terms}
    return used == set(columns) and len(distinct) == len(terms) and all(len(set(term)) == len(term) for term in terms)


def _require_few(n_levels: list[int], factors: list[tuple[str, list[int]]]) -> None:
    if math.prod(n_levels) > MOST_FEATURES:
        name = term_name(tuple(factor for factor, _ in factors))
        raise DataError(
            f"the term `{name}` would become {math.prod(n_levels):,} features, one for each combination of levels; "
            f"at most {MOST_FEATURES:,} are allowed. Join rare levels, or leave the term out."
        )
