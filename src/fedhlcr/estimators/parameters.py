"""The constructors' parameters, as `settings.SETTINGS` declares them: checks for scikit-learn, and values."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.effects import feature_position
from fedhlcr.exceptions import Advice, ArgumentError, DeprecationNotice, warn_user
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.curves import FEWEST_DISTINCT, Curves, can_curve
from fedhlcr.model.likelihood import AUTO
from fedhlcr.privacy.differential_privacy import DifferentialPrivacy
from fedhlcr.settings import LEARNABLE, SETTINGS, DeclaredSetting, settings_of
from fedhlcr.storage.model_file import ESTIMATORS

Fit = TypeVar("Fit", bound=Callable[..., Any])
Estimator = TypeVar("Estimator", bound=Any)
# What parameters may be besides the numbers, texts and switches that are declared.
OTHERS: dict[str, list[Any]] = {
    "curves": ["array-like"],
    "categories": ["array-like", dict],
    "engine": [callable],
    "limits": [ReplyLimits],
    "privacy": [DifferentialPrivacy],
    "checkpoint": [str, os.PathLike],
}


def parameter_constraints(family: str, *, federated: bool) -> dict[str, list[Any]]:
    """What scikit-learn checks of the estimator of a family of targets: which values each parameter may have."""
    return {name: _constraint(setting) for name, setting in settings_of(family, federated=federated).items()}


def _constraint(setting: DeclaredSetting) -> list[Any]:
    if setting.name in ("random_state", "verbose"):
        return [setting.name]
    allowed = list(OTHERS.get(setting.name, ()))
    if texts := {*setting.choices, *setting.words, *setting.renamed}:
        allowed.append(StrOptions(texts, deprecated=set(setting.renamed)))
    if setting.kind in (int, float):
        allowed.append(_interval(setting))
    elif setting.kind is not None:
        allowed.append("boolean" if setting.kind is bool else setting.kind)
    return [*allowed, None] if setting.or_none else allowed


def _interval(setting: DeclaredSetting) -> Interval:
    has_ends = setting.least is not None, setting.most is not None
    closed = {(True, True): "both", (True, False): "left", (False, True): "right", (False, False): "neither"}[has_ends]
    least = setting.above if setting.least is None else setting.least
    most = setting.below if setting.most is None else setting.most
    return Interval(Integral if setting.kind is int else Real, least, most, closed=closed)


def checking_parameters(fit: Fit) -> Fit:
    """Decorator: `fit` that checks the constructor's arguments first. Scikit-learn's own hides the types."""
    checked: Fit = _fit_context(prefer_skip_nested_validation=True)(fit)
    return checked


def documented(estimator: Estimator) -> Estimator:
    """Decorator: fill the parameters in a class's docstring, from their declarations.

    Each is described in full in one class, `HLCRRegressor` or `FedHLCRRegressor`; the others refer to it.
    """
    family = estimator.family.name
    entries = []
    elsewhere: dict[str, list[str]] = {}
    federated = "rounds" in inspect.signature(estimator).parameters
    for name, setting in settings_of(family, federated=federated).items():
        home = "FedHLCRRegressor" if setting.fits == "federated" else "HLCRRegressor"
        if home == estimator.__name__ or setting.default_for(family) != setting.default:
            entries.append(_entry(setting, setting.default_for(family)))
        else:
            elsewhere.setdefault(home, []).append(name)
    for home, names in elsewhere.items():
        entries.append(f"{', '.join(names)}\n    As in `{home}`.")
    estimator.__doc__ = inspect.cleandoc(estimator.__doc__ or "").replace("{parameters}", "\n".join(entries))
    return estimator


def _entry(setting: DeclaredSetting, default: Any) -> str:
    """A parameter as numpydoc has it: name, type, default and meaning."""
    quoted = [f'"{word}"' for word in (*setting.choices, *setting.words)]
    numbers = {int: "int", float: "float", bool: "bool", str: "str"}
    kinds = [numbers[setting.kind]] if setting.kind is not None else []
    kinds += [f"{{{', '.join(quoted)}}}"] if len(quoted) > 1 else quoted
    kinds += [setting.others] if setting.others else []
    kinds += ["None"] if setting.or_none else []
    shown = f'"{default}"' if isinstance(default, str) else repr(default)
    words = f"{setting.meaning} {setting.more}".strip()
    words = f"Deprecated. {words}" if setting.deprecated else words
    return (
        f"{setting.name} : {' or '.join(kinds)}, default={shown}\n{textwrap.indent(textwrap.fill(words, 110), '    ')}"
    )


def warn_of_deprecated(estimator: Any) -> None:
    """Warn of parameters that nobody should pass any more, and of words that are called otherwise now."""
    for name, value in _parameters(estimator).items():
        setting = SETTINGS[name]
        if setting.deprecated and value != setting.default:
            warn_user(f"`{name}` is deprecated. {setting.deprecated}", DeprecationNotice)
        if (current := setting.current(value)) is not value:
            warn_user(f"{name}={value!r} is now called {name}={current!r}.", DeprecationNotice)


def store(estimator: Any, arguments: dict[str, Any]) -> None:
    """Keep the arguments of a constructor, `locals()`, as attributes of the same names."""
    for name, value in arguments.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)


def saved_as(estimator: Any) -> str:
    """The name of an estimator in model files, which is that of its class."""
    return _class_of(estimator).__name__


def _class_of(estimator: Any) -> type:
    """The class of fedhlcr that an estimator is of; users may have subclassed it."""
    return next(kind for kind in type(estimator).__mro__ if kind.__name__ in ESTIMATORS)


def _parameters(estimator: Any) -> dict[str, Any]:
    """The parameters of that class in alphabetical order, whatever those of a user's subclass are."""
    names = inspect.signature(_class_of(estimator)).parameters
    return {name: getattr(estimator, name) for name in sorted(names)}


