"""Every setting of a model and of a federation, declared once.

From `SETTINGS` follow the checks of the estimators' constructors and of `FederationSettings`, the options of the shell
and of Flower, and the parameters in the documentation. A constructor or a command names the settings that it takes.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, get_args

from fedhlcr.exceptions import ArgumentError

SamplerName = Literal["blocked", "collapsed"]
LabelPrior = Literal["tables", "paper"]
CoefPriorKind = Literal["adaptive", "common_mean", "zero_mean"]
EffectsName = Literal["auto", "none", "entity", "entity+agent"]
NoiseName = Literal["entity", "common", "student"]
MissingPolicy = Literal["refuse", "drop", "impute"]
RuleName = Literal["delta", "blend"]
AggregationName = Literal["plain", "secure"]
EngineName = Literal["in_process", "ray"]
# Who has a setting: estimators that see the whole table, those that run a federation, or both.
Fits = Literal["central", "federated", "both"]

# Fewest devices of a cohort, by default and at all: of the sum of two, each device learns the other's.
MIN_COHORT = 5
FEWEST_IN_COHORT = 3
# The smallest share of agents to ask, and the smallest step of the blend rule.
SMALLEST_SHARE = 1e-6
# The largest seed that numpy accepts.
LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class DeclaredSetting:
    """One setting.

    Attributes
    ----------
    name : of the argument in Python
    default : in Python
    meaning : what it says, for Python, shell and Flower: values in quotes, other settings in backticks
    more : what the documentation of Python adds
    kind : of its value: a number, a text or a switch; None for other objects, which are not checked here
    choices : the texts to choose from
    words : texts that stand for a number that is not known yet, "auto" or "learn"; None in `FederationSettings`
    least, most : range of a number, with its ends; `above` and `below` are without them
    or_none : whether it may be None
    others : what else it may be in Python, as the documentation words it
    fits : who has it
    real_only : whether only models of real targets have it
    default_of_others : its default for classes and counts, if it is another one
    option : name of the shell's option, without dashes; None for none
    on_flower : name of the option on Flower; None for none
    deprecated : why nobody should pass it any more; it still works
    renamed : words that a user may have written earlier, and what they are called now
    """

    name: str
    default: Any
    meaning: str
    more: str = ""
    kind: type | None = None
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    or_none: bool = False
    others: str = ""
    fits: Fits = "both"
    real_only: bool = False
    default_of_others: Any = None
    option: str | None = None
    on_flower: str | None = None
    deprecated: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def may_be_unknown(self) -> bool:
        """Whether `FederationSettings` may hold None: the value is learned, or there is no limit."""
        return self.or_none or bool(self.words)

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        ends = {"of at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        # small numbers are written out: 0.000001 instead of 1e-06
        known = [f"{words} {Decimal(str(end)).normalize():f}" for words, end in ends.items() if end is not None]
        return " ".join(["a whole number" if self.kind is int else "a number", " and ".join(known)]).strip()

    def allows(self, value: Any) -> bool:
        """Whether a value that is not None is one of the choices, or a number in range."""
        if self.choices:
            return isinstance(value, str) and value in self.choices
        if not isinstance(value, Real) or not math.isfinite(value):
            return False
        number: Any = value
        return (
            (self.kind is not int or int(number) == number)
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            # numbers that are too small to be divided by count as the end itself
            and (self.above is None or number - self.above >= sys.float_info.min)
            and (self.below is None or number < self.below)
        )

    def checked(self, value: Any) -> Any:
        """A value in Python's own type, for `FederationSettings`; ArgumentError if it cannot be used."""
        if self.kind is bool:
            return bool(value)
        if value is None and self.may_be_unknown:
            return None
        if not self.allows(value):
            raise ArgumentError(f"`{self.name}` must be {self.expected}, but is {value!r}.")
        return value if self.kind is None or self.choices else self.kind(value)

    def current(self, value: Any) -> Any:
        """A value by its present name."""
        return self.renamed.get(value, value) if isinstance(value, str) else value

    def default_for(self, family: str) -> Any:
        """The default of the estimators of a family of targets."""
        return self.default if family == "real" or self.default_of_others is None else self.default_of_others

    def worded(self, name_setting: Callable[[str], str]) -> str:
        """The meaning for a shell or for Flower: other settings by their names there, words without quotes."""
        text = re.sub(r'`(\w+)(?:="?([\w+]+)"?)?`', lambda found: _other(found, name_setting), self.meaning)
        return re.sub(r'"([\w+]+)"', r"\1", text)


def _other(found: re.Match[str], name_setting: Callable[[str], str]) -> str:
    name, value = found.groups()
    return name_setting(name) if value is None else f"{name_setting(name)} {value}"


