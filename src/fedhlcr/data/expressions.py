"""Arithmetic of columns, as in the formula `sales ~ log(price) + I(price**2)`: checked first, then computed.

A model file may come from anybody, so nothing here evaluates code. An expression is read into Python's syntax tree, and
only names of columns, numbers, + − * / **, and the functions of `FUNCTIONS` are allowed. Anything else is refused,
both when a formula is read and when a model file is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import ROW
from fedhlcr.data.columns import LARGEST
from fedhlcr.exceptions import ArgumentError, DataError

# Characters of an expression, and how deep it may be nested.
MOST_CHARACTERS = 500
MOST_LEVELS = 50
QUOTED = re.compile(r"`([^`]+)`")
STAND_IN = "_quoted_column_{}"
DUNDER = re.compile(r"__\w+__$")


class Function(NamedTuple):
    """A function of one column.

    Attributes
    ----------
    compute : the function itself
    allows : which values it takes; None if all
    domain : these values in words, and those that it refuses
    """

    compute: Callable[[FloatArray], FloatArray]
    allows: Callable[[FloatArray], NDArray[np.bool_]] | None = None
    domain: tuple[str, str] = ("numbers", "no numbers")


def _positive(values: FloatArray) -> NDArray[np.bool_]:
    return values > 0.0


POSITIVE = ("positive numbers", "zero or negative")
FUNCTIONS: dict[str, Function] = {
    "I": Function(np.array),
    "log": Function(np.log, _positive, POSITIVE),
    "log10": Function(np.log10, _positive, POSITIVE),
    "log2": Function(np.log2, _positive, POSITIVE),
    "log1p": Function(np.log1p, lambda values: values > -1.0, ("numbers above -1", "-1 or less")),
    "exp": Function(np.exp),
    "sqrt": Function(np.sqrt, lambda values: values >= 0.0, ("no negative numbers", "negative")),
    "sin": Function(np.sin),
    "cos": Function(np.cos),
}
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}
CATEGORY = "C"
# Functions of other libraries, and what there is in their place.
CURVED = "`curves` bends a feature: name the column alone, and pass curves=[…] with its name"
SCALED = "the model standardises features itself; name the column alone"
ELSEWHERE = {
    **dict.fromkeys(("poly", "bs", "ns", "cr", "cs", "cc", "te", "s", "rcs"), CURVED),
    **dict.fromkeys(("scale", "center", "standardize"), SCALED),
    "lag": "add a column with the lagged values to the table",
    "offset": "counts have an `exposure`; for others subtract the offset from the target first",
    CATEGORY: "C(…) holds the name of one column alone",
}


@dataclass(frozen=True)
class Expression:
    """An expression that has been checked.

    Attributes
    ----------
    text : as the formula has it
    columns : names of the columns in it
    """

    text: str
    columns: tuple[str, ...]
    _tree: ast.expr
    _quoted: Mapping[str, str]

    def compute(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """(rows,) values of the expression. Errors count rows and never show values."""
        with np.errstate(all="ignore"):
            values = np.asarray(self._value(self._tree, columns), dtype=np.float64)
        if n_wrong := int((~(np.abs(values) < LARGEST)).sum()):
            raise self._wrong(n_wrong, len(values), "cannot be computed, or is too large,", "")
        return values

    def _value(self, node: ast.expr, columns: Mapping[str, FloatArray]) -> Any:
        if isinstance(node, ast.Name):
            return columns[self._quoted.get(node.id, node.id)]
        if isinstance(node, ast.Constant):
            assert isinstance(node.value, int | float)
            # not Python's whole numbers, whose powers could fill the memory
            return np.float64(node.value)
        if isinstance(node, ast.UnaryOp):
            value = self._value(node.operand, columns)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp):
            left = self._value(node.left, columns)
            right = self._value(node.right, columns)
            if isinstance(node.op, ast.Div) and (n_zero := int(np.sum(np.equal(right, 0.0)))):
                raise self._wrong(n_zero, np.size(right), "divides by zero", "")
            return OPERATORS[type(node.op)](left, right)
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        function = FUNCTIONS[node.func.id]
        argument = self._value(node.args[0], columns)
        if function.allows is not None and (n_wrong := int((~function.allows(argument)).sum())):
            needed, found = function.domain
            raise self._wrong(n_wrong, np.size(argument), f"needs {needed}, but the values are {found}", ",")
        return function.compute(argument)

    def _wrong(self, n_wrong: int, n_rows: int, what: str, comma: str) -> DataError:
        return DataError(
            f"the term `{self.text}` {what}{comma} in {n_wrong:,} of {ROW.count(n_rows)}; correct these rows or leave "
            "them out, or take another term."
        )


@lru_cache(maxsize=256)
def read_expression(text: str) -> Expression:
    """Read and check an expression; ArgumentError if it holds anything that is not allowed."""
    if len(text) > MOST_CHARACTERS:
        raise ArgumentError(
            f"a term of the formula has {len(text):,} characters; at most {MOST_CHARACTERS} are allowed."
        )
    quoted: dict[str, str] = {}

    def stand_in(found: re.Match[str]) -> str:
        name = STAND_IN.format(len(quoted))
        quoted[name] = found[1]
        return name

    plain = QUOTED.sub(stand_in, text)
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ArgumentError(
            f"the term `{text}` of the formula is not valid; write it as log(price) or I(a + b)."
        ) from None
    columns: dict[str, None] = {}
    _check(tree, text, lambda name: columns.setdefault(quoted.get(name, name)), 0)
    if not columns:
        raise ArgumentError(f"the term `{text}` of the formula has no column; leave it out.")
    return Expression(text, tuple(columns), tree, quoted)


def _check(node: ast.expr, text: str, found: Callable[[str], None], level: int) -> None:
    """Refuse everything but names of columns, numbers, operators and known functions; tell the names of columns."""
    if level > MOST_LEVELS:
        raise ArgumentError(f"the term `{text}` of the formula is nested too deeply; add it to the table as a column.")
    if isinstance(node, ast.Name):
        if DUNDER.match(node.id):
            raise ArgumentError(f"the term `{text}` of the formula holds the name {node.id!r}, which is not allowed.")
        found(node.id)
        return
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return
    children: list[ast.expr] = []
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        children = [node.operand]
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        children = [node.left, node.right]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and _is_known(node):
        children = node.args
    else:
        raise ArgumentError(f"the term `{text}` of the formula is not allowed: {_reason(node)}.")
    for child in children:
        _check(child, text, found, level + 1)


def _is_known(node: ast.Call) -> bool:
    assert isinstance(node.func, ast.Name)
    one = len(node.args) == 1 and not node.keywords and not isinstance(node.args[0], ast.Starred)
    return node.func.id in FUNCTIONS and one


def _reason(node: ast.expr) -> str:
    """Why a node of the tree is refused, and the cure."""
    known = ", ".join(FUNCTIONS)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        if name in FUNCTIONS:
            return f"{name} takes one argument"
        return ELSEWHERE.get(
            name, f"{name} is not a function of formulas; known are {known}. Add the values to the table as a column"
        )
    if isinstance(node, ast.Attribute) or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return "write log(x) in place of np.log(x), and put names of columns with a dot into backticks"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitXor):
        return "write ** in place of ^ inside I(…)"
    return f"it may hold columns, numbers, + - * / ** and {known}; add other values to the table as a column"
