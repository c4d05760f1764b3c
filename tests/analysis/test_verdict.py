"""Predicting each fitted event from all others, and the verdict against simpler models."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import norm, t

import fedhlcr
from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr.analysis.fit_comparison import MOST_EVENTS, MOST_PER_ENTITY, compare_with_simpler, sample_rows, take_sample
from fedhlcr.analysis.leave_one_out import (
    FittedEvents,
    average_over_draws,
    cluster_laws,
    log_density_left_out,
    log_density_left_out_of_entities,
    log_label_weights,
)
from fedhlcr.analysis.verdict import Difference, FitComparison, clear_errors, compare_densities
from fedhlcr.cli.descriptions import model_facts
from fedhlcr.cli.shell import option_text
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.exceptions import SimplerModelWarning
from tests.problems import PAPER


def hierarchy_of(table):
    return build_hierarchy(table.X, table.y, np.ones(len(table)), table.agent, table.entity)


@pytest.fixture(scope="module")
def one_draw(small):
    """A model with a single draw, its events, and their design in standardised units."""
    table, _ = small
    model = HLCRRegressor(**PAPER, n_clusters=3, n_sweeps=20, n_draws=1).fit(
        table.X, table.y, agent=table.agent, entity=table.entity
    )
    events, units = hierarchy_of(table), model.posterior_.standardization
    design = np.column_stack([np.ones(len(events.y)), units.apply(events.X)])
    return model.posterior_, events, design, units.apply_target(events.y)


def test_event_left_out_equals_the_mixture_given_the_other_events(one_draw):
    """The oracle really removes the event: label weights from the other events, then the mixture's density."""
    posterior, events, design, target = one_draw
    entity_of = np.repeat(np.arange(events.n_entities), np.diff(events.event_start))
    fitted = FittedEvents(design, target, entity_of)
    found = log_density_left_out(posterior, fitted, cluster_laws(posterior, fitted))
    draws, memory = posterior.draws, posterior.memory
    coef, scale = draws.coef[0], draws.noise_scale[0]
    for n in range(0, len(target), 17):
        entity = entity_of[n]
        rest = np.flatnonzero((entity_of == entity) & (np.arange(len(target)) != n))
        fellows = (memory.entities.index.agent_of == memory.entities.index.agent_of[entity]).copy()
        fellows[entity] = False
        counts = np.bincount(memory.labels[0][fellows], minlength=len(coef))
        prior = counts + draws.prior_weights[0]
        log_weights = np.log(prior) + norm.logpdf(target[rest, None], design[rest] @ coef.T, scale).sum(axis=0)
        weights = np.exp(log_weights - log_weights.max())
        expected = np.log(weights / weights.sum() @ norm.pdf(target[n], design[n] @ coef.T, scale))
        assert found[n] == pytest.approx(expected, abs=1e-6)


def test_densities_with_effects_equal_those_of_plain_clusters_if_there_are_none(small):
    """Also where an event excludes a label by more than the kernels can express."""
    table, _ = small
    events = hierarchy_of(table)
    entity_of = np.repeat(np.arange(events.n_entities), np.diff(events.event_start))
    densities = []
    for noise in ("common", "entity"):
        model = HLCRRegressor(effects="none", noise=noise, n_sweeps=60).fit(
            table.X, table.y, agent=table.agent, entity=table.entity
        )
        posterior, units = model.posterior_, model.posterior_.standardization
        target = units.apply_target(events.y)
        if posterior.likelihood.has_state:
            assert np.isinf(posterior.draws.stacked.noise_shape).all(), "no evidence that noise differs"
            densities.append(log_density_left_out_of_entities(posterior, events.X, target, entity_of))
        else:
            design = np.column_stack([np.ones(len(events.y)), units.apply(events.X)])
            fitted = FittedEvents(design, target, entity_of)
            densities.append(log_density_left_out(posterior, fitted, cluster_laws(posterior, fitted)))
    np.testing.assert_allclose(*densities, atol=0.1)


def test_log_label_weights_are_those_of_predictions(one_draw):
    posterior = one_draw[0]
    entities = np.arange(len(posterior.memory.entities))
    expected = posterior.label_weights(posterior.memory.entities.index.agent_of, entities)[:, 0]
    np.testing.assert_allclose(np.exp(log_label_weights(posterior, 0, entities)), expected, atol=1e-9)


def test_draws_that_agree_are_averaged_harmonically():
    ratios = np.array([[1.0, -2.0], [1.2, -2.0], [1.1, -2.0]])
    np.testing.assert_allclose(average_over_draws(ratios[:1]), -ratios[0])
    np.testing.assert_allclose(average_over_draws(ratios), -np.log(np.exp(ratios).mean(axis=0)))


