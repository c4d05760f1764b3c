"""FedAvg and FedProx for one linear regression: local gradient steps, and the mean of where they lead.

A round: the server sends its regression; every agent that is asked takes some gradient steps on its own events; the
server takes the mean, weighted by events. From Gram matrices the steps are exact, without passes over events.
"""

from __future__ import annotations

import numpy as np

from fedhlcr.arrays import FloatArray
from fedhlcr.baselines.linear import Coefficients, LinearRival, Standardized


class FedAvgRegressor(LinearRival):
    """One regression for all, by federated averaging.

    With many local steps and agents that differ it does not end at the regression of all events pooled: that is what
    averaging costs, and what the proximal term (FedProx) limits.

    Parameters
    ----------
    n_rounds : int, default=100
    local_steps : int, default=5
        Gradient steps of an agent in a round, over all its events each.
    proximal : float, default=0.0
        Weight of the squared distance to the server's regression in an agent's objective: 0 is FedAvg, more FedProx.
    participation : float, default=1.0
        Share of the agents asked in each round.
    random_state : int or None, default=0

    Attributes
    ----------
    path_ : (n_rounds, n_features + 1), the server's regression after each round, in standardised units
    """

    def __init__(self, n_rounds=100, local_steps=5, proximal=0.0, participation=1.0, random_state=0):
        self.n_rounds = n_rounds
        self.local_steps = local_steps
        self.proximal = proximal
        self.participation = participation
        self.random_state = random_state

    def _solve(self, data: Standardized) -> Coefficients:
        for name, least in (("n_rounds", 1), ("local_steps", 1), ("proximal", 0.0)):
            if not getattr(self, name) >= least:
                raise ValueError(f"`{name}` must be at least {least}, but is {getattr(self, name)!r}.")
        if not 0.0 < self.participation <= 1.0:
            raise ValueError(f"`participation` must be above 0 and at most 1, but is {self.participation!r}.")
        agents = data.layout.normal_equations(data.by_agent(data.grams))
        curvature, slope = agents.xx / agents.n[:, None, None], agents.xy / agents.n[:, None]
        # one for all, and the largest at which no agent's own descent diverges
        step = 1.0 / (np.linalg.eigvalsh(curvature)[:, -1].max() + self.proximal)
        rng = np.random.default_rng(self.random_state)
        n_agents = len(slope)
        n_asked = max(1, round(self.participation * n_agents))
        server = np.zeros(data.layout.n_coef)
        path = []
        for _ in range(self.n_rounds):
            asked = np.sort(rng.permutation(n_agents)[:n_asked])
            local = self._descend(server, curvature[asked], slope[asked], step)
            server = agents.n[asked] @ local / agents.n[asked].sum()
            path.append(server)
        self.path_ = np.array(path)
        return Coefficients(server)

    def _descend(self, server: FloatArray, curvature: FloatArray, slope: FloatArray, step: float) -> FloatArray:
        """(agents, n_coef) where agents are after their local steps."""
        local = np.tile(server, (len(slope), 1))
        for _ in range(self.local_steps):
            gradient = np.einsum("aij,aj->ai", curvature, local) - slope + self.proximal * (local - server)
            local -= step * gradient
        return local
