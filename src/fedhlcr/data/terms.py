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
    """Features, one for each level of a category, that add up to other features or to 1.

    Attributes
    ----------
    features : their positions among the features
    indicators : positions of the features that are 1 at these levels and 0 at others; none if there are none
    totals : positions of the features that they add up to; none if they add up to 1, which the intercept belongs to
    """

    features: list[int]
    indicators: list[int]
    totals: list[int]


# What a feature is the product of: factors, and of a category the position of the level.
_Product = frozenset[tuple[str, int | None]]
_ONE: _Product = frozenset()


def level_features(
    terms: Sequence[Term], categorical: Mapping[str, list[str]], *, has_intercept: bool
) -> list[LevelFeatures]:
    """The features of categories that add up to features of a smaller term; those of the largest terms first.

    So `brand` adds up to the intercept and `price:brand` to `price`, if the formula has these terms. The levels of
    `brand` in `brand:size=small` add up to `size=small`. Without an intercept, all categories add up to the first one.
    """
    place: dict[_Product, list[int]] = {_ONE: []} if has_intercept else {}
    placed = sorted(_placed(terms, categorical), key=lambda term: len(term.whole))
    alone = (term for term in placed if term.is_indicator and len(term.whole) == 1)
    indicators = {term.whole[0]: list(term.features.values()) for term in alone}
    found: list[LevelFeatures] = []
    for term in placed:
        features = list(term.features.values())
        smaller = _smaller(term, place, indicators)
        if not smaller and term.is_indicator and _ONE in place:
            smaller = [LevelFeatures(features, features, place[_ONE])]
        found += smaller
        place |= {factors: [feature] for factors, feature in term.features.items()}
        if term.is_indicator:
            place.setdefault(_ONE, features)
    return found[::-1]


def product_features(terms: Sequence[Term], categorical: Mapping[str, list[str]]) -> list[tuple[int, list[int]]]:
    """Positions of the features that are products of other features, each with the positions of its factors."""
    place = {factors: n for term in _placed(terms, categorical) for factors, n in term.features.items()}
    parts = {n: [place.get(frozenset([part])) for part in factors] for factors, n in place.items() if len(factors) > 1}
    return [(n, [own for own in found if own is not None]) for n, found in parts.items() if None not in found]


class _PlacedTerm(NamedTuple):
    """Positions of a term's features, and its categories all of whose levels are features."""

    features: dict[_Product, int]
    whole: tuple[str, ...]
    # whether one of the features is 1 in each row, and all others are 0
    is_indicator: bool


def _placed(terms: Sequence[Term], categorical: Mapping[str, list[str]]) -> list[_PlacedTerm]:
    out = []
    first = 0
    for factors in codings(terms, categorical):
        parts = [
            [(name, level) for level in levels] if name in categorical else [(name, None)] for name, levels in factors
        ]
        features = {frozenset(combination): first + n for n, combination in enumerate(product(*parts))}
        whole = tuple(f for f, levels in factors if f in categorical and 1 < len(levels) == len(categorical[f]))
        out.append(_PlacedTerm(features, whole, len(whole) == len(factors)))
        first += len(features)
    return out


def _smaller(
    term: _PlacedTerm, place: Mapping[_Product, list[int]], indicators: Mapping[str, list[int]]
) -> list[LevelFeatures]:
    """The features of a term that add up to features of a term with one category less."""
    found = []
    for category in term.whole:
        rests: dict[_Product, list[int]] = {}
        for factors, feature in term.features.items():
            rests.setdefault(frozenset(part for part in factors if part[0] != category), []).append(feature)
        for rest, features in rests.items():
            if rest in place:
                own = indicators.get(category, features if term.is_indicator else [])
                found.append(LevelFeatures(features, own, place[rest]))
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
