"""The accounting of differential privacy: exact, and equal to an independent accountant's."""

from __future__ import annotations

import dp_accounting
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st

from fedhlcr import DifferentialPrivacy
from fedhlcr.privacy.accounting import composed, delta_of, epsilon_of, mu_of
from fedhlcr.privacy.differential_privacy import PrivacyPlan, Release


def pld_epsilon(plan: PrivacyPlan) -> float:
    """ε of the same releases by the accountant of dp-accounting, which composes privacy loss distributions."""
    accountant = pld.PLDAccountant()
    for release in plan.releases:
        accountant.compose(dp_accounting.GaussianDpEvent(release.noise_scale), release.times)
    return float(accountant.get_epsilon(plan.delta))


@pytest.mark.parametrize(
    ("privacy", "n_agents"),
    [
        (DifferentialPrivacy(3), 1000),
        (DifferentialPrivacy(1, 1e-6), 300),
        (DifferentialPrivacy(8, rounds=30, shares=(0.8, 0.15, 0.05)), 10_000),
    ],
)
def test_epsilon_equals_that_of_a_pld_accountant(privacy, n_agents):
    plan = privacy.plan(n_agents)
    assert plan.epsilon == pytest.approx(privacy.epsilon, abs=1e-9)
    assert pld_epsilon(plan) == pytest.approx(plan.epsilon, abs=1e-6)


@pytest.mark.parametrize(
    "mutant",
    ["one round counted", "counts not counted", "noise halved", "sampling amplifies"],
)
def test_pld_accountant_notices_wrong_plans(mutant):
    """What the plan says would not be what the noise gives."""
    plan = DifferentialPrivacy(3).plan(1000)
    factor = {"noise halved": 2.0, "sampling amplifies": 1.5}.get(mutant, 1.0)
    wrong = []
    for release in plan.releases:
        times = 1 if mutant == "one round counted" else release.times
        if mutant != "counts not counted" or release.name != "sizes":
            wrong.append(Release(release.name, times, release.mu * factor))
    wrong_plan = PrivacyPlan(plan.n_agents, plan.delta, tuple(wrong))
    assert abs(pld_epsilon(wrong_plan) - plan.epsilon) > 0.1


@given(st.floats(0.01, 20), st.floats(1e-12, 0.1))
@settings(deadline=None)
def test_conversions_are_inverse(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert delta_of(epsilon, mu) == pytest.approx(delta, rel=1e-6)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-6)


def test_delta_of_known_values():
    # the total variation distance of N(0, 1) and N(1, 1)
    assert delta_of(0.0, 1.0) == pytest.approx(0.3829249225480261, abs=1e-12)
    assert epsilon_of(0.1, 0.5) == 0.0


def test_releases_compose_by_squares():
    assert composed([3.0, 4.0]) == 5.0


def test_default_delta_follows_from_the_number_of_agents():
    assert DifferentialPrivacy(1).plan(100).delta == pytest.approx(100**-1.1)


def test_plan_divides_the_whole_budget():
    plan = DifferentialPrivacy(2, rounds=7).plan(50)
    assert plan.rounds == 7
    assert plan.n_releases == 4 + 3 * 7
    assert plan.mu == pytest.approx(mu_of(2, plan.delta), rel=1e-12)


def test_plan_is_printed_with_epsilon_and_all_releases():
    plan = DifferentialPrivacy(3).plan(1000)
    text = str(plan)
    assert "epsilon = 3," in text
    assert all(release.name in text for release in plan.releases)
    assert PrivacyPlan.from_dict(plan.to_dict()) == plan
