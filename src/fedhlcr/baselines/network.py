"""FedAvg and FedProx for a small neural network: what a federation does that thinks neither of classes nor of lines.

A round: the server sends its network; every agent that is asked takes some steps of stochastic gradient descent on its
own events; the server takes the mean of the networks, weighted by events (McMahan et al., 2017). All agents train at
once: their networks are stacked, and a layer is one batched matrix product.
"""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.extras import missing_extra
from fedhlcr.baselines.federated import FederatedRival, RandomCohorts, Round, Settings
from fedhlcr.baselines.rival import AUTO, COUNT, WEIGHT, Constraints, Rows, Standardized
from fedhlcr.exceptions import ArgumentError, FitError

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

    def __init__(
        self,
        hidden=(32, 32),
        n_rounds=100,
        local_steps=10,
        batch_size=32,
        learning_rate="auto",
        proximal=0.0,
        participation=1.0,
        random_state=0,
    ):
        self.hidden = hidden
        self.n_rounds = n_rounds
        self.local_steps = local_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.proximal = proximal
        self.participation = participation
        self.random_state = random_state

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


class _Batch(NamedTuple):
    """Events of each agent: features, targets and how much they count, which is 1 in all for an agent."""

    X: Weights  # (agents, events, n_features)
    y: Weights  # (agents, events, 1)
    weight: Weights  # (agents, events, 1)


class _NetworkEvents:
    """The agents' events, to draw batches from."""

    def __init__(self, data: Standardized, batch_size: int | None) -> None:
        self._X = data.design()[:, 1:].astype(np.float32)
        self._y = data.target().astype(np.float32)[:, None]
        self._first = data.first_event[:-1]
        self.sizes = np.diff(data.first_event)
        self._batch_size = batch_size

    def batch(self, agents: IndexArray, rng: np.random.Generator) -> _Batch:
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
        return _Batch(self._X[rows], self._y[rows], weight[..., None].astype(np.float32))


def _first_layers(sizes: tuple[int, ...], rng: np.random.Generator) -> list[Weights]:
    """Random weights that keep the spread of what passes through rectified units (He et al., 2015), and no biases."""
    layers = []
    for inputs, outputs in pairwise(sizes):
        layers.append((rng.normal(size=(inputs, outputs)) * np.sqrt(2.0 / inputs)).astype(np.float32))
        layers.append(np.zeros((1, outputs), dtype=np.float32))
    return layers


def _train_locally(
    server: list[Weights], batches: list[_Batch], shares: FloatArray, learning_rate: float, proximal: float
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
