"""The ServerApp: a whole run, from the first roll call to the model on disk."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedhlcr._support.wording import CLUSTER, REPLY, ROUND
from fedhlcr.data.scarcity import find_scarcity
from fedhlcr.engines.flower.engine import FlowerEngine
from fedhlcr.engines.flower.logs import log_through_flower
from fedhlcr.engines.flower.names import PINS_FILE, AgentNames, read_owners
from fedhlcr.engines.flower.options import RunOptions
from fedhlcr.engines.flower.pauses import WaitTimes
from fedhlcr.engines.flower.private_run import private_server, run_on_nodes
from fedhlcr.engines.flower.records import NodeScore
from fedhlcr.exceptions import ArgumentError
from fedhlcr.federation.history import RoundRecord
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.run import Checkpoints, run_federation
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.posterior import PublicModel
from fedhlcr.storage import atomic
from fedhlcr.storage.reader import checkpoint_reader

logger = logging.getLogger(__name__)

app = ServerApp()


class Outputs:
    """The files of an experiment at the server."""

    def __init__(self, folder: Path, experiment: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.checkpoint, self.model, self.history, self.scores = (
            folder / f"{experiment}.{ending}" for ending in ("checkpoint", "model", "history.json", "scores.json")
        )


@app.main()
def main(grid: Grid, context: Context) -> None:
    log_through_flower()
    run(grid, RunOptions.from_config(context.run_config))


def run(grid: Grid, options: RunOptions) -> PublicModel:
    """Run a federation with the nodes of a grid, from the start or from a checkpoint."""
    outputs = Outputs(options.output_dir, options["experiment"])
    logger.info("experiment %s; its files are in %s.", options["experiment"], options.output_dir)
    checkpoints = Checkpoints(outputs.checkpoint)
    fewest = options["min-cohort"] if options["aggregation"] == "secure" else 1
    min_nodes = max(options["min-nodes"], fewest)
    waiting = WaitTimes(min_nodes, options["wait-for-nodes"], options["round-timeout"], fewest)
    engine = FlowerEngine(grid, options["experiment"], waiting, options.features, _names(options))
    # errors of a resumed run are raised before the server waits for nodes
    server = _resume(checkpoints, engine, options) if options["resume"] else None
    if server is None and checkpoints.hold_unfinished():
        raise ArgumentError(
            f"experiment {options['experiment']!r} has a checkpoint of a run that has not ended, or that cannot be "
            "read: run with resume=true to continue it, or choose another `experiment`, or remove its files from the "
            "output folder."
        )
    engine.gather()
    settings = options.settings(len(engine.features), engine.features)
    progress = _round_logger(settings)
    if settings.privacy is not None:
        private = private_server(settings, engine)
        run_on_nodes(private, engine, progress)
        return _finish(private, engine, outputs, options)
    server = server or Server(settings)
    run_federation(server, engine, checkpoints=checkpoints, progress=progress)
    for warning in find_scarcity(server.table_shape()):
        logger.warning("%s", warning)
    return _finish(server, engine, outputs, options)


def _finish(server: Server | PrivateServer, engine: FlowerEngine, outputs: Outputs, options: RunOptions) -> PublicModel:
    """Write the model and the history, and send the model to the nodes."""
    logger.info("ended after %s: %s.", ROUND.count(server.round), server.stop_reason)
    model = replace(server.model(), features=engine.features)
    model.save(outputs.model)
    _write_json(outputs.history, [record.to_dict() for record in server.history.records])
    if options["evaluate"]:
        _report_scores(engine.keep_model(model), outputs.scores)
    return model


def _names(options: RunOptions) -> AgentNames:
    """Which node may hold which agents, by the operator's list or by who had them first."""
    owners = read_owners(Path(options["agents-file"]).expanduser()) if options["agents-file"] else None
    pins = options.output_dir / PINS_FILE if options["bind-agents"] else None
    return AgentNames(pins, owners, options["max-agents-per-node"])


def _resume(checkpoints: Checkpoints, engine: FlowerEngine, options: RunOptions) -> Server:
    features = tuple(checkpoint_reader(checkpoints.engine_record()).texts("features"))
    server = checkpoints.resume(options.settings(len(features), features), engine)
    logger.info("resumed after round %d.", max(0, server.round))
    return server


def _round_logger(settings: FederationSettings) -> Callable[[RoundRecord], None]:
    """Logs a line for every round."""
    began = time.monotonic()

    def log(record: RoundRecord) -> None:
        nonlocal began
        seconds = time.monotonic() - began
        began = time.monotonic()
        what = f"round {record.round} of at most {settings.most_rounds}" if record.round else "survey"
        found = f"{CLUSTER.count(record.n_clusters)}, {_shared(record)}; " if record.n_clusters else ""
        logger.info(
            "%s: %d of %d agents answered%s; %s%d kB up, %d kB down; %.1f s.",
            what,
            record.n_accepted,
            record.n_asked,
            f", {REPLY.count(record.n_refused)} refused" if record.n_refused else "",
            found,
            record.bytes_up // 1000,
            record.bytes_down // 1000,
            seconds,
        )

    return log


def _shared(record: RoundRecord) -> str:
    """The first of the traced quantities, with its name; for the Gaussian the noise scale."""
    name, value = next(iter(record.shared.items()))
    return f"{name.replace('_', ' ')} {value:.4g}"


def _report_scores(scores: dict[str, NodeScore], path: Path) -> None:
    """Log and write R² of each node with test events, and of all of them together."""
    scored = {node: score for node, score in scores.items() if score.n_events}
    logger.info("nodes that kept the model: %d; nodes that scored it: %d.", len(scores), len(scored))
    lines = {f"node {name}": score for name, score in scored.items()}
    if scored:
        lines["all"] = reduce(add, scored.values())
    for name, score in lines.items():
        logger.info("R² on %d test events of %s: %.4f.", score.n_events, name, score.r2)
    _write_json(path, {name: {**vars(score), "r2": score.r2} for name, score in lines.items()})


def _write_json(path: Path, value: object) -> None:
    """Write JSON, with null for NaN, which JSON does not have."""
    text = json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None), indent=1)
    atomic.write_atomically(path, text.encode(), keep_previous=False)
