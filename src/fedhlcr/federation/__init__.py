"""The federation: messages, agents, the server and its rules. Engines, in `fedhlcr.engines`, only carry messages.

    server = Server(FederationSettings(GramLayout(n_features)))
    run_federation(server, engine)
    model = server.model()           # public
    agent.predict(model, X, entity)  # at the agent, with its private matrices

What leaves an agent is listed in `messages`; what the server refuses, in `checks`.
"""

from fedhlcr.federation.account import Account
from fedhlcr.federation.agent import Agent
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.messages import Broadcast, Contribution, Contributions
from fedhlcr.federation.mods import Mod
from fedhlcr.federation.open_round import Invitation
from fedhlcr.federation.run import Checkpoints, Engine, EngineFactory, SimulationEngine, run_federation
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model.gram import GramLayout
from fedhlcr.posterior import PublicModel

__all__ = [
    "Account",
    "Agent",
    "AgentShard",
    "Broadcast",
    "Checkpoints",
    "Contribution",
    "Contributions",
    "Engine",
    "EngineFactory",
    "FederationSettings",
    "GramLayout",
    "Invitation",
    "Mod",
    "PublicModel",
    "ReplyLimits",
    "Server",
    "SimulationEngine",
    "run_federation",
]
