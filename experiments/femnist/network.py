"""The paper's network for 28 × 28 characters, and what it says of images."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from experiments.femnist.loaders import N_CLASSES

N_HIDDEN = 512
# images at once when only the output is wanted
FORWARD_BATCH = 500


def build_network(seed: int) -> nn.Sequential:
    """Two 5 × 5 convolutions of 32 and 64 channels, each with 2 × 2 max-pooling; 512 ReLU; 62 logits.

    The paper's softmax is left to the loss and to `outputs`. The initial weights are a function of `seed` alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            OrderedDict(
                # pooling before ReLU gives the same numbers as after it, with a quarter of the work
                conv1=nn.Conv2d(1, 32, 5, padding="same"),
                pool1=nn.MaxPool2d(2),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(32, 64, 5, padding="same"),
                pool2=nn.MaxPool2d(2),
                relu2=nn.ReLU(),
                flat=nn.Flatten(),
                hidden=nn.Linear(64 * 7 * 7, N_HIDDEN),
                relu3=nn.ReLU(),
                logits=nn.Linear(N_HIDDEN, N_CLASSES),
            )
        )
    # a fifth faster on CPUs; torch's stubs do not know the argument for modules
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def as_input(x: NDArray[np.uint8]) -> Tensor:
    """Ink (n, 1, 28, 28) from 0, paper, to 1, for the background of an image should be silent."""
    ink = 1.0 - torch.from_numpy(x).to(torch.float32) / 255.0
    return ink.unsqueeze(1).contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class Outputs:
    """What the network says of images: softmax output (n, 62), and its last hidden layer after ReLU (n, 512)."""

    probabilities: NDArray[np.float64]
    hidden: NDArray[np.float32]


def outputs(network: nn.Sequential, x: NDArray[np.uint8]) -> Outputs:
    network.eval()
    body, head = network[:-1], network[-1]
    with torch.inference_mode():
        starts = range(0, len(x), FORWARD_BATCH)
        hidden = torch.cat([body(as_input(x[start : start + FORWARD_BATCH])) for start in starts])
        return Outputs(torch.softmax(head(hidden).double(), dim=1).numpy(), hidden.numpy())
