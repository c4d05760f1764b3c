"""Private runs on a grid without sockets: without noise and with one secret for all, so that runs can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedhlcr import DifferentialPrivacy
from fedhlcr.federation.private import agents as private_agents
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.run import AgentsHere, run_private
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy import noise
from tests.federations import hierarchy_of

SECRET, ROUNDS = 7, 5
OPTIONS = {"epsilon": 100.0, "privacy_rounds": ROUNDS, "delta": 0.001}


def without_noise(monkeypatch: Any) -> None:
    """All noise is zero, and all agents have the same secret."""
    monkeypatch.setattr(noise, "_mechanism", lambda scale: lambda zeros: zeros)
    monkeypatch.setattr(private_agents.secrets, "randbits", lambda bits: SECRET)


def settings_of(n_features: int, **more: Any) -> FederationSettings:
    privacy = DifferentialPrivacy(OPTIONS["epsilon"], OPTIONS["delta"], ROUNDS)
    return FederationSettings(GramLayout(n_features), seed=3, privacy=privacy, **more)


def server_in_process(table: Any, **more: Any) -> PrivateServer:
    """The run of `OPTIONS`, in this process, with the noise that the test has chosen."""
    agents = PrivateAgents(AgentShard.from_hierarchy(hierarchy_of(table)), secret=SECRET)
    settings = settings_of(table.X.shape[1], **more)
    assert settings.privacy is not None
    server = PrivateServer(settings, settings.privacy.plan(len(agents.names)), agents.names)
    run_private(server, AgentsHere.of(server, agents))
    return server


def assert_same_draws(model: Any, other: Any) -> None:
    """To the last digit."""
    ours, theirs = model.draws.to_record(), other.draws.to_record()
    assert list(ours) == list(theirs)
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)
    for part in ("shift", "scale"):
        np.testing.assert_array_equal(getattr(model.standardization, part), getattr(other.standardization, part))
