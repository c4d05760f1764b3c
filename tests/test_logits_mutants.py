"""Every line that keeps the sampler with Pólya–Gamma weights exact is held by a statistical test."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.datasets import make_hlcr
from fedhlcr.federation.rules import DeltaRule
from fedhlcr.federation.shard import AgentShard
from fedhlcr.model import mixed_server
from fedhlcr.model.binary import Logistic
from fedhlcr.model.counts import NegativeBinomial
from fedhlcr.model.logits import Logits
from fedhlcr.model.mixed_globals import EVENT_WEIGHTS
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import GRAMS
from fedhlcr.samplers import blocked
from tests.logits_enumeration import FIXED, LIKELIHOODS, FixedCounts, K, centralised_visits, tiny
from tests.logits_problems import entities_of
from tests.mutants import Mutation, mutated
from tests.samplers.test_logits_exactness import federated_visits, largest_deviation, truth
from tests.samplers.test_logits_geweke import z_scores
from tests.test_effects_mutants import check_lost_reply

TABLE, _ = make_hlcr(20, 4, 5, 1, 2, target="count", random_state=3)


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL)


def check_prior_of_counts() -> None:
    """Chains of counts that start at draws of the prior stay there."""
    assert np.abs(z_scores("count", "entity+agent", 600)).max() < 5


def check_sizes() -> None:
    """The same with fewer chains."""
    assert np.abs(z_scores("count", "none", 100)).max() < 5


def check_chain() -> None:
    """A chain of yes-or-no targets has the exact means of coefficients, effects and weights."""
    _, values = centralised_visits(tiny("binary"), "binary", "entity+agent", 1_000)
    assert largest_deviation(values, truth("binary", "entity+agent").means) < 5


def check_counts() -> None:
    """The same for counts, without effects but with sizes of agents."""
    _, values = centralised_visits(tiny("count"), "count", "none", 600)
    assert largest_deviation(values, truth("count", "none").means) < 5


def check_federation() -> None:
    """The same with some of the agents in each round, and lost replies."""
    _, values = federated_visits("binary", "entity+agent", 300, participation=0.4, failure_rate=0.3, spacing=1)
    assert largest_deviation(values, truth("binary", "entity+agent").means) < 5


def check_sums() -> None:
    """Sums are those of the weights that agents keep, in the first stage and in the last."""
    for likelihood in (NegativeBinomial, LIKELIHOODS["count"]):
        entities, stream = entities_of(likelihood, tiny("count")), Stream(1)
        spec = ModelSpec(**FIXED, effects="none")
        state = blocked.initial_state(entities, spec, K, stream)
        for _ in range(3):
            state = blocked.step(entities, spec, state, stream)
        events, weights = entities.events, state.agent_state[EVENT_WEIGHTS]
        by_entity = {
            name: of[entities.index.agent_of] if len(of) == 3 else of for name, of in state.agent_state.items()
        }
        terms = entities.likelihood.event_terms(events, by_entity)
        rows = np.column_stack([np.ones(len(weights)), events.X, terms.kappa / weights - terms.fixed])
        cluster = np.repeat(state.labels, np.diff(events.event_start))
        for k in range(K):
            own = rows[cluster == k]
            expected = entities.layout.pack((own * weights[cluster == k, None]).T @ own)
            np.testing.assert_allclose(state.sums.blocks[GRAMS][k], expected, rtol=1e-9, atol=1e-9)


def check_lost_weights() -> None:
    check_lost_reply(TABLE, FixedCounts.name)


MUTATIONS = {
    "weights are drawn without the offsets": Mutation(
        Logits._draw_weights, "events.X, terms,", "events.X, terms._replace(fixed=0.0 * terms.fixed),", check_chain
    ),
    "weights are drawn without the sizes": Mutation(
        Logits._draw_weights, "events.X, terms,", "events.X, terms._replace(fixed=part.events.offsets),", check_counts
    ),
    "weights are never drawn again": Mutation(
        Logits.conclude, "= self._draw_weights(part, terms, coef, sums.scalars)",
        "= self._known_weights(part.events, terms, part.state[EVENT_WEIGHTS])", check_chain,
    ),
    "weights are drawn given the old sizes": Mutation(
        Logits.conclude, "terms = self._part_terms(part, state)", "terms = self._part_terms(part, part.state)",
        check_prior_of_counts,
    ),
    "sums have the old weights": Mutation(
        Logits.conclude, "self._with_weights(part, terms, state[EVENT_WEIGHTS])",
        "self._with_weights(part, terms, part.state[EVENT_WEIGHTS])", check_sums,
    ),
    "sums of the last stage have the old weights": Mutation(
        Logits.conclude, "self._sum_data(part, terms, state[EVENT_WEIGHTS]",
        "self._sum_data(part, terms, self._known_weights(part.events, terms, part.state[EVENT_WEIGHTS])", check_sums,
    ),
    "sums have the effects of the wrong cluster": Mutation(
        Logits.conclude, "coef - current.coef[labels]", "coef - current.coef[1 - labels]", check_chain
    ),
    "κ of yes-or-no targets is wrong": Mutation(Logistic.event_terms, "events.y - 0.5", "events.y - 0.4", check_chain),
    "κ has no frequencies": Mutation(Logistic.event_terms, "events.weight * (", "(", check_chain),
    "targets do not have the offsets removed": Mutation(
        Logits._working_targets, "kappa / kept - fixed", "kappa / kept", check_chain
    ),
    "summed targets do not have the offsets removed": Mutation(
        Logits._sum_data, "event_weights, 1.0) - terms.fixed", "event_weights, 1.0)", check_chain
    ),
    "sizes are drawn without their prior": Mutation(
        NegativeBinomial._size_density, "own - 0.5 * apart**2", "own", check_sizes
    ),
    "every step of a size is accepted": Mutation(
        NegativeBinomial._draw_own, "began & (np.log(uniforms[:, step]) < proposed - density)", "began",
        check_sizes,
    ),
    "effects are shifted the wrong way": Mutation(
        mixed_server.recentre, "np.where(n[:, None] > 0.0, coef - new, 0.0)",
        "np.where(n[:, None] > 0.0, new - coef, 0.0)",
        check_chain,
    ),
    "the shift of absent agents' effects is forgotten": Mutation(
        DeltaRule.open, "self._shift(shift, self._drawn)", "pass", check_federation
    ),
    "the weights of a lost reply are kept": Mutation(
        AgentShard._part_of, "self.agent_state.accepted", "self.agent_state.pending", check_lost_weights
    ),
}  # fmt: skip


CHECKS = (
    *(check_sizes, check_chain, check_counts, check_sums, check_lost_weights),
    *(check_federation, check_prior_of_counts),
)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("check", CHECKS)
def test_the_real_code_passes(check):
    check()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_changed_line_is_caught(name):
    function, old, new, check = MUTATIONS[name]
    with mutated(function, old, new), pytest.raises(AssertionError):
        check()
