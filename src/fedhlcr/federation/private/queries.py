"""What the server of a private run asks: all of it is public, and computed from noisy sums."""

from __future__ import annotations

from dataclasses import dataclass

from fedhlcr._support.arrays import IndexArray
from fedhlcr.federation.private import units
from fedhlcr.federation.private.scores import RoundQuery
from fedhlcr.federation.private.units import Limits
from fedhlcr.model.gaussian import Gaussian, GaussianGlobals
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.privacy.differential_privacy import LOCATIONS, MOMENTS, SPREADS, STAGES, VOTES, PrivacyPlan
from fedhlcr.privacy.release import ClippedBlock

ROUND = "round"


@dataclass(frozen=True)
class Query:
    """A question to all agents, which they answer with one clipped vector each.

    Attributes
    ----------
    run : number of the run
    stage : name of the release, `privacy.differential_privacy`; ROUND for the three blocks of a round
    number : of the round, from 1; 0 before
    layout : of the regressions
    blocks : what the answer consists of, `planned_blocks`
    limits : of the columns' means, once agents have voted
    units : of the columns; their places and spreads, as far as they are known
    law : under which agents draw labels; None before the first round
    cluster_of : (clusters of the first round,) their present numbers
    round : what agents need for scores
    """

    run: int
    stage: str
    number: int
    layout: GramLayout
    blocks: tuple[ClippedBlock, ...]
    limits: Limits | None = None
    units: Standardization | None = None
    law: GaussianGlobals | None = None
    cluster_of: IndexArray | None = None
    round: RoundQuery | None = None

    @property
    def place(self) -> int:
        """The place of the query in its run: the stages come first, then the rounds."""
        return STAGES.index(self.stage) if self.number == 0 else len(STAGES) + self.number - 1

    @property
    def n_values(self) -> int:
        return sum(block.size for block in self.blocks)

    @property
    def likelihood(self) -> Gaussian:
        return Gaussian(self.layout)

    @property
    def own_layout(self) -> GramLayout:
        """The layout of the agents' own matrices, which always have a constant."""
        return GramLayout(self.layout.n_features)


def planned_blocks(
    stage: str, layout: GramLayout, plan: PrivacyPlan, question: RoundQuery | None = None
) -> tuple[ClippedBlock, ...]:
    """What the answer to a query consists of, with the noise that the plan gives it."""
    if question is not None:
        return question.blocks(plan)
    n_columns = layout.n_features + 1
    sizes = {
        VOTES: units.votes_size(n_columns),
        LOCATIONS: n_columns * units.N_CELLS,
        SPREADS: n_columns * units.N_EXPONENTS,
        MOMENTS: units.moments_size(GramLayout(layout.n_features)),
    }
    return (ClippedBlock(stage, sizes[stage], plan.mu_of(stage)),)
