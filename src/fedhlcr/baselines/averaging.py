"""FedAvg and FedProx (McMahan et al., 2017): local gradient steps, and the mean of their results.

In a round the server sends its model. Every agent asked takes some gradient steps on its own events, and the server
takes the mean, weighted by events. For one linear regression, gradients from Gram matrices are exact and need no pass
over events: all steps of a round are one affine map, the same in each round. A small neural network is what a
federation does that thinks neither of classes nor of lines. All agents train at once: their networks are stacked, and
a layer is one batched matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.extras import missing_extra
from fedhlcr.baselines.federated import BYTES_PER_NUMBER, FederatedRival, RandomCohorts, Round, Settings
from fedhlcr.baselines.rival import AUTO, COUNT, WEIGHT, Coefficients, Constraints, Rows, Standardized
from fedhlcr.exceptions import ArgumentError, FitError
from fedhlcr.model.gram import NormalEquations


@dataclass(eq=False, repr=False)
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

    n_rounds: int = 100
    local_steps: Any = "auto"
    proximal: Any = 0.0
    participation: float = 1.0
    random_state: int | None = 0

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


if TYPE_CHECKING:
    from torch import Tensor

# Networks travel in single precision.
BYTES_PER_WEIGHT = 4
# Norm to which an agent's gradient is cut: rare large values of x would throw it far away.
LARGEST_GRADIENT = 1.0

Weights = NDArray[np.float32]


class Network(NamedTuple):
    """Layers of rectified linear units, and a linear one on top.

    Attributes
    ----------
    layers : weights (inputs, outputs) and biases (1, outputs) in turn, from the first layer to the last
    """

    layers: tuple[Weights, ...]

    def predict(self, rows: Rows) -> FloatArray:
        values = rows.design[:, 1:]
        # a network whose training diverged predicts infinities
        with np.errstate(over="ignore", invalid="ignore"):
            for weights, biases in zip(self.layers[:-2:2], self.layers[1:-2:2], strict=True):
                values = np.maximum(values @ weights + biases, 0.0)
            weights, biases = self.layers[-2:]
            return np.asarray(values @ weights + biases, dtype=float)[:, 0]


@dataclass(eq=False, repr=False)
class FedAvgNetworkRegressor(FederatedRival[Network]):
    """One small neural network for all, by federated averaging; takes PyTorch.

    It predicts from x alone: whose an event is plays no part.

    In a round every agent asked gets the network, and sends its own and its number of events, 4 bytes a number.

    Parameters
    ----------
    hidden : tuple of int, default=(32, 32)
        Units of each hidden layer.
    n_rounds : int, default=100
    local_steps : int, default=10
        Gradient steps of an agent in a round.
    batch_size : int or None, default=32
        Events of a step, drawn from the agent's own with replacement; None is all of them.
    learning_rate : float or "auto", default="auto"
        Size of a step; "auto" tries 0.03, 0.1 and 0.3.
    proximal : float or "auto", default=0.0
        Weight of the squared distance to the server's network in an agent's objective: 0 is FedAvg, more FedProx;
        "auto" tries 0.01, 0.1 and 1.
    participation : float, default=1.0
        Share of the agents asked in each round.
    random_state : int or None, default=0

    Attributes
    ----------
    learning_rate_, proximal_ : as given or chosen
    rounds_, n_rounds_, bytes_per_round_ : as of every federated rival
    """

    _grid: ClassVar[dict[str, tuple[Any, ...]]] = {"learning_rate": (0.03, 0.1, 0.3), "proximal": (0.01, 0.1, 1.0)}
    _parameter_constraints: ClassVar[Constraints] = {
        **FederatedRival._parameter_constraints,
        "hidden": [tuple, list],
        "n_rounds": [COUNT],
        "local_steps": [COUNT],
        "batch_size": [COUNT, None],
        "learning_rate": [WEIGHT, AUTO],
        "proximal": [WEIGHT, AUTO],
    }

    hidden: tuple[int, ...] = (32, 32)
    n_rounds: int = 100
    local_steps: int = 10
    batch_size: int | None = 32
    learning_rate: Any = "auto"
    proximal: Any = 0.0
    participation: float = 1.0
    random_state: int | None = 0

    def _solve(self, data: Standardized) -> Network:
        if not all(COUNT.is_satisfied_by(n_units) for n_units in self.hidden):
            raise ArgumentError(f"`hidden` must hold whole numbers of at least 1, but is {self.hidden!r}.")
        _import_torch()
        network = super()._solve(data)
        if not all(np.isfinite(layer).all() for layer in network.layers):
            raise FitError(
                f"Training diverged with a `learning_rate` of {self.learning_rate_}; give a smaller one, or 'auto'."
            )
        return network

    def _train(self, data: Standardized, settings: Settings) -> list[Round[Network]]:
        rng = np.random.default_rng(self.random_state)
        events = _NetworkEvents(data, self.batch_size)
        attendance = RandomCohorts(len(events.sizes), self.participation)
        server = _first_layers((data.layout.n_features, *self.hidden, 1), rng)
        n_numbers = 2 * sum(layer.size for layer in server) + 1
        rounds = []
        for _ in range(self.n_rounds):
            asked = attendance.ask(rng)
            batches = [events.batch(asked, rng) for _ in range(self.local_steps)]
            shares = events.sizes[asked] / events.sizes[asked].sum()
            server = _train_locally(server, batches, shares, **settings)
            rounds.append(Round(Network(tuple(server)), BYTES_PER_WEIGHT * len(asked) * n_numbers))
        return rounds


class _NetworkEvents:
    """The agents' events, to draw batches from."""

    def __init__(self, data: Standardized, batch_size: int | None) -> None:
        self._X = data.design()[:, 1:].astype(np.float32)
        self._y = data.target().astype(np.float32)[:, None]
        self._first = data.first_event[:-1]
        self.sizes = np.diff(data.first_event)
        self._batch_size = batch_size

    def batch(self, agents: IndexArray, rng: np.random.Generator) -> tuple[Weights, Weights, Weights]:
        """(agents, events, …) features, targets and how much events count, which is 1 in all for an agent."""
        sizes = self.sizes[agents, None]
        if self._batch_size is None:
            # agents with fewer events than others repeat their first, for nothing
            place = np.broadcast_to(np.arange(sizes.max()), (len(agents), sizes.max()))
            weight = (place < sizes) / sizes
            place = np.where(place < sizes, place, 0)
        else:
            place = (rng.random((len(agents), self._batch_size)) * sizes).astype(np.int64)
            weight = np.full(place.shape, 1.0 / self._batch_size)
        rows = self._first[agents, None] + place
        return self._X[rows], self._y[rows], weight[..., None].astype(np.float32)


