"""One cluster or several: what agents weigh, how the comparison goes on, and what it decides."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import gamma, invgamma, multivariate_normal, norm, t
from sklearn.metrics import adjusted_rand_score

from fedhlcr import HLCRRegressor
from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import Blocks
from fedhlcr.datasets import make_hlcr
from fedhlcr.kernels import evidence
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.mixed import N_VARIANCES, MixedEntityNoise
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import Stage
from fedhlcr.model.student import EVENT_WEIGHTS, MixedStudentNoise
from fedhlcr.model.sums import ClusterSums
from fedhlcr.samplers import blocked, cluster_comparison, merging
from fedhlcr.samplers.cluster_comparison import ClusterComparison, Phase, Weight, least_gain, least_gain_of_outcomes
from fedhlcr.samplers.merging import Merger, MergeSchedule
from tests.effects_problems import LIKELIHOODS, globals_with, random_covariance, random_events
from tests.federations import four_clusters, one_cluster
from tests.problems import PAPER
from tests.students import given_globals, student_entities

# What agents weigh.

SIZES, N_CLUSTERS = (4, 1, 3), 3
# D of all coefficients, of the first two, and of none
RANKS = {"full": 3, "some": 2, "none": 0}


class Weighed:
    """Agents that weigh their entities in a round, and the dense densities of the same targets."""

    def __init__(self, noise, effects="full", seed=0, *, fit_intercept=True, agent_effects=True):
        rng, n = np.random.default_rng(seed), sum(SIZES)
        events = random_events(rng, SIZES, 4, 3 - fit_intercept)
        self.y, self.owner = rng.normal(size=(n, 4)), events.owner
        self.entities = events.entities(LIKELIHOODS[noise], self.y, fit_intercept=fit_intercept)
        likelihood = self.entities.likelihood
        self.design = events.design(likelihood.layout)
        self.current = globals_with(
            likelihood,
            N_CLUSTERS,
            coef=rng.normal(size=(N_CLUSTERS, 3)),
            log_weights=np.log([0.5, 0.3, 0.2]),
            effect_covariance=random_covariance(rng, 3, RANKS[effects]),
            agent_effect_scale=np.full(3, 0.4 * agent_effects),
            noise_scale=0.7,
            noise_shape=7.0 if noise == "entity" else np.inf,
            noise_unit=1.3 if noise == "entity" else 0.7,
            stage=float(Stage.WEIGHING),
        )
        self.labels = rng.integers(N_CLUSTERS, size=n).astype(np.int32)
        self.state = {
            "variance": rng.uniform(0.5, 2.0, size=n) if noise == "entity" else np.ones(n),
            "agent_effects": 0.4 * agent_effects * rng.normal(size=(len(SIZES), 3)),
        }

    def part(self, agents=(0, 1, 2), n_threads=1):
        agents = np.array(agents)
        blocks = Blocks(tuple(range(len(agents) + 1)))
        return self.entities.part(self.state, 3, Stream(0))._replace(agents=agents, blocks=blocks, n_threads=n_threads)

    def scalars(self, part) -> dict[str, np.ndarray]:
        """The scalars of each agent of a part, by name."""
        return scalars_of(self.entities.likelihood, part, self.current, self.labels)

    def prior(self, e) -> np.ndarray:
        """(clusters,) p(z = k) of an entity given the labels of its agent's other entities."""
        others = np.flatnonzero(self.owner == self.owner[e])
        counts = np.bincount(self.labels[others[others != e]], minlength=N_CLUSTERS)
        weights = self.current.agent_concentration * np.exp(self.current.log_weights) + counts
        return weights / weights.sum()

    def variances(self) -> np.ndarray:
        """Quantiles of IG(ν/2, νs²/2) at (i + ½)/8, or s²."""
        half, square = 0.5 * self.current.noise_shape, self.current.noise_scale**2
        if np.isinf(half):
            return np.array([square])
        return invgamma.ppf((np.arange(N_VARIANCES) + 0.5) / N_VARIANCES, half, scale=half * square)

    def log_density(self, e) -> float:
        """log Σ_k p(z = k) ∫ N(y; X(w_k + a), XDXᵀ + σ²I) dIG(σ²) of an entity, with dense covariances."""
        X, coef = self.design[e], self.current.coef + self.state["agent_effects"][self.owner[e]]
        around = X @ self.current.effect_covariance @ X.T
        densities = [
            multivariate_normal(X @ own, around + variance * np.eye(len(X))).pdf(self.y[e])
            for variance in self.variances()
            for own in coef
        ]
        by_variance = np.reshape(densities, (-1, N_CLUSTERS))
        return float(np.log((by_variance @ self.prior(e)).mean()))

    def expected(self) -> np.ndarray:
        """(agents,)"""
        own = [self.log_density(e) for e in range(len(self.owner))]
        return np.bincount(self.owner, weights=own, minlength=len(SIZES))


