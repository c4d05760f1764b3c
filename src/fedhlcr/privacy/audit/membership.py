"""The membership audit: can an adversary tell from the noisy sums whether an agent has taken part?

The mechanism of `privacy.release` runs thousands of times with and without a *canary*: an agent that adds as much as it
can to every sum, in every cluster, far beyond the clip. The adversary knows everything else. It adds up all rounds in
the direction of the canary and says "took part" above a threshold. Its errors cannot be small if the claim holds:
for a μ-GDP mechanism

    Φ⁻¹(1 − false alarms) − Φ⁻¹(misses) ≤ μ

and for an (ε, δ)-private one  1 − misses ≤ e^ε · false alarms + δ. So upper bounds of both error rates
(Clopper–Pearson, on runs that did not choose the threshold) give lower bounds of μ and ε. A lower bound above what was
claimed refutes the claim. The canaries:

    constant      adds the same in every round
    alternating   changes its sign from round to round: noise that is the same in all rounds cancels
    replayed      constant, and the adversary subtracts noise that it has drawn itself, starting as the server did:
                  if the noise comes from a seed that others know, nothing remains of it

Runs are drawn as one: only the number of independent copies of the noise is larger. Noise is drawn by numpy, because
the exact sampler needs a day for as many runs. `check_sampler` compares the exact sampler with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import beta, chi2, kstest, norm

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.privacy import release as mechanism
from fedhlcr.privacy.accounting import epsilon_of, mu_of
from fedhlcr.privacy.differential_privacy import BLOCKS, UNIT_SHARES, DifferentialPrivacy, PrivacyPlan
from fedhlcr.privacy.noise import NoiseSource, discrete_gaussian
from fedhlcr.privacy.release import ClippedBlock

CONSTANT = "constant"
ALTERNATING = "alternating"
REPLAYED = "replayed"
# How many numbers a block has in the audit, one for each of so many clusters. What holds for these holds for more.
N_CLUSTERS = 3
# Honest agents besides the canary, and how far beyond the clip the canary is.
N_OTHERS = 4
BEYOND = 1e3
# Probability with which one bound of the audit is too high: so low that no sound mechanism fails one of many.
ERROR = 1e-4
# The share of the runs that choose the threshold, the error of their bounds, and how many quantiles are tried.
CHOOSING = 0.2
LENIENT = 0.2
N_THRESHOLDS = 199
# All blocks of a round together.
ALL = "all blocks"
# The noise of `shared` is the sum of this many agents' shares.
N_SHARES = 8
# What is audited with which canary. The units are released once, so their canary has nothing to alternate.
CASES = (
    *((name, CONSTANT) for name in UNIT_SHARES),
    *((name, canary) for name in (*BLOCKS, ALL) for canary in (CONSTANT, ALTERNATING, REPLAYED)),
)


@dataclass(frozen=True)
class MembershipResult:
    """What the audit of one block with one canary has found.

    Attributes
    ----------
    block, canary : which
    claimed_mu, claimed_epsilon : what the settings promise for this block over the whole run
    mu, epsilon : what the mechanism gives away at least, with confidence 1 − ERROR
    """

    block: str
    canary: str
    claimed_mu: float
    claimed_epsilon: float
    mu: float
    epsilon: float

    @property
    def holds(self) -> bool:
        return self.mu <= self.claimed_mu and self.epsilon <= self.claimed_epsilon


def numpy_noise(seed: int | None = None) -> NoiseSource:
    """A fast source of noise for audits: rounded normal numbers, without a seed from the operating system's entropy."""
    rng = np.random.default_rng(seed)
    return lambda scale, size: np.rint(rng.standard_normal(size) * scale).astype(np.int64)