def test_largest_weight_is_truncated():
    """99 draws predict the event with density 1, one draw with e^-100."""
    ratios = np.zeros((100, 1))
    ratios[3] = 100.0
    harmonic = -np.log(np.exp(ratios).mean())
    assert average_over_draws(ratios)[0] == pytest.approx(harmonic + np.log(np.sqrt(100)), abs=0.02)


def test_standard_error_has_entities_as_units():
    rng = np.random.default_rng(1)
    entities = np.repeat(np.arange(50), 20)
    shared = rng.normal(size=50)[entities]
    (found,) = compare_densities(0.1 + shared, {"one ridge": np.zeros(1000)}, entities).differences
    by_entity = 0.1 + shared[::20]
    assert found.gain == pytest.approx(by_entity.mean())
    assert found.standard_error == pytest.approx(by_entity.std(ddof=1) / np.sqrt(50))


@pytest.mark.parametrize(
    ("gain", "verdict", "words"),
    [
        (-0.03, "worse", "A mixed model predicts these events better (by 0.03 nats per event, ± 0.01)."),
        (0.015, "about the same", "A mixed model predicts these events about as well (difference 0.015"),
        (0.03, "better", "The model predicts its events better than one ridge for all and a mixed model (by 0.03"),
    ],
)
def test_verdict_against_the_strongest_rival(gain, verdict, words):
    rivals = (Difference("one ridge", 0.5, 0.1, 20), Difference("mixed model", gain, 0.01, 20))
    comparison = FitComparison(rivals, 100, 20)
    assert comparison.verdict == verdict
    assert str(comparison).startswith(words)
    assert (comparison.warning() is None) == (verdict != "worse")
    assert FitComparison.from_dict(comparison.to_dict()) == comparison


def test_few_entities_need_more_standard_errors():
    """As many as a t test of the same level does; with many entities two."""
    assert clear_errors(100_000) == pytest.approx(2.0, abs=1e-3)
    for n_entities in (2, 3, 8, 30):
        assert 2.0 * t.sf(clear_errors(n_entities), n_entities - 1) == pytest.approx(2.0 * norm.sf(2.0))
    gain = {n: Difference("mixed model", 0.022, 0.01, n).verdict for n in (1, 2, 8, 100)}
    assert gain == {1: "about the same", 2: "about the same", 8: "about the same", 100: "better"}
    assert Difference("mixed model", -0.025, 0.01, 8).verdict == "worse"


def test_one_entity_decides_nothing():
    """It has no standard error, however large the difference is."""
    found = compare_densities(np.full(50, 3.0), {"one ridge": np.zeros(50)}, np.zeros(50, dtype=int))
    assert found.strongest.standard_error == 0.0
    assert found.verdict == "about the same"


def test_chance_is_called_a_difference_about_as_often_as_it_should_be():
    """With 6 entities, two standard errors would call one comparison in ten."""
    rng = np.random.default_rng(4)
    entities, calls = np.repeat(np.arange(6), 5), 0
    for _ in range(2000):
        gain = rng.normal(size=6)[entities]
        calls += compare_densities(gain, {"one ridge": np.zeros(30)}, entities).verdict != "about the same"
    assert calls / 2000 == pytest.approx(2.0 * norm.sf(2.0), abs=0.015)


def test_comparison_of_an_older_file_has_as_many_entities_as_it_says():
    kept = {"differences": [["mixed model", -0.022, 0.01]], "n_events": 40, "n_entities": 8}
    found = FitComparison.from_dict(kept)
    assert found.strongest.n_entities == 8
    assert found.verdict == "about the same"
    assert found.to_dict() == kept


@pytest.mark.parametrize(
    ("rival", "python", "shell"),
    [
        (
            "mixed model",
            "use a mixed model (n_clusters=1, effects='entity', noise='common'). "
            "fedhlcr.baselines.MixedModelRegressor is one too.",
            "use a mixed model (--clusters 1, --effects entity, --noise common).",
        ),
        (
            "one ridge",
            "use one ridge for all (n_clusters=1, effects='none', noise='common'). "
            "fedhlcr.baselines.GroupedRidge is one too.",
            "use one ridge for all (--clusters 1, --effects none, --noise common).",
        ),
    ],
)
def test_advice_says_how_to_fit_the_simpler_model(rival, python, shell):
    comparison = FitComparison((Difference(rival, -0.1, 0.01, 20),), 100, 20)
    warning = comparison.warning()
    assert str(warning).endswith(f"If you want predictions, {python}")
    assert warning.worded(option_text).endswith(f"If you want predictions, {shell}")
    assert "fit_intercept" not in str(warning)
    assert str(comparison.warning(fit_intercept=False)).endswith("also try fit_intercept=True.")


