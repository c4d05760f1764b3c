"""A second likelihood, with a noise scale for each cluster: defined only here, it runs wherever the Gaussian does."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from sklearn.base import clone

import fedhlcr
from fedhlcr import NEW, FedHLCRRegressor, HLCRRegressor
from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.streams import Stream
from fedhlcr._support.wording import number
from fedhlcr.analysis.evidence import partition_evidence
from fedhlcr.cli.descriptions import model_facts
from fedhlcr.datasets import make_hlcr
from fedhlcr.federation import Broadcast
from fedhlcr.federation.run import Checkpoints, run_federation, run_round
from fedhlcr.model import conjugate
from fedhlcr.model.likelihood import Likelihood, register
from fedhlcr.model.priors import InverseGamma, ModelSpec
from fedhlcr.model.regression import LinearGlobals, coef_posterior, draw_coef
from fedhlcr.model.schema import CLUSTERS, COEF, GRAMS, Quantity, quantity
from fedhlcr.report import render_report
from fedhlcr.samplers import blocked
from fedhlcr.samplers.state import EntityData
from fedhlcr.storage import codec
from tests.enumeration import exact_posterior, labeling_index
from tests.federations import assert_same_server, centralised_states, hierarchy_of, in_process, server_for
from tests.problems import PAPER, entities_from, tiny_table

NAME = "noise-by-cluster"
SHAPE = 2.0


@dataclass(frozen=True, kw_only=True)
class ClusterNoiseGlobals(LinearGlobals):
    """σ_k, which agents need, and the scale s around which they lie, which only the server needs."""

    cluster_noise_scale: FloatArray = quantity(
        CLUSTERS, possible=lambda v: np.isfinite(v) & (v > 0), broadcast=True, traced=True, in_target_units=True,
        padding=1.0,
    )  # fmt: skip
    common_noise_scale: float = quantity(possible=lambda v: v > 0, traced=True, in_target_units=True)

    @property
    def noise_prior(self) -> InverseGamma:
        """σ_k² ~ IG(a, a s²)."""
        return InverseGamma(SHAPE, SHAPE * self.common_noise_scale**2)


@register
class ClusterNoise(Likelihood[ClusterNoiseGlobals]):
    """y ~ N(w_kᵀx, σ_k²)."""

    name = NAME
    globals_type = ClusterNoiseGlobals

    def score_rows(self, current):
        """M·r_k = −n log σ_k − RSS(w_k)/(2σ_k²); M begins with n."""
        rows = self.layout.rss_vectors(current.coef) / (-2.0 * current.cluster_noise_scale[:, None] ** 2)
        rows[:, 0] -= np.log(current.cluster_noise_scale)
        return rows

    def start(self, spec, n_clusters):
        scale = spec.target_spread if spec.noise_scale is None else spec.noise_scale
        own = {"cluster_noise_scale": np.full(n_clusters, scale), "common_noise_scale": scale}
        return self.start_with(spec, n_clusters, **own)

    def regressions(self, blocks, current):
        noise = current.cluster_noise_scale[: len(blocks[GRAMS])]
        return coef_posterior(self.layout.normal_equations(blocks[GRAMS]), noise, current.coef_prior)

    def draw(self, sums, regressions, current, spec, rng):
        """w | M, σ; σ_k | w_k, M_k; s | σ under p(s²) ∝ exp(−s²); then (μ, δ) | w."""
        drawn = replace(current, coef=draw_coef(regressions, rng))
        if spec.noise_scale is None:
            n_events, squares = self.layout.n_events(sums.grams), self.layout.rss(sums.grams, drawn.coef)
            variance = conjugate.draw_variance(rng, drawn.noise_prior, n_events, squares)
            rate = 1.0 / spec.target_spread**2 + SHAPE * (1.0 / variance).sum()
            common = np.sqrt(rng.standard_gamma(1.0 + SHAPE * len(variance)) / rate)
            drawn = replace(drawn, cluster_noise_scale=np.sqrt(variance), common_noise_scale=float(common))
        return self.with_coef_prior(drawn, sums, spec, rng)

    def evidence(self, blocks, current):
        """log ∫ p(y | σ) p(σ) dσ of any set, by the trapezoidal rule in log σ² around where its own events put it."""
        data, prior = self.layout.normal_equations(blocks[GRAMS][:, None]), current.noise_prior
        rough = coef_posterior(data, current.common_noise_scale, current.coef_prior).mean
        shape = prior.shape + 0.5 * data.n
        centre = (prior.rate + 0.5 * self.layout.rss(blocks[GRAMS][:, None], rough)) / shape
        nodes, step = np.linspace(-8.0, 8.0, 65, retstep=True)
        variance = centre * np.exp(shape**-0.5 * nodes)
        log_prior = prior.shape * np.log(prior.rate / variance) - gammaln(prior.shape) - prior.rate / variance
        log_terms = coef_posterior(data, np.sqrt(variance), current.coef_prior).log_evidence + log_prior
        return logsumexp(log_terms, axis=1) + np.log(step * shape[:, 0] ** -0.5)

    def noise_scales(self, draws):
        return draws.cluster_noise_scale


@register
class KnownNoise(ClusterNoise):
    """The same with σ = (0.8, 1.5) given: labels can be enumerated."""

    name = "known-noise"
    NOISE = np.array([0.8, 1.5])

    def start(self, spec, n_clusters):
        return replace(super().start(spec, n_clusters), cluster_noise_scale=self.NOISE)


TRUE_NOISE = np.array([0.1, 0.6, 3.0])


@pytest.fixture(scope="module")
def data():
    """Three clusters of very different noise, in training and test events of the same entities."""
    table, truth = make_hlcr(40, 5, 16, 2, 3, 0.0, agent_concentration=3.0, random_state=4)
    noise = np.random.default_rng(0).standard_normal(len(table))
    table = replace(table, y=10.0 * (table.y + TRUE_NOISE[truth.event_labels] * noise))
    held_out = np.random.default_rng(1).random(len(table)) < 0.25
    return table[~held_out], table[held_out], truth.event_labels[held_out]


def fields_of(table):
    return {"X": table.X, "y": table.y, "agent": table.agent, "entity": table.entity}


class NoiseByCluster(HLCRRegressor):
    own_likelihood = NAME


class FedNoiseByCluster(FedHLCRRegressor):
    own_likelihood = NAME


FEDERATED = {"max_clusters": 12, "n_draws": 20, "patience": None}


@pytest.fixture(scope="module")
def centralised(data):
    return NoiseByCluster(max_clusters=12, n_sweeps=120, n_draws=30).fit(**fields_of(data[0]))


@pytest.fixture(scope="module")
def federated(data):
    model = FedNoiseByCluster(**FEDERATED, rounds=120, participation=0.6, failure_rate=0.3)
    return model.fit(**fields_of(data[0]))


@pytest.fixture(params=["centralised", "federated"])
def model(request):
    return request.getfixturevalue(request.param)


# It is right.


def distance_from_exact(n_sweeps=8_000):
    """Total variation between sampled labelings and the enumerated posterior, and that of independent draws."""
    plain = entities_from(*tiny_table(4, sizes=(3, 2, 1)))
    entities = replace(plain, likelihood=KnownNoise(plain.layout))
    spec = ModelSpec(noise_scale=1.0, coef_scale=1.0, global_concentration=1.0, agent_concentration=0.7)
    _, exact = exact_posterior(entities, 2, KnownNoise.NOISE, 1.0, 1.0, 0.7)
    visits, stream = np.zeros(len(exact)), Stream(1)
    state = blocked.initial_state(entities, spec, 2, stream)
    for _ in range(n_sweeps):
        state = blocked.step(entities, spec, state, stream)
        visits[labeling_index(state.labels, 2)] += 1
    draws = np.random.default_rng(1).multinomial(n_sweeps, exact, size=200) / n_sweeps
    return 0.5 * np.abs(visits / n_sweeps - exact).sum(), 0.5 * np.abs(draws - exact).sum(axis=1).mean()


@pytest.mark.slow
def test_labels_follow_the_exact_posterior():
    """Clusters are no longer alike, and seldom trade places: hence three times the scatter of independent draws."""
    distance, floor = distance_from_exact()
    assert distance < 3 * floor


@pytest.mark.slow
def test_a_forgotten_normalising_term_is_caught(monkeypatch):
    def mutant(self, current):
        return self.layout.rss_vectors(current.coef) / (-2.0 * current.cluster_noise_scale[:, None] ** 2)

    monkeypatch.setattr(ClusterNoise, "score_rows", mutant)
    distance, floor = distance_from_exact()
    assert distance > 5 * floor


def test_evidence_integrates_the_noise_out(rng):
    """Against plain Monte Carlo over the prior."""
    entities = entities_from(*tiny_table(2, sizes=(3,), n_events=3))
    likelihood = ClusterNoise(entities.layout)
    current = replace(likelihood.start(ModelSpec(coef_scale=1.0), 5), common_noise_scale=0.8)
    variance = current.noise_prior.rate / rng.standard_gamma(SHAPE, size=400_000)
    coef = rng.standard_normal((len(variance), entities.layout.n_coef))
    for gram, evidence in zip(entities.grams, likelihood.evidence({GRAMS: entities.grams}, current), strict=True):
        n, squares = gram[0], entities.layout.rss(gram, coef)
        simulated = logsumexp(-0.5 * n * np.log(2 * np.pi * variance) - 0.5 * squares / variance)
        assert evidence == pytest.approx(simulated - np.log(len(variance)), abs=0.03)


def test_the_noise_of_each_cluster_is_found(model, data):
    order = np.argsort(model.cluster_noise_scale_)
    assert model.n_clusters_ == 3
    np.testing.assert_allclose(model.cluster_noise_scale_[order], 10.0 * TRUE_NOISE, rtol=0.15)


# It predicts.


def test_it_predicts_better_than_one_noise_scale_for_all(model, data):
    train, test, _ = data
    plain = HLCRRegressor(**PAPER, max_clusters=12, n_sweeps=120, n_draws=30).fit(**fields_of(train))
    gain = model.log_density(**fields_of(test)).mean() - plain.log_density(**fields_of(test)).mean()
    assert gain > 0.5


def test_intervals_are_as_wide_as_the_clusters_noise(model, data):
    _, test, label = data
    lower, upper = model.predict_interval(test.X, test.agent, test.entity)
    width = np.array([np.median((upper - lower)[label == k]) for k in range(3)])
    np.testing.assert_allclose(width, 2 * 1.645 * 10.0 * TRUE_NOISE, rtol=0.25)
    inside = [((test.y >= lower) & (test.y <= upper))[label == k].mean() for k in range(3)]
    assert min(inside) > 0.8
    mean = model.predict(test.X, test.agent, test.entity)
    assert np.mean((mean - test.y)[label == 0] ** 2) < (10.0 * TRUE_NOISE[1]) ** 2


# Traces and summaries follow the schema.


def test_traces_and_summaries_follow_the_schema(model):
    table = model.history_ if hasattr(model, "history_") else model.trace_
    last = table[table["kept"]]
    for name in ("cluster_noise_scale", "common_noise_scale"):
        assert (last[name] > 0.5).all()
    # the mean by weights of what the fitted attribute has for each cluster
    weighted = np.average(model.cluster_noise_scale_, weights=model.cluster_weights_)
    assert last["cluster_noise_scale"].mean() == pytest.approx(weighted, rel=0.1)
    assert "noise_scale" not in table.dtype.names
    assert {d.quantity for d in model.diagnostics_} >= {"cluster noise scale", "common noise scale"}
    text = str(model.summary())
    told = ", ".join(number(value) for value in model.cluster_noise_scale_)
    assert f"{told} in units of the target" in text
    assert model_facts(model)["cluster_noise_scale"] is model.cluster_noise_scale_
    assert "cluster noise" in render_report(model)


def test_evidence_of_a_partition_is_nan_unless_implemented(centralised):
    entities = centralised.posterior_.memory.entities
    assert np.isnan(partition_evidence(entities, ModelSpec(), centralised.labels_, 3, Stream(0)))
    with pytest.raises(ValueError, match="use sampler='blocked'"):
        clone(centralised).set_params(sampler="collapsed").fit([[0.0], [1.0]], [0.0, 1.0])


# It is copied, saved and loaded.


def test_models_are_saved_and_loaded(model, data, tmp_path):
    test = data[1]
    model.save(tmp_path / "model")
    loaded = fedhlcr.load(tmp_path / "model")
    assert loaded.likelihood == NAME
    np.testing.assert_array_equal(loaded.cluster_noise_scale_, model.cluster_noise_scale_)
    np.testing.assert_array_equal(loaded.log_density(**fields_of(test)), model.log_density(**fields_of(test)))
    model.save(tmp_path / "public", public=True)
    public = fedhlcr.load(tmp_path / "public")
    np.testing.assert_array_equal(public.log_density(test.X, test.y), model.log_density(test.X, test.y, NEW))
    own = {name: column[:20] for name, column in fields_of(test).items()}
    assert np.isfinite(public.adapt(**own).predict(test.X[:20], own["agent"], own["entity"])).all()


def test_models_are_pickled_and_cloned(model, data):
    test = data[1]
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(test.X, NEW), model.predict(test.X, NEW))
    assert clone(model).own_likelihood == NAME


# It is federated.


def test_federation_of_all_agents_equals_the_centralised_chain(data):
    """Round t draws the numbers of sweep t − 1, in the same units."""
    server, engine = server_for(2, likelihood=NAME, **FEDERATED, seed=5), in_process(data[0])
    while server.round < 1:
        run_round(server, engine)
    model, spec = server.model(), ModelSpec(target_spread=server.units.target_spread)
    grams = engine.entity_grams(server.run, model.layout, model.standardization)
    entities = EntityData(ClusterNoise(model.layout), hierarchy_of(data[0]).index, grams)
    for state in islice(centralised_states(entities, spec, 12, Stream(5)), 40):
        drawn, expected = server.kept_draws[-1].globals, state.globals
        np.testing.assert_array_equal(server.rule.cluster_of[engine.everyone.pending], state.labels)
        np.testing.assert_allclose(drawn.coef, expected.coef, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(drawn.cluster_noise_scale, expected.cluster_noise_scale, rtol=1e-9)
        assert drawn.common_noise_scale == pytest.approx(expected.common_noise_scale, rel=1e-9)
        run_round(server, engine)
    assert state.globals.n_clusters < 12, "some clusters were merged"


def test_run_resumed_after_every_round_equals_uninterrupted_run(data, tmp_path):
    table = data[0]
    faults = {"failure_rate": 0.4, "seed": 9}
    params = {**FEDERATED, "likelihood": NAME, "seed": 3, "participation": 0.5, "rounds": 40}
    whole = server_for(2, **params)
    run_federation(whole, in_process(table, **faults))
    checkpoints, server, engine = Checkpoints(tmp_path / "run"), server_for(2, **params), in_process(table, **faults)
    while not server.finished:
        run_round(server, engine)
        checkpoints.save(server, engine)
        engine = in_process(table, **faults)
        server = checkpoints.resume(server.settings, engine)
    assert_same_server(server, whole)


def test_it_runs_on_flower(data, tmp_path):
    pytest.importorskip("flwr", reason="the flower extra is not installed")
    from tests.flower_grid import assert_same_model, local_nodes, run_app

    table = data[0]
    public = run_app(local_nodes(tmp_path, table), tmp_path, likelihood=NAME, max_clusters=6)
    here = FedNoiseByCluster(max_clusters=6, rounds=8, random_state=3).fit(**fields_of(table))
    assert_same_model(public, here.posterior_)
    loaded = fedhlcr.load(tmp_path / "out" / "experiment.model")
    named = table.to_pandas()[list(table.feature_names)]
    np.testing.assert_allclose(loaded.predict(named), here.predict(table.X, NEW))


WRONG = {
    "a noise of zero": lambda values: np.zeros_like(values),
    "a negative noise": lambda values: -values,
    "a noise that is no number": lambda values: values * np.nan,
    "noise of fewer clusters": lambda values: values[:-1],
    "noise of other axes": lambda values: values[:, None],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_broken_values_are_refused(data, wrong):
    server, engine = server_for(2, likelihood=NAME, **FEDERATED), in_process(data[0])
    while server.rule is None:
        run_round(server, engine)
    broadcast = server.open_round(engine.agents()).broadcast
    record = codec.decode(broadcast.to_bytes(), "broadcast", 1)
    assert "common_noise_scale" not in record, "only the server needs it"
    values = record["cluster_noise_scale"]
    same = Broadcast.from_bytes(codec.encode("broadcast", 1, record))
    np.testing.assert_array_equal(same.law.cluster_noise_scale, values)
    broken = codec.encode("broadcast", 1, {**record, "cluster_noise_scale": WRONG[wrong](values)})
    with pytest.raises(codec.CodecError, match="cluster_noise_scale"):
        Broadcast.from_bytes(broken)


class Misspelt(HLCRRegressor):
    own_likelihood = "student"


def test_unregistered_names_are_refused():
    known = r"`likelihood` must be one of 'auto', .*'noise-by-cluster'.*check the spelling"
    with pytest.raises(ValueError, match=known):
        Misspelt().fit([[0.0], [1.0]], [0.0, 1.0])


def test_the_parameter_still_works_with_a_warning(data):
    few = fields_of(data[0][:200])
    with pytest.warns(FutureWarning, match="`likelihood` is deprecated.*own_likelihood"):
        old = HLCRRegressor(likelihood=NAME, max_clusters=3, n_sweeps=6).fit(**few)
    np.testing.assert_array_equal(old.coef_, NoiseByCluster(max_clusters=3, n_sweeps=6).fit(**few).coef_)


def test_arrays_cannot_be_traced():
    with pytest.raises(ValueError, match=r"`matrix` has the axes.*can be traced"):
        Quantity("matrix", (CLUSTERS, COEF), np.isfinite, traced=True)
