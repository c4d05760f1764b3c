"""The log predictive density: that of the mixture `predict` and `predict_interval` summarise, in the user's units."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.exceptions import NotFittedError

from fedhlcr import NEW, FedHLCRRegressor, HLCRRegressor
from fedhlcr.datasets import make_hlcr
from fedhlcr.posterior.prediction import Posterior
from tests.problems import PAPER


@pytest.fixture(scope="module")
def table():
    """Few noisy events, in units far from standardised ones: the mixtures have several parts."""
    drawn, _ = make_hlcr(30, 4, 4, 2, 3, 1.2, random_state=3)
    return type(drawn)(drawn.X, 40.0 * drawn.y + 1000.0, drawn.agent, drawn.entity, drawn.feature_names)


def fit(table, **settings):
    model = HLCRRegressor(3, n_sweeps=60, n_draws=20, n_threads=settings.pop("n_threads", 1), **settings)
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


@pytest.fixture(scope="module")
def model(table):
    return fit(table)


def some(table, rows):
    return {"X": table.X[rows], "agent": table.agent[rows], "entity": table.entity[rows]}


def literal_log_density(posterior: Posterior, x, y, agent: int, entity: int) -> float:
    """Slow, readable twin: over draws and clusters, by scipy's normal density, in the user's units."""
    draws, units = posterior.draws, posterior.standardization
    weights = posterior.label_weights(np.array([agent]), np.array([entity]))[0]
    slopes, intercept = units.to_user_units(posterior.layout, draws.coef)
    terms = [
        np.log(weights[d, k] / len(draws))
        + norm.logpdf(y, intercept[d, k] + slopes[d, k] @ x, draws.noise_scale[d] * units.scale[-1])
        for d in range(len(draws))
        for k in range(draws.n_clusters)
        if weights[d, k] > 0.0
    ]
    return float(logsumexp(terms))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_equals_readable_version(table, fit_intercept):
    model = fit(table, fit_intercept=fit_intercept, **PAPER)
    rows = np.arange(0, len(table), 17)
    told = model.log_density(y=table.y[rows], **some(table, rows))
    index = model.posterior_.memory.entities.index
    pairs = {
        (index.agent_ids[a], e): (a, p) for p, (a, e) in enumerate(zip(index.agent_of, index.entity_ids, strict=True))
    }
    expected = [
        literal_log_density(model.posterior_, table.X[r], table.y[r], *pairs[table.agent[r], table.entity[r]])
        for r in rows
    ]
    np.testing.assert_allclose(told, expected, rtol=1e-10)


@pytest.mark.parametrize("known", ["entity", "agent", "nothing"])
def test_is_a_density_with_the_quantiles_of_the_intervals(model, table, known):
    """It integrates to 1, and up to the ends of an interval to their levels."""
    for row in (0, 50, 100):
        ids = {"agent": table.agent[[row]], "entity": table.entity[[row]]}
        if known != "entity":
            ids["entity"] = NEW if known == "agent" else np.array(["never seen"])
        if known == "nothing":
            ids["agent"] = np.array(["never seen"])
        x = table.X[[row]]
        mean, std = (float(value[0]) for value in model.predict(x, **ids, return_std=True))
        ends = [float(end[0]) for end in model.predict_interval(x, **ids, level=0.8)]

        def density(y, x=x, ids=ids):
            return float(np.exp(model.log_density(x, [y], **ids)[0]))

        low, high = mean - 12 * std, mean + 12 * std
        below, inside, above = (
            quad(density, a, b, limit=200)[0] for a, b in ((low, ends[0]), (ends[0], ends[1]), (ends[1], high))
        )
        assert (below, inside, above) == pytest.approx((0.1, 0.8, 0.1), abs=1e-6)


def test_new_entities_and_agents_are_less_certain(model, table):
    known, new_entity, new_agent = (
        model.log_density(table.X, table.y, agent, entity).mean()
        for agent, entity in ((table.agent, table.entity), (table.agent, NEW), (NEW, NEW))
    )
    assert known > new_entity > new_agent


@pytest.mark.parametrize("factor", [0.125, 3.7])
def test_rescaling_the_target_shifts_log_density_by_log_of_the_factor(model, table, factor):
    scaled = type(table)(table.X, factor * table.y - 7.0, table.agent, table.entity, table.feature_names)
    own = model.log_density(table.X, table.y, table.agent, table.entity)
    told = fit(scaled).log_density(scaled.X, scaled.y, scaled.agent, scaled.entity)
    np.testing.assert_allclose(told, own - np.log(factor), atol=1e-6)


def test_fixed_noise_is_in_user_units_without_standardising_too(table):
    """Where the scale of the target is 1 it must not be taken off, where it is not it must."""
    raw, standardised = (
        fit(table, noise="common", noise_scale=48.0, standardize=s).log_density(
            table.X, table.y, table.agent, table.entity
        )
        for s in (False, True)
    )
    most = -0.5 * np.log(2 * np.pi * 48.0**2)
    for told in (raw, standardised):
        assert told.max() <= most
        assert told.max() > most - 0.1


def test_results_do_not_depend_on_the_number_of_threads(model, table):
    threads = fit(table, n_threads=3)
    many = np.tile(np.arange(len(table)), 8)
    given = some(table, many)
    assert len(many) > 1024
    np.testing.assert_array_equal(
        model.log_density(y=table.y[many], **given), threads.log_density(y=table.y[many], **given)
    )


def test_results_do_not_depend_on_blocks(model, table, monkeypatch):
    """However few label weights are held at once."""
    whole = model.log_density(table.X, table.y, table.agent, table.entity)
    monkeypatch.setattr("fedhlcr.posterior.prediction.WEIGHTS_AT_ONCE", 500)
    np.testing.assert_allclose(model.log_density(table.X, table.y, table.agent, table.entity), whole, rtol=1e-12)


def test_far_targets_have_finite_log_density(model, table):
    told = model.log_density(**some(table, [0, 1, 2]), y=[1e9, -1e30, 1e300])
    assert np.isfinite(told).all()
    assert (told < -1e6).all()


def test_accepts_column_names_and_federated_models(table):
    frame = pd.DataFrame({"a": table.X[:, 0], "b": table.X[:, 1], "who": table.agent, "what": table.entity})
    named = HLCRRegressor(3, n_sweeps=20, n_threads=1).fit(frame, table.y, agent="who", entity="what")
    np.testing.assert_array_equal(
        named.log_density(frame, table.y), named.log_density(frame, table.y, table.agent, table.entity)
    )
    federated = FedHLCRRegressor(3, rounds=20, n_threads=1)
    federated.fit(table.X, table.y, agent=table.agent, entity=table.entity)
    assert np.isfinite(federated.log_density(table.X, table.y, table.agent, table.entity)).all()


def test_invalid_arguments_are_refused(model, table):
    with pytest.raises(NotFittedError):
        HLCRRegressor().log_density(table.X, table.y)
    with pytest.raises(ValueError, match="`y` has 3 rows but `X` has"):
        model.log_density(table.X, table.y[:3], NEW)
    with pytest.raises(ValueError, match="`y` has 1 NaN"):
        model.log_density(table.X[:2], [1.0, np.nan], NEW)
