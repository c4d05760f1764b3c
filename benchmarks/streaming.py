"""Fits and predictions of a Parquet folder from the shell: out of core against in memory, XL against the size of L.

Every command runs in a process of its own, whose seconds and peak memory count, its start included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.cost import timing
from benchmarks.large_table import N_CLUSTERS, N_FEATURES
from benchmarks.report import Findings, Options, Row, Timing, at_most, at_most_unit, close_to_one, say, skipped

EXTRA_MEGABYTES, TIME_BOUND, LINEAR_TOLERANCE = 500, 2.5, 0.15
# Agents of a table that costs a start only, of the table with as many entities as L, and of XL.
FEW_AGENTS, L_AGENTS, XL_AGENTS = 50, 10_000, 62_500
QUICK_DIVISOR = 10
# How the command line is told to stream, and not to.
STREAM, IN_MEMORY = "--stream", "--in-memory"
PACKED = (N_FEATURES + 2) * (N_FEATURES + 3) // 2


class Usage(NamedTuple):
    """What a command took; see `benchmarks/usage.py`."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


class Table(NamedTuple):
    """A folder of events and its sizes."""

    folder: Path
    n_agents: int
    n_entities: int
    n_events: int

    @property
    def matrix_bytes(self) -> int:
        return self.n_entities * PACKED * 8


def run(options: Options) -> Findings:
    missing = [flag for flag in (STREAM, IN_MEMORY) if flag not in _help_of("fit")]
    if missing:
        return Findings(rows=[skipped("out of core", f"`fedhlcr fit` has no {' and no '.join(missing)}")])
    divisor = QUICK_DIVISOR if options.quick else 1
    sizes = {"start": FEW_AGENTS, "smaller": L_AGENTS // divisor, "larger": XL_AGENTS // divisor}
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        tables = {name: _draw(scratch / name, n_agents, options.seed) for name, n_agents in sizes.items()}
        _command("fit", tables["start"], scratch, STREAM)  # compiles
        used = {
            (what, name, flag): _measured(what, table, scratch, flag)
            for name, table in tables.items()
            for flag in (STREAM, IN_MEMORY)
            for what in ("fit", "predict")
        }
    rows = [row for what in ("fit", "predict") for row in _rows(what, used, tables)]
    timings = [_timing(key, tables[key[1]], own) for key, own in used.items() if key[1] != "start"]
    return Findings(rows=rows, timings=timings)


def _rows(what: str, used: dict[tuple[str, str, str], Usage], tables: dict[str, Table]) -> list[Row]:
    larger = tables["larger"]
    streamed, held = used[what, "larger", STREAM], used[what, "larger", IN_MEMORY]
    events, fewer = (f"{tables[name].n_events / 1e6:.1f} million" for name in ("larger", "smaller"))
    of, extra = f"{what} of {events} events out of core", (streamed.peak_bytes - larger.matrix_bytes) / 1e6
    rows = [
        at_most_unit(f"{of}, peak memory beyond the matrices", extra, EXTRA_MEGABYTES, "MB"),
        at_most(f"{of}, time over that in memory", streamed.seconds / held.seconds, TIME_BOUND),
    ]
    for flag, how in ((STREAM, "out of core"), (IN_MEMORY, "in memory")):
        many, few = (_per_event(name, what, flag, used, tables) for name in ("larger", "smaller"))
        name = f"{what} {how}, processor time per event of {events} over that of {fewer}"
        rows.append(close_to_one(name, many / few, LINEAR_TOLERANCE))
    return rows


def _per_event(
    name: str, what: str, flag: str, used: dict[tuple[str, str, str], Usage], tables: dict[str, Table]
) -> float:
    """Processor seconds per event, without those of the start."""
    seconds = used[what, name, flag].cpu_seconds - used[what, "start", flag].cpu_seconds
    return seconds / (tables[name].n_events - tables["start"].n_events)


def _timing(key: tuple[str, str, str], table: Table, used: Usage) -> Timing:
    what, name, flag = key
    stage = f"{what} from the shell, {'out of core' if flag == STREAM else 'in memory'}"
    shape = {
        "events": table.n_events,
        "entities": table.n_entities,
        "agents": table.n_agents,
        "features": N_FEATURES,
        "clusters": N_CLUSTERS,
        "cpu_seconds": used.cpu_seconds,
        "peak_megabytes": used.peak_bytes / 1e6,
        "matrix_megabytes": table.matrix_bytes / 1e6,
    }
    return timing(stage, f"size: {name}", shape, [used.seconds])


def _draw(folder: Path, n_agents: int, seed: int) -> Table:
    command = [sys.executable, "-m", "benchmarks.large_table", str(folder), str(n_agents), str(seed)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    table = Table(folder, **json.loads(done.stdout))
    size = sum(file.stat().st_size for file in folder.iterdir())
    say("streaming", f"{table.n_events:,} events of {table.n_entities:,} entities in {size / 1e6:,.0f} MB of Parquet")
    return table


def _measured(what: str, table: Table, scratch: Path, flag: str) -> Usage:
    used = _command(what, table, scratch, flag)
    seconds = f"{used.seconds:.1f} s, {used.cpu_seconds:.1f} processor seconds"
    memory = f"at most {used.peak_bytes / 1e6:,.0f} MB, of which matrices {table.matrix_bytes / 1e6:,.0f}"
    say("streaming", f"{what} {flag} of {table.n_events:,} events: {seconds}, {memory}")
    return used


def _command(what: str, table: Table, scratch: Path, *flags: str) -> Usage:
    """Run `fedhlcr fit` or `fedhlcr predict` of a table, with the model in between."""
    model = scratch / f"{table.folder.name}.fedhlcr"
    if what == "fit":
        columns = ["--target", "target", "--agent", "agent", "--entity", "entity"]
        rest = ["fit", str(table.folder), *columns, "--out", str(model)]
    else:
        rest = ["predict", str(model), str(table.folder), "--out", str(scratch / "predictions.parquet")]
    command = [*SHELL, *rest, "--quiet", *(flag for flag in flags if what == "fit" or flag in _help_of("predict"))]
    usage = Path(__file__).with_name("usage.py")
    done = subprocess.run([sys.executable, str(usage), *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(rest[:1])} failed:\n{done.stderr}")
    return Usage(**json.loads(done.stdout))


SHELL = [sys.executable, "-c", "import sys; from fedhlcr.cli import main; sys.argv[0] = 'fedhlcr'; sys.exit(main())"]


def _help_of(command: str) -> str:
    wide = {**os.environ, "COLUMNS": "200"}
    return subprocess.run([*SHELL, command, "--help"], env=wide, capture_output=True, text=True, check=True).stdout
