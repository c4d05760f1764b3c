"""Same seed, same numbers, whatever the threads, the blocks, the order of rows and the other agents."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr._support.streams import ReservedChain, Stream, text_key
from fedhlcr._support.threads import Blocks, run_blocks
from fedhlcr.datasets import make_hlcr


@pytest.fixture(scope="module")
def table():
    """Large enough for several blocks."""
    return make_hlcr(400, 6, 4, 3, 5, 0.5, random_state=1)[0]


def fit(table, rows=slice(None), **params):
    chosen = table[rows]
    model = HLCRRegressor(**{"n_sweeps": 30, "max_clusters": 12, **params})
    return model.fit(chosen.X, chosen.y, agent=chosen.agent, entity=chosen.entity)


def test_results_do_not_depend_on_the_number_of_threads(table):
    one, three = fit(table, n_threads=1), fit(table, n_threads=3)
    assert len(one.posterior_.memory.entities.blocks) > 3
    np.testing.assert_array_equal(one.trace_, three.trace_)
    ids = {"agent": table.agent, "entity": table.entity}
    np.testing.assert_array_equal(one.predict(table.X, **ids), three.predict(table.X, **ids))


@pytest.mark.slow
@pytest.mark.ci
def test_results_do_not_depend_on_thread_variables_of_the_environment():
    code = (
        "from fedhlcr import HLCRRegressor; from fedhlcr.datasets import make_hlcr; import hashlib;"
        "t, _ = make_hlcr(800, 5, 6, 12, 4, 0.5, random_state=1);"
        "assert len(t) > 20_000;"  # from where on BLAS would take more threads
        "m = HLCRRegressor(n_sweeps=12, n_chains=2, max_clusters=6).fit(t.X, t.y, agent=t.agent, entity=t.entity);"
        "print(hashlib.sha256(m.predict(t.X, t.agent, t.entity).tobytes() + m.trace_.tobytes()).hexdigest())"
    )
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    digests = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, **dict.fromkeys(names, threads)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    }
    assert len(digests) == 1


def test_different_seeds_give_different_results(table):
    same, other = fit(table, random_state=3), fit(table, random_state=4)
    np.testing.assert_array_equal(fit(table, random_state=3).trace_, same.trace_)
    assert (same.trace_["log_joint"] != other.trace_["log_joint"]).all()


# chains as short as these may disagree or not
@pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.ConvergenceWarning")
def test_chains_differ(table):
    model = fit(table, n_chains=2, n_sweeps=16)
    first, second = (model.trace_[model.trace_["chain"] == chain] for chain in (0, 1))
    assert len(first) == len(second) == 16
    assert (first["log_joint"] != second["log_joint"]).all()
    assert (first["noise_scale"] != second["noise_scale"]).all()


def test_without_a_seed_one_is_drawn_and_stored(table):
    first, second = fit(table, random_state=None, n_sweeps=3), fit(table, random_state=None, n_sweeps=3)
    assert first.seed_ != second.seed_
    np.testing.assert_array_equal(fit(table, random_state=first.seed_, n_sweeps=3).trace_, first.trace_)


def test_row_order_does_not_matter(table, rng):
    # sums of an entity's events in another order differ in the last digit only
    shuffled = rng.permutation(len(table))
    straight, mixed = fit(table), fit(table, shuffled)
    np.testing.assert_array_equal(mixed.labels_, straight.labels_)
    np.testing.assert_allclose(mixed.coef_, straight.coef_, rtol=1e-6, atol=1e-9)


def test_draws_depend_on_the_text_of_an_id_not_on_its_type(table):
    as_text = HLCRRegressor(n_sweeps=30, max_clusters=12).fit(
        table.X, table.y, agent=table.agent.astype(str), entity=[str(e) for e in table.entity]
    )
    np.testing.assert_array_equal(as_text.trace_, fit(table).trace_)


def test_draws_of_an_agent_do_not_depend_on_other_agents():
    stream = Stream(5, 2)
    alone = stream.agent_streams(np.array([text_key("b")], dtype=np.uint64))
    among = stream.agent_streams(np.array([text_key("a"), text_key("b")], dtype=np.uint64))
    assert alone[0] == among[1] != among[0]
    assert stream.agent_streams(alone)[0] != Stream(6, 2).agent_streams(alone)[0]


def test_reserved_chains_share_no_draws():
    keys = np.arange(3, dtype=np.uint64)
    chains = [*ReservedChain, 0, 1]
    streams = {Stream(5, chain).agent_streams(keys).tobytes() for chain in chains}
    assert len(streams) == len({int(chain) for chain in chains}) == len(chains)
    np.testing.assert_array_equal(
        Stream(5, ReservedChain.PREDICTION).agent_streams(keys), Stream(5, -2).agent_streams(keys)
    )


def test_keys_are_the_same_on_every_machine():
    assert text_key("agent 7") == 770080426598023725


def test_blocks_cover_everything_once():
    for sizes in ([5], [0, 0, 4000, 0], [3] * 5000, [1, 10_000, 1, 1]):
        start = np.append(0, np.cumsum(sizes))
        blocks = Blocks.balanced(start)
        ranges = [blocks.range(b) for b in range(len(blocks))]
        assert [r for first, last in ranges for r in range(first, last)] == list(range(len(sizes)))


def test_run_blocks_keeps_the_order_and_raises_errors_of_tasks():
    assert run_blocks(lambda b: b * b, 9, 3) == [b * b for b in range(9)]

    def fail(block):
        if block == 4:
            raise ArithmeticError("block 4")
        return block

    with pytest.raises(ArithmeticError, match="block 4"):
        run_blocks(fail, 9, 3)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_can_fit(table):
    fit(table, n_sweeps=3, n_threads=2)
    code = (
        "import multiprocessing as mp, numpy as np\n"
        "from fedhlcr import HLCRRegressor; from fedhlcr.datasets import make_hlcr\n"
        "t, _ = make_hlcr(300, 5, 4, 3, 4, 0.5, random_state=1)\n"
        "def fit(_=None):\n"
        "    model = HLCRRegressor(n_sweeps=5, n_threads=2)\n"
        "    return model.fit(t.X, t.y, agent=t.agent, entity=t.entity).coef_\n"
        "here = fit()\n"
        "with mp.get_context('fork').Pool(1) as pool: there = pool.map(fit, [0])[0]\n"
        "assert np.array_equal(here, there)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
