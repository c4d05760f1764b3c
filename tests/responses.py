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
            "nothing": rng.normal(size=n),
        }
    )
    log_odds = 2.0 - 0.5 * (frame["time"] - 5.0) / 1.5 + 1.5 * frame["treated"] - 1.0
    classes = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-log_odds)), "severe", "mild")
    visits = rng.poisson(np.exp(1.5 + 0.1 * frame["time"] - np.log(2.0) * frame["treated"]))
    return frame, classes, visits


@cache
def classifier(n_sweeps=40, n_clusters=1):
    frame, classes, _ = events()
    model = HLCRClassifier(n_clusters, n_sweeps=n_sweeps, n_draws=20, n_threads=1)
    return model.fit(frame, classes, agent="clinic", entity="patient")


@cache
def counter(n_clusters=1):
    frame, _, visits = events()
    model = HLCRCountRegressor(n_clusters, n_sweeps=40, n_draws=20, n_threads=1)
    return model.fit(frame, visits, agent="clinic", entity="patient")
