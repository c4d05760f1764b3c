"""The settings of a federation, which are fixed before it starts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace

from fedhlcr._support.checks import SIZE_LIMIT
from fedhlcr.exceptions import ArgumentError
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.weights import MAX_WEIGHT
from fedhlcr.model.choice import chosen_likelihood
from fedhlcr.model.curves import Curves
from fedhlcr.model.gram import GramLayout, layout_with
from fedhlcr.model.likelihood import AUTO, GAUSSIAN, AnyLikelihood, likelihood_named
from fedhlcr.model.priors import ModelSpec
from fedhlcr.privacy.differential_privacy import DifferentialPrivacy
from fedhlcr.samplers.chain import START_FACTOR
from fedhlcr.samplers.merging import Merger, MergeSchedule
from fedhlcr.settings import (
    LEARNABLE,
    MIN_COHORT,
    SETTINGS,
    AggregationName,
    CoefPriorKind,
    EffectsName,
    NoiseName,
    RuleName,
)

# The first round in which clusters may be merged: with all agents in every round the same as in a centralised chain
# (round 1 is its sweep 0), otherwise after each agent was asked FIRST_LOOK_VISITS times.
FIRST_ROUND = 1
FIRST_LOOK = MergeSchedule.first + FIRST_ROUND
FIRST_LOOK_VISITS = 10
SEED = replace(SETTINGS["random_state"], name="seed", least=-(2**63), most=2**63 - 1, or_none=False)
# Visits of each agent, on average, between the end of merging and the first draw that is kept, if there are effects.
SETTLING_VISITS = 2
# Visits of each agent after which a run with rounds=None ends even if its log joint is not stable.
MOST_VISITS = 200
# The same, and the factor of `patience`, where the state of agents settles slowly.
MOST_SLOW_VISITS = 300
SLOW_PATIENCE = 3.0


@dataclass(frozen=True)
class FederationSettings:
    """The settings of a run: all that the server needs to know in advance, except the agents' names.

    Attributes
    ----------
    layout : number of features, and whether there is an intercept; the same for all agents
    seed : seed of all random numbers; the result depends on it and on which agents took part
    rule : "delta" for exact blocked Gibbs, "blend" for the paper's Algorithm 3
    n_clusters : number of clusters; None finds it by merging
    max_clusters : number of clusters to start with if n_clusters is None
    noise_scale : σ in units of y; None learns it, as for the next three
    coef_scale : δ in standardised units
    global_concentration, agent_concentration : α and β
    coef_prior : prior of the coefficients, see `HLCRRegressor`
    standardize : whether columns are scaled to unit variance
    participation : share of the reachable agents that are asked in a round
    rounds : maximum number of rounds; None runs until the log joint is stable
    patience : a run ends when the log joint of this many rounds has the same mean as that of as many rounds
        before, up to noise; the number is raised if agents are asked rarely; None never stops early
    n_draws : maximum number of draws that are kept
    learning_rate, participation_scaling : of the blend rule
    limits : limits beyond which contributions are refused
    effects, noise : of the model, see `HLCRRegressor`; the blend rule always uses the paper's model
    likelihood : name of a registered likelihood, `model.likelihood`, or "auto": the one of the effects and the noise
    curves : positions of the columns that get curves (`model.curves`) if they have enough distinct values
    aggregation : "plain": the server sees every agent's sums; "secure": only the sum over a cohort
    fixed_point : whether sums are rounded to multiples of 2⁻³⁰, as secure aggregation needs; then a plain and a secure
        run of the same agents agree bit for bit
    min_cohort : fewest devices whose sum the server may learn under secure aggregation
    privacy : differential privacy of the agents; None for none
    simulated : whether one process, or one operator's cluster, has all agents, so that nobody need be distrusted;
        follows from the engine (`run.settings_for`)
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
    effects: EffectsName = field(default="auto", repr=False)
    noise: NoiseName = field(default="entity", repr=False)
    likelihood: str = field(default=AUTO, repr=False)
    curves: tuple[int, ...] = field(default=(), repr=False)
    aggregation: AggregationName = field(default="plain", repr=False)
    fixed_point: bool = field(default=False, repr=False)
    min_cohort: int = field(default=MIN_COHORT, repr=False)
    privacy: DifferentialPrivacy | None = field(default=None, repr=False)
    simulated: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        if self.privacy is not None:
            self.privacy.check_settings(self)
        self.make_likelihood()
        if self.rule == "blend":
            self._check_blend()

    def _check(self) -> None:
        """Check ranges, and convert values to Python's own types, so that equal settings have equal `run_text`."""
        for own in fields(self):
            if own.name in SETTINGS and own.name not in ("limits", "likelihood", "curves", "privacy"):
                object.__setattr__(self, own.name, SETTINGS[own.name].checked(getattr(self, own.name)))
        object.__setattr__(self, "seed", SEED.checked(self.seed))
        if self.start_clusters > SIZE_LIMIT:
            raise ArgumentError(
                f"with these `n_clusters` and `max_clusters` the run would start with {self.start_clusters} clusters, "
                f"but agents accept at most {SIZE_LIMIT}; pass a smaller number."
            )
        self._check_aggregation()
        self._check_curves()

    def _check_aggregation(self) -> None:
        if self.aggregation == "secure":
            object.__setattr__(self, "fixed_point", True)
        if not self.fixed_point:
            return
        mode = "aggregation='secure'" if self.aggregation == "secure" else "`fixed_point`"
        if self.curves:
            raise ArgumentError(
                f"{mode} does not support `curves`: their knots need quantiles of each agent's columns, and the server "
                "must not see these. Leave curves out, or use aggregation='plain'."
            )
        if self.rule == "blend":
            raise ArgumentError(f"{mode} needs rule='delta'; rule='blend' has no account of what agents have sent.")

    @property
    def is_secure(self) -> bool:
        return self.aggregation == "secure"

    def _check_curves(self) -> None:
        columns = sorted(set(self.curves))
        if any(type(column) is not int or not 0 <= column < self.layout.n_features for column in columns):
            raise ArgumentError(
                f"`curves` must be positions of columns, from 0 to {self.layout.n_features - 1}, but is {self.curves}."
            )
        object.__setattr__(self, "curves", tuple(columns))

    def _check_blend(self) -> None:
        if self.likelihood not in (AUTO, GAUSSIAN):
            raise ArgumentError(
                f"rule='blend' supports the likelihood {GAUSSIAN!r} only, but `likelihood` is "
                f"{self.likelihood!r}; use rule='delta'."
            )
        if self.curves:
            raise ArgumentError("rule='blend' does not support `curves`; use rule='delta', or leave them out.")
        if self.effects not in ("auto", "none"):
            raise ArgumentError(
                f"rule='blend' is the paper's algorithm, without effects, but `effects` is {self.effects!r}; "
                "use rule='delta', or effects='none'."
            )
        if self.noise == "student":
            raise ArgumentError(
                "rule='blend' is the paper's algorithm, with one noise scale, but `noise` is 'student'; use "
                "rule='delta', or noise='common'."
            )
        if missing := [name for name in ("n_clusters", *LEARNABLE) if getattr(self, name) is None]:
            raise ArgumentError(
                f"rule='blend' cannot learn {', '.join(f'`{name}`' for name in missing)}. "
                "Pass numbers, or use rule='delta', which learns them."
            )

    def make_likelihood(self, curves: Curves | None = None) -> AnyLikelihood:
        """The likelihood, for the columns of the agents' tables and the curves that are appended to them."""
        n_features = self.layout.n_features if curves is None else curves.n_features
        layout = layout_with(curves, n_features, fit_intercept=self.layout.fit_intercept)
        return likelihood_named(self.likelihood_name, layout)

    @property
    def likelihood_name(self) -> str:
        """The name of the likelihood that the run uses."""
        if self.rule == "blend" or self.privacy is not None:
            return GAUSSIAN
        return chosen_likelihood(self.likelihood, self.effects, self.noise)

    @property
    def max_weight(self) -> float:
        """How many times the median agent any agent may count: what the limits say, or what suits the engine."""
        if self.limits.max_weight is not None:
            return self.limits.max_weight
        return math.inf if self.simulated else MAX_WEIGHT

    @property
    def run_text(self) -> str:
        """A text that identifies the run: it differs if any setting differs."""
        name = self.likelihood_name
        own = "" if name == GAUSSIAN else f"/{name}/{self.effects}"
        own += f"/curves={self.curves}" if self.curves else ""
        own += "/fixed point" if self.fixed_point else ""
        own += f"/secure/{self.min_cohort}" if self.is_secure else ""
        own += f"/{self.privacy}" if self.privacy is not None else ""
        own += f"/simulated/max_weight={self.max_weight}" if self.simulated else ""
        return f"run/{self}{own}"

    @property
    def settling(self) -> int:
        """Rounds after merging until draws are kept: by then most agents have drawn their effects in the last stage."""
        if self.participation == 1.0 or not self.make_likelihood().has_stages:
            return 0
        return math.ceil(SETTLING_VISITS / self.participation)

    @property
    def most_rounds(self) -> int:
        if self.privacy is not None:
            return self.privacy.rounds
        if self.rounds is not None:
            return self.rounds
        return math.ceil((MOST_SLOW_VISITS if self._is_slow else MOST_VISITS) / self.participation)

    @property
    def _is_slow(self) -> bool:
        return self.make_likelihood().settles_slowly

    @property
    def window(self) -> int | None:
        """Rounds that are compared with as many rounds before: `patience`, or more if agents are asked rarely.

        Where single events say little, three times as many: variances of effects take time.
        """
        if self.patience is None:
            return None
        factor = SLOW_PATIENCE if self._is_slow else 1.0
        return math.ceil(factor * self.patience * max(1.0, 0.5 / self.participation))

    @property
    def start_clusters(self) -> int:
        if self.n_clusters is None:
            return self.max_clusters
        return self.n_clusters if self.rule == "blend" else START_FACTOR * self.n_clusters

    def merger(self, spec: ModelSpec) -> Merger:
        first = FIRST_LOOK if self.participation == 1.0 else math.ceil(FIRST_LOOK_VISITS / self.participation)
        # a likelihood without stages merges at the rounds of 0.1.0
        start = FIRST_ROUND if self.make_likelihood().has_stages else 0
        schedule = MergeSchedule.until(start + max(1, self.most_rounds // 2), first, start)
        return Merger.planned(schedule, self.n_clusters, spec)

    @property
    def extension(self) -> int:
        """Minimum number of further rounds after an agent has withdrawn and the draws were dropped with it."""
        return max(2 * (self.window or 0), math.ceil(FIRST_LOOK_VISITS / self.participation))
