"""Every line that keeps the sampler with effects exact is held by a statistical test."""

from __future__ import annotations

import logging
from functools import cache

import numpy as np
import pytest

from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.rules import DeltaRule
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model import mixed_server
from fedhlcr.model.mixed import Mixed
from fedhlcr.samplers import blocked
from tests.effects_enumeration import FixedLaws, centralised_visits, deviations, exact, tiny
from tests.engines.contract import InProcess
from tests.federations import server_for, total_after
from tests.mutants import Mutation, mutated
from tests.samplers.test_effects_exactness import SPEC, federated_visits, truth

TABLE, _ = make_hlcr(20, 4, 5, 1, 3, 0.4, random_state=3)


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


def check_chain() -> None:
    """A centralised chain has the exact means of w, w², b², wb and 1/σ²."""
    assert np.abs(deviations(centralised_visits(*tiny(), SPEC, 2_500)[1], truth().means)).max() < 5


def check_federation() -> None:
    """The same with one of three agents in each round, and lost replies."""
    _, values = federated_visits(*tiny(), 400, participation=0.33, failure_rate=0.2, spacing=1)
    assert np.abs(deviations(values, truth().means)).max() < 5


def check_steps() -> None:
    """The same as `check_chain` where labels and effects are drawn one after the other, as with weights of events."""
    with mutated(Mixed.sweeps_at_once, "return not current.is_plain and not self.needs_events", "return False"):
        check_chain()


@cache
def noisy_truth():
    return exact(*tiny(n_events=5, contrast=9.0), 12)


def check_noise() -> None:
    """The same as `check_chain` where quiet and noisy entities differ much."""
    _, values = centralised_visits(*tiny(n_events=5, contrast=9.0), SPEC, 3_000)
    assert np.abs(deviations(values, noisy_truth().means)).max() < 5


def check_lost_reply(table=TABLE, likelihood: str = FixedLaws.name) -> None:
    """An agent whose reply was lost continues as if it had never been asked, with its effects and noise."""
    totals = []
    for fate in ("silent", "away"):
        carrier = InProcess(table, None)
        server = server_for(1, likelihood=likelihood, seed=4, max_clusters=4, patience=None)
        totals.append(total_after(fate, carrier, server))
    for name, block in totals[0].blocks.items():
        np.testing.assert_array_equal(block, totals[1].blocks[name])


MUTATIONS = {
    "the shift of absent agents' effects is forgotten": Mutation(
        DeltaRule.open, "self._shift(shift, self._drawn)", "pass", check_federation
    ),
    "effects are shifted the wrong way": Mutation(
        mixed_server.recentre, "np.where(n[:, None] > 0.0, coef - new, 0.0)",
        "np.where(n[:, None] > 0.0, new - coef, 0.0)",
        check_chain,
    ),
    "effective matrices are used after merging": Mutation(
        Mixed.kernel_law, "current.stage == Stage.EXACT", "False", check_chain
    ),
    "effects are drawn given the old labels": Mutation(
        blocked.relabel_page, "conclude(page, current, scoring, new_labels, rows,",
        "conclude(page, current, scoring, labels, rows,", check_steps,
    ),
    "labels and effects are drawn with the noise of another entity": Mutation(
        Mixed.variance, "kept * current.noise_unit**2", "np.roll(kept, 1) * current.noise_unit**2", check_noise
    ),
    "the noise of a lost reply is kept": Mutation(
        AgentShard._part_of, "self.agent_state.accepted", "self.agent_state.pending", check_lost_reply
    ),
}  # fmt: skip


# `tests.samplers.test_effects_exactness` is much like these
LONGEST = "effective matrices are used after merging"


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("check", [check_chain, check_lost_reply, check_federation, check_noise])
def test_the_real_code_passes(check):
    check()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == LONGEST else pytest.mark.ci) for name in MUTATIONS]
)
def test_a_changed_line_is_caught(name):
    function, old, new, check = MUTATIONS[name]
    with mutated(function, old, new), pytest.raises(AssertionError):
        check()