@dataclass(frozen=True)
class MembershipAudit:
    """Audits of all releases of a private run.

    Attributes
    ----------
    settings : what is claimed
    plan : what is done: the releases with their noise
    n_runs : number of runs with the canary, and of runs without it
    make_source : makes the source of noise anew, as if the server had been started again
    shared : whether agents add shares of the noise, as under secure aggregation
    """

    settings: DifferentialPrivacy
    plan: PrivacyPlan
    n_runs: int = 20_000
    make_source: Callable[[], NoiseSource] = numpy_noise
    shared: bool = False

    @classmethod
    def of(cls, settings: DifferentialPrivacy, n_agents: int, n_runs: int = 20_000) -> MembershipAudit:
        return cls(settings, settings.plan(n_agents), n_runs)

    def run(self, progress: Callable[[], None] | None = None) -> list[MembershipResult]:
        """Audit every release with every canary, and the blocks of all rounds together."""
        results = []
        for name, canary in CASES:
            results.append(self.audit(name, canary))
            if progress is not None:
                progress()
        return results

    def audit(self, name: str, canary: str) -> MembershipResult:
        """Audit one release, or all blocks of the rounds together."""
        names = BLOCKS if name == ALL else (name,)
        without, with_canary = (self._scores(names, canary, present=present) for present in (False, True))
        claimed = self.claimed_mu(names)
        found = lower_bounds(without, with_canary, self.plan.delta)
        return MembershipResult(name, canary, claimed, epsilon_of(claimed, self.plan.delta), *found)

    def claimed_mu(self, names: Sequence[str]) -> float:
        """μ of these releases over the whole run, as the settings divide the budget."""
        settings = self.settings
        of_units = settings.units_part(self.plan.n_agents)
        shares = {name: of_units * share for name, share in UNIT_SHARES.items()}
        shares |= {name: (1.0 - of_units) * share for name, share in zip(BLOCKS, settings.shares, strict=True)}
        return mu_of(settings.epsilon, self.plan.delta) * float(np.sqrt(sum(shares[name] for name in names)))

    def _scores(self, names: Sequence[str], canary: str, *, present: bool) -> FloatArray:
        """(runs,) the adversary's statistic: all rounds of a run in the direction of the canary."""
        releases = [release for release in self.plan.releases if release.name in names]
        blocks = [ClippedBlock(release.name, N_CLUSTERS, release.mu) for release in releases]
        source = self.make_source()
        replayed = self.make_source()
        scores = np.zeros(self.n_runs)
        for number in range(releases[0].times):
            sign = -1.0 if canary == ALTERNATING and number % 2 else 1.0
            seen = self._released(blocks, sign if present else 0.0, source)
            if canary == REPLAYED:
                known = self._released(blocks, 0.0, replayed)
                seen = {name: seen[name] - known[name] for name in seen}
            scores += sign * sum(block.mu**2 * seen[block.name].sum(axis=1) for block in blocks)
        return scores

    def _released(self, blocks: Sequence[ClippedBlock], canary: float, source: NoiseSource) -> dict[str, FloatArray]:
        """By block, (runs, size): the noisy sums of one round, drawn for all runs at once."""
        others = np.linspace(-0.2, 0.2, N_OTHERS)[:, None] * np.ones(blocks[0].size)
        canaries = np.full((1 if canary else 0, blocks[0].size), BEYOND * canary)
        values = [np.concatenate([others, canaries]) for _ in blocks]
        total = mechanism.decode(mechanism.agent_vectors(values).sum(axis=0), blocks)
        noise = self._noise([replace(block, size=self.n_runs * block.size) for block in blocks], source)
        return {name: total[name] + noise[name].reshape(self.n_runs, -1) for name in total}

    def _noise(self, blocks: Sequence[ClippedBlock], source: NoiseSource) -> dict[str, FloatArray]:
        if not self.shared:
            return mechanism.decode(mechanism.server_noise(blocks, source), blocks)
        shares = sum(mechanism.agent_noise(blocks, N_SHARES, source) for _ in range(N_SHARES))
        return mechanism.decode(np.asarray(shares), blocks)


def lower_bounds(without: FloatArray, with_canary: FloatArray, delta: float) -> tuple[float, float]:
    """Lower bounds of μ and ε from the scores of runs without and with the canary.

    Some of the runs choose the threshold, and only the others are counted.
    """
    n = round(CHOOSING * len(without))
    both = np.concatenate([without[:n], with_canary[:n]])
    thresholds = np.quantile(both, np.linspace(0.0, 1.0, N_THRESHOLDS + 2)[1:-1])
    best = thresholds[np.argmax(_bounds(without[:n], with_canary[:n], thresholds, delta, LENIENT), axis=1)]
    mu, epsilon = np.diag(_bounds(without[n:], with_canary[n:], best, delta)).tolist()
    return mu, epsilon


def _bounds(
    without: FloatArray, with_canary: FloatArray, thresholds: FloatArray, delta: float, error: float = ERROR
) -> FloatArray:
    """(2, thresholds) lower bounds of μ and ε, each of which is too high with probability `error` at most."""
    false_alarm, miss = (
        _at_most(n_errors, len(scores), error)
        for scores, n_errors in (
            (without, len(without) - np.searchsorted(np.sort(without), thresholds, side="right")),
            (with_canary, np.searchsorted(np.sort(with_canary), thresholds, side="right")),
        )
    )
    mu = norm.isf(false_alarm) - norm.ppf(miss)
    tiny = np.finfo(float).tiny
    epsilon = np.maximum(
        np.log(np.maximum(1.0 - miss - delta, tiny) / false_alarm),
        np.log(np.maximum(1.0 - false_alarm - delta, tiny) / miss),
    )
    return np.maximum([mu, epsilon], 0.0)


def _at_most(n_errors: IndexArray, n_runs: int, error: float) -> FloatArray:
    """Clopper–Pearson's upper bounds of error rates, of which two are used together."""
    bounds = beta.ppf(1.0 - error / 2.0, n_errors + 1, np.maximum(n_runs - n_errors, 1))
    return np.where(n_errors == n_runs, 1.0, bounds)


def check_sampler(n_draws: int = 5_000, source: NoiseSource = discrete_gaussian) -> float:
    """The p-value of a source's draws as normal numbers of the right scale. It is small if they are not.

    At the scales in use one lattice unit is a billionth of the spread, so whole numbers look continuous. The test of
    Kolmogorov and Smirnov sees a wrong shape, that of the sum of squares a wrong scale.
    """
    scale = 2.0**30
    draws = source(scale, n_draws) / scale
    below = chi2.cdf((draws**2).sum(), n_draws)
    return float(min(1.0, 2.0 * kstest(draws, "norm").pvalue, 4.0 * min(below, 1.0 - below)))
