"""Mods: functions at the agents that contributions pass through before they leave.

A mod takes the broadcast and a function `answer` that computes the contributions, and returns contributions. It may
inspect the broadcast, and inspect or change the contributions, which name their agents. It keeps some agents silent by
returning the contributions of the others, and all of them by raising `DisclosureError`; to the server these agents have
not answered. The innermost `answer` draws the labels and sums the matrices. A disclosure check, clipping and noise, or
masks are one mod each:

    def at_least_ten_events(broadcast: Broadcast, answer: Answer) -> Contributions:
        contributions = answer(broadcast)
        n_events = contributions.sums.by_agent(broadcast.layout.n_events(contributions.sums.grams))
        return contributions.take(np.flatnonzero(n_events >= 10))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from fedhlcr.federation.messages import Broadcast, Contributions

Answer = Callable[[Broadcast], Contributions]
Mod = Callable[[Broadcast, Answer], Contributions]


def with_mods(mods: Sequence[Mod], answer: Answer) -> Answer:
    """The function `answer` wrapped by the mods. The first mod is the outermost: contributions leave through it."""

    def wrapped(inner: Answer, mod: Mod) -> Answer:
        return lambda broadcast: mod(broadcast, inner)

    return reduce(wrapped, reversed(mods), answer)
