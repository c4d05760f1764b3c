"""Random numbers that depend on what is drawn (seed, chain, round, agent, entity) and not on the order of drawing.

An id enters as a hash of its canonical text, so that an agent draws the same numbers on every machine and whichever
other agents take part. Entities draw from Philox inside the kernels. The server's few draws of a round come from a
numpy generator with a key of the same form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, unique
from hashlib import blake2b

import numpy as np

from fedhlcr._support.arrays import KeyArray


def text_key(text: str) -> int:
    """A 64-bit hash of a text, the same on every machine and in every process."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def encoded_keys(texts: Iterable[bytes]) -> KeyArray:
    """The keys of texts that are encoded as `text_key` does it."""
    keys = b"".join([blake2b(text, digest_size=8).digest() for text in texts])
    return np.frombuffer(keys, dtype="<u8").astype(np.uint64)


@unique
class ReservedChain(IntEnum):
    """Chain numbers for draws outside a fit. The samplers' chains are 0, 1, …, so the random numbers never coincide."""

    ADAPTATION = -1  # labels of agents that adapt to new events
    PREDICTION = -2  # labels of agents' entities under public draws
    EVIDENCE = -3  # draws that estimate the evidence
    HELD_OUT = -4  # labels of agents' entities for the held-out error during a federation
    REPLICATION = -5  # targets drawn from the predictive distribution


@dataclass(frozen=True)
class Stream:
    """All random numbers of one chain of a run with this seed."""

    seed: int
    chain: int = 0

    def generator(self, round_number: int, purpose: str = "server") -> np.random.Generator:
        """The generator of one round, for the server's draws or for another purpose."""
        key = text_key(f"{purpose}/{self.seed}/{self.chain}/{round_number}")
        return np.random.Generator(np.random.Philox(key=key))

    def agent_streams(self, agent_keys: KeyArray) -> KeyArray:
        """Philox keys of the agents: their own keys mixed with seed and chain, by the splitmix64 finaliser."""
        z = agent_keys ^ np.uint64(text_key(f"agents/{self.seed}/{self.chain}"))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
