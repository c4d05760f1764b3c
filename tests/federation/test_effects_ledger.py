"""After effects have been shifted, the ledger holds what the shifted effects sum to, absent agents included."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr._support.streams import Stream
from fedhlcr.federation.rules import DeltaRule
from fedhlcr.federation.sums import AgentSums
from fedhlcr.model.mixed_globals import EFFECTS
from fedhlcr.model.mixed_server import effect_moments
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.schema import GRAMS, Stage
from fedhlcr.reference import gram_around
from fedhlcr.samplers.merging import Merger, MergeSchedule
from tests.effects_problems import LIKELIHOODS, globals_with, random_covariance, random_events

SIZES, K = (5, 3, 1, 7, 4), 4
# original clusters 1 and 3 have been merged, and cluster 2 is empty
CLUSTER_OF = np.array([0, 1, -1, 1])


class Drawn:
    """A rule whose account holds every agent's sums, and what the agents know: effects, noise and labels."""

    def __init__(self, noise, stage=Stage.EXACT, seed=0):
        rng = np.random.default_rng(seed)
        n = sum(SIZES)
        self.events = random_events(rng, SIZES, 4, 2)
        entities = self.events.entities(LIKELIHOODS[noise], rng.normal(size=(n, 4)))
        self.likelihood, self.grams = entities.likelihood, entities.grams
        self.current = globals_with(
            self.likelihood,
            2,
            coef=rng.normal(size=(2, 3)),
            effect_covariance=random_covariance(rng, 3),
            agent_effect_scale=np.array([0.5, 0.2, 0.3]),
            noise_scale=0.7,
            noise_shape=8.0 if noise == "entity" else np.inf,
            noise_unit=1.3 if noise == "entity" else 0.7,
            stage=float(stage),
        )
        self.original = np.array([0, 1, 3])[rng.integers(3, size=n)]
        labels = CLUSTER_OF[self.original].astype(np.int32)
        variance = np.full(n, 0.3 if noise == "entity" else 1.0)
        private = {"variance": variance, "agent_effects": rng.normal(size=(len(SIZES), 3))}
        part = entities.part(private, 3, Stream(seed))
        scoring = self.likelihood.scoring_matrices(part, self.current)
        by_entity = self.likelihood.conclude(part, self.current, scoring.copy(), labels, np.arange(n), n)
        self.state, self.data = by_entity.state, by_entity.blocks[GRAMS]
        self.effects = effect_moments(self.likelihood.layout, by_entity.blocks[EFFECTS])[:, 0, 1:]
        self.labels = labels
        self.rule = DeltaRule(self.likelihood, ModelSpec(), K, Merger(MergeSchedule(0), K, over=True), Stream(seed))
        self.rule.cluster_of = CLUSTER_OF
        self._fill(part, scoring)

    def _fill(self, part, scoring):
        """Put every agent's sums, by original cluster, into the account."""
        pairs, rows = np.unique(self.events.owner * K + self.original, return_inverse=True)
        concluded = self.likelihood.conclude(part, self.current, scoring, self.labels, rows, len(pairs))
        row_start = np.searchsorted(pairs, np.arange(len(SIZES) + 1) * K)
        counts = np.bincount(rows).astype(np.int32)
        schema = self.likelihood.sum_schema
        labels_scalars = np.zeros((len(SIZES), len(schema.scalars) - concluded.scalars.shape[1]))
        scalars = np.column_stack([labels_scalars, concluded.scalars])
        sums = AgentSums(schema, row_start, (pairs % K).astype(np.int32), counts, counts, concluded.blocks, scalars)
        self.rule.account.grow(len(SIZES))
        self.rule.account.replace(np.arange(len(SIZES)), sums)

    def from_scratch(self):
        """Data and effect matrices by original cluster, from each entity's effect."""
        layout = self.likelihood.layout
        steps = self.state["agent_effects"][self.events.owner] + self.effects
        data, moments = np.zeros((K, layout.packed_size)), np.zeros((K, 4, 4))
        for e, k in enumerate(self.original):
            around = gram_around(layout, self.grams[e] / self.state["variance"][e], steps[e])
            data[k] += around if self.current.stage == Stage.EXACT else self.data[e]
            moments[k] += np.outer(np.append(1.0, self.effects[e]), np.append(1.0, self.effects[e]))
        rows, columns = np.tril_indices(4)
        return data, moments[:, rows, columns]

    def assert_ledger_is_right(self):
        total = self.rule.account.total()
        for name, expected in zip((GRAMS, EFFECTS), self.from_scratch(), strict=True):
            np.testing.assert_allclose(total.blocks[name], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", LIKELIHOODS)
def test_shifted_pages_are_sums_of_shifted_effects(noise):
    drawn, rng = Drawn(noise), np.random.default_rng(1)
    drawn.assert_ledger_is_right()
    for _ in range(30):
        sums = drawn.rule.account.total().regroup(CLUSTER_OF)
        recentred = drawn.likelihood.recentre(sums, drawn.current, ModelSpec(), rng)
        assert np.abs(recentred.shift).max() > 0
        np.testing.assert_allclose(recentred.globals.coef + recentred.shift, drawn.current.coef, rtol=1e-12)
        drawn.rule._shift(recentred.shift, drawn.current)
        drawn.current = recentred.globals
        drawn.effects = drawn.effects + recentred.shift[drawn.labels]
    drawn.assert_ledger_is_right()


def test_before_the_last_stage_only_effects_are_shifted():
    drawn = Drawn("entity", Stage.MERGING)
    shift = np.random.default_rng(2).normal(size=(2, 3))
    drawn.rule._shift(shift, drawn.current)
    drawn.effects = drawn.effects + shift[drawn.labels]
    drawn.assert_ledger_is_right()


def test_the_shift_follows_the_coefficients_given_the_entities_own():
    """w | β has precision N D⁻¹ + δ⁻², written densely; many draws have its mean and covariance."""
    drawn, rng = Drawn("entity"), np.random.default_rng(3)
    sums = drawn.rule.account.total().regroup(CLUSTER_OF)
    own = drawn.current.coef[drawn.labels] + drawn.effects
    draws = np.array(
        [drawn.likelihood.recentre(sums, drawn.current, ModelSpec(), rng).globals.coef for _ in range(4_000)]
    )
    inverse, prior = np.linalg.inv(drawn.current.effect_covariance), np.diag(drawn.current.coef_scale**-2.0)
    for k in range(2):
        members = own[drawn.labels == k]
        covariance = np.linalg.inv(len(members) * inverse + prior)
        mean = covariance @ (inverse @ members.sum(axis=0) + prior @ drawn.current.coef_mean)
        error = np.sqrt(covariance.diagonal() / len(draws))
        assert (np.abs(draws[:, k].mean(axis=0) - mean) < 4 * error).all()
        spread = np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
        assert (np.abs(np.cov(draws[:, k].T) - covariance) < 6 * spread / np.sqrt(len(draws))).all()
