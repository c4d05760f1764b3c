"""Small runs of everything that draws numbers, and the messages and files they make."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from fedhlcr import NEW, ConvergenceWarning, FedHLCRRegressor, HLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.federation import Agent, Broadcast, FederationSettings, GramLayout, Server
from tests.problems import PAPER

FOLDER = Path(__file__).parent
NUMBERS, MESSAGES = FOLDER / "numbers.npz", FOLDER / "messages.npz"
MODEL, PUBLIC_MODEL, FEDERATED_MODEL = (
    FOLDER / f"{name}.fedhlcr" for name in ("centralised", "centralised_public", "federated")
)
# The same models as release 0.1 wrote them. These files are never written again.
VERSION_1 = FOLDER / "version_1"
FIXED = {"noise_scale": 0.5, "coef_scale": 1.0, "global_concentration": 1.0, "agent_concentration": 0.7}
# Rounds of the federation whose messages are kept.
KEPT_ROUNDS = (0, 1, 2, 20)


def table():
    return make_hlcr(20, 4, 6, 3, 3, 0.3, random_state=11)[0]


def estimators():
    """By name: how each is fitted."""
    return {
        "centralised": HLCRRegressor(**PAPER, n_sweeps=60, n_draws=5, n_chains=2, max_clusters=12),
        "fixed": HLCRRegressor(
            **PAPER, n_clusters=3, n_sweeps=40, n_draws=5, fit_intercept=False, standardize=False, **FIXED
        ),
        "common_mean": HLCRRegressor(**PAPER, n_sweeps=40, n_draws=5, coef_prior="common_mean", random_state=4),
        "collapsed": HLCRRegressor(**PAPER, n_clusters=3, sampler="collapsed", n_sweeps=20, n_draws=5, random_state=2),
        "paper": HLCRRegressor(
            **PAPER,
            n_clusters=3,
            sampler="collapsed",
            label_prior="paper",
            coef_prior="zero_mean",
            n_sweeps=20,
            n_draws=5,
        ),
        "federated": FedHLCRRegressor(
            **PAPER, participation=0.5, failure_rate=0.2, rounds=60, n_draws=5, max_clusters=12
        ),
        "blend": FedHLCRRegressor(
            **PAPER, n_clusters=3, rule="blend", participation=0.5, rounds=20, n_draws=5, **FIXED
        ),
    }


def fitted():
    data = table()
    ids = {"agent": data.agent, "entity": data.entity}
    with warnings.catch_warnings():
        # short chains disagree
        warnings.simplefilter("ignore", ConvergenceWarning)
        return {name: model.fit(data.X, data.y, **ids) for name, model in estimators().items()}


def numbers(models) -> dict[str, np.ndarray]:
    """Labels, coefficients, predictions, traces."""
    data = table()
    ids = {"agent": data.agent, "entity": data.entity}
    stranger = np.array(["a new agent"] * 5, dtype=object)
    out: dict[str, np.ndarray] = {}
    for name, model in models.items():
        adapted = model.adapt(data.X[:6], data.y[:6] + 0.5, agent=[*stranger.tolist(), data.agent[5]], entity=["a"] * 6)
        moments = model.predict_moments(data.X, levels=(0.05, 0.95), **ids)
        rounds = model.trace_ if hasattr(model, "trace_") else model.history_
        out |= {
            f"{name}/labels": model.labels_,
            f"{name}/coef": model.coef_,
            f"{name}/intercept": model.intercept_,
            f"{name}/cluster_weights": model.cluster_weights_,
            f"{name}/agent_weights": model.agent_weights_,
            f"{name}/scalars": np.array(
                [model.noise_scale_, model.global_concentration_, model.agent_concentration_, *model.coef_scale_]
            ),
            f"{name}/mean": moments.mean,
            f"{name}/std": moments.std,
            f"{name}/quantiles": moments.quantiles,
            f"{name}/new_entity": model.predict(data.X, agent=data.agent, entity=NEW),
            f"{name}/new_agent": model.predict(data.X[:5], agent=stranger),
            f"{name}/adapted": adapted.predict(data.X[:5], agent=stranger, entity=["a"] * 5),
            f"{name}/log_density": model.log_density(data.X, data.y, **ids),
            **{
                f"{name}/rounds/{column}": rounds[column]
                for column in rounds.dtype.names
                if not rounds.dtype[column].hasobject
            },
        }
    return out


def messages() -> dict[str, np.ndarray]:
    """Broadcasts and contributions of some rounds, as bytes; the session, which is a time, is fixed."""
    out: dict[str, np.ndarray] = {}
    for rule, params in (("delta", {}), ("blend", {"n_clusters": 3, **FIXED})):
        by_name = {agent.name: agent for agent in some_agents()}
        server = Server(FederationSettings(GramLayout(3), seed=7, rule=rule, max_clusters=6, **PAPER, **params))
        server.session = 1
        while server.round < max(KEPT_ROUNDS):
            call = server.open_round(list(by_name))
            replies = [
                by_name[name]
                .round(Broadcast.from_bytes(call.broadcast.acknowledging(int(known)).to_bytes()))
                .to_bytes()
                for name, known in zip(call.agents, call.acknowledged, strict=True)
            ]
            for reply in replies:
                server.accept(reply)
            number = server.close_round().round
            if number in KEPT_ROUNDS:
                out[f"{rule}/{number}/broadcast"] = np.frombuffer(call.broadcast.to_bytes(), dtype=np.uint8)
                out[f"{rule}/{number}/contribution"] = np.frombuffer(replies[0], dtype=np.uint8)
        out[f"{rule}/model"] = np.frombuffer(server.model().to_bytes(), dtype=np.uint8)
        out[f"{rule}/server"] = np.frombuffer(server.to_bytes(), dtype=np.uint8)
    return out


def some_agents() -> list[Agent]:
    """Six agents of the table that have taken part in no run."""
    data = table()
    return [
        Agent(agent, data.X[own], data.y[own], data.entity[own], disclosure=None)
        for agent in np.unique(data.agent)[:6]
        for own in [data.agent == agent]
    ]
