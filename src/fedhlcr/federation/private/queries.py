"""What the server of a private run asks: all of it is public, and computed from noisy sums."""

from __future__ import annotations

from dataclasses import dataclass

from fedhlcr._support.arrays import IndexArray
from fedhlcr.federation.private.scores import RoundQuery
from fedhlcr.federation.private.units import Limits
from fedhlcr.model.gaussian import Gaussian, GaussianGlobals
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.privacy.release import Block


@dataclass(frozen=True)
class Query:
    """A question to all agents, which they answer with one clipped vector each.

    Attributes
    ----------
    run : number of the run
    stage : name of the release, `privacy.differential_privacy`; "round" for the three blocks of a round
    number : of the round, from 1; 0 before
    layout : of the regressions
    blocks : what the answer consists of
    limits : of the columns' means, once agents have voted
    units : of the columns; their places and spreads, as far as they are known
    law : under which agents draw labels; None before the first round
    cluster_of : (clusters of the round before,) their present numbers
    round : what agents need for scores
    """

    run: int
    stage: str
    number: int
    layout: GramLayout
    blocks: tuple[Block, ...]
    limits: Limits | None = None
    units: Standardization | None = None
    law: GaussianGlobals | None = None
    cluster_of: IndexArray | None = None
    round: RoundQuery | None = None

    @property
    def likelihood(self) -> Gaussian:
        return Gaussian(self.layout)

    @property
    def own_layout(self) -> GramLayout:
        """The layout of the agents' own matrices, which always have a constant."""
        return GramLayout(self.layout.n_features)
