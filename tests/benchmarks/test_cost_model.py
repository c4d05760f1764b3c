"""The cost model recovers what generated its timings, and finds no cost where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cost_model import CENTRE, CHECK, TERMS, fit_parallel, fit_stage, size_of, stages_in
from benchmarks.report import Timing

CENTRE_SHAPE = {
    "events": 1e5,
    "entities": 1e4,
    "agents": 1e3,
    "features": 8,
    "clusters": 8,
    "draws": 100,
    "sweeps": 200,
    "cluster_sweeps": 2400,
}
TRUE = {("entities", "packed", "K"): 2e-9, ("entities",): 3e-7, (): 1e-3}


def timings(noise: float = 0.0, seed: int = 0) -> list[Timing]:
    """Sweeps of tables that differ in one size each, and one in all of them."""
    rng = np.random.default_rng(seed)
    varied = [("events", 3e4), ("events", 3e5), ("entities", 3e3), ("entities", 4e4), ("agents", 300), ("agents", 1e4)]
    varied += [("features", 3), ("features", 16), ("features", 24), ("clusters", 4), ("clusters", 32)]
    shapes = [(CENTRE, CENTRE_SHAPE), *((name, CENTRE_SHAPE | {name: value}) for name, value in varied)]
    shapes.append((CHECK, {name: 1.7 * value for name, value in CENTRE_SHAPE.items()}))
    return [timing(kind, shape, np.exp(noise * rng.standard_normal())) for kind, shape in shapes]


def timing(varied: str, shape: dict[str, float], factor: float = 1.0) -> Timing:
    seconds = factor * sum(value * size_of(term, shape) for term, value in TRUE.items())
    return Timing("sweep", varied, shape, seconds, seconds, seconds)


def test_known_coefficients_are_recovered():
    model = fit_stage("sweep", timings())
    assert {term: model.coefficients[term] for term in TRUE} == pytest.approx(TRUE, rel=1e-3)
    assert all(
        value * size_of(term, CENTRE_SHAPE) < 1e-6 for term, value in model.coefficients.items() if term not in TRUE
    )
    assert model.error < 1e-6


def test_a_noisy_model_predicts_a_table_it_was_not_fitted_to():
    points = timings(noise=0.05, seed=1)
    check = timing(CHECK, points[-1].shape)
    assert fit_stage("sweep", points).seconds(check.shape) == pytest.approx(check.seconds, rel=0.15)


def test_checks_threads_and_fits_with_effects_are_not_fitted_to():
    points = timings()
    wrong = [points[0]._replace(varied=kind, seconds=99.0) for kind in (CHECK, "threads", "workers")]
    wrong.append(points[0]._replace(shape=CENTRE_SHAPE | {"effects": 3}, seconds=99.0))
    assert fit_stage("sweep", [*points, *wrong]).coefficients == fit_stage("sweep", points).coefficients


def test_no_coefficient_is_negative():
    points = [t._replace(seconds=1.0 / t.shape["entities"]) for t in timings()]
    assert all(value > 0 for value in fit_stage("sweep", points).coefficients.values())


def test_shares_add_up():
    assert sum(fit_stage("sweep", timings()).shares(CENTRE_SHAPE).values()) == pytest.approx(1.0)


def test_stages_without_enough_timings_are_left_out():
    assert stages_in(timings()) == ["sweep"]
    assert stages_in(timings()[:2]) == []


@pytest.mark.parametrize("stage", TERMS)
def test_every_stage_has_a_constant_and_known_sizes(stage):
    assert () in TERMS[stage]
    assert all(size_of(term, CENTRE_SHAPE) > 0 for term in TERMS[stage])


def test_parallel_share_is_recovered():
    cost = fit_parallel([1, 2, 4], [1.0, 0.6, 0.4])
    assert cost.serial == pytest.approx(0.2)
    assert cost.share == pytest.approx(0.8)
    assert cost.seconds(8) == pytest.approx(0.3)
