"""Dataframes of shops as users have them, in every library, and the estimators for each of their targets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from tests.kinds import KINDS, is_federated

CENTRAL = {"n_sweeps": 12, "n_draws": 4, "max_clusters": 4}
FEDERATED = {"rounds": 8, "n_draws": 4, "max_clusters": 4}
SIZES = ["S", "M", "L", "XL"]
TARGETS = {"sales": "real", "sold": "binary", "count": "count"}
CASES = [(target, kind) for target, sort in TARGETS.items() for kind in KINDS[sort]]
NAMES = [kind.__name__ for _, kind in CASES]


def settings(kind: type) -> dict:
    """Few sweeps or rounds."""
    return FEDERATED if is_federated(kind) else CENTRAL


def to_polars(frame: pd.DataFrame) -> pl.DataFrame:
    own = pl.from_pandas(frame)
    return own.with_columns(pl.col("size").cast(pl.Enum(SIZES))) if "size" in own.columns else own


LIBRARIES = {
    "pandas": lambda frame: frame,
    "polars": to_polars,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


def shop(n: int = 240) -> pd.DataFrame:
    """A table without gaps, with a category whose levels are declared, and with an exposure for counts."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "store": _stores(rng, n),
            "price": rng.normal(size=n),
            "brand": _brands(rng, n),
            "product": rng.integers(0, 4, n),
            "size": pd.Categorical(rng.choice(SIZES[:3], n), categories=SIZES, ordered=True),
            "promo": rng.random(n) < 0.3,
        }
    )
    linear = frame["price"] + (frame["brand"] == "bolt") - 0.5 * frame["size"].cat.codes
    _add_outcomes(frame, linear, rng)
    frame["days"] = rng.integers(1, 9, n).astype(float)
    frame["count"] = rng.poisson(np.exp(0.3 * linear) * frame["days"])
    return frame


def formula_shop(n: int = 240) -> pd.DataFrame:
    """A table without gaps, whose target depends on a logarithm and on a product; one name has a space."""
    rng = np.random.default_rng(8)
    frame = pd.DataFrame(
        {
            "store": _stores(rng, n),
            "price": rng.lognormal(size=n),
            "unit size": rng.uniform(1, 2, n),
            "brand": _brands(rng, n),
            "promo": rng.choice(["no", "yes"], n),
            "product": rng.integers(0, 4, n),
            "shelf": rng.integers(1, 4, n),
        }
    )
    linear = -np.log(frame["price"]) + (frame["brand"] == "bolt") + (frame["promo"] == "yes") * frame["unit size"]
    _add_outcomes(frame, linear, rng)
    frame["count"] = rng.poisson(np.exp(0.3 * linear))
    return frame


def _stores(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.choice(["north", "south", "west", "east"], n)


def _brands(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.choice(["acme", "bolt", "core"], n)


def _add_outcomes(frame: pd.DataFrame, linear: pd.Series, rng: np.random.Generator) -> None:
    frame["sales"] = linear + 0.3 * rng.normal(size=len(frame))
    frame["sold"] = np.where(linear + rng.logistic(size=len(frame)) > 0, "yes", "no")
