"""A federation watched from round to round: FedHLCR as published, corrected, and with the delta rule."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from experiments.synthetic.data import AGENT_CONCENTRATION, COEF_SCALE, Fold, Size
from fedhlcr.data.hierarchy import build_hierarchy, row_agents, row_entities
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation.held_out import HeldOutErrors
from fedhlcr.federation.run import run_round
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.posterior.prediction import Profiles

RULES = ("published", "corrected", "delta")
RULE_NAMES = {"published": "blend, as published", "corrected": "blend, corrected", "delta": "delta"}


class Look(IntEnum):
    """What is looked at after each round; at the end it is always what `predict` would give."""

    END = 0
    STATES = 1
    AVERAGES = 2


class Watched(NamedTuple):
    """Held-out errors and traffic of a run.

    Attributes
    ----------
    each : after each round, of that round's draw alone
    running : after each round, of the prediction averaged over the draws kept so far: what `predict` would give
    traffic : bytes up and down from the start to each round, the survey included
    """

    each: list[float]
    running: list[float]
    traffic: list[int]


def watch(
    fold: Fold,
    settings: dict[str, Any],
    *,
    participation: float,
    n_rounds: int,
    seed: int,
    look: Look = Look.AVERAGES,
) -> Watched:
    """Run a federation for so many rounds."""
    train, test = fold
    hierarchy = build_hierarchy(train.X, train.y, np.ones(len(train)), train.agent, train.entity)
    index, engine = hierarchy.index, InProcessEngine(AgentShard.from_hierarchy(hierarchy), seed=seed)
    agents = index.find_agents(row_agents(test.agent, len(test)))
    profiles = Profiles.of(agents, index.find_entities(agents, row_entities(test.entity, len(test))))
    validation = HeldOutErrors(engine, index, test.X, test.y, profiles)
    server = Server(
        FederationSettings(
            GramLayout(train.X.shape[1]),
            seed=seed,
            participation=participation,
            rounds=n_rounds,
            patience=None,
            **{"effects": "none", "noise": "common", **settings},
        )
    )
    watched = Watched([], [], [])
    while not server.finished:
        run_round(server, engine)
        if server.has_draws:
            if look >= Look.STATES:
                draw = validation.predict(server, server.kept_draws[-1])
                watched.each.append(float(np.mean((draw - test.y) ** 2)))
            if look >= Look.AVERAGES or server.finished:
                validation.note(server)
                watched.running.append(validation.errors(server)[server.round])
            watched.traffic.append(sum(record.bytes_down + record.bytes_up for record in server.history.records))
    return watched


def settings_of(rule: str, size: Size, noise_scale: float, learning_rate: float) -> dict[str, Any]:
    """The blend rules are given the true K and hyperparameters, as in the paper; delta learns all of them."""
    if rule == "delta":
        return {"rule": "delta"}
    return {
        "rule": "blend",
        "participation_scaling": rule == "corrected",
        "learning_rate": learning_rate,
        "n_clusters": size.clusters,
        "noise_scale": noise_scale,
        "coef_scale": COEF_SCALE,
        "global_concentration": float(size.clusters),
        "agent_concentration": AGENT_CONCENTRATION,
        "standardize": False,
    }
