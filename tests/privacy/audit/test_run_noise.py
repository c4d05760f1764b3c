"""Private runs add the noise of their plan, anew in every round and every run; other noise is found out."""

from __future__ import annotations

import numpy as np
import pytest

from fedhlcr.federation.private import run
from fedhlcr.privacy.audit.run_noise import audit_runs, find_faults, record_noise
from fedhlcr.privacy.release import server_noise

pytest.importorskip("cryptography", reason="the privacy extra is not installed")
pytest.importorskip("opendp", reason="the privacy extra is not installed")


def without(name):
    """No noise in one block."""

    def mutant(blocks, source):
        noise = server_noise(blocks, source)
        ends = np.cumsum([block.size for block in blocks])
        for block, end in zip(blocks, ends, strict=True):
            if block.name == name:
                noise[end - block.size : end] = 0
        return noise

    return mutant


def halved(blocks, source):
    return server_noise(blocks, source) // 2


def absent(blocks, source):
    return 0 * server_noise(blocks, source)


def from_seed():
    """Noise from a generator that everyone can start again."""
    n_calls = iter(range(10_000))

    def mutant(blocks, source):
        del source
        rng = np.random.default_rng(next(n_calls) % 24)
        return np.concatenate([np.rint(rng.normal(size=b.size) * b.lattice_scale).astype(np.int64) for b in blocks])

    return mutant


def same_each_round():
    """The noise of the first round of a size, again and again."""
    kept = {}

    def mutant(blocks, source):
        key = tuple(block.size for block in blocks)
        return kept.setdefault(key, server_noise(blocks, source))

    return mutant


MUTANTS = {
    "noise halved": (lambda: halved, "less noise"),
    "no noise": (lambda: absent, "less noise"),
    "scores without noise": (lambda: without("scores"), "scores: less noise"),
    "sizes without noise": (lambda: without("sizes"), "sizes: less noise"),
    "residuals without noise": (lambda: without("residuals"), "residuals: less noise"),
    "noise from a seed": (from_seed, "runs with the same seed"),
    "the same noise each round": (same_each_round, "several rounds"),
}


@pytest.mark.slow
def test_noise_of_sound_runs_is_as_planned():
    assert audit_runs() == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_other_noise_is_found_out(monkeypatch, mutant):
    make, told = MUTANTS[mutant]
    monkeypatch.setattr(run, "server_noise", make())
    assert told in " ".join(find_faults(record_noise("plain")))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.0])
def test_smaller_shares_of_agents_are_found_out(monkeypatch, share):
    sound = run.agent_noise

    def mutant(*arguments):
        return (share * sound(*arguments)).astype(np.int64)

    monkeypatch.setattr(run, "agent_noise", mutant)
    assert "less noise" in " ".join(find_faults(record_noise("secure", n_runs=2)))
