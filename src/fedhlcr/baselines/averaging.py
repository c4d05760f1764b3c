"""FedAvg and FedProx for one linear regression: local gradient steps, and the mean of their results.

In a round the server sends its regression. Every agent asked takes some gradient steps on its own events, and the
server takes the mean, weighted by events. Gradients from Gram matrices are exact and need no pass over events. All
steps of a round are one affine map, the same in each round.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.baselines.federated import BYTES_PER_NUMBER, FederatedRival, RandomCohorts, Round, Settings
from fedhlcr.baselines.rival import AUTO, COUNT, WEIGHT, Coefficients, Constraints, Standardized
from fedhlcr.model.gram import NormalEquations


class FedAvgRegressor(FederatedRival[Coefficients]):
    """One regression for all, by federated averaging.

    With many local steps and different agents it does not converge to the regression of the pooled events. This is the
    cost of averaging, and the proximal term (FedProx) limits it. The step size is one over the largest curvature of any
    agent, the largest at which no agent's own descent diverges.

    In a round every agent asked gets the regression, and sends its own and its number of events.

    Parameters
    ----------
    n_rounds : int, default=100
    local_steps : int or "auto", default="auto"
        Gradient steps of an agent in a round, over all its events each; "auto" tries 1, 5 and 20.
    proximal : float or "auto", default=0.0
        Weight of the squared distance to the server's regression in an agent's objective: 0 is FedAvg, more FedProx;
        "auto" tries 0.001, 0.01, 0.1 and 1.
    participation : float, default=1.0
        Share of the agents asked in each round.
    random_state : int or None, default=0

    Attributes
    ----------
    local_steps_, proximal_ : as given or chosen
    rounds_, n_rounds_, bytes_per_round_ : as of every federated rival
    """

    _grid: ClassVar[dict[str, tuple[Any, ...]]] = {"local_steps": (1, 5, 20), "proximal": (0.001, 0.01, 0.1, 1.0)}
    _parameter_constraints: ClassVar[Constraints] = {
        **FederatedRival._parameter_constraints,
        "n_rounds": [COUNT],
        "local_steps": [COUNT, AUTO],
        "proximal": [WEIGHT, AUTO],
    }

    def __init__(self, n_rounds=100, local_steps="auto", proximal=0.0, participation=1.0, random_state=0):
        self.n_rounds = n_rounds
        self.local_steps = local_steps
        self.proximal = proximal
        self.participation = participation
        self.random_state = random_state

    def _train(self, data: Standardized, settings: Settings) -> list[Round[Coefficients]]:
        agents = data.layout.normal_equations(data.by_agent(data.grams))
        factor, offset = _local_steps(agents, settings["local_steps"], settings["proximal"])
        rng = np.random.default_rng(self.random_state)
        attendance = RandomCohorts(len(offset), self.participation)
        server = np.zeros(data.layout.n_coef)
        rounds = []
        for _ in range(self.n_rounds):
            asked = attendance.ask(rng)
            local = factor[asked] @ server + offset[asked]
            server = agents.n[asked] @ local / agents.n[asked].sum()
            rounds.append(Round(Coefficients(server), BYTES_PER_NUMBER * len(asked) * (2 * len(server) + 1)))
        return rounds


def _local_steps(agents: NormalEquations, n_steps: int, proximal: float) -> tuple[FloatArray, FloatArray]:
    """Matrices P (agents, n_coef, n_coef) and vectors q (agents, n_coef): steps from w lead an agent to P w + q.

    A step is w ← w − s (C w − b + ρ (w − w₀)), with C and b of an agent's mean squared error, w₀ of the server.
    """
    curvature = agents.xx / agents.n[:, None, None]
    slope = agents.xy / agents.n[:, None]
    size = 1.0 / (np.linalg.eigvalsh(curvature)[:, -1].max() + proximal)
    identity = np.eye(slope.shape[1])
    shrink = (1.0 - size * proximal) * identity - size * curvature
    factor = np.broadcast_to(identity, curvature.shape)
    offset = np.zeros_like(slope)
    for _ in range(n_steps):
        factor = shrink @ factor + size * proximal * identity
        offset = (shrink @ offset[..., None])[..., 0] + size * slope
    return factor, offset
