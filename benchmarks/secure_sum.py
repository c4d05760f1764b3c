"""Secure sums of many parties in one thread, against the key agreements alone that they cannot do without.

Times are processor times of this process, because a sum of many parties takes too long to be repeated.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from benchmarks.report import Options, Row, at_most, say
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.datasets import make_hlcr
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.federation.run import run_round
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gram import GramLayout
from fedhlcr.privacy.ciphers import KeyPair
from fedhlcr.privacy.neighbours import n_neighbours
from fedhlcr.privacy.party import Party
from fedhlcr.privacy.secure_sum import SecureSum
from fedhlcr.privacy.terms import SumStage, Terms
from fedhlcr.settings import AggregationName

BOUND = 3
# The sums of 16 clusters with 16 and with 35 features.
FEW_VALUES, MANY_VALUES = 2_768, 11_000
DROPPING = 0.1
N_AGENTS = 100


class Cost(NamedTuple):
    """Processor seconds of all parties together and of the server, and bytes per party, sent and received."""

    parties: float
    server: float
    sent: float
    received: float


def run(options: Options) -> list[Row]:
    rows = []
    for n_parties in (20, 100) if options.quick else (20, 50, 100, 300, 1000):
        for n_values in (FEW_VALUES, MANY_VALUES):
            cost = _sum(n_parties, n_values, options.seed)
            say(
                "secure_sum",
                f"{n_parties} parties, {n_values} values, {DROPPING:.0%} drop out: all parties {cost.parties:.2f} s, "
                f"server {cost.server:.2f} s; a party sends {cost.sent / 1e3:.0f} kB and gets "
                f"{cost.received / 1e3:.0f} kB, plain sums {8 * n_values / 1e3:.0f} kB",
            )
            if n_values == FEW_VALUES and n_parties in (100, 1000):
                bare = 2 * n_parties * n_neighbours(n_parties) * _agreement_seconds()
                what = f"secure sum of {n_parties:,} parties, time over that of its key agreements"
                rows.append(at_most(what, (cost.parties + cost.server) / bare, BOUND))
    return [*rows, _round_row(options)]


def _round_row(options: Options) -> Row:
    """A round of 100 agents in process without its cryptography, over a plain round."""
    n_rounds = 40 if options.quick else 150
    plain, masked = _round_seconds("plain", n_rounds, options.seed), _round_seconds("secure", n_rounds, options.seed)
    say(
        "secure_sum",
        f"a round of {N_AGENTS} agents without cryptography: {1e3 * masked:.1f} ms, {1e3 * plain:.1f} plain",
    )
    return at_most(
        f"secure round of {N_AGENTS} agents without its cryptography over a plain one", masked / plain, BOUND
    )


def _round_seconds(aggregation: AggregationName, n_rounds: int, seed: int) -> float:
    """Processor seconds of a round on S. In place of the exchange, the vectors are added up in the clear."""
    table, _ = make_hlcr(n_agents=N_AGENTS, random_state=seed)
    hierarchy = build_hierarchy(table.X, table.y, np.ones(len(table)), table.agent, table.entity)
    engine = InProcessEngine.from_hierarchy(hierarchy, failure_rate=0.0, seed=seed, n_threads=1)
    layout = GramLayout(table.X.shape[1])
    server = Server(FederationSettings(layout, seed=seed, aggregation=aggregation, rounds=2 * n_rounds, patience=None))
    run_one = run_round if aggregation == "plain" else _run_in_the_clear
    while server.round < 5:
        run_one(server, engine)
    start = time.process_time()
    for _ in range(n_rounds):
        run_one(server, engine)
    return (time.process_time() - start) / n_rounds


def _run_in_the_clear(server: Server, engine: InProcessEngine) -> None:
    call = server.open_round(engine.agents())
    vectors = engine.open_parties(call).vectors
    server.accept_sum(list(vectors), np.sum(list(vectors.values()), axis=0, dtype=np.uint64))
    server.close_round()


def _sum(n_parties: int, n_values: int, seed: int) -> Cost:
    """One round in which some parties drop out after they have shared their secrets."""
    terms = Terms(run=1, session=1, epoch=0, round=1, n_values=n_values, min_parties=2)
    parties = {f"party {number}": Party(f"party {number}", terms) for number in range(n_parties)}
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 2**64, n_values, dtype=np.uint64)
    dropping = set(generator.permutation(list(parties))[: int(DROPPING * n_parties)].tolist())
    exchange = SecureSum(terms, list(parties))
    messages = exchange.begin()
    by_parties = by_server = 0.0
    sent = received = 0
    while messages:
        start = time.process_time()
        replies = {
            name: parties[name].handle(message, lambda: values)
            for name, message in messages.items()
            if not (name in dropping and parties[name].stage is SumStage.MASKED)
        }
        middle = time.process_time()
        received += sum(map(len, messages.values()))
        sent += sum(map(len, replies.values()))
        messages = exchange.proceed(replies)
        by_parties, by_server = by_parties + middle - start, by_server + time.process_time() - middle
    assert exchange.result is not None
    assert (exchange.result.values == values * np.uint64(len(exchange.result.parties))).all()
    return Cost(by_parties, by_server, sent / n_parties, received / n_parties)


def _agreement_seconds(n_times: int = 2_000) -> float:
    own, other = KeyPair.generate(), KeyPair.generate().public
    start = time.process_time()
    for _ in range(n_times):
        own.agree(other)
    return (time.process_time() - start) / n_times