_LEARNED: dict[str, Any] = {"default": "learn", "kind": float, "words": ("learn",), "above": 0.0}
_COUNT: dict[str, Any] = {"kind": int, "least": 1}

_DECLARED = (
    DeclaredSetting(
        "n_clusters",
        "auto",
        'Number of clusters; "auto" finds it from the data.',
        '"auto" starts with `max_clusters` and merges down. Unless `effects="none"`, a run whose clusters are in doubt '
        "then compares them with a single cluster, and goes on with the better.",
        **_COUNT,
        words=("auto",),
        option="clusters",
        on_flower="clusters",
    ),
    DeclaredSetting(
        "max_clusters",
        64,
        "Clusters to start with if their number is not given; this is the most that can be found.",
        **_COUNT,
        option="max-clusters",
        on_flower="max-clusters",
    ),
    DeclaredSetting(
        "sampler",
        "blocked",
        '"blocked" runs agents in parallel; "collapsed" is the paper\'s Algorithm 2.',
        choices=get_args(SamplerName),
        fits="central",
        real_only=True,
    ),
    DeclaredSetting(
        "label_prior",
        "tables",
        'Prior of the labels in the collapsed sampler: "tables" is exact and uses table counts, "paper" is the '
        "paper's approximation.",
        choices=get_args(LabelPrior),
        fits="central",
        real_only=True,
    ),
    DeclaredSetting(
        "rule",
        "delta",
        'How the server uses contributions: "delta" is exact and learns all hyperparameters, "blend" is the paper\'s '
        "Algorithm 3.",
        '"delta" is blocked Gibbs sampling with any share of the agents per round. "blend" needs `n_clusters` and all '
        "hyperparameters.",
        choices=get_args(RuleName),
        fits="federated",
        real_only=True,
        on_flower="rule",
    ),
    DeclaredSetting(
        "learning_rate",
        0.2,
        "γ of the blend rule.",
        kind=float,
        least=SMALLEST_SHARE,
        most=1.0,
        fits="federated",
        real_only=True,
        on_flower="learning-rate",
    ),
    DeclaredSetting(
        "participation_scaling",
        True,
        "Whether the blend rule scales the sums of the participants up to all agents. The published rule does not.",
        kind=bool,
        fits="federated",
        real_only=True,
        on_flower="participation-scaling",
    ),
    DeclaredSetting(
        "participation",
        1.0,
        "Share of the agents to ask in each round.",
        kind=float,
        least=SMALLEST_SHARE,
        most=1.0,
        fits="federated",
        option="participation",
        on_flower="participation",
    ),
    DeclaredSetting(
        "rounds",
        None,
        "Most rounds to run; without it, until the log joint is stable. With fewer than 60 rounds there is no time to "
        "compare several clusters with one.",
        "The survey before the first round is not counted.",
        **_COUNT,
        or_none=True,
        fits="federated",
        option="rounds",
        on_flower="rounds",
    ),
    DeclaredSetting(
        "failure_rate",
        0.0,
        "Probability that an agent fails when asked: it does not answer, its answer is lost, or it comes too late.",
        kind=float,
        least=0.0,
        below=1.0,
        fits="federated",
        option="failure-rate",
    ),
    DeclaredSetting(
        "patience",
        10,
        "The run ends when the log joint of this many rounds is like that of as many rounds before; without it, it "
        "never ends early.",
        "That is so once merging is over. If fewer than half of the agents are asked per round, the windows are "
        "longer, so that each agent is asked about `patience` / 2 times in each. For classes and counts they are three "
        "times as long, because single events say less.",
        **_COUNT,
        or_none=True,
        fits="federated",
        on_flower="patience",
    ),
    DeclaredSetting(
        "noise_scale",
        meaning="σ, the standard deviation of the noise in units of the target.",
        **_LEARNED,
        real_only=True,
        on_flower="noise-scale",
    ),
    DeclaredSetting(
        "coef_scale",
        meaning="δ, the spread of the clusters' coefficients, in standardised units.",
        more="These are standard deviations of y per standard deviation of x; for classes log odds, and for counts "
        "logs of the mean count, per standard deviation of x. A number is the paper's prior N(0, δ²) for every "
        "coefficient.",
        **_LEARNED,
        on_flower="coef-scale",
    ),
    DeclaredSetting(
        "global_concentration",
        meaning="α: the larger, the more even the clusters.",
        **_LEARNED,
        on_flower="global-concentration",
    ),
    DeclaredSetting(
        "agent_concentration",
        meaning="β: the larger, the more alike the agents.",
        **_LEARNED,
        on_flower="agent-concentration",
    ),
    DeclaredSetting(
        "coef_prior",
        "adaptive",
        'Prior of the coefficients if `coef_scale` is learned: "zero_mean" as in the paper, "common_mean" with a mean '
        'for each coefficient, or "adaptive".',
        '"zero_mean" has mean zero and one scale for all. "common_mean" learns a mean and a scale for each coefficient.'
        ' "adaptive" takes the one that the data favour.',
        choices=get_args(CoefPriorKind),
        on_flower="coef-prior",
    ),
    DeclaredSetting(
        "effects",
        "auto",
        'How entities of one cluster may differ: not at all ("none", as in the paper), each by itself ("entity"), or '
        'entities and agents ("entity+agent"). "auto" keeps the effects that the data ask for.',
        '"entity" gives every entity its own deviation from its cluster\'s coefficients, as in a mixed model. With '
        '"auto", beside several clusters, a coefficient has effects of entities if a score test finds evidence for '
        "them; a single cluster has all of them. Effects of agents need evidence too. If several clusters explain "
        "everything, there are no effects. The blend rule has none.",
        choices=get_args(EffectsName),
        option="effects",
        on_flower="effects",
    ),
    DeclaredSetting(
        "noise",
        "entity",
        'For real targets: whether every entity has its own noise ("entity"), or all have the same: normal ("common"), '
        'or with single events that may be far off ("student"). With `effects="none"` and `noise="common"` the model '
        "is that of the paper.",
        '"student" has Student-t noise with learned degrees of freedom. Then the model keeps the events, '
        "`sample_weight` must be 0 or 1, and there is no `comparison_`. The blend rule has one noise scale.",
        choices=get_args(NoiseName),
        real_only=True,
        option="noise",
        on_flower="noise",
    ),
    DeclaredSetting(
        "likelihood",
        "auto",
        'Name of a registered likelihood; "auto" is that of `effects` and `noise`.',
        kind=str,
        real_only=True,
        on_flower="likelihood",
        deprecated="Those of this package follow from `effects` and `noise`; for one of your own derive an estimator "
        "with the attribute `own_likelihood`.",
    ),
    DeclaredSetting(
        "curves",
        "none",
        'Features whose effect may bend: "none", "auto" for all with enough distinct values, or columns.',
        "Their effect is a natural cubic spline in each cluster, in addition to the straight line. Every curve has a "
        "learned scale, so one that is not needed vanishes. A list has names or positions. Beyond the data, curves go "
        "on as straight lines. Not with the blend rule. In a federation agents report quantiles of these columns in "
        "the survey, from which the server places the knots, and they need their events until the end of the run.",
        choices=("none", "auto"),
        others="array-like of columns",
        option="curves",
        on_flower="curves",
    ),
    DeclaredSetting(
        "categories",
        "auto",
        "Features that are categories; each level becomes a feature of 0 and 1.",
        '"auto" takes texts of a dataframe with at most 100 levels and at least five rows per level on average, unless '
        "they are numbers or dates, and warns. Columns of a categorical type (pandas Categorical, polars Enum, arrow "
        'dictionary) are always categories. A dict declares the levels as well, `{"size": ["S", "M", "L"]}`: these are '
        "features whether they occur or not, and others are refused.",
        choices=("auto",),
        others="list of str or dict",
        option="categories",
    ),
    DeclaredSetting(
        "missing",
        "refuse",
        'What to do about missing and infinite values: "refuse" the table, "drop" the rows, or "impute" the '
        "median or most common level of the fit.",
        '"drop" leaves rows out of a fit and of scores, and predicts NaN for them. Rows without a target or an id are '
        "never filled in, but left out.",
        choices=get_args(MissingPolicy),
        renamed={"raise": "refuse"},
        option="missing",
    ),
    DeclaredSetting(
        "formula",
        None,
        "Target, features and ids in one: 'sales ~ log(price) + C(brand) | store/product'.",
        "Then `fit` takes the table alone. See `from_formula`.",
        kind=str,
        or_none=True,
        option="formula",
    ),
    DeclaredSetting(
        "standardize",
        True,
        "Scale features and target to standard deviation 1 before fitting. Results are in the user's units.",
        kind=bool,
        on_flower="standardize",
    ),
    DeclaredSetting(
        "fit_intercept",
        True,
        "Whether regressions have an intercept.",
        "It belongs to the centred target and has the same prior as the slopes. Without an intercept, nothing is "
        "centred.",
        kind=bool,
        on_flower="fit-intercept",
    ),
    DeclaredSetting(
        "n_sweeps",
        200,
        "Sweeps of the sampler per chain. The first half is discarded.",
        "After a comparison with a single cluster, which may take until 60 % of the sweeps, more are. With fewer than "
        "60 sweeps there is no time for this comparison. Classes and counts have more by default, because single "
        "events say less.",
        **_COUNT,
        fits="central",
        default_of_others=300,
        option="sweeps",
    ),
    DeclaredSetting("n_draws", 100, "Most posterior draws to keep, of each chain.", **_COUNT, on_flower="draws"),
    DeclaredSetting(
        "n_chains",
        1,
        "Number of independent chains. With more than one, a warning says if they disagree.",
        **_COUNT,
        fits="central",
        option="chains",
    ),
    DeclaredSetting(
        "precision",
        "double",
        "Does nothing: entities are scored in single precision where that is faster, with the same results.",
        choices=("double", "single"),
        fits="central",
        real_only=True,
        deprecated="The precision of scores chooses itself, with the same results; leave it out.",
    ),
    DeclaredSetting(
        "engine",
        "in_process",
        'What carries the messages: "in_process" keeps all agents in this process; "ray" shares them among workers of '
        "a Ray cluster, with the same result.",
        "The workers are those of `fedhlcr.engines.ray.RayCluster`. A factory (`fedhlcr.federation.EngineFactory`) "
        "makes an engine from the table.",
        choices=get_args(EngineName),
        others="EngineFactory",
        fits="federated",
    ),
    DeclaredSetting(
        "limits",
        None,
        "Limits on a reply; the server refuses a reply that exceeds them.",
        "None is the default limits. A simulation scales no agent down, unless `max_weight` of the limits is a number.",
        or_none=True,
        others="ReplyLimits",
        fits="federated",
    ),
    DeclaredSetting(
        "aggregation",
        "plain",
        'Whether the server sees the sums of every agent ("plain"), or only those over all that answer ("secure"). '
        "Secure aggregation takes longer, because every agent agrees on keys with all others in every round.",
        "Masks hide the rest, `fedhlcr.privacy.secure_sum`. Secure aggregation needs the extra `privacy`. It does not "
        "support `curves`, and the server cannot refuse the sums of a single agent.",
        choices=get_args(AggregationName),
        fits="federated",
        option="aggregation",
        on_flower="aggregation",
    ),
    DeclaredSetting(
        "fixed_point",
        False,
        "Whether agents round their sums to multiples of 2⁻³⁰ without masks too, as secure aggregation always does.",
        kind=bool,
        fits="federated",
        on_flower="fixed-point",
        deprecated="It is internal: `aggregation='secure'` rounds sums by itself. Pass `fixed_point` to "
        "`fedhlcr.federation.FederationSettings` to round them without masks.",
    ),
    DeclaredSetting(
        "min_cohort",
        MIN_COHORT,
        "Fewest agents whose sum the server may learn under secure aggregation. A round with fewer is void.",
        kind=int,
        least=FEWEST_IN_COHORT,
        fits="federated",
        on_flower="min-cohort",
    ),
    DeclaredSetting(
        "privacy",
        None,
        "Differential privacy at the level of agents, for the plain model without effects.",
        "It has a fixed number of rounds, and shows what they cost before the first. None adds no noise.",
        or_none=True,
        others="DifferentialPrivacy",
        fits="federated",
        real_only=True,
    ),
    DeclaredSetting(
        "checkpoint",
        None,
        "File to save the run to after rounds; `fit(..., resume=True)` continues from it.",
        or_none=True,
        others="path",
        fits="federated",
    ),
    DeclaredSetting("checkpoint_every", 1, "Number of rounds between saves.", **_COUNT, fits="federated"),
    DeclaredSetting(
        "n_threads",
        None,
        "Number of threads. Default: all cores.",
        "The result does not depend on it.",
        **_COUNT,
        or_none=True,
        option="threads",
    ),
    DeclaredSetting(
        "random_state",
        0,
        "The same seed gives the same result.",
        "None draws a seed and stores it in `seed_`.",
        kind=int,
        least=0,
        most=LARGEST_SEED,
        or_none=True,
        others="RandomState instance",
        option="seed",
        on_flower="seed",
    ),
    DeclaredSetting("verbose", False, "Whether to show a progress bar.", kind=bool),
)
SETTINGS = {setting.name: setting for setting in _DECLARED}
# Hyperparameters that are either given as a number or learned.
LEARNABLE = tuple(setting.name for setting in _DECLARED if setting.words == ("learn",))


def settings_of(family: str, *, federated: bool) -> dict[str, DeclaredSetting]:
    """The settings of the estimator of a family of targets, by name."""
    fits = ("federated", "both") if federated else ("central", "both")
    return {
        name: setting
        for name, setting in SETTINGS.items()
        if setting.fits in fits and (family == "real" or not setting.real_only)
    }