def number_or_none(value: Any) -> Any:
    """A parameter as a Python number, or None if it is a word: "auto" or "learn"."""
    if isinstance(value, np.generic):
        # a float32 parameter would make all draws float32
        return value.item()
    return None if isinstance(value, str) else value


def model_settings(estimator: Any) -> dict[str, Any]:
    """The parameters of an estimator by name; the likelihood is that of its class, unless the user asks for another."""
    settings = _parameters(estimator)
    if settings.get("likelihood") == AUTO:
        settings["likelihood"] = estimator.own_likelihood
    return settings


def given_hyperparameters(estimator: Any) -> dict[str, float | None]:
    """The hyperparameters of an estimator by name; None if they are learned, or if the estimator does not have them."""
    return {name: number_or_none(getattr(estimator, name, None)) for name in LEARNABLE}


def federation_settings(estimator: Any) -> dict[str, Any]:
    """The settings of an estimator that `FederationSettings` has too; None for those to be learned."""
    settings = model_settings(estimator)
    declared = (SETTINGS[own.name] for own in fields(FederationSettings) if own.name in SETTINGS)
    values = {setting.name: (setting, settings.get(setting.name, setting.default)) for setting in declared}
    return {
        name: None if isinstance(value, str) and value in setting.words else value
        for name, (setting, value) in values.items()
    }


def curve_columns(wanted: str | Sequence[Any], n_features: int, names: Any) -> list[int]:
    """Positions of the columns that may have a curve: those of a list, all with "auto", none with "none".

    `names` are the names of the features, or None if they have none.
    """
    if isinstance(wanted, str):
        return list(range(n_features)) if wanted == AUTO else []
    if (n_dim := getattr(wanted, "ndim", 1)) != 1:
        raise ArgumentError(f"`curves` must be a list of names or positions, but is an array with {n_dim} dimensions.")
    return sorted({feature_position(column, n_features, names, "curves") for column in wanted})


def make_curves(wanted: str | Sequence[Any], columns: list[int], quantiles: FloatArray, names: Any) -> Curves | None:
    """The curves of the chosen columns, from the quantiles of all features (features, N_QUANTILES).

    With "auto", columns with too few distinct values are left out. A list must not have any. `names` are those
    of all features, or None.
    """
    if not isinstance(wanted, str):
        flat = [column for column in columns if not can_curve(quantiles[column])]
        if flat:
            which = f"at position {flat[0]}" if names is None else repr(str(names[flat[0]]))
            raise ArgumentError(
                f"`curves` asks for the feature {which}, but it has too few distinct values for a curve; "
                f"at least {FEWEST_DISTINCT} must be common.",
                Advice("Leave it out, or use {curves}.", curves=AUTO),
            )
    return Curves.from_quantiles(quantiles, columns)
