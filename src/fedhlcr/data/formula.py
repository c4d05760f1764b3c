"""Formulas such as `sales ~ log(price) + C(brand) | store/product`: target, terms, and agent/entity.

formulaic reads them. What it finds is checked here, and becomes a plan of a recipe. Computing the terms takes neither
formulaic nor Python's evaluation: see `data.terms` and `data.expressions`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedhlcr._support.extras import missing_extra
from fedhlcr._support.wording import listed
from fedhlcr.data.expressions import CATEGORY
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.recipe_plan import INDEX_NAME
from fedhlcr.data.terms import INTERCEPT, Term, columns_of, refuse_texts
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError

EXAMPLE = "as in 'sales ~ price + C(brand) | store/product'"
MOST_CHARACTERS = 4_000
HIGHEST_POWER = 3
MOST_NAMED = 20
# lme4's random effects, such as (1 + x | entity)
RANDOM_EFFECTS = re.compile(r"[+\s]*\(([^()|]*)\|{1,2}([^()|]*)\)")
CATEGORY_OF = re.compile(rf"{CATEGORY}\(\s*(?:`([^`]+)`|([^\W\d][\w.]*))\s*\)$")


@dataclass(frozen=True)
class Formula:
    """What a formula says.

    Attributes
    ----------
    target, agent, entity : names of columns; without `agent` all events belong to one agent
    terms : of the right-hand side, the intercept included if there is one
    categories : columns that it calls categories, as C(brand)
    columns : columns that the terms take, in order
    """

    target: str
    agent: str | None
    entity: str
    terms: tuple[Term, ...]
    categories: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def has_intercept(self) -> bool:
        return INTERCEPT in self.terms

    def without_intercept(self) -> Formula:
        return replace(self, terms=tuple(term for term in self.terms if term != INTERCEPT))

    def planned(self, plan: Recipe) -> Recipe:
        """Return the plan of a recipe for the formula's columns with its terms, unless columns say it all."""
        refuse_texts(self.terms, self.columns, plan.categorical)
        own = [term for term in self.terms if term != INTERCEPT]
        are_columns = own == [(name,) for name in plan.features]
        if are_columns and (self.has_intercept or not plan.categorical):
            return plan
        return replace(plan, terms=self.terms)


def parse_formula(text: Any, columns: Sequence[str] | None = None, taken: Collection[str] = ()) -> Formula:
    """Read a formula.

    Parameters
    ----------
    text : as in R, with agent/entity or the entity behind a bar
    columns : names of the table's columns; None if they are not known yet
    taken : columns that are weights or exposures, which the dot leaves out
    """
    if not isinstance(text, str):
        raise ArgumentTypeError(f"`formula` must be a text, but is of type {type(text).__name__}; write it {EXAMPLE}.")
    if len(text) > MOST_CHARACTERS:
        raise ArgumentError(
            f"the formula has {len(text):,} characters; at most {MOST_CHARACTERS:,} are allowed. A dot stands for all "
            "other columns."
        )
    _refuse_random_effects(text)
    _refuse_arithmetic(text)
    target, _, groups = _parts(text, ())
    agent, entity = _groups(groups)
    roles = {name: role for role, name in (("entity", entity), ("agent", agent), ("target", target)) if name}
    others = [n for n in columns or () if n not in roles and n not in taken and not INDEX_NAME.match(n)]
    _, right, _ = _parts(text, others)
    terms, categories, named = _terms(right)
    used = tuple(dict.fromkeys(name for term in terms for name in columns_of(term, named)))
    if columns is not None:
        _require_columns([*roles, *used], columns)
    _require_roles(text, used, roles, taken)
    if columns is not None and not used:
        raise ArgumentError(
            f"the formula {text!r} has no feature; name at least one column before the bar. A column of ones fits only "
            "the mean of each cluster."
        )
    return Formula(target, agent, entity, terms, categories, used)


