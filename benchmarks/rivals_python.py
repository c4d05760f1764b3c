"""Rivals in Python: LightGBM, statsmodels' mixed model, and HLCR itself by NumPyro's NUTS. Each only if installed."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.problems import Split
from benchmarks.rival_methods import Outcome, UnavailableError
from benchmarks.timing import seconds_of
from fedhlcr.datasets import HierarchicalData

NUTS_WARMUP, NUTS_DRAWS = 250, 250
MIXED_MODEL_SECONDS = 300


def lightgbm(split: Split, seed: int) -> Outcome:
    """Boosted trees of the features and both ids as categories; the number of trees by early stopping."""
    library = _library("lightgbm")
    train, test = _with_ids(split.train), _with_ids(split.test)
    last = np.random.default_rng(seed).random(len(train)) < 0.2
    model = library.LGBMRegressor(n_estimators=2000, learning_rate=0.05, random_state=seed, n_jobs=1, verbose=-1)
    categories = [train.shape[1] - 2, train.shape[1] - 1]

    def fit() -> None:
        model.fit(
            train[~last],
            split.train.y[~last],
            eval_set=[(train[last], split.train.y[last])],
            categorical_feature=categories,
            callbacks=[library.early_stopping(50, verbose=False)],
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seconds = seconds_of(fit)
        predicted = model.predict(test)
    return Outcome(
        seconds,
        _mse(predicted, split),
        f"ids as categories, {model.best_iteration_} trees by early stopping; one thread",
    )


def statsmodels(split: Split, seed: int) -> Outcome:
    """A mixed model with correlated random intercepts and slopes of every agent–entity pair."""
    del seed  # nothing is random
    library = _library("statsmodels.regression.mixed_linear_model")
    train, test = _with_constant(split.train), _with_constant(split.test)
    groups, pairs = _pairs(split.train), _pairs(split.test)
    model = library.MixedLM(split.train.y, train, groups, exog_re=train)
    fitted: Any = None

    def fit() -> None:
        nonlocal fitted
        fitted = model.fit(reml=True, method="lbfgs")

    with warnings.catch_warnings(), at_most_seconds(MIXED_MODEL_SECONDS):
        warnings.simplefilter("ignore")
        seconds = seconds_of(fit)
        effects = fitted.random_effects
    nothing = np.zeros(train.shape[1])
    own = np.array([np.asarray(effects.get(pair, nothing)) for pair in pairs])
    predicted = test @ fitted.fe_params + (test * own).sum(axis=1)
    return Outcome(seconds, _mse(predicted, split), "all slopes random by entity, correlated")


def nuts(split: Split, seed: int) -> Outcome:
    """HLCR by NUTS: labels summed out per entity, every agent's weights θ explicit; clusters' number given."""
    _library("numpyro")
    from benchmarks.nuts import predict, sample

    draws: Any = None

    def fit() -> None:
        nonlocal draws
        draws = sample(split, seed, NUTS_WARMUP, NUTS_DRAWS)

    seconds = seconds_of(fit)
    note = (
        f"one chain of {NUTS_WARMUP} + {NUTS_DRAWS} draws, {len(split.truth.coef)} clusters given, compilation counted"
    )
    return Outcome(seconds, _mse(predict(split, draws), split), note)


@contextmanager
def at_most_seconds(limit: float) -> Iterator[None]:
    """Give up on a rival written in Python that takes longer."""

    def give_up(*_: object) -> None:
        raise UnavailableError(f"did not finish in {limit / 60:g} minutes")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UnavailableError(f"{name.partition('.')[0]} is not installed (pip install '.[rivals]')") from error


def _with_ids(table: HierarchicalData) -> np.ndarray:
    return np.column_stack([table.X, table.agent, table.entity])


def _with_constant(table: HierarchicalData) -> np.ndarray:
    return np.column_stack([np.ones(len(table)), table.X])


def _pairs(table: HierarchicalData) -> list[str]:
    return [f"{agent} {entity}" for agent, entity in zip(table.agent, table.entity, strict=True)]


def _mse(predicted: np.ndarray, split: Split) -> float:
    return float(np.mean((predicted - split.test.y) ** 2))
