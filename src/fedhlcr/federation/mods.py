"""Agent-side mods: what happens to a contribution before it leaves its agents.

A mod gets the broadcast and the next step, and returns contributions: it may look at the broadcast first, refuse to
answer (raise BroadcastError), change what the next step returns, or replace it. The last step draws the labels and sums
the matrices. A disclosure check, clipping and noise, or masks are one mod each:

    def at_least_ten_events(broadcast: Broadcast, answer: Answer) -> Contributions:
        contributions = answer(broadcast)
        ...
        return contributions
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from fedhlcr.federation.messages import Broadcast, Contributions

Answer = Callable[[Broadcast], Contributions]
Mod = Callable[[Broadcast, Answer], Contributions]


def with_mods(mods: Sequence[Mod], answer: Answer) -> Answer:
    """The answer as the mods make it; the first mod is the outermost, the last one to see what leaves."""

    def wrapped(inner: Answer, mod: Mod) -> Answer:
        return lambda broadcast: mod(broadcast, inner)

    return reduce(wrapped, reversed(mods), answer)
