"""Random numbers keyed by what is drawn: (seed, chain, round, agent, entity), never by when.

An id enters by a hash of its canonical text, so that the same agent draws the same numbers
wherever and in whatever company it runs. Entities draw by Philox inside the kernels; the server's
few draws of a round come from a numpy generator with the same kind of key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, unique
from hashlib import blake2b

import numpy as np

from fedhlcr._support.arrays import KeyArray


def text_key(text: str) -> int:
    """64-bit key of a text, the same on every machine and in every process."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def text_keys(texts: Iterable[str]) -> KeyArray:
    return np.array([text_key(text) for text in texts], dtype=np.uint64)


@unique
class ReservedChain(IntEnum):
    """Chains of draws that no sampler makes, whose chains are 0, 1, …; each purpose has its own."""

    ADAPTATION = -1  # labels of agents that have seen more events
    PREDICTION = -2  # labels of agents' entities under public draws
    EVIDENCE = -3  # by which evidence is estimated
    HELD_OUT = -4  # labels of agents' entities while a federation's held-out error is watched


@dataclass(frozen=True)
class Stream:
    """All randomness of one chain of one seeded run."""

    seed: int
    chain: int = 0

    def generator(self, round_number: int, purpose: str = "server") -> np.random.Generator:
        """The generator of a round for one purpose; the server's draws are one."""
        key = text_key(f"{purpose}/{self.seed}/{self.chain}/{round_number}")
        return np.random.Generator(np.random.Philox(key=key))

    def agent_streams(self, agent_keys: KeyArray) -> KeyArray:
        """Philox keys of the agents: their own keys mixed with seed and chain (the splitmix64 finaliser)."""
        z = agent_keys ^ np.uint64(text_key(f"agents/{self.seed}/{self.chain}"))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
