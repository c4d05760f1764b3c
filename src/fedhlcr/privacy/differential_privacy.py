"""The user's settings of differential privacy, and the plan of releases that follows from them.

The plan is fixed before anything is sent. It depends on the settings and on the number of agents, which is public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from fedhlcr.exceptions import ArgumentError, CodecError
from fedhlcr.privacy.accounting import LARGEST_MU, LEAST_RELEASE_MU, composed, epsilon_of, mu_of

# Releases before the first round, which fix the units, and how the share of the budget for units is divided.
VOTES = "votes"
LOCATIONS = "locations"
SPREADS = "spreads"
MOMENTS = "moments"
UNIT_SHARES = {VOTES: 0.2, LOCATIONS: 0.15, SPREADS: 0.15, MOMENTS: 0.5}
# That share by default: the fewer agents vote, the more of the budget their votes need.
UNIT_VOTES = 60.0
LEAST_UNITS = 0.1
MOST_UNITS = 0.4
# The three blocks of a round.
SCORES = "scores"
SIZES = "sizes"
RESIDUALS = "residuals"
BLOCKS = (SCORES, SIZES, RESIDUALS)
# The queries of a run, in order, are these and then the rounds.
STAGES = tuple(UNIT_SHARES)
# A guarantee with a larger δ says little.
LARGEST_DELTA = 0.01
MOST_EPSILON = 1000.0
MOST_DELTA = 0.5
MOST_ROUNDS = 10_000


@dataclass(frozen=True)
class DifferentialPrivacy:
    """Differential privacy of a federation, at the level of agents.

    Whatever anyone learns from the run, and from the model, they would learn almost as likely if any one agent had not
    taken part: (ε, δ)-differential privacy under adding or removing an agent with all its entities and events.

    Parameters
    ----------
    epsilon : float
        The budget ε. The smaller, the more private and the less accurate: 1 is strict, 3 is usual, above 8 is weak.
    delta : float or None, default=None
        The budget δ, the probability with which ε may not hold. None is N^−1.1 for N agents.
    rounds : int, default=20
        Number of rounds. It is fixed: a run that ended when it had converged would reveal something by its length.
    shares : three floats, default=(0.6, 0.35, 0.05)
        How each round's part of the budget is divided: scores, sizes and second moments of clusters, residuals.
    units_share : float or None, default=None
        Part of the budget for the units of the columns: where they lie, how far they spread, how they correlate. None
        is 0.1 for 600 agents and more, and up to 0.4 for fewer.
    """

    epsilon: float
    delta: float | None = None
    rounds: int = 20
    shares: tuple[float, float, float] = (0.60, 0.35, 0.05)
    units_share: float | None = None

    def __post_init__(self) -> None:
        self._coerce("epsilon", 0.001, MOST_EPSILON, "a number from 0.001 to 1000, such as 3")
        if self.delta is not None:
            self._coerce(
                "delta", 1e-300, MOST_DELTA, "a number above 0 and at most 0.5, or None for N^-1.1 with N agents"
            )
        if not isinstance(self.rounds, Integral) or not 2 <= self.rounds <= MOST_ROUNDS:
            raise ArgumentError(f"`rounds` must be a whole number from 2 to {MOST_ROUNDS}, but is {self.rounds!r}.")
        object.__setattr__(self, "rounds", int(self.rounds))
        if self.units_share is not None:
            self._coerce("units_share", 1e-3, 0.9, "a number from 0.001 to 0.9, or None")
        shares = tuple(self.shares) if isinstance(self.shares, Sequence) else ()
        if len(shares) != len(BLOCKS) or not all(_is_number(share) and share > 0 for share in shares):
            raise ArgumentError(
                f"`shares` must be {len(BLOCKS)} numbers above 0, for {', '.join(BLOCKS)}, but is {self.shares!r}."
            )
        if not math.isclose(sum(shares), 1.0, abs_tol=1e-9):
            raise ArgumentError(f"`shares` must add up to 1, but their sum is {sum(shares):g}.")
        object.__setattr__(self, "shares", tuple(float(share) for share in shares))

    def _coerce(self, name: str, least: float, most: float, expected: str) -> None:
        value: Any = getattr(self, name)
        if not _is_number(value) or not least <= value <= most:
            raise ArgumentError(f"`{name}` must be {expected}, but is {value!r}.")
        object.__setattr__(self, name, float(value))

    def check_settings(self, settings: Any) -> None:
        """Refuse settings of a federation, or of an estimator, that a private run does not have."""
        only = "differential privacy supports the plain model only"
        wrong: list[tuple[str, bool, str]] = [
            ("rule", settings.rule == "delta", "use rule='delta'"),
            ("participation", settings.participation == 1.0, "every agent takes part in every round; leave it at 1"),
            ("rounds", settings.rounds is None, "pass DifferentialPrivacy(rounds=...) instead"),
            ("effects", settings.effects in ("auto", "none"), f"{only}; use effects='none'"),
            ("noise", settings.noise in ("entity", "common"), f"{only}; use noise='common'"),
            ("likelihood", settings.likelihood in ("auto", "gaussian"), f"{only}; leave out `likelihood`"),
            ("curves", not settings.curves or settings.curves == "none", f"{only}; leave out `curves`"),
        ]
        for name, is_possible, cure in wrong:
            if not is_possible:
                raise ArgumentError(f"`privacy` is set, but `{name}` is {getattr(settings, name)!r}: {cure}.")

    def plan(self, n_agents: int) -> PrivacyPlan:
        """All releases of a run with so many agents, and what they cost together."""
        if n_agents < 2:
            raise ArgumentError(
                f"differential privacy hides one agent among others, but there is {n_agents}; it needs at least 2."
            )
        delta = float(n_agents) ** -1.1 if self.delta is None else self.delta
        mu = mu_of(self.epsilon, delta)
        units_share = self.units_part(n_agents)
        squares = {name: units_share * share for name, share in UNIT_SHARES.items()}
        units = [Release(name, 1, mu * math.sqrt(square)) for name, square in squares.items()]
        each = (1.0 - units_share) / self.rounds
        blocks = [
            Release(name, self.rounds, mu * math.sqrt(each * share))
            for name, share in zip(BLOCKS, self.shares, strict=True)
        ]
        if any(release.mu < LEAST_RELEASE_MU for release in (*units, *blocks)):
            raise ArgumentError(
                f"epsilon={self.epsilon:g} with {self.rounds} rounds and these `shares` leaves so little of the budget "
                "to one of the sums that nothing but noise would be released; use a larger `epsilon`, fewer `rounds`, "
                "or other `shares`."
            )
        return PrivacyPlan(n_agents, delta, (*units, *blocks))

    def units_part(self, n_agents: int) -> float:
        """The part of the budget for units: as given, or larger if there are few agents."""
        if self.units_share is not None:
            return self.units_share
        return min(max(UNIT_VOTES / n_agents, LEAST_UNITS), MOST_UNITS)


@dataclass(frozen=True)
class Release:
    """A kind of noisy sum: how many times it is released, and μ of each. The noise is 1/μ times the clip."""

    name: str
    times: int
    mu: float

    @property
    def noise_scale(self) -> float:
        return 1.0 / self.mu


@dataclass(frozen=True)
class PrivacyPlan:
    """All releases of a run, and the (ε, δ) of all of them together. It is kept in the model."""

    n_agents: int
    delta: float
    releases: tuple[Release, ...]

    @property
    def mu(self) -> float:
        """μ of all releases together."""
        return composed(release.mu for release in self.releases for _ in range(release.times))

    @property
    def epsilon(self) -> float:
        """ε at the plan's δ, computed from the noise that is added."""
        return epsilon_of(self.mu, self.delta)

    @property
    def rounds(self) -> int:
        return max(release.times for release in self.releases)

    @property
    def n_releases(self) -> int:
        return sum(release.times for release in self.releases)

    def mu_of(self, name: str) -> float:
        """μ of one release of this name."""
        return next(release.mu for release in self.releases if release.name == name)

    @property
    def has_all_queries(self) -> bool:
        """Whether the releases are those of a run: each stage once, and in every round the three blocks."""
        times = [(name, 1) for name in STAGES] + [(name, self.rounds) for name in BLOCKS]
        return [(release.name, release.times) for release in self.releases] == times

    @property
    def n_queries(self) -> int:
        return len(STAGES) + self.rounds

    def mu_until(self, n_queries: int, first: int = 0) -> float:
        """μ of the queries before this one together, from the query `first` on."""
        mus = [[self.mu_of(name)] for name in STAGES] + self.rounds * [[self.mu_of(name) for name in BLOCKS]]
        return composed(mu for query in mus[first:n_queries] for mu in query)

    @property
    def warning(self) -> str | None:
        """What whoever starts the run should know before it begins."""
        if self.delta <= LARGEST_DELTA:
            return None
        return (
            f"δ is {self.delta:.2g}: the guarantee may fail for one agent in {round(1.0 / self.delta)}. It follows "
            f"from the number of agents, {self.n_agents}; pass a smaller `delta`, such as 0.001."
        )

    def describe(self) -> str:
        """The plan as a few lines of text."""
        total = self.mu**2
        lines = [
            f"Differential privacy: epsilon = {self.epsilon:.9g}, delta = {self.delta:.6g} "
            f"for each of {self.n_agents} agents (mu = {self.mu:.9g}).",
            f"{self.n_releases} noisy sums will be released, in {self.rounds} rounds, and nothing else:",
        ]
        lines += [
            f"  {release.name:<10} {release.times:>4} x  noise {release.noise_scale:9.3f} x the most one agent can add"
            f"  {release.times * release.mu**2 / total:6.1%} of the budget"
            for release in self.releases
        ]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.describe()

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON, for the model file; ε and μ follow from the rest, but people read them there."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mu": self.mu,
            "n_agents": self.n_agents,
            "releases": [[release.name, release.times, release.mu] for release in self.releases],
        }

    @classmethod
    def from_dict(cls, values: Any) -> PrivacyPlan:
        """Read the fields of `to_dict`, and check them."""
        try:
            releases = tuple(Release(str(name), int(times), float(mu)) for name, times, mu in values["releases"])
            plan = cls(int(values["n_agents"]), float(values["delta"]), releases)
        except (TypeError, ValueError, LookupError):
            raise CodecError("the model is not valid: its privacy plan cannot be read; save it again.") from None
        sound = 0.0 < plan.delta < 1.0 and plan.n_agents > 1 and bool(releases)
        sound = sound and all(0 < r.times <= MOST_ROUNDS and LEAST_RELEASE_MU <= r.mu < LARGEST_MU for r in releases)
        if not sound:
            raise CodecError("the model is not valid: its privacy plan has wrong values; save it again.")
        return plan


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
