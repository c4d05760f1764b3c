"""`fedhlcr synth`, `fedhlcr split`, `fedhlcr demo` and `fedhlcr compile`: tables to fit, and what one may run first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedhlcr.cli import options
from fedhlcr.cli.shell import FAILED, NO_OUTPUT, error_line, plural

# The largest count of anything in a synthetic table, and the most numbers, of eight bytes each, to draw at once.
MOST = 10**9
MOST_DRAWN = 10**9


def synth(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="A .csv, .csv.gz, .parquet, .feather or .arrow file to write.")
    ],
    *,
    agents: Annotated[int, typer.Option("--agents", min=1, max=MOST, help="Number of agents.")] = 128,
    entities: Annotated[float, options.real("--entities", 1, MOST, "Entities per agent, on average.")] = 8,
    events: Annotated[float, options.real("--events", 1, MOST, "Events per entity, on average.")] = 5,
    features: Annotated[int, typer.Option("--features", min=1, max=MOST, help="Number of features.")] = 7,
    clusters: Annotated[int, typer.Option("--clusters", min=1, max=MOST, help="Number of clusters.")] = 8,
    noise: Annotated[float, options.real("--noise", 0, 1e50, "Standard deviation of the noise.")] = 0.5,
    seed: options.SeedOption = 0,
    truth: Annotated[
        Path | None, typer.Option("--truth", metavar="FILE", help="Write the true cluster of every entity to a table.")
    ] = None,
    shell: options.QuickOutput,
) -> None:
    """Write a made-up table with known clusters, to try the commands on.

    Its columns are agent, entity, x0, x1, …, target. It is drawn from the model.

    \b
    fedhlcr synth table.csv --agents 40 --clusters 3 --truth truth.csv
    """
    import numpy as np
    import pyarrow as pa

    from fedhlcr.cli.output import STDOUT, check_table_output, write_table, write_tables
    from fedhlcr.datasets import make_hlcr

    to_stdout = str(out) == STDOUT
    # messages on standard output would be read as rows
    shell.quiet |= to_stdout
    options.require_apart("--truth", truth, "OUT", out)
    check_table_output(out, stdout=True)
    check_table_output(truth)
    n_entities = agents * entities
    n_columns = features + 3
    if max(n_entities * events * n_columns, n_entities * clusters, clusters * n_columns) > MOST_DRAWN:
        reason = f"together ask for more than {MOST_DRAWN:,} numbers; lower some of them."
        raise typer.BadParameter(reason, param_hint="--agents, --entities, --events, --features and --clusters")
    table, drawn = make_hlcr(agents, entities, events, features, clusters, noise, random_state=seed)
    events_drawn = table.to_arrow()
    pairs = np.unique(np.column_stack([table.agent, table.entity]), axis=0)
    files = {} if to_stdout else {out: events_drawn}
    if truth is not None:
        files[truth] = pa.table({"agent": pairs[:, 0], "entity": pairs[:, 1], "cluster": drawn.labels})
    write_tables(files)
    for path in files:
        shell.wrote(path)
    shell.say(f"{plural(len(table), 'event')} of {plural(len(pairs), 'entity', 'entities')}; true noise {noise:g}.")
    shell.say(f"Next: fedhlcr fit {out} --target target --agent agent --entity entity --out model.fedhlcr")
    if not to_stdout:
        shell.result({"events": len(table), "agents": agents, "entities": len(pairs), "table": str(out)})
    elif shell.json:
        shell.result(events_drawn.to_pydict())
    else:
        write_table(None, events_drawn)


def split(
    data: options.DataArgument,
    *,
    roles: Annotated[
        options.Roles, options.roles("entity", "agent", needed=("entity",), hints={"agent": options.ONE_AGENT})
    ],
    train: Annotated[Path, typer.Option("--train", metavar="FILE", help="Write the training events to this file.")],
    test: Annotated[Path, typer.Option("--test", metavar="FILE", help="Write the test events to this file.")],
    fraction: Annotated[
        float, options.real("--fraction", 0.01, 0.9, "Share of each entity's events to hold out.")
    ] = 0.2,
    seed: options.SeedOption = 0,
    stream: options.StreamOption = None,
    shell: options.Output,
) -> None:
    """Split a table into training and test events. Every entity keeps at least one training event.

    \b
    fedhlcr split sales.csv --agent store --entity product \\
        --train train.csv --test test.csv
    """
    from fedhlcr.cli.events import is_streamed
    from fedhlcr.cli.output import check_table_output
    from fedhlcr.cli.splitting import Split
    from fedhlcr.data.table_files import open_table

    options.require_apart("--test", test, "--train", train)
    for path in (train, test):
        check_table_output(path, data)
    file = open_table(data)
    assert roles.entity is not None
    plan = Split(file, roles.agent, roles.entity, fraction, seed)
    if is_streamed(file, stream):
        n_train, n_test = plan.write_in_batches(train, test, shell)
    else:
        n_train, n_test = plan.write_at_once(train, test)
    for path in (train, test):
        shell.wrote(path)
    shell.say(f"{plural(n_train, 'training event')}, {plural(n_test, 'test event')}.")
    shell.result({"train": n_train, "test": n_test})


def run_compiler(
    *,
    shell: options.Output,
) -> None:
    """Compile everything that is compiled, so that no later command waits for it: for an image, or before tests.

    Otherwise each command compiles what it needs when it first runs. Compiled code is kept beside the installed package
    or, where that cannot be written to, in the user's cache folder; NUMBA_CACHE_DIR names another folder.

    Exit code 1: not everything could be compiled. Exit code 5: there is no folder to keep it in.

    \b
    fedhlcr compile
    """
    from fedhlcr.kernels import ahead

    outcome = ahead.compile_groups(ahead.GROUPS)
    shell.result({"outcome": outcome.name, "compiled": outcome.n_compiled})
    if code := {"failed": FAILED, "nowhere": NO_OUTPUT}.get(outcome.name, 0):
        error_line(outcome.text)
        raise typer.Exit(code)
    shell.say(outcome.text)


def demo(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Write the report to this file.")] = Path(
        "demo-report.html"
    ),
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", min=1, help="Maximum number of rounds. By default the run ends when it is stable."),
    ] = None,
    shell: options.TextOutput,
) -> None:
    """Run an example on real flights: stations with few flights learn from each other without showing them.

    It compares their federation with a station alone and with models of all flights in one place, says how sure it is
    and what it costs, and writes a report to the current folder. It needs no other file and no network.

    \b
    fedhlcr demo --out flights.html
    """
    from fedhlcr.cli.output import check_output
    from fedhlcr.demo import main

    check_output(out)
    with shell.silence(), shell.warnings_as_notes():
        main(out, rounds=rounds, verbose=shell.progress is not False)
