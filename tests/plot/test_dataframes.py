"""Plots take dataframes with texts and gaps, and find the columns of the fit in them."""

from __future__ import annotations

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedhlcr import HLCRClassifier, HLCRCountRegressor, HLCRRegressor, plot
from fedhlcr.exceptions import MissingValuesWarning

N_ROWS, GAPS = 240, 12


def sales(target: str) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    product = np.arange(N_ROWS) % 6
    price, brand = rng.uniform(1.0, 3.0, N_ROWS), rng.choice(["Acme", "Bolt"], N_ROWS)
    linear = np.where(product % 2, -1.5, 1.5) * (price - 2.0)
    days = rng.integers(1, 5, N_ROWS)
    sold = {
        "real": linear + 0.3 * rng.standard_normal(N_ROWS),
        "class": np.where(linear + rng.logistic(size=N_ROWS) > 0.0, "yes", "no"),
        "count": rng.poisson(days * np.exp(linear)),
    }[target]
    frame = pd.DataFrame({"log_sold": sold, "days": days, "brand": brand, "price": price, "product": product})
    frame.loc[:: N_ROWS // GAPS, "price"] = np.nan
    return frame.assign(store=np.where(product < 3, "north", "south"))


def fit(target: str, missing: str):
    kind = {"real": HLCRRegressor, "class": HLCRClassifier, "count": HLCRCountRegressor}[target]
    frame = sales(target)
    if target != "count":
        frame = frame.drop(columns="days")
    model = kind(2, categories=["brand"], missing=missing, n_sweeps=20, random_state=0)
    more = {"exposure": "days"} if target == "count" else {}
    return model.fit(frame, "log_sold", agent="store", entity="product", **more), frame


@pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.MissingValuesWarning")
@pytest.mark.filterwarnings("ignore::fedhlcr.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.SimplerModelWarning")
@pytest.mark.parametrize("missing", ["drop", "impute"])
@pytest.mark.parametrize("target", ["real", "class", "count"])
def test_tables_of_the_fit_need_no_further_arguments(target, missing):
    model, frame = fit(target, missing)
    n_used = N_ROWS - (GAPS if missing == "drop" else 0)
    # gaps as pandas has them, and shuffled columns of polars
    events = frame if missing == "drop" else pl.from_pandas(frame[frame.columns[::-1]])
    assert f"{n_used} events" in plot.posterior_predictive(model, events, n_replicates=20).get_title()
    plot.effects(model, "price", events)
    plot.effects(model, "brand", events)
    plot.entity(model, "north", 1, "price", events)
    if target == "real":
        assert f"{n_used} events" in plot.predicted_against_observed(model, events).get_title()
        plot.calibration(model, events)
    else:
        plot.reliability(model, events)
    plt.close("all")


def test_labels_have_the_name_of_the_targets_column():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MissingValuesWarning)
        model, frame = fit("real", "impute")
    # these axes have the target as it was fitted, not its antilogarithm
    assert plot.posterior_predictive(model, frame).get_xlabel() == "log_sold"
    assert plot.predicted_against_observed(model, frame).get_xlabel() == "predicted log_sold"
    assert plot.predicted_against_observed(model, frame, target="sales").get_xlabel() == "predicted sales"
    plt.close("all")