def test_sample_spreads_over_entities():
    starts = np.concatenate([[0], np.cumsum(np.full(1000, 50))])
    rows, entities = sample_rows(starts)
    assert len(rows) <= MOST_EVENTS
    assert np.bincount(entities).max() == MOST_PER_ENTITY
    assert entities.min() == 0
    assert entities.max() == 999
    np.testing.assert_array_equal(rows // 50, entities)
    few, _ = sample_rows(np.array([0, 3, 4, 9]))
    np.testing.assert_array_equal(few, np.arange(9))


def random_slopes(n_entities=100, n_events=8):
    """A table that a mixed model describes and clusters do not."""
    rng = np.random.default_rng(0)
    entity = np.repeat(np.arange(n_entities), n_events)
    X = rng.normal(size=(len(entity), 2))
    own = rng.normal(size=(n_entities, 3)) * [0.8, 0.3, 0.3]
    y = own[entity, 0] + (X * (own[entity, 1:] + 1.0)).sum(axis=1) + 0.5 * rng.normal(size=len(entity))
    return X, y, entity % 10, entity


def test_fit_warns_where_a_mixed_model_is_better_and_the_file_keeps_it(tmp_path):
    X, y, agent, entity = random_slopes()
    with pytest.warns(SimplerModelWarning, match="A mixed model predicts these events better"):
        model = HLCRRegressor(n_clusters=3, n_sweeps=40).fit(X, y, agent=agent, entity=entity)
    assert model.comparison_.verdict == "worse"
    assert "A mixed model predicts these events better" in str(model.summary())
    assert model_facts(model)["comparison"]["verdict"] == "worse"
    model.save(tmp_path / "m")
    assert fedhlcr.load(tmp_path / "m").comparison_ == model.comparison_


@pytest.mark.parametrize("parameters", [{"n_clusters": 3}, {"n_clusters": 3, "effects": "none", "noise": "common"}])
def test_a_federation_warns_where_a_mixed_model_is_better(parameters):
    X, y, agent, entity = random_slopes()
    with pytest.warns(SimplerModelWarning, match="A mixed model predicts these events better"):
        federated = FedHLCRRegressor(rounds=40, **parameters).fit(X, y, agent=agent, entity=entity)
    with pytest.warns(SimplerModelWarning):
        central = HLCRRegressor(n_sweeps=40, **parameters).fit(X, y, agent=agent, entity=entity)
    assert federated.comparison_.strongest.gain == pytest.approx(central.comparison_.strongest.gain, abs=0.02)


def test_fit_is_quiet_where_clusters_are_right(small):
    table, _ = small
    with warnings.catch_warnings():
        warnings.simplefilter("error", SimplerModelWarning)
        model = HLCRRegressor(n_sweeps=60).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    assert model.comparison_.verdict == "better"
    assert [d.rival for d in model.comparison_.differences] == ["one ridge", "mixed model"]


def test_no_comparison_with_weights_or_few_entities(small):
    table, _ = small
    model = HLCRRegressor(n_sweeps=4, max_clusters=4)
    weight = np.where(np.arange(len(table)) % 2, 1.0, 2.0)
    ids = {"agent": table.agent, "entity": table.entity}
    assert model.fit(table.X, table.y, sample_weight=weight, **ids).comparison_ is None
    assert model.fit(table.X, table.y, entity=np.arange(len(table)) % 4).comparison_ is None


@pytest.mark.parametrize(
    ("parameters", "verdict"),
    # without intercepts the clusters do not fit, and the simpler models have intercepts
    [({"fit_intercept": False}, "worse"), ({"curves": [0]}, "better"), ({"n_chains": 2}, "better")],
)
def test_comparison_has_the_models_own_columns(small, parameters, verdict):
    table, _ = small
    ids = {"agent": table.agent, "entity": table.entity}
    estimator = HLCRRegressor(n_sweeps=60, **parameters)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", SimplerModelWarning)
        model = estimator.fit(table.X, table.y, **ids)
    advised = [str(warning.message) for warning in told if warning.category is SimplerModelWarning]
    assert ["fit_intercept=True" in text for text in advised] == ([True] if verdict == "worse" else [])
    again = compare_with_simpler(model.posterior_, take_sample(hierarchy_of(table)))
    assert again == model.comparison_
    assert again.verdict == verdict
