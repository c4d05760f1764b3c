"""A round of the whole federation against a sweep of the core on the same data; and what it holds in memory."""

from __future__ import annotations

import gc
import resource
import sys
import tracemalloc

import numpy as np

from benchmarks.problems import N_CLUSTERS, NOISE_SCALE, hierarchy_of
from benchmarks.report import Options, Row, at_most, say
from benchmarks.timing import Side, alternate
from fedhlcr._support.streams import Stream
from fedhlcr.data.hierarchy import EntityIndex
from fedhlcr.datasets import make_hlcr
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation import AgentShard, FederationSettings, GramLayout, Server
from fedhlcr.federation.ledger import Ledger
from fedhlcr.federation.rules import DeltaRule
from fedhlcr.federation.run import run_round
from fedhlcr.model.priors import ModelSpec
from fedhlcr.samplers import blocked
from fedhlcr.samplers.state import EntityData

ROUND_BOUND, KILOBYTES_BOUND, GIGABYTES_BOUND = 3, 2, 8
SETTLING_ROUNDS = 25
N_FEATURES = 15


def run(options: Options) -> list[Row]:
    few, many = (2_000, 10_000) if options.quick else (10_000, 100_000)
    _federate(make_hlcr(50, 4, 5, 3, 4, random_state=1)[0], 4, options, 3)
    rows = _measure_many(options, many)
    table, _ = make_hlcr(few, 16, 10, N_FEATURES, N_CLUSTERS, NOISE_SCALE, random_state=options.seed)
    rows += [_measure_memory(options, table), _measure_rounds(options, table)]
    return rows


def _federate(
    table: HierarchicalData, n_clusters: int, options: Options, n_rounds: int
) -> tuple[Server, InProcessEngine, EntityIndex]:
    """A federation of the table's agents after some rounds; of the table itself nothing is kept."""
    hierarchy = hierarchy_of(table)
    layout = GramLayout(table.X.shape[1])
    settings = FederationSettings(
        layout, n_clusters=n_clusters, rounds=10**6, patience=None, effects="none", noise="common"
    )
    server = Server(settings)
    engine = InProcessEngine(AgentShard.from_hierarchy(hierarchy, options.threads), n_threads=options.threads)
    while server.round < n_rounds:
        run_round(server, engine)
    return server, engine, hierarchy.index


def _measure_rounds(options: Options, table: HierarchicalData) -> Row:
    server, engine, index = _federate(table, N_CLUSTERS, options, SETTLING_ROUNDS)
    rule = server.rule
    assert isinstance(rule, DeltaRule)
    entities = EntityData(server.likelihood, index, engine.everyone.grams, options.threads)
    labels = rule.cluster_of[engine.everyone.pending].astype(np.int32)
    stream = Stream(options.seed)
    state = blocked.state_from_labels(entities, ModelSpec(), labels, N_CLUSTERS, stream)

    def sweep() -> None:
        nonlocal state
        state = blocked.step(entities, ModelSpec(), state, stream)

    seconds = alternate(
        Side(lambda: run_round(server, engine)), Side(sweep), rounds=3 if options.quick else 8, batch_seconds=0.3
    )
    say("federation", f"{len(table):,} events of {index.n_agents:,} agents: round {1e3 * seconds[0]:.0f} ms, "
        f"sweep {1e3 * seconds[1]:.0f} ms")  # fmt: skip
    what = f"round of {index.n_agents:,} agents, time over that of a blocked sweep"
    return at_most(what, seconds[0] / seconds[1], ROUND_BOUND)


def _measure_memory(options: Options, table: HierarchicalData) -> Row:
    """What is allocated besides matrices and ledger after some rounds, the table's own arrays not counted."""
    gc.collect()
    tracemalloc.start()
    server, engine, index = _federate(table, N_CLUSTERS, options, 5)
    gc.collect()
    allocated, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    rule = server.rule
    assert isinstance(rule, DeltaRule)
    assert isinstance(rule.account, Ledger)
    ledger = sum(array.nbytes for page in rule.account.pages for array in page.to_record().values())
    rest = allocated - engine.everyone.grams.nbytes - ledger
    say("federation", f"matrices {engine.everyone.grams.nbytes / 1e6:.0f} MB, ledger {ledger / 1e6:.0f} MB, "
        f"all else {rest / 1e6:.1f} MB")  # fmt: skip
    what = "kilobytes per agent besides matrices and ledger"
    return at_most(what, rest / index.n_agents / 1e3, KILOBYTES_BOUND)._replace(
        measured=f"{rest / index.n_agents / 1e3:.2f} kB", bound=f"at most {KILOBYTES_BOUND} kB"
    )


def _measure_many(options: Options, n_agents: int) -> list[Row]:
    table, _ = make_hlcr(n_agents, 4, 5, 8, 8, NOISE_SCALE, random_state=options.seed)
    server, engine, _ = _federate(table, 8, options, 10)
    (seconds,) = alternate(Side(lambda: run_round(server, engine)), rounds=3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9
    say("federation", f"{n_agents:,} agents: a round {seconds:.2f} s, process at most {peak:.2f} GB, table included")
    what = f"{n_agents:,} agents, gigabytes of the process"
    row = at_most(what, peak, GIGABYTES_BOUND)
    return [row._replace(measured=f"{peak:.2f} GB", bound=f"at most {GIGABYTES_BOUND} GB")]
