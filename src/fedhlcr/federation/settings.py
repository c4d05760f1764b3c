"""What a federation is to do, fixed before it starts."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, get_args

from fedhlcr.exceptions import ArgumentError
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.rules import RuleName
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import GAUSSIAN, AnyLikelihood, likelihood_named
from fedhlcr.model.priors import LEARNABLE, CoefPriorKind
from fedhlcr.samplers.chain import START_FACTOR
from fedhlcr.samplers.merging import Merger, MergeSchedule
from fedhlcr.storage.reader import MOST

# Looks for mergers begin in this round with all agents, when a centralised chain begins them (round 1 is its
# sweep 0), and after so many visits of each agent otherwise.
FIRST_LOOK, FIRST_LOOK_VISITS = MergeSchedule.first + 1, 10
# What may be None: to be learned, to be found, or without a limit.
OPTIONAL = ("n_clusters", "rounds", "patience", *LEARNABLE)
# Stands for what must be above zero.
TINY = sys.float_info.min
# Visits of each agent after which a run without a limit ends, converged or not.
MOST_VISITS = 200


@dataclass(frozen=True)
class FederationSettings:
    """The settings of a run; all that the server needs to know but who its agents are.

    Attributes
    ----------
    layout : features, and whether there is an intercept; all agents must agree with it
    seed : of all draws; the result depends on it and on who took part
    rule : "delta", exact blocked Gibbs, or "blend", the paper's Algorithm 3
    n_clusters : clusters wanted; None finds the number by merging
    max_clusters : clusters to start with where the number is to be found
    noise_scale : in units of y; None learns it, and so for the next three
    coef_scale : in standardised units
    participation : share of the agents within reach that is asked in a round
    rounds : the most rounds; None is as many as it takes
    patience : rounds that are compared with as many before to see whether a run has converged, more where agents are
        asked seldom; None never stops
    n_draws : the most draws that are kept
    learning_rate, participation_scaling : of the blend rule
    likelihood : name of a registered likelihood, `model.likelihood`
    """

    layout: GramLayout
    seed: int = 0
    rule: RuleName = "delta"
    n_clusters: int | None = None
    max_clusters: int = 64
    noise_scale: float | None = None
    coef_scale: float | None = None
    global_concentration: float | None = None
    agent_concentration: float | None = None
    coef_prior: CoefPriorKind = "adaptive"
    standardize: bool = True
    participation: float = 1.0
    rounds: int | None = None
    patience: int | None = 10
    n_draws: int = 100
    learning_rate: float = 0.2
    participation_scaling: bool = True
    limits: ReplyLimits = field(default_factory=ReplyLimits)
    likelihood: str = field(default=GAUSSIAN, repr=False)

    def __post_init__(self) -> None:
        self._check()
        self.make_likelihood()
        if self.rule == "blend":
            self._check_blend()

    def _check(self) -> None:
        """Every value in its range, and of Python's own types: what is equal is to be written alike."""
        for name, words in (("rule", get_args(RuleName)), ("coef_prior", get_args(CoefPriorKind))):
            if (word := getattr(self, name)) not in words:
                raise ArgumentError(f"`{name}` must be one of {', '.join(words)}, but is {word!r}.")
        for name in ("n_clusters", "max_clusters", "rounds", "patience", "n_draws"):
            self._coerce(name, int, 1, math.inf, "a whole number of at least 1")
        if self.start_clusters > MOST:
            raise ArgumentError(
                f"`n_clusters` and `max_clusters` make the run start with {self.start_clusters} clusters, but agents "
                f"take at most {MOST}; pass a smaller number."
            )
        self._coerce("seed", int, -(2**63), 2**63 - 1, "a whole number of at most 63 bits")
        for name in ("participation", "learning_rate"):
            self._coerce(name, float, 1e-6, 1.0, "a number of at least 0.000001 and at most 1")
        for name in ("standardize", "participation_scaling"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        for name in LEARNABLE:
            self._coerce(name, float, TINY, sys.float_info.max, "a number above 0")

    def _coerce(self, name: str, kind: type[int | float], least: float, most: float, expected: str) -> None:
        value: Any = getattr(self, name)
        if value is None and name in OPTIONAL:
            return
        is_number = isinstance(value, Real)
        if not is_number or not least <= value <= most or kind(value) != value:
            raise ArgumentError(f"`{name}` must be {expected}, but is {value!r}.")
        object.__setattr__(self, name, kind(value))

    def _check_blend(self) -> None:
        if self.likelihood != GAUSSIAN:
            raise ArgumentError(
                f"rule='blend' is the paper's algorithm, for the likelihood {GAUSSIAN!r} only, but `likelihood` is "
                f"{self.likelihood!r}; use rule='delta'."
            )
        if missing := [name for name in ("n_clusters", *LEARNABLE) if getattr(self, name) is None]:
            raise ArgumentError(
                f"rule='blend' cannot learn {', '.join(f'`{name}`' for name in missing)}: it takes all hyperparameters "
                "as given. Pass numbers, or use rule='delta', which learns them."
            )

    def make_likelihood(self) -> AnyLikelihood:
        return likelihood_named(self.likelihood, self.layout)

    @property
    def run_text(self) -> str:
        """Names the run: runs with other settings have another text."""
        own = "" if self.likelihood == GAUSSIAN else f"/{self.likelihood}"
        return f"run/{self}{own}"

    @property
    def most_rounds(self) -> int:
        return math.ceil(MOST_VISITS / self.participation) if self.rounds is None else self.rounds

    @property
    def window(self) -> int | None:
        """Rounds that are compared with as many before: `patience`, or more where agents are asked seldom."""
        return None if self.patience is None else math.ceil(self.patience * max(1.0, 0.5 / self.participation))

    @property
    def start_clusters(self) -> int:
        if self.n_clusters is None:
            return self.max_clusters
        return self.n_clusters if self.rule == "blend" else START_FACTOR * self.n_clusters

    def merger(self) -> Merger:
        visits = FIRST_LOOK if self.participation == 1.0 else math.ceil(FIRST_LOOK_VISITS / self.participation)
        return Merger(MergeSchedule.until(max(1, self.most_rounds // 2), first=visits), self.n_clusters)

    @property
    def extension(self) -> int:
        """Rounds that a run goes on for at least when an agent has withdrawn, and all draws with it."""
        return max(2 * (self.window or 0), math.ceil(FIRST_LOOK_VISITS / self.participation))