def _first_layers(sizes: tuple[int, ...], rng: np.random.Generator) -> list[Weights]:
    """Random weights that keep the spread of what passes through rectified units (He et al., 2015), and no biases."""
    layers = []
    for inputs, outputs in pairwise(sizes):
        layers.append((rng.normal(size=(inputs, outputs)) * np.sqrt(2.0 / inputs)).astype(np.float32))
        layers.append(np.zeros((1, outputs), dtype=np.float32))
    return layers


def _train_locally(
    server: list[Weights],
    batches: list[tuple[Weights, Weights, Weights]],
    shares: FloatArray,
    learning_rate: float,
    proximal: float,
) -> list[Weights]:
    """The mean of where a step on each batch leads the agents, by their shares."""
    torch = _import_torch()
    pull = learning_rate * proximal / (1.0 + learning_rate * proximal)
    start = [torch.from_numpy(layer) for layer in server]
    local = [layer.expand(len(shares), -1, -1).clone().requires_grad_() for layer in start]
    for batch in batches:
        X, y, weight = map(torch.from_numpy, batch)
        # agents share nothing here, so one sum of their objectives has the gradients of all
        objective = 0.5 * (weight * (_forward(torch, local, X) - y) ** 2).sum()
        gradients = torch.autograd.grad(objective, local)
        norm = torch.sqrt(sum((gradient**2).sum(dim=(1, 2), keepdim=True) for gradient in gradients))
        step = learning_rate / torch.clamp(norm / LARGEST_GRADIENT, min=1.0)
        with torch.no_grad():
            for own, gradient, layer in zip(local, gradients, start, strict=True):
                own -= step * gradient
                # the proximal term by its own minimum: no weight of it is too large
                own += pull * (layer - own)
    weights = shares.astype(np.float32)
    return [np.einsum("a,aio->io", weights, own.detach().numpy()) for own in local]


def _forward(torch: ModuleType, layers: list[Tensor], X: Tensor) -> Tensor:
    """(agents, events, 1) by networks stacked (agents, …)."""
    for weights, biases in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        X = torch.relu(torch.baddbmm(biases, X, weights))
    return torch.baddbmm(layers[-1], X, layers[-2])


def _import_torch() -> ModuleType:
    try:
        import torch
    except ImportError as missing:
        raise missing_extra("FedAvgNetworkRegressor needs PyTorch", "torch") from missing
    return torch
