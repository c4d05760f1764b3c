"""The mechanism: what one agent can change, and that every block and round has noise of its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedhlcr.privacy.noise import discrete_gaussian, noise_share
from fedhlcr.privacy.release import (
    UNIT,
    ClippedBlock,
    agent_noise,
    agent_vectors,
    clip_rows,
    decode,
    release,
    server_noise,
)

BLOCKS = (ClippedBlock("scores", 6, 0.5), ClippedBlock("sizes", 4, 0.25), ClippedBlock("residuals", 1, 0.125))
ANY_FLOAT = st.floats(width=64, allow_nan=True, allow_infinity=True)
VALUES = st.tuples(*(arrays(np.float64, (3, block.size), elements=ANY_FLOAT) for block in BLOCKS))


def no_noise(_: float, size: int) -> np.ndarray:
    return np.zeros(size, dtype=np.int64)


@given(VALUES)
@settings(deadline=None, max_examples=200)
def test_one_agent_changes_each_block_by_at_most_its_clip(values):
    """Adding or removing an agent, whatever it holds: brute force over the agents."""
    vectors = agent_vectors(values)
    for agent in range(3):
        others = np.delete(vectors, agent, axis=0).sum(axis=0)
        change = vectors.sum(axis=0) - others
        start = 0
        for block in BLOCKS:
            part = change[start : start + block.size].astype(object)
            # exact, in Python's integers
            assert (part**2).sum() <= int(UNIT) ** 2
            start += block.size


def test_clip_per_cluster_would_exceed_the_clip():
    """The mutant: each cluster clipped on its own."""
    scores = np.full((1, 2, 3), 5.0)
    whole = clip_rows(scores.reshape(1, -1))
    per_cluster = clip_rows(scores.reshape(2, 3)).reshape(1, -1)
    assert np.linalg.norm(whole) <= 1.0
    assert np.linalg.norm(per_cluster) > 1.4


def test_short_rows_are_not_clipped():
    values = np.array([[0.3, -0.4], [0.0, 0.0]])
    np.testing.assert_array_equal(clip_rows(values), values)


def test_release_without_noise_is_the_sum():
    values = [np.full((5, block.size), 0.01) for block in BLOCKS]
    sums = release(values, BLOCKS, no_noise)
    for block in BLOCKS:
        np.testing.assert_allclose(sums[block.name], 0.05, atol=1e-8)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_every_block_has_its_noise(block):
    """Counts and residuals too; a block without noise, or with half of it, would fail."""
    draws = np.array([decode(server_noise(BLOCKS), BLOCKS)[block.name] for _ in range(1500 // block.size)])
    assert draws.std() == pytest.approx(block.noise_scale, rel=0.15)


def test_noise_is_new_each_time_and_independent_of_seeds():
    np.random.seed(0)  # noqa: NPY002
    first = server_noise(BLOCKS)
    np.random.seed(0)  # noqa: NPY002
    second = server_noise(BLOCKS)
    assert (first != second).all()


def test_noise_is_a_discrete_gaussian():
    draws = discrete_gaussian(1.5, 4000)
    support = np.arange(-8, 9)
    law = np.exp(-(support**2) / (2 * 1.5**2))
    law /= law.sum()
    found = (draws[:, None] == support).mean(axis=0)
    assert np.abs(found - law).max() < 5 * np.sqrt(0.25 / 4000)


def test_shares_add_up_to_the_noise():
    n_agents = 20
    total = sum(noise_share(1000.0, 300, n_agents) for _ in range(n_agents))
    assert total.std() == pytest.approx(1000.0, rel=0.15)
    own = np.concatenate([agent_noise(BLOCKS, 4)[:6] for _ in range(80)])
    assert own.std() == pytest.approx(BLOCKS[0].lattice_scale / 2, rel=0.2)
