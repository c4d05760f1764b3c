"""The range of each scalar follows from an agent's counts and the broadcast: honest agents never leave it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedhlcr import FedHLCRClassifier, FedHLCRCountRegressor, FedHLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.kernels.labels import beta_auxiliary
from fedhlcr.kernels.uniforms import keyed_uniforms
from fedhlcr.model.gaussian import Gaussian
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import LABEL_SCALARS, LOG_LEAST_UNIFORM, Known

RANGES = {scalar.name: scalar for scalar in LABEL_SCALARS}


def known(n_entities, beta):
    counts = np.atleast_1d(np.asarray(n_entities, dtype=np.float64))
    return Known(counts, counts, SimpleNamespace(agent_concentration=beta))


@pytest.mark.parametrize("beta", [1e-6, 0.7, 40.0])
@pytest.mark.parametrize("n_entities", [0, 1, 7, 5000])
def test_least_log_beta_draws_are_those_of_the_least_uniforms(n_entities, beta):
    least, most = RANGES["log_beta_draws"].range(known(n_entities, beta))
    wanted = sum(LOG_LEAST_UNIFORM / (beta + 1.0 + rank) for rank in range(n_entities))
    assert least == pytest.approx(wanted, rel=1e-9)
    assert most == 0.0


@pytest.mark.parametrize("place", [1, 2])
def test_no_keyed_uniform_is_below_the_least(place):
    """The numbers have 32 bits: the least is half of their step, which no draw of a hundred thousand can be below."""
    draws = [keyed_uniforms(np.uint64(3), np.uint64(key), 1, np.uint64(0))[place] for key in range(100_000)]
    steps = np.array(draws) * 2.0**32
    np.testing.assert_array_equal(steps % 1.0, 0.5)
    assert min(np.log(draws)) > LOG_LEAST_UNIFORM == pytest.approx(np.log(0.5 / 2.0**32))


@pytest.mark.parametrize("n_entities", [1, 3, 200, 100_000])
def test_honest_draws_are_possible_for_any_number_of_entities(n_entities):
    beta, rng = 0.4, np.random.default_rng(n_entities)
    uniforms = (rng.integers(2**32, size=n_entities) + 0.5) / 2.0**32
    honest = sum(beta_auxiliary(u, rank, beta) for rank, u in enumerate(uniforms))
    of_least = sum(beta_auxiliary(2.0**-33, rank, beta) for rank in range(n_entities))
    for value, is_possible in ((honest, True), (of_least, True), (1.001 * of_least, False), (1e-9, False)):
        assert RANGES["log_beta_draws"].possible(np.array([value]), known(n_entities, beta)) == is_possible


@pytest.mark.parametrize("n_clusters", [1, 2, 30])
@pytest.mark.parametrize("n_entities", [1, 2, 5, 300])
@pytest.mark.parametrize("beta", [1e-8, 0.6, 50.0, 1e9, 1e15])
def test_honest_probabilities_of_labels_are_possible(beta, n_entities, n_clusters):
    """Also where rounding errors are all that is left: with one cluster, every labelling has probability 1."""
    rng, spec = np.random.default_rng(0), ModelSpec()
    for _ in range(50):
        weights = rng.dirichlet(np.full(n_clusters, 0.2))
        law = replace(Gaussian(GramLayout(1)).start(spec, n_clusters), agent_concentration=beta)
        law = replace(law, log_weights=np.log(np.maximum(weights, 1e-300)))
        prior, seen, log_prior = law.prior_weights(), np.zeros(n_clusters), 0.0
        for rank in range(n_entities):
            # as likely as they are, or all together where that is least likely
            k = rng.choice(n_clusters, p=weights / weights.sum()) if rng.random() < 0.5 else int(prior.argmin())
            log_prior += np.log((prior[k] + seen[k]) / (beta + rank))
            seen[k] += 1
        counts = np.array([float(n_entities)])
        assert RANGES["log_label_prior"].possible(np.array([log_prior]), Known(counts, counts, law))
        least = RANGES["log_beta_draws"].range(Known(counts, counts, law))[0]
        assert (least <= LOG_LEAST_UNIFORM * n_entities / (beta + n_entities) * (1.0 - 1e-12)).all()


def test_an_agent_without_entities_has_drawn_nothing():
    law = Gaussian(GramLayout(1)).start(ModelSpec(), 4)
    nobody = Known(np.zeros(1), np.zeros(1), law)
    for scalar in LABEL_SCALARS:
        assert scalar.possible(np.zeros(1), nobody)
        for value in (-1.0, -1e-3, 1.0):
            assert not scalar.possible(np.array([value]), nobody), scalar.name


def model_of(family, **settings):
    kinds = {"real": FedHLCRRegressor, "classes": FedHLCRClassifier, "counts": FedHLCRCountRegressor}
    return kinds[family](rounds=25, patience=None, max_clusters=6, random_state=2, **settings)


@pytest.mark.parametrize(
    ("family", "settings", "weight"),
    [
        ("real", {"effects": "none", "noise": "common"}, None),
        ("real", {}, None),
        ("real", {"effects": "entity+agent", "participation": 0.4}, None),
        ("real", {}, "fractional"),
        ("real", {"noise": "student"}, None),
        pytest.param(
            "real",
            {"fixed_point": True, "participation": 0.4},
            None,
            marks=pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.DeprecationNotice"),
        ),
        pytest.param("classes", {}, None, marks=(pytest.mark.slow, pytest.mark.ci)),
        pytest.param("classes", {"effects": "none"}, "frequencies", marks=(pytest.mark.slow, pytest.mark.ci)),
        pytest.param("counts", {}, None, marks=(pytest.mark.slow, pytest.mark.ci)),
    ],
)
def test_no_honest_agent_is_refused(family, settings, weight):
    """Agents of one entity and of many, entities of one event, and through all stages of a run."""
    table, _ = make_hlcr(20, 8, 6, 3, 3, 0.4, random_state=4)
    rng = np.random.default_rng(0)
    kept = rng.random(len(table)) < np.where(table.agent < 5, 0.1, 0.9)
    X, y, agent, entity = table.X[kept], table.y[kept], table.agent[kept], table.entity[kept]
    if family != "real":
        y = (y > 0.0).astype(int) if family == "classes" else rng.poisson(np.exp(np.clip(y, -3.0, 6.0)))
    weights = {"fractional": 0.3 * rng.random(len(y)) + 0.01, "frequencies": rng.integers(1, 5, len(y)), None: None}
    model = model_of(family, **settings).fit(X, y, agent=agent, entity=entity, sample_weight=weights[weight])
    assert model.history_["n_refused"].sum() == 0
    assert model.history_["n_accepted"].min() > 0
