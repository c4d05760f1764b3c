"""Federated averaging (McMahan et al., 2017): writers train copies of the server's network, it averages them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Weights = list[Tensor]


@dataclass(frozen=True)
class Shard:
    """What one writer trains with: input (n, …) and class (n,)."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class FedAvgPlan:
    """Length of the training, and what a writer does in a round.

    The learning rate falls linearly, from `learning_rate` in the first round to nothing after the last, or else the
    network would depend on whom the last round asked.
    """

    n_rounds: int
    writers_per_round: int
    local_epochs: int
    batch_size: int
    learning_rate: float


def federated_averaging(
    network: nn.Module, shards: Sequence[Shard], plan: FedAvgPlan, rng: np.random.Generator
) -> None:
    """Train `network` in place; each round asks `writers_per_round` of the writers, or all if there are fewer."""
    weights = [parameter.detach().clone() for parameter in network.parameters()]
    for number in range(plan.n_rounds):
        learning_rate = plan.learning_rate * (1 - number / plan.n_rounds)
        asked = rng.permutation(len(shards))[: plan.writers_per_round]
        total = sum(len(shards[writer].y) for writer in asked)
        mean = [torch.zeros_like(weight) for weight in weights]
        for writer in asked:
            set_weights(network, weights)
            train_locally(network, shards[writer], plan, learning_rate, rng)
            share = len(shards[writer].y) / total
            for into, parameter in zip(mean, network.parameters(), strict=True):
                into.add_(parameter.detach(), alpha=share)
        weights = mean
    set_weights(network, weights)


def train_locally(
    network: nn.Module, shard: Shard, plan: FedAvgPlan, learning_rate: float, rng: np.random.Generator
) -> None:
    """Plain stochastic gradient descent on the cross-entropy of one writer's images."""
    network.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate)
    for _ in range(plan.local_epochs):
        order = torch.from_numpy(rng.permutation(len(shard.y)))
        for rows in order.split(plan.batch_size):
            optimizer.zero_grad()
            functional.cross_entropy(network(shard.x[rows]), shard.y[rows]).backward()
            optimizer.step()


def set_weights(network: nn.Module, weights: Weights) -> None:
    with torch.no_grad():
        for parameter, weight in zip(network.parameters(), weights, strict=True):
            parameter.copy_(weight)
