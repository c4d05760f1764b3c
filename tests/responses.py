"""Small fitted models of classes and counts, shared by the tests of summaries, plots and reports."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

from fedhlcr import HLCRClassifier, HLCRCountRegressor

N_AGENTS, N_ENTITIES, N_EVENTS = 4, 8, 12


@cache
def events():
    """Features, ids, and targets with known ratios: odds fall with time, counts are halved where treated."""
    rng = np.random.default_rng(3)
    n = N_AGENTS * N_ENTITIES * N_EVENTS
    frame = pd.DataFrame(
        {
            "clinic": np.repeat(np.arange(N_AGENTS), N_ENTITIES * N_EVENTS),
            "patient": np.tile(np.repeat(np.arange(N_ENTITIES), N_EVENTS), N_AGENTS),
            "time": rng.normal(5.0, 3.0, n),
            "treated": (rng.random(n) < 0.5).astype(float),
        }
    )
    log_odds = 2.0 - 0.5 * (frame["time"] - 5.0) / 1.5 + 1.5 * frame["treated"] - 1.0
    probability = 1.0 / (1.0 + np.exp(-log_odds))
    rate = np.exp(1.5 + 0.1 * frame["time"] - np.log(2.0) * frame["treated"])
    classes = np.where(rng.random(n) < probability, "severe", "mild")
    visits = rng.poisson(rate)
    # no effect, also by chance: nothing is left of it in the residuals of the true means
    residuals = (classes == "severe") - probability, visits - rate
    known = np.column_stack([np.ones(n), frame[["time", "treated"]], *residuals])
    noise = rng.normal(size=n)
    frame["nothing"] = noise - known @ np.linalg.lstsq(known, noise, rcond=None)[0]
    return frame, classes, visits


@cache
def classifier():
    frame, classes, _ = events()
    model = HLCRClassifier(1, n_sweeps=120, n_draws=60, n_threads=1)
    return model.fit(frame, classes, agent="clinic", entity="patient")


@cache
def counter():
    frame, _, visits = events()
    model = HLCRCountRegressor(1, n_sweeps=120, n_draws=60, n_threads=1)
    return model.fit(frame, visits, agent="clinic", entity="patient")
