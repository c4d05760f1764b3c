"""Estimators that are told target, features and groups by a formula."""

from __future__ import annotations

from typing import Any, Self

from fedhlcr.data.encoded import EncodedTable
from fedhlcr.data.formula import Formula, parse_formula
from fedhlcr.data.frames import Given
from fedhlcr.data.inputs import as_frame
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError


class FormulaReader:
    """An estimator with the parameter `formula`."""

    formula: str | None
    fit_intercept: bool
    # whether the formula of the fit, if there was one, has an intercept
    _has_intercept: bool = True

    @classmethod
    def from_formula(cls, formula: str, **parameters: Any) -> Self:
        """An estimator whose `fit` takes target, features and groups from a formula. It needs the extra `formula`.

        Parameters
        ----------
        formula : str
            As in R, with the groups behind a bar: `"sales ~ price + C(brand) | store/product"` has the agent `store`
            and the entity `product`; `"… | product"` has one agent. Terms may be columns, categories such as C(brand),
            log, log10, log2, log1p, exp, sqrt, sin and cos of columns, arithmetic in I(…), and interactions a:b or a*b.
            A dot stands for all other columns; 0 or -1 leaves out the intercept.
        **parameters
            Those of the constructor.

        Returns
        -------
        estimator
            Its `fit`, `predict`, `score` and `adapt` take a dataframe with the formula's columns.
        """
        parse_formula(formula)
        make: Any = cls
        model: Self = make(formula=formula, **parameters)
        return model

    @property
    def fits_intercept(self) -> bool:
        """Whether the model has an intercept: `fit_intercept`, unless the formula leaves it out."""
        return self.fit_intercept and self._has_intercept

    def _read_formula(self, given: Given) -> tuple[Given, Formula | None]:
        """Return the arguments of a fit with the names that the formula has, and the formula; None if there is none."""
        self._has_intercept = True
        if self.formula is None:
            return given, None
        frame = None if isinstance(given.X, EncodedTable) else as_frame(given.X)
        if frame is None:
            raise ArgumentTypeError(f"a formula needs a dataframe, but `X` is of type {type(given.X).__name__}.")
        columns = [name for name in frame.columns if isinstance(name, str)]
        taken = [name for name in (given.sample_weight, given.exposure) if isinstance(name, str)]
        formula = parse_formula(self.formula, columns, taken)
        roles = {"y": formula.target, "agent": formula.agent, "entity": formula.entity}
        for role, name in roles.items():
            value = getattr(given, role)
            if value is not None and not (isinstance(value, str) and value == name):
                raise ArgumentError(f"the formula names the target and the groups; leave `{role}` out of `fit`.")
        self._has_intercept = formula.has_intercept
        return given._replace(**roles), formula if self.fit_intercept else formula.without_intercept()
