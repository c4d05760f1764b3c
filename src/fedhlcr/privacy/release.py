"""Release a sum: clip what each agent adds, round it to a lattice, add the agents up, add noise.

This is the whole mechanism. All that leaves the agents goes through `agent_vectors` and `release`, so the guarantee
depends on this file, on `noise` and on `accounting` alone, and on nothing that is computed before or after.

Values are in units of the clip: an agent's block, clipped as *one* vector, has norm at most 1. In fixed point that is
2³⁰, and rounding goes towards zero, so that it cannot make the norm larger. Adding or removing an agent then changes
the sum of a block by at most 2³⁰ lattice units, and noise of scale 2³⁰/μ makes its release μ-GDP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.privacy.noise import NoiseSource, discrete_gaussian, noise_share

FRACTION_BITS = 30
UNIT = float(1 << FRACTION_BITS)


@dataclass(frozen=True)
class ClippedBlock:
    """A part of a message that is clipped as one vector: how many numbers it has, and μ of its release."""

    name: str
    size: int
    mu: float

    @property
    def noise_scale(self) -> float:
        """Standard deviation of the noise in units of the clip."""
        return 1.0 / self.mu

    @property
    def lattice_scale(self) -> float:
        """The same in lattice units."""
        return UNIT / self.mu


def clip_rows(values: FloatArray) -> FloatArray:
    """(agents, size) the rows, shortened to norm 1 where they are longer. A row that is not finite becomes zero."""
    finite = np.isfinite(values).all(axis=1, keepdims=True)
    values = np.where(finite, values, 0.0)
    # the largest entry first, so that squares do not overflow
    largest = np.maximum(np.abs(values).max(axis=1, keepdims=True, initial=0.0), 1e-300)
    scaled = values / largest
    relative = np.maximum(np.sqrt((scaled**2).sum(axis=1, keepdims=True)), 1.0)
    # a hair below 1: the division may round up
    return np.where(largest > 1.0 / relative, scaled / relative * (1.0 - 1e-12), values)


def agent_vectors(values: Sequence[FloatArray]) -> NDArray[np.int64]:
    """(agents, size) what agents send, before noise: their blocks, each clipped, side by side, in lattice units."""
    clipped = np.concatenate([clip_rows(block) for block in values], axis=1)
    return np.trunc(clipped * UNIT).astype(np.int64)


def server_noise(blocks: Sequence[ClippedBlock], source: NoiseSource = discrete_gaussian) -> NDArray[np.int64]:
    """(size,) the noise that a trusted server adds to the sum of all blocks."""
    return np.concatenate([source(block.lattice_scale, block.size) for block in blocks])


def agent_noise(
    blocks: Sequence[ClippedBlock], n_shares: int, source: NoiseSource = discrete_gaussian
) -> NDArray[np.int64]:
    """(size,) the share of the noise that one agent adds to its own vector, if at least `n_shares` agents do."""
    return np.concatenate([noise_share(block.lattice_scale, block.size, n_shares, source) for block in blocks])


def decode(total: NDArray[np.int64], blocks: Sequence[ClippedBlock]) -> dict[str, FloatArray]:
    """A noisy sum in lattice units as blocks by name, in units of the clip."""
    ends = np.cumsum([block.size for block in blocks])[:-1]
    parts = np.split(total.astype(np.float64) / UNIT, ends)
    return {block.name: part for block, part in zip(blocks, parts, strict=True)}


def release(
    values: Sequence[FloatArray], blocks: Sequence[ClippedBlock], source: NoiseSource = discrete_gaussian
) -> dict[str, FloatArray]:
    """The noisy sums over all agents, by a trusted server.

    Parameters
    ----------
    values : for each block, (agents, size) in units of the clip, before clipping
    blocks : what is released, in the same order
    source : of the noise; only tests pass another one
    """
    return decode(agent_vectors(values).sum(axis=0) + server_noise(blocks, source), blocks)