def scalars_of(likelihood, part, current, labels):
    scoring = likelihood.scoring_matrices(part, current)
    rows = labels.astype(np.int64)
    scalars = likelihood.conclude(part, current, scoring, labels, rows, current.n_clusters).scalars
    return dict(zip([scalar.name for scalar in likelihood.own_scalars], scalars.T, strict=True))


def check_densities(weighed: Weighed) -> None:
    found = weighed.scalars(weighed.part())
    np.testing.assert_allclose(found["log_density"], weighed.expected(), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found["weighed_events"], 4.0 * np.array(SIZES))


@pytest.mark.parametrize("effects", RANKS)
@pytest.mark.parametrize("noise", LIKELIHOODS)
def test_log_densities_are_those_of_dense_covariances(noise, effects):
    check_densities(Weighed(noise, effects))


@pytest.mark.parametrize("noise", LIKELIHOODS)
def test_log_densities_without_intercept_are_right_too(noise):
    check_densities(Weighed(noise, fit_intercept=False))


def test_log_densities_of_plain_clusters_are_those_of_the_paper():
    """Without effects, and with the same noise for all, log Σ_k p(z = k) N(y; Xw_k, s²I)."""
    weighed = Weighed("common", "none", agent_effects=False)
    assert weighed.current.is_plain
    check_densities(weighed)
    alone = replace(weighed.current, coef=weighed.current.coef[:1], log_weights=np.zeros(1))
    labels = np.zeros_like(weighed.labels)
    found = scalars_of(weighed.entities.likelihood, weighed.part([2]), alone, labels)["log_density"]
    residuals = weighed.y[5:] - weighed.design[5:] @ alone.coef[0]
    assert found == pytest.approx(norm(scale=0.7).logpdf(residuals).sum(), rel=1e-12)


