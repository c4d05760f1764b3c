"""`fedhlcr synth`, `fedhlcr split` and `fedhlcr demo`: tables to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedhlcr.cli import options
from fedhlcr.cli.shell import Shell, plural

TableOut = Annotated[
    Path, typer.Argument(metavar="OUT", help="A .csv, .csv.gz, .parquet, .feather or .arrow file to write.")
]


def synth(
    out: TableOut,
    agents: Annotated[int, typer.Option("--agents", min=1, help="Number of agents.")] = 128,
    entities: Annotated[float, typer.Option("--entities", min=1, help="Entities per agent, on average.")] = 8,
    events: Annotated[float, typer.Option("--events", min=1, help="Events per entity, on average.")] = 5,
    features: Annotated[int, typer.Option("--features", min=0, help="Number of features.")] = 7,
    clusters: Annotated[int, typer.Option("--clusters", min=1, help="Number of clusters.")] = 8,
    noise: Annotated[float, typer.Option("--noise", min=0, help="Standard deviation of the noise.")] = 0.5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same table.")] = 0,
    truth: Annotated[
        Path | None, typer.Option("--truth", metavar="FILE", help="Write the true cluster of every entity to a table.")
    ] = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Write a synthetic table drawn from the model, with columns agent, entity, x0, x1, …, target."""
    import numpy as np
    import pyarrow as pa

    from fedhlcr.cli.output import STDOUT, check_table_output, write_table
    from fedhlcr.datasets import make_hlcr

    to_stdout = str(out) == STDOUT
    # what is said would be taken for rows
    shell = Shell(as_json, quiet or to_stdout)
    check_table_output(out, stdout=True)
    check_table_output(truth)
    table, drawn = make_hlcr(agents, entities, events, features, clusters, noise, random_state=seed)
    if not (to_stdout and as_json):
        write_table(out, table.to_arrow())
    shell.wrote(out)
    pairs = np.unique(np.column_stack([table.agent, table.entity]), axis=0)
    if truth is not None:
        write_table(truth, pa.table({"agent": pairs[:, 0], "entity": pairs[:, 1], "cluster": drawn.labels}))
        shell.wrote(truth)
    shell.say(f"{plural(len(table), 'event')} of {plural(len(pairs), 'entity', 'entities')}; true noise {noise:g}.")
    shell.say(f"Next: fedhlcr fit {out} --target target --agent agent --entity entity --out model.fedhlcr")
    facts = {"events": len(table), "agents": agents, "entities": len(pairs), "table": str(out)}
    shell.result(table.to_arrow().to_pydict() if to_stdout else facts)


def split(
    data: options.DataArgument,
    entity: options.EntityOption,
    train: Annotated[Path, typer.Option("--train", metavar="FILE", help="Where to write the training events.")],
    test: Annotated[Path, typer.Option("--test", metavar="FILE", help="Where to write the test events.")],
    agent: options.AgentOption = None,
    fraction: Annotated[
        float,
        typer.Option("--fraction", min=0.01, max=0.9, help="Share of each entity's events to hold out."),
    ] = 0.2,
    seed: options.SeedOption = 0,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Split a table into training and test events: some of every entity's are held out, and never all of them."""
    import pyarrow as pa

    from fedhlcr.cli.events import hold_out_rows
    from fedhlcr.cli.output import check_table_output, write_table
    from fedhlcr.files import open_table
    from fedhlcr.recipe import DataError, rows_missing

    shell = Shell(as_json, quiet)
    if train.resolve() == test.resolve():
        raise typer.BadParameter("must not be the same file as --train.", param_hint="--test")
    for path in (train, test):
        check_table_output(path, data)
    file = open_table(data)
    ids = [name for name in (agent, entity) if name is not None]
    raw = file.read_as_is(ids)
    gaps = {name: int(rows_missing(raw[name], is_id=True).sum()) for name in ids}
    if any(gaps.values()):
        counts = ", ".join(f"{name!r} {number:,}" for name, number in gaps.items() if number)
        raise DataError(f"ids are missing (rows, of {len(raw):,}: {counts}); drop these rows or give them an id.")
    own = None if agent is None else raw[agent]
    rows = hold_out_rows(own, raw[entity], fraction, seed)
    for path, part in zip((train, test), rows, strict=True):
        write_table(path, raw.take(pa.array(part)))
        shell.wrote(path)
    shell.say(f"{len(rows[0]):,} training events, {len(rows[1]):,} test events.")
    shell.result({"train": len(rows[0]), "test": len(rows[1])})


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where to write the report.")] = Path(
        "demo-report.html"
    ),
) -> None:
    """Show what fedhlcr does on real flights: a federation of airlines that keep their flights to themselves."""
    from fedhlcr.cli.output import check_output
    from fedhlcr.demo import main

    check_output(out)
    main(out)
