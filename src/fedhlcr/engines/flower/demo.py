"""`make demo-flower`: a federation over real sockets, on this machine.

The airlines of the bundled flights are distributed over three nodes. Each node has its own folder, key and process. A
SuperLink, which only accepts these nodes, trains a model with them. Every node scores it on flights it has held out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv

from fedhlcr import FedHLCRRegressor, HLCRRegressor, hold_out_events
from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.wording import ROUND
from fedhlcr.analysis.summary import text_table
from fedhlcr.datasets import load_flights
from fedhlcr.datasets.hierarchical import HierarchicalData
from fedhlcr.engines.flower.app_folder import write_app
from fedhlcr.engines.flower.loopback import Loopback
from fedhlcr.engines.flower.processes import END_SIGNALS
from fedhlcr.exceptions import LoopbackError
from fedhlcr.federation import ReplyLimits
from fedhlcr.federation.weights import MAX_WEIGHT
from fedhlcr.posterior import PublicModel

FOLDER = Path("demo-flower")
NODES = ("node-1", "node-2", "node-3")
SEED = 0
# Long enough for a machine that is busy with something else.
PATIENCE = {"min-nodes": len(NODES), "wait-for-nodes": 1800.0, "round-timeout": 900.0}
# Seconds that the whole run may take.
LIMIT = 4 * 3600.0
OWN_WORDS = ("node", "survey", "round", "ended", "R²", "waiting", "experiment")


def main() -> None:
    try:
        demonstrate()
    except LoopbackError as error:
        # after the last lines of the processes, which have been stopped meanwhile
        print(f"\nThe demo has failed: {error}\nAll logs are in {FOLDER}/federation/.", file=sys.stderr, flush=True)
        sys.exit(1)


def demonstrate() -> None:
    parser = argparse.ArgumentParser(description="A federation of airlines over real sockets, on this machine.")
    parser.add_argument(
        "--rounds",
        type=int,
        default=30,
        help="maximum number of rounds; on an idle machine a round takes about six seconds (default: 30)",
    )
    rounds = parser.parse_args().rounds
    # every signal that ends this program must end its processes too; scripts may have set Ctrl-C to be ignored
    for number in END_SIGNALS:
        signal.signal(number, end)
    flights = load_flights()
    train_rows, test_rows = hold_out_events(flights.agent, flights.entity, random_state=0)
    shutil.rmtree(FOLDER, ignore_errors=True)
    home = assign_to_nodes(flights)
    configs = {node: write_node(FOLDER.absolute() / node, flights, home == i, train_rows, test_rows)
               for i, node in enumerate(NODES)}  # fmt: skip
    app = FOLDER.absolute() / "flights-app"
    write_app(app, {"experiment": "flights", "rounds": rounds, "seed": SEED, **PATIENCE})
    start = time.perf_counter()
    with Loopback(FOLDER.absolute() / "federation") as federation:
        print(f"Starting a SuperLink and {len(NODES)} SuperNodes on 127.0.0.1, with TLS and node keys ...", flush=True)
        federation.start_superlink()
        for node, config in configs.items():
            federation.start_supernode(node, config)
        federation.revived = configs
        print(f"Training, at most {ROUND.count(rounds)}:", flush=True)
        federation.follow(federation.start_run(app), show, LIMIT)
    print(f"Stopped all processes after {time.perf_counter() - start:.0f} seconds.\n")
    outputs = FOLDER / "federation" / "fedhlcr-output"
    model = PublicModel.load(outputs / "flights.model")
    scores = json.loads((outputs / "flights.scores.json").read_text(encoding="utf-8"))
    compare(flights[train_rows], flights[test_rows], home[test_rows], scores)
    check(flights[train_rows], model, rounds)
    print(f"\nTables, keys, logs and the model are in {FOLDER}/.")


def assign_to_nodes(flights: HierarchicalData) -> IndexArray:
    """(flights,) the node of each flight.

    Airlines are not divided. From the largest to the smallest, each goes to the node with the fewest flights so far.
    """
    airlines, codes, sizes = np.unique([agent[:2] for agent in flights.agent], return_inverse=True, return_counts=True)
    node_of = np.empty(len(airlines), dtype=np.int64)
    load = np.zeros(len(NODES), dtype=np.int64)
    for airline in np.argsort(-sizes, kind="stable"):
        node_of[airline] = load.argmin()
        load[node_of[airline]] += sizes[airline]
    return node_of[codes]


def write_node(
    folder: Path, flights: HierarchicalData, own: np.ndarray, train_rows: IndexArray, test_rows: IndexArray
) -> dict[str, str]:
    """Write a node's folder. Returns its node-config."""
    folder.mkdir(parents=True)
    for name, rows in (("train", train_rows), ("test", test_rows)):
        pyarrow.csv.write_csv(flights[rows[own[rows]]].to_arrow(), folder / f"{name}.csv")
    return {
        "data-path": str(folder / "train.csv"),
        "test-path": str(folder / "test.csv"),
        "target": "target",
        "agent": "agent",
        "entity": "entity",
        "features": ",".join(flights.feature_names),
        "state-dir": str(folder / "state"),
        # these flights are public, so small airlines need not stay out
        "min-events": "0",
        "min-entities": "0",
    }


def end(number: int, _: object) -> None:
    for other in END_SIGNALS:
        # a second signal must not interrupt the clean-up
        signal.signal(other, signal.SIG_IGN)
    print("\nInterrupted: stopping everything ...", flush=True)
    sys.exit(128 + number)


def show(line: str) -> None:
    """Print a log line of our server; skip Flower's own lines."""
    words = line.split(":      ", 1)[-1]
    if words.startswith(OWN_WORDS):
        print(f"  {words}", flush=True)


def compare(train: HierarchicalData, test: HierarchicalData, home: IndexArray, scores: dict[str, Any]) -> None:
    """Compare the nodes' scores with those of a centralised fit, on the same test flights."""
    central = HLCRRegressor(random_state=SEED).fit(train.X, train.y, agent=train.agent, entity=train.entity)
    predicted = central.predict(test.X, agent=test.agent, entity=test.entity)
    rows = []
    for name, own in [*((f"node {node}", home == i) for i, node in enumerate(NODES)), ("all", home >= 0)]:
        errors = test.y[own] - predicted[own]
        spread = test.y[own] - test.y[own].mean()
        # a node that was away at the end has no score
        score = scores.get(name, {"n_events": 0, "r2": float("nan")})
        rows.append(
            (name, f"{score['n_events']:,}", f"{score['r2']:.3f}", f"{1 - errors @ errors / (spread @ spread):.3f}")
        )
    print("Share of the held-out flights' variance explained:")
    print(text_table(("", "flights", "federated R²", "centralised R²"), tuple(rows)))


def check(train: HierarchicalData, model: PublicModel, rounds: int) -> None:
    """Compare the model with that of the same federation simulated in this process, with the limits of a network."""
    alone = FedHLCRRegressor(rounds=rounds, random_state=SEED, limits=ReplyLimits(max_weight=MAX_WEIGHT))
    alone.fit(train.X, train.y, agent=train.agent, entity=train.entity)
    of_nodes, of_this_process = (of.draws.coef for of in (model, alone.posterior_))
    if of_nodes.shape != of_this_process.shape:
        print("\nThe model is not that of the same federation in one process, as happens where a reply is missing.")
        return
    apart = np.abs(of_nodes - of_this_process).max()
    print(f"\nThe same federation in one process gives the same coefficients: the largest difference is {apart:.1g}.")


if __name__ == "__main__":
    main()