def test_agents_that_are_not_asked_add_nothing_and_threads_change_nothing():
    weighed = Weighed("entity")
    expected = weighed.expected()
    for n_threads in (1, 2):
        found = weighed.scalars(weighed.part([0, 2], n_threads))
        np.testing.assert_allclose(found["log_density"], expected[[0, 2]], rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(found["weighed_events"], [16.0, 12.0])


@pytest.mark.parametrize("stage", [Stage.PLAIN, Stage.MERGING, Stage.EXACT])
def test_in_other_stages_nothing_is_weighed(stage):
    weighed = Weighed("entity")
    weighed.current = replace(weighed.current, stage=float(stage))
    found = weighed.scalars(weighed.part())
    assert not found["log_density"].any()
    assert not found["weighed_events"].any()


def test_variance_quantiles_follow_the_law_of_the_noise():
    """1/σ² has mean 1/s², and half of the variances are below the median of IG(ν/2, νs²/2)."""
    weighed = Weighed("entity")
    many = weighed.entities.likelihood.variance_quantiles(weighed.current, 4_001)
    assert np.mean(1.0 / many) == pytest.approx(1.0 / 0.49, rel=1e-3)
    assert np.median(many) == pytest.approx(invgamma.median(3.5, scale=3.5 * 0.49))
    np.testing.assert_allclose(
        np.sort(weighed.entities.likelihood.variance_quantiles(weighed.current, N_VARIANCES)), weighed.variances()
    )


class WeighedStudent:
    """Agents with Student-t noise that weigh their entities in a round, and what they should find."""

    def __init__(self, monkeypatch, *, fit_intercept=True):
        rng = np.random.default_rng(4)
        self.dense = Weighed("common", fit_intercept=fit_intercept)
        self.entities = student_entities(rng, SIZES, 4, n_features=3 - fit_intercept, fit_intercept=fit_intercept)
        self.likelihood, shared = self.entities.likelihood, ("coef", "log_weights", "effect_covariance")
        self.current = given_globals(
            self.likelihood,
            N_CLUSTERS,
            **{name: getattr(self.dense.current, name) for name in (*shared, "agent_effect_scale")},
            noise_scale=0.7,
            noise_shape=4.0,
            stage=float(Stage.WEIGHING),
        )
        events = self.entities.events
        self.X = np.column_stack([np.ones(len(events.y)), events.X]) if fit_intercept else events.X
        self.owner = self.dense.owner
        self.weights = rng.gamma(2.0, 0.5, size=self.entities.n_events)
        self.agent_effects = self.dense.state["agent_effects"]
        draw_weights = MixedStudentNoise._draw_weights

        def spied(likelihood, part, current, coef, scalars):
            # the weights are drawn given these coefficients, so they are those of the price too
            self.coef = coef.copy()
            return draw_weights(likelihood, part, current, coef, scalars)

        monkeypatch.setattr(MixedStudentNoise, "_draw_weights", spied)

    def scalars(self, agents=(0, 1, 2)):
        state = {
            **self.entities.start_state(), "agent_effects": self.agent_effects, EVENT_WEIGHTS: self.weights,
        }  # fmt: skip
        agents = np.array(agents)
        blocks = Blocks(tuple(range(len(agents) + 1)))
        part = self.entities.part(state, 3, Stream(0))._replace(agents=agents, blocks=blocks)
        return scalars_of(self.likelihood, part, self.current, self.dense.labels)

    def log_density(self, e) -> float:
        """log Σ_k p(z = k) N(y; X(w_k + a), XDXᵀ + s² diag(1/λ)) of an entity, with the weights λ that it holds."""
        own = slice(4 * e, 4 * e + 4)
        X = self.X[own]
        covariance = X @ self.current.effect_covariance @ X.T + np.diag(0.49 / self.weights[own])
        means = (self.current.coef + self.agent_effects[self.owner[e]]) @ X.T
        densities = [multivariate_normal(mean, covariance).pdf(self.entities.events.y[own]) for mean in means]
        return float(np.log(self.dense.prior(e) @ densities))

    def price(self, e) -> float:
        """Σ KL(p(λ | y, β) ‖ p(λ)) over the events of an entity with coefficients β, by numerical integration."""
        own = slice(4 * e, 4 * e + 4)
        squares = (self.entities.events.y[own] - self.X[own] @ self.coef[e]) ** 2 / 0.49
        logs = np.linspace(-20.0, 6.0, 2_001)[:, None]
        density = gamma.logpdf(np.exp(logs), 2.5, scale=1.0 / (2.0 + 0.5 * squares))
        ratio = density - gamma.logpdf(np.exp(logs), 2.0, scale=0.5)
        return float(trapezoid(np.exp(density + logs) * ratio, logs, axis=0).sum())

    def expected(self) -> np.ndarray:
        """(agents,)"""
        own = [self.log_density(e) - self.price(e) for e in range(len(self.owner))]
        return np.bincount(self.owner, weights=own, minlength=len(SIZES))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_log_densities_with_student_noise_are_given_the_weights_less_what_these_cost(fit_intercept, monkeypatch):
    weighed = WeighedStudent(monkeypatch, fit_intercept=fit_intercept)
    found = weighed.scalars()
    assert min(map(weighed.price, range(len(weighed.owner)))) > 0.01, "weights are not free"
    np.testing.assert_allclose(found["log_density"], weighed.expected(), rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(found["weighed_events"], 4.0 * np.array(SIZES))


def test_log_densities_with_student_noise_of_some_agents_are_theirs(monkeypatch):
    weighed = WeighedStudent(monkeypatch)
    everyone = weighed.scalars()
    some = weighed.scalars([0, 2])
    for name in ("log_density", "weighed_events"):
        np.testing.assert_allclose(some[name], everyone[name][[0, 2]], rtol=1e-12)


def test_log_densities_with_student_noise_have_the_mean_of_the_t_distribution(monkeypatch):
    """Without effects, their mean over p(λ | y) is the log density of a t distribution."""
    weighed = WeighedStudent(monkeypatch)
    weighed.current = replace(
        weighed.current,
        coef=np.tile(weighed.current.coef[:1], (N_CLUSTERS, 1)),
        effect_covariance=np.zeros((3, 3)),
        agent_effect_scale=np.zeros(3),
    )
    weighed.agent_effects = np.zeros((len(SIZES), 3))
    y, means = weighed.entities.events.y, weighed.X @ weighed.current.coef[0]
    found, n = np.zeros(len(SIZES)), 400
    for share in (np.arange(n) + 0.5) / n:
        weighed.weights = gamma.ppf(share, 2.5, scale=1.0 / (2.0 + 0.5 * (y - means) ** 2 / 0.49))
        found += weighed.scalars()["log_density"] / n
    expected = t(4.0, means, 0.7).logpdf(y)
    by_agent = np.bincount(np.repeat(weighed.owner, 4), weights=expected)
    np.testing.assert_allclose(found, by_agent, rtol=1e-3)


MUTATIONS = {
    "own label not removed from the counts": (
        "others = counts[k] - 1.0 if labels[e] == k else counts[k]", "others = counts[k]",
    ),
    "own label not removed from the total": ("+ (end - start) - 1.0", "+ (end - start)"),
    "labels of the agents before are counted too": (
        "for e in range(start, end):\n            counts[labels[e]] += 1.0",
        "for e in range(end):\n            counts[labels[e]] += 1.0",
    ),
}  # fmt: skip


def run_in_python(monkeypatch, old="", new=""):
    """Agents weigh by the source of the kernel in plain Python, with `new` in the place of `old`."""
    kernel = evidence.add_log_densities
    source = textwrap.dedent(inspect.getsource(getattr(kernel, "py_func", kernel)))
    assert not old or source.count(old) == 1, f"the mutation {old!r} no longer fits the source"
    decorator, _, function = source.partition("\n")
    assert decorator.startswith("@")
    made = {}
    exec(function.replace(old, new) if old else function, vars(evidence), made)
    monkeypatch.setattr(evidence, "add_log_densities", made["add_log_densities"])


def test_the_kernel_in_plain_python_passes(monkeypatch):
    run_in_python(monkeypatch)
    check_densities(Weighed("entity"))


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_line_of_the_kernel_is_caught(name, monkeypatch):
    run_in_python(monkeypatch, *MUTATIONS[name])
    with pytest.raises(AssertionError):
        check_densities(Weighed("entity"))


# How the comparison goes on.


@pytest.fixture
def tuned(monkeypatch):
    """Constants that others may tune, as they are in the sums done by hand here."""
    constants = {"MANY_EVENTS": 20.0, "GAIN_WITH_FEW": 0.2, "USUAL_PER_COEF": 50.0}
    constants |= {"LOSS_WITH_MANY": 0.01, "VERY_MANY_EVENTS": 40.0}
    constants |= {"ENOUGH_EVENTS": 30.0, "ENOUGH_ENTITIES": 50.0, "ENOUGH_GAIN": 0.3, "LONGER": 0.2}
    for name, value in constants.items():
        monkeypatch.setattr(cluster_comparison, name, value)
    shares = dict(zip(cluster_comparison.LENGTHS, (0.05, 0.05, 0.05, 0.25, 0.05, 0.02), strict=True))
    monkeypatch.setattr(cluster_comparison, "LENGTHS", shares)


def test_outcomes_need_a_gain_unless_entities_have_very_many_events():
    gains = [least_gain_of_outcomes(per_entity) for per_entity in (1.0, 5.0, 20.0, 40.0, 400.0)]
    assert gains[0] == pytest.approx(cluster_comparison.GAIN_WITH_LITTLE, rel=0.05)
    assert gains == sorted(gains, reverse=True)
    assert gains[2] == pytest.approx(0.5 * cluster_comparison.GAIN_WITH_LITTLE)
    assert gains[3] == gains[4] == 0.0


@pytest.mark.usefixtures("tuned")
def test_least_gain_falls_from_few_events_of_entities_to_many():
    assert least_gain(0.0, 50.0) == pytest.approx(0.2)
    assert least_gain(4.0, 50.0) == pytest.approx(0.16)
    assert least_gain(10.0, 50.0) == pytest.approx(0.1)
    assert least_gain(20.0, 50.0) == least_gain(40.0, 1.0) == pytest.approx(0.0)
    assert least_gain(80.0, 50.0) == pytest.approx(-0.005)
    assert least_gain(1e9, 1.0) == pytest.approx(-0.01)


@pytest.mark.usefixtures("tuned")
def test_least_gain_is_larger_for_more_coefficients_and_with_curves():
    assert least_gain(10.0, 12.5) == pytest.approx(0.2)
    assert least_gain(10.0, 200.0) == pytest.approx(0.05)
    assert least_gain(10.0, 50.0, has_curves=True) == pytest.approx(0.2)
    assert least_gain(80.0, 50.0, has_curves=True) == pytest.approx(-0.005)


def test_a_weight_is_the_mean_over_its_rounds():
    assert Weight().mean == 0.0
    weight = Weight().plus(-1.5).plus(-0.5)
    assert weight == Weight(-2.0, 2)
    assert weight.mean == -1.0


def globals_of(n_clusters):
    return globals_with(MixedEntityNoise(GramLayout(2)), n_clusters, stage=float(Stage.WEIGHING))


def test_the_gain_is_in_nats_per_event_less_a_penalty_for_each_coefficient():
    comparison = ClusterComparison(100, several=globals_of(3), weights=[Weight(-2.0, 2), Weight(-6.0, 4)])
    assert comparison.gain(100.0, 4, price=1.5) == pytest.approx(0.5 - 1.5 * 2 * 4 / 100.0)
    assert comparison.gain(1e12, 4, price=1.5) == pytest.approx(0.5)
    # one cluster is not penalised
    assert replace(comparison, several=globals_of(1)).gain(100.0, 4, price=1.5) == pytest.approx(0.5)


class Run:
    """A comparison that is fed with rounds, each with a number of clusters and a log density per event."""

    likelihood = MixedEntityNoise(GramLayout(2))

    def __init__(self, n_clusters, n_rounds=100, start=0, begin=60):
        self.comparison, self.round = ClusterComparison(n_rounds, start), begin
        self.comparison.begin(begin, n_clusters)

    def state(self, n_clusters, log_density, n_events=1_000.0, weighs=True):
        scalars = {"events": n_events, "weighed_events": weighs * n_events, "log_density": log_density * n_events}
        counts = np.full(n_clusters, 300.0 / n_clusters)
        sums = ClusterSums({}, counts, counts, scalars)
        return SimpleNamespace(round=self.round, sums=sums, globals=globals_of(n_clusters))

    def until_over(self, of_several=0.0, of_one=0.0, n_clusters=3):
        """(phase, rounds) in the order in which they come, and the rounds after which all clusters became one."""
        phases, merged = [], []
        while self.comparison.is_running:
            phase = self.comparison.phase
            self.round += 1
            density = of_several if phase == Phase.SEVERAL else of_one
            state = self.state(n_clusters, density, weighs=self.comparison.stage == Stage.WEIGHING)
            if phase == Phase.BACK:
                self.went_back_to = self.comparison.several
            target = self.comparison.advance(self.likelihood, state)
            if target is not None:
                np.testing.assert_array_equal(target, np.zeros(n_clusters))
                merged.append(self.round)
                n_clusters = 1
            phases.append(phase)
        return [(phase.name, phases.count(phase)) for phase in dict.fromkeys(phases)], merged


LENGTHS = [("SETTLING", 5), ("SEVERAL", 5), ("PLAIN", 5), ("EFFECTS", 25), ("ONE", 5)]


@pytest.fixture
def least(monkeypatch, tuned):
    """By how much the density of three clusters must exceed that of one in `Run`: 0.15, and 3 log(1000)/1000."""

    def asked(events_per_entity, *args, **kwargs):
        assert events_per_entity == pytest.approx(1000 / 300)
        return 0.15

    monkeypatch.setattr(cluster_comparison, "least_gain", asked)
    return 0.15 + 3.0 * np.log(1000.0) / 1000.0


def test_a_run_stays_with_one_cluster_if_several_gain_too_little(least):
    run = Run(3)
    phases, merged = run.until_over(of_several=-1.0 + least - 1e-6, of_one=-1.0)
    assert phases == LENGTHS
    assert merged == [70]
    assert run.round == 105
    assert run.comparison.several is None
    assert run.comparison.weights[0].rounds == run.comparison.weights[1].rounds == 5


def test_a_run_goes_back_if_several_clusters_gain_enough(least):
    run = Run(3)
    phases, merged = run.until_over(of_several=-1.0 + least + 1e-6, of_one=-1.0)
    assert phases == [*LENGTHS, ("BACK", 2)]
    assert merged == [70]
    assert run.went_back_to.n_clusters == 3
    assert run.went_back_to.stage == Stage.MERGING
    assert run.comparison.phase == Phase.OVER
    assert run.comparison.several is None


@pytest.mark.usefixtures("tuned")
def test_a_single_cluster_learns_its_effects_and_is_not_weighed():
    run = Run(1)
    phases, merged = run.until_over(n_clusters=1)
    assert phases == [("PLAIN", 5), ("EFFECTS", 25)]
    assert not merged
    assert run.comparison.weights == [Weight(), Weight()]


def test_rounds_in_which_nobody_weighs_do_not_count():
    run = Run(3)
    run.comparison.phase = Phase.SEVERAL
    run.comparison.advance(run.likelihood, run.state(3, -1.0))
    run.comparison.advance(run.likelihood, run.state(3, -9.0, weighs=False))
    assert run.comparison.weights[0] == Weight(-1.0, 1)


def test_phases_have_the_stages_of_a_run():
    expected = {
        Phase.SETTLING: Stage.MERGING,
        Phase.SEVERAL: Stage.WEIGHING,
        Phase.PLAIN: Stage.PLAIN,
        Phase.EFFECTS: Stage.MERGING,
        Phase.ONE: Stage.WEIGHING,
        Phase.BACK: Stage.MERGING,
    }
    running = [comparison for phase in Phase if (comparison := ClusterComparison(100, phase=phase)).is_running]
    assert {comparison.phase: comparison.stage for comparison in running} == expected


@pytest.mark.usefixtures("tuned")
@pytest.mark.parametrize(("n_rounds", "start", "latest"), [(100, 0, 73), (100, 1, 74), (200, 0, 146)])
def test_the_comparison_ends_in_time(n_rounds, start, latest):
    """Though the run goes back, it takes at most a fifth longer than the rounds in which clusters are found."""
    assert ClusterComparison(n_rounds, start).latest_start == latest
    run = Run(3, n_rounds, start, begin=latest)
    run.until_over(of_several=1.0)
    assert run.round == start + 1.2 * n_rounds


@pytest.mark.usefixtures("tuned")
def test_a_short_run_finds_clusters_first_and_compares_in_the_time_that_is_left():
    latest = ClusterComparison(30, 1).latest_start
    assert latest == 23
    run = Run(3, 30, 1, begin=latest)
    run.until_over(of_several=1.0)
    assert run.round == 23 + 2 + 2 + 2 + 8 + 2 + 2


def test_only_long_runs_with_effects_that_leave_the_number_of_clusters_open_compare():
    auto, long = ModelSpec(effects="auto"), MergeSchedule.until(100)
    assert Merger.planned(long, None, auto).comparison == ClusterComparison(100, 0)
    assert Merger.planned(MergeSchedule.until(101, start=1), None, auto).comparison == ClusterComparison(100, 1)
    fewest = merging.FEWEST_ROUNDS
    assert Merger.planned(MergeSchedule.until(fewest), None, auto).comparison is not None
    assert Merger.planned(MergeSchedule.until(fewest - 1), None, auto).comparison is None
    assert Merger.planned(MergeSchedule.until(fewest, start=1), None, auto).comparison is None
    assert Merger.planned(long, 3, auto).comparison is None
    assert Merger.planned(long, None, ModelSpec(effects="none")).comparison is None
    for effects in ("entity", "entity+agent"):
        assert Merger.planned(long, None, ModelSpec(effects=effects)).comparison == ClusterComparison(100, 0)


def needed(n_clusters=3, n_events=10_000.0, gain=1.0, *, n_entities=200, n_plain=3, differ=False, has_stages=True):
    """`is_needed` if `n_clusters` clusters, one of them empty, gain so much, in nats per event, over all in one."""

    def evidence(blocks, current):
        rows = blocks["grams"]
        # the sums of all clusters together are 1 + 2 + …
        return np.where(rows[:, 0] == total, -gain * n_events, 0.0)

    counts = np.append(np.full(n_clusters, n_entities / n_clusters), 0.0)
    grams = np.append(np.arange(1.0, n_clusters + 1.0), 0.0)[:, None]
    total = grams.sum()
    sums = ClusterSums({"grams": grams}, counts, counts, {"events": n_events})
    layout = SimpleNamespace(n_linear=4)
    likelihood = SimpleNamespace(has_stages=has_stages, doubts_clusters=False, layout=layout, evidence=evidence)
    state = SimpleNamespace(sums=sums, globals=globals_of(n_clusters + 1))
    return ClusterComparison(100, n_plain=n_plain, differ=differ).is_needed(likelihood, state)


@pytest.mark.usefixtures("tuned")
def test_clear_clusters_of_equal_entities_need_no_comparison():
    assert not needed()


@pytest.mark.usefixtures("tuned")
def test_clusters_are_doubtful_if_entities_differ_within_them():
    assert needed(differ=True)
    assert not needed(differ=True, has_stages=False), "there are no effects to take the differences"


@pytest.mark.usefixtures("tuned")
def test_clusters_are_doubtful_if_they_have_few_events():
    """Fewer than 30 for each of 4 coefficients of 3 clusters."""
    assert needed(n_events=359.0)
    assert not needed(n_events=360.0)


@pytest.mark.usefixtures("tuned")
def test_clusters_are_doubtful_if_they_have_few_entities():
    """Fewer than 50 for each of 3 clusters; the empty fourth one does not count."""
    assert needed(n_entities=149)
    assert not needed(n_entities=150)


@pytest.mark.usefixtures("tuned")
def test_clusters_are_doubtful_if_they_gain_little():
    assert needed(gain=0.299)
    assert not needed(gain=0.301)


def test_one_cluster_is_doubtful_only_if_there_were_several_plain_ones():
    assert needed(1, n_plain=2)
    assert not needed(1, n_plain=1)
    assert not needed(1, n_plain=1, differ=True)


# Where a chain goes back to several clusters, it begins without labels.


def back_from(n_clusters, monkeypatch):
    """What agents start from in a sweep given the globals of 3 clusters, if there are `n_clusters` before."""
    entities, seen = Weighed("entity").entities, []
    state = blocked.initial_state(entities, ModelSpec(), n_clusters, Stream(1))
    state = replace(state, agent_state={name: value + 0.5 for name, value in state.agent_state.items()})
    relabel = blocked.relabel

    def spied(entities, current, agents, *args):
        seen.append((current, agents))
        return relabel(entities, current, agents, *args)

    monkeypatch.setattr(blocked, "relabel", spied)
    several = globals_of(3).at_stage(Stage.MERGING)
    after = blocked.step(entities, ModelSpec(), state, Stream(1), several)
    assert after.round == 1
    assert after.globals is several
    assert after.sums.n_clusters == 3
    ((current, agents),) = seen
    assert current is several
    return state, agents, entities


def test_agents_of_a_chain_start_again_when_the_number_of_clusters_changes(monkeypatch):
    _, agents, entities = back_from(1, monkeypatch)
    np.testing.assert_array_equal(agents.labels, -1)
    for name, value in entities.start_state().items():
        np.testing.assert_array_equal(agents.agent_state[name], value)


def test_agents_of_a_chain_go_on_while_it_stays_with_the_several_clusters(monkeypatch):
    state, agents, _ = back_from(3, monkeypatch)
    assert agents.labels is state.labels
    assert agents.agent_state is state.agent_state


# What it decides.


def fit(table, **params):
    return HLCRRegressor(**params).fit(table.X, table.y, agent=table.agent, entity=table.entity)


def mse(model, table):
    return np.mean((model.predict(table.X, agent=table.agent, entity=table.entity) - table.y) ** 2)


def course(model):
    """The numbers of clusters of a run, without repetitions."""
    found = model.trace_["n_clusters"]
    return found[np.append(True, np.diff(found) != 0)].tolist()


@pytest.mark.parametrize("seed", range(3))
def test_effects_of_entities_are_not_taken_for_clusters(seed):
    whole = one_cluster(seed, n_events=14)
    is_train = np.arange(len(whole)) % 14 < 4
    train, test = whole[is_train], whole[~is_train]
    model = fit(train)
    assert course(model)[-2] > 1, "there were several clusters before the comparison"
    assert model.n_clusters_ == 1
    np.testing.assert_allclose(model.effect_scales_[1:], [0.6, 0.5], rtol=0.35)
    assert mse(model, test) < 1.02 * mse(fit(train, n_clusters=1), test)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_clusters_far_apart_are_found_again_after_the_comparison(seed):
    table, truth = four_clusters(seed)
    model = fit(table)
    assert course(model)[-3:] == [4, 1, 4]
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    np.testing.assert_allclose(model.effect_scales_[1:], 0.15, rtol=0.35)
    assert mse(model, table) < 1.02 * mse(fit(table, n_clusters=4), table)


@pytest.mark.parametrize("seed", [1, 2])
def test_data_of_the_paper_are_fitted_without_a_comparison_as_by_the_paper(seed):
    table, _ = make_hlcr(40, 6, 8, 2, 3, 0.4, random_state=seed)
    model, paper = fit(table), fit(table, **PAPER)
    assert model.trace_["n_clusters"].min() == model.n_clusters_ == 3
    np.testing.assert_allclose(model.effect_scales_, 0.0, atol=1e-12)
    np.testing.assert_array_equal(model.labels_, paper.labels_)
    np.testing.assert_allclose(model.coef_, paper.coef_, rtol=1e-9, atol=1e-9)
    predicted = [one.predict(table.X, agent=table.agent, entity=table.entity) for one in (model, paper)]
    np.testing.assert_allclose(*predicted, rtol=1e-6, atol=1e-6)


def test_a_run_that_never_goes_back_loses_the_clusters(monkeypatch):
    """Were the end of the comparison not seen, the tests above would say nothing."""
    monkeypatch.setattr(cluster_comparison, "least_gain", lambda *_, **__: np.inf)
    assert course(fit(four_clusters()[0]))[-2:] == [4, 1]
