"""The membership audit accepts the mechanism as it is, and notices each way in which it could be broken."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from fedhlcr.privacy import release
from fedhlcr.privacy.audit.membership import (
    ALL,
    ALTERNATING,
    CASES,
    CONSTANT,
    REPLAYED,
    MembershipAudit,
    check_sampler,
    lower_bounds,
    numpy_noise,
)
from fedhlcr.privacy.differential_privacy import BLOCKS, SCORES, SIZES, DifferentialPrivacy

SETTINGS = DifferentialPrivacy(3.0, 5e-4)
N_RUNS = 10_000


@pytest.fixture
def audit():
    seeds = count()
    # a seed of its own for every source, so that the tests can be repeated and no source repeats another
    return replace(MembershipAudit.of(SETTINGS, 1000, N_RUNS), make_source=lambda: numpy_noise(next(seeds)))


def refuted(audit, cases=CASES):
    """The cases in which the claim is refuted."""
    return {case for case in cases if not audit.audit(*case).holds}


@pytest.mark.parametrize(
    "n_runs", [1_000, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.ci], id="as many as the command")]
)
def test_sound_mechanism_passes(audit, n_runs):
    results = replace(audit, n_runs=n_runs).run()
    assert len(results) == len(CASES)
    assert all(result.holds for result in results)


def test_audit_is_tight_enough_to_mean_something(audit):
    found = audit.audit(ALL, CONSTANT)
    assert found.mu > 0.8 * found.claimed_mu


def test_shares_of_the_noise_add_up(audit):
    found = replace(audit, shared=True).audit(SCORES, CONSTANT)
    assert found.holds
    assert found.mu > 0.7 * found.claimed_mu


@pytest.mark.parametrize("block", BLOCKS)
def test_halved_noise_is_noticed(audit, monkeypatch, block):
    halved = property(lambda self: release.UNIT / self.mu / 2.0)
    monkeypatch.setattr(release.ClippedBlock, "lattice_scale", halved)
    assert refuted(audit, [(block, CONSTANT)])


def test_clip_of_each_cluster_is_noticed(audit, monkeypatch):
    whole = release.clip_rows
    monkeypatch.setattr(
        release, "clip_rows", lambda values: np.concatenate([whole(part) for part in np.split(values, 3, axis=1)], 1)
    )
    assert (SCORES, CONSTANT) in refuted(audit, [(block, CONSTANT) for block in BLOCKS])


def test_forgotten_root_of_the_rounds_is_noticed(audit):
    releases = tuple(
        replace(own, mu=own.mu * own.times**0.5) if own.name in BLOCKS else own for own in audit.plan.releases
    )
    mutant = replace(audit, plan=replace(audit.plan, releases=releases))
    assert refuted(mutant, [(block, CONSTANT) for block in BLOCKS]) == {(block, CONSTANT) for block in BLOCKS}


def test_sizes_without_noise_are_noticed(audit, monkeypatch):
    sound = release.server_noise

    def mutant(blocks, source):
        noisy = [block for block in blocks if block.name != SIZES]
        return sound(noisy, source) if noisy else np.zeros(sum(block.size for block in blocks), dtype=np.int64)

    monkeypatch.setattr(release, "server_noise", mutant)
    assert refuted(audit, [(SIZES, CONSTANT)])


class SameEveryRound:
    """Noise that is drawn once and used in all rounds."""

    seeds = count(1000)

    def __init__(self):
        self._noise, self._drawn = numpy_noise(next(self.seeds)), {}

    def __call__(self, scale, size):
        return self._drawn.setdefault((scale, size), self._noise(scale, size))


def test_same_noise_in_each_round_is_noticed_by_the_alternating_canary(audit):
    mutant = replace(audit, make_source=SameEveryRound)
    assert not refuted(mutant, [(SCORES, CONSTANT)])
    assert refuted(mutant, [(SCORES, ALTERNATING)])


def test_claimed_amplification_is_noticed(audit):
    """A tenth of the agents per round, and noise as if that helped: the total holds absent agents too."""
    releases = tuple(replace(own, mu=own.mu / 0.1) for own in audit.plan.releases)
    mutant = replace(audit, plan=replace(audit.plan, releases=releases))
    assert refuted(mutant, [(SCORES, CONSTANT)])


def test_noise_from_the_shared_seed_is_noticed_by_the_replayed_canary(audit):
    mutant = replace(audit, make_source=lambda: numpy_noise(2024))
    assert not refuted(mutant, [(SCORES, CONSTANT)])
    assert refuted(mutant, [(SCORES, REPLAYED)])


def test_bounds_grow_with_the_distance_of_the_scores():
    rng = np.random.default_rng(0)
    without, noise = rng.standard_normal(20_000), rng.standard_normal(20_000)
    bounds = [lower_bounds(without, noise + mu, 1e-3) for mu in (0.0, 1.0, 2.0)]
    assert bounds[0] == pytest.approx((0.0, 0.0), abs=1e-12)
    for mu, (found, _) in zip((1.0, 2.0), bounds[1:], strict=True):
        assert 0.85 * mu < found < mu
    assert bounds[1][1] < bounds[2][1]


def test_exact_sampler_has_the_right_distribution():
    assert check_sampler(2_000) > 1e-6


def test_sound_sampler_is_not_suspected():
    assert check_sampler(5_000, numpy_noise(1)) > 1e-3


def test_wrong_samplers_are_noticed():
    sound, rng = numpy_noise(0), np.random.default_rng(0)
    assert check_sampler(5_000, lambda scale, size: sound(1.1 * scale, size)) < 1e-6
    assert check_sampler(5_000, lambda scale, size: rng.laplace(0.0, scale / 2.0**0.5, size)) < 1e-6
