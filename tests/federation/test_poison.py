"""Hostile agents cost the honest ones little: each attack, in the survey and later, and without each defence."""

from __future__ import annotations

import logging
from functools import cache

import numpy as np
import pytest

from benchmarks.poison import ATTACKS, DESIGNED, MODELS, Attack, honest_r2, scaled_feature
from fedhlcr.datasets import make_hlcr
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.federation.checks import ReplyLimits
from tests.federations import four_clusters

QUICK = {"rounds": 20, "patience": None, "max_clusters": 8}
MOST = 0.03


@pytest.fixture(autouse=True)
def quiet():
    """Refusals are logged; here there are many."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def synthetic() -> HierarchicalData:
    return make_hlcr(30, 5, 8, 3, 3, 1.0, random_state=3)[0]


def with_effects() -> HierarchicalData:
    """Thirty agents whose entities differ within their clusters."""
    table, _ = four_clusters(1, n_agents=30)
    noise = 2.0 * np.random.default_rng(0).normal(size=len(table))
    return HierarchicalData(table.X, table.y + noise, table.agent, table.entity, table.feature_names)


TABLES = {"synthetic": synthetic, "effects": with_effects}


@cache
def without(table: str, model: str, n_hostile: int = 1, participation: float = 1.0) -> float:
    return r2(table, model, None, n_hostile, participation)


def r2(
    table: str,
    model: str,
    attack: Attack | None,
    n_hostile: int = 1,
    participation: float = 1.0,
    limits: ReplyLimits | None = None,
) -> float:
    hostile = [str(agent) for agent in range(4, 4 + n_hostile)]
    settings = {**QUICK, **MODELS[model], "participation": participation, "limits": limits or ReplyLimits()}
    return honest_r2(TABLES[table](), hostile, attack, seed=1, **settings)


@pytest.mark.parametrize(
    "attack", [*DESIGNED, "later, target × 50", "target × 20", "least log β draws", "impossible log β draws"]
)
def test_attacks_cost_little_in_the_plain_model(attack):
    assert without("synthetic", "plain") - r2("synthetic", "plain", ATTACKS[attack]) < MOST


DEFAULTS = ("target × 50", "10⁷ events", "late, target × 1000")


@pytest.mark.slow
@pytest.mark.parametrize("attack", DEFAULTS)
def test_attacks_cost_little_with_effects_and_noise_of_entities(attack):
    assert without("effects", "default") - r2("effects", "default", ATTACKS[attack]) < MOST


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_cost_little(table, model, attack):
    assert without(table, model) - r2(table, model, ATTACKS[attack]) < MOST


@pytest.mark.slow
@pytest.mark.parametrize("attack", DESIGNED)
@pytest.mark.parametrize("model", ["plain", "default"])
def test_attacks_cost_little_if_few_agents_answer(attack, model):
    whole = without("synthetic", model, 1, 0.3)
    assert whole - r2("synthetic", model, ATTACKS[attack], 1, 0.3) < MOST


@pytest.mark.slow
@pytest.mark.parametrize("attack", [pytest.param("target × 50", marks=pytest.mark.ci), "20,000 events"])
def test_a_quarter_of_the_agents_may_lie_grossly(attack):
    """The limits do not move. Many agents that lie moderately are another matter: docs/explanation/poison.md."""
    assert without("synthetic", "plain", 7) - r2("synthetic", "plain", ATTACKS[attack], 7) < 2 * MOST


def loss(attack: str, limits: ReplyLimits) -> float:
    return without("synthetic", "plain") - r2("synthetic", "plain", ATTACKS[attack], limits=limits)


def test_mutant_without_weights_is_caught():
    assert loss("target × 20", ReplyLimits(max_weight=np.inf)) > MOST


def test_mutant_without_limits_of_the_target_is_caught():
    assert loss("target × 1000", ReplyLimits(max_weight=np.inf, max_target_square=np.inf)) > MOST


@pytest.mark.slow
@pytest.mark.ci
def test_mutant_without_claims_is_caught():
    """The sums of the attack are so large that scaling them down would do; so that is switched off as well."""
    assert loss("later, 20,000 events", ReplyLimits(max_weight=np.inf)) < MOST
    assert loss("later, 20,000 events", ReplyLimits(max_weight=np.inf, max_change=np.inf)) > MOST


def test_features_may_be_anything():
    """Large features alone do no harm, `federation.weights`: no limit of them is needed."""
    attack = Attack(lie=scaled_feature(1e3))
    assert without("synthetic", "plain") - r2("synthetic", "plain", attack) < MOST