def _parts(text: str, others: Iterable[str]) -> tuple[str, Any, Any]:
    """The target, and formulaic's terms before and behind the bar; `others` are the columns that a dot stands for."""
    try:
        from formulaic.errors import FormulaicError
        from formulaic.parser import DefaultFormulaParser
    except ImportError as missing:
        raise missing_extra("a formula needs formulaic", "formula") from missing
    context = {"__formulaic_variables_available__": list(others)}
    try:
        found: Any = DefaultFormulaParser().get_terms(text, context=context)
    except (FormulaicError, SyntaxError, RecursionError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ArgumentError(f"the formula {text!r} is not valid: {reason}. Write it {EXAMPLE}.") from None
    left = getattr(found, "lhs", None)
    right = getattr(found, "rhs", None)
    if left is None or right is None:
        raise ArgumentError(f"the formula {text!r} has no target; write it before ~, {EXAMPLE}.")
    if not isinstance(right, tuple):
        raise ArgumentError(
            f"the formula {text!r} has no groups; write the entity, or agent/entity, behind a bar, {EXAMPLE}."
        )
    if len(right) > 2:
        raise ArgumentError(f"the formula {text!r} has more than one bar; write agent/entity behind one, {EXAMPLE}.")
    return _target(text, left), *right


def _target(text: str, terms: Any) -> str:
    names = [str(term) for term in terms] if not isinstance(terms, tuple) else []
    factors = [factor for term in terms for factor in term.factors] if len(names) == 1 else []
    if len(factors) != 1 or factors[0].eval_method.value != "lookup":
        raise ArgumentError(
            f"the target of the formula {text!r} must be one column; add a column with {listed(names) or 'it'} to the "
            "table and name that."
        )
    return str(factors[0].expr)


def _groups(terms: Any) -> tuple[str | None, str]:
    """The columns of agent and entity; formulaic reads a/b as a + a:b."""
    groups = [[factor.expr for factor in term.factors] for term in terms if str(term) != "1"]
    columns = all(factor.eval_method.value in ("lookup", "literal") for term in terms for factor in term.factors)
    if columns and len(groups) == 1 and len(groups[0]) == 1:
        return None, groups[0][0]
    if columns and len(groups) == 2 and len(groups[0]) == 1 and len(groups[1]) == 2 and groups[1][0] == groups[0][0]:
        return groups[0][0], groups[1][1]
    raise ArgumentError(
        "behind the bar of a formula come the groups: one column, the entity, or two, agent/entity; write "
        "'… | product' or '… | store/product'."
    )


def _terms(right: Any) -> tuple[tuple[Term, ...], tuple[str, ...], set[str]]:
    """The terms, the columns that are called categories, and all columns that are factors by themselves."""
    terms: dict[frozenset[str], Term] = {}
    categories: dict[str, None] = {}
    named: set[str] = set()
    for term in right:
        factors: dict[str, None] = {}
        for factor in term.factors:
            text = str(factor.expr)
            kind = factor.eval_method.value
            if kind == "literal":
                if text != "1":
                    raise ArgumentError(
                        f"the term `{term}` of the formula holds a number; write I(2*x) for a multiple, and 0 or 1 "
                        "alone for the intercept."
                    )
                continue
            if kind == "lookup":
                named.add(text)
            elif (category := CATEGORY_OF.match(text)) is not None:
                text = category[1] or category[2]
                categories[text] = None
                named.add(text)
            factors[text] = None
        terms.setdefault(frozenset(factors), tuple(factors))
    for term in terms.values():
        # refuses what is not allowed
        columns_of(term, named)
    return tuple(terms.values()), tuple(categories), named


def _require_columns(names: Iterable[str], columns: Sequence[str]) -> None:
    if lost := [name for name in dict.fromkeys(names) if name not in columns]:
        plain = {str(name).casefold(): str(name) for name in columns}
        near = [plain[found] for name in lost for found in difflib.get_close_matches(name.casefold(), plain, 1)]
        cure = f"did you mean {listed([repr(name) for name in near])}?" if near else f"it has {_some(columns)}."
        words = "column" if len(lost) == 1 else "columns"
        raise ArgumentError(
            f"the formula names the {words} {listed([repr(name) for name in lost])}, which the table does not have; "
            f"{cure}"
        )


def _some(columns: Sequence[str]) -> str:
    more = len(columns) - MOST_NAMED
    return ", ".join(map(repr, columns[:MOST_NAMED])) + (f" and {more:,} more" if more > 0 else "")


def _require_roles(text: str, used: Iterable[str], roles: dict[str, str], taken: Collection[str]) -> None:
    n_roles = sum(role in roles.values() for role in ("target", "agent", "entity"))
    if n_roles < 2:
        raise ArgumentError(f"the target of the formula {text!r} cannot also be the agent or the entity.")
    for name in used:
        if name in roles or name in taken:
            role = roles.get(name, "weight or exposure")
            raise ArgumentError(
                f"column {name!r} is the {role} and cannot also be a feature; leave it out of the terms of the formula."
            )


def _refuse_random_effects(text: str) -> None:
    """Answer lme4's `(1 + x | entity)` with the formula that fits."""
    if not (found := RANDOM_EFFECTS.findall(text)):
        return
    groups = list(dict.fromkeys(part.strip() for _, group in found for part in re.split("[/:]", group)))
    fixed = RANDOM_EFFECTS.sub("", text.partition("~")[2]).strip(" +|")
    if not fixed.strip(" 01+-"):
        # the features are named in the random effects only
        fixed = next((own.strip() for own, _ in found if own.strip(" 01+-")), "x")
    outer = len(groups) > 1 and any("/" in group or group.strip() == groups[0] for _, group in found)
    effects = "entity+agent" if outer else "entity"
    formula = f"{text.partition('~')[0].strip()} ~ {fixed} | {'/'.join(groups[:2])}"
    more = " There are two levels of groups at most." if len(groups) > 2 else ""
    raise ArgumentError(
        f"the formula {text!r} has random effects as in lme4; here groups come once, at the end, and random effects "
        f"are a parameter: from_formula({formula!r}, effects={effects!r}).{more}"
    )


def _refuse_arithmetic(text: str) -> None:
    """Refuse powers of single columns, which mean the column itself, other arithmetic, and high powers of sums."""
    plain = _without_calls(text)
    if (found := re.search(r"([\w.]*\w)\s*(?:\*\*|\^)", plain)) is not None:
        name = text[found.start(1) : found.end(1)]
        raise ArgumentError(
            f"in a formula, a power of `{name}` would mean `{name}` itself, as in R; write I({name}**2) for a square."
        )
    if re.search(r"(?<![\w.*])\d[\d.]*\s*[*/]|(?<!\*)[*/]\s*\d", plain) is not None:
        raise ArgumentError(
            f"in the formula {text!r}, * and / with a number are not arithmetic; write it as I(2*x) or I(1/x)."
        )
    if any(int(power) > HIGHEST_POWER for power in re.findall(r"(?:\*\*|\^)\s*(\d+)", plain)):
        raise ArgumentError(
            f"the formula {text!r} has interactions of more than {HIGHEST_POWER} factors; write those that you need."
        )


def _without_calls(text: str) -> str:
    """The formula with a letter for every character in calls such as log(x), in braces and in backticks."""
    out = list(text)
    depth = 0
    quoted = False
    for place, letter in enumerate(text):
        if letter == "`":
            quoted = not quoted
            out[place] = "q"
        elif quoted:
            out[place] = "q"
        elif depth:
            depth += (letter in "({") - (letter in ")}")
            out[place] = "q"
        elif letter == "{" or (letter == "(" and re.search(r"\w$", text[:place])):
            depth = 1
            out[place] = "q"
    return "".join(out)
