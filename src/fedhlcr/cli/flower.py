"""`fedhlcr flower`: a federation over a network, from its keys to its runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fedhlcr._support.extras import missing_extra
from fedhlcr.cli.manual import show_help_if_alone
from fedhlcr.exceptions import ArgumentError, DataError, Refusal

# Refusals of a node that lie in its table, not in its options.
TABLE_FAULTS = ("FileError", "DataError")

app = typer.Typer(
    help="Federations over a network, on Flower.", invoke_without_command=True, callback=show_help_if_alone
)


@app.command()
def init(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="A new folder. Its name must consist of lower-case letters, digits and dashes."
        ),
    ],
) -> None:
    """Write a Flower app: a folder with a pyproject.toml that lists and explains every option."""
    from fedhlcr.cli.output import output_errors
    from fedhlcr.engines.flower.app_folder import write_app

    with output_errors():
        path = write_app(folder.absolute())
    typer.echo(f"Wrote {path}: set its options, then\n  flwr run {folder} NAME-OF-YOUR-SUPERLINK --stream")


@app.command()
def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder for the certificates and keys.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address of the server; repeat the option for several."),
    ] = None,
    node: Annotated[
        list[str] | None, typer.Option(help="Name of a node that needs a key; repeat the option for several.")
    ] = None,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help="Replace the server's certificate (with --host) and the keys of the named nodes (with --node).",
        ),
    ] = False,
) -> None:
    """Make a private certificate authority, a server certificate and node keys.

    Existing files are kept unless you pass --renew.
    """
    from fedhlcr.cli.output import output_errors

    with _needs_flower():
        from fedhlcr.engines.flower.certificates import Certificates
    certificates = Certificates(folder)
    with output_errors():
        made = certificates.make(host or (), node or (), renew=renew)
    for path in made:
        typer.echo(f"made {path}")
    if not made:
        typer.echo("nothing to do: everything exists already; --renew replaces it.")


@app.command()
def server(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The server's folder; made if it does not exist.")],
    host: Annotated[
        list[str] | None, typer.Option(help="Name or address by which nodes reach the server; needed the first time.")
    ] = None,
    node: Annotated[list[str] | None, typer.Option(help="Name of a node to let in; repeat it for several.")] = None,
    port: Annotated[int, typer.Option(help="The port for nodes.")] = 9443,
    superlink_port: Annotated[int, typer.Option(help="SuperLink's own port, on loopback only.")] = 8000,
    front: Annotated[bool, typer.Option("--front/--no-front", help="Start nginx as the door for nodes.")] = True,
    only_files: Annotated[bool, typer.Option("--only-files", help="Make the files, and start nothing.")] = False,
    systemd: Annotated[bool, typer.Option("--systemd", help="Print a systemd unit, and start nothing.")] = False,
) -> None:
    """Start a server: make keys and folders, start SuperLink and nginx, register the nodes, restart what ends."""
    from fedhlcr.cli.output import output_errors

    with _needs_flower():
        from fedhlcr.engines.flower import server_service as service
        from fedhlcr.engines.flower.server_folder import ServerFolder
    made = ServerFolder(folder.absolute(), superlink_port)
    with output_errors():
        made.make(host or (), node or (), port)
    if systemd:
        ports = ["--port", str(port), "--superlink-port", str(superlink_port)]
        _print_unit("fedhlcr-server", folder, ["server", str(folder.absolute()), *ports])
        return
    for line in service.next_steps(made, node or ()):
        typer.echo(line)
    if not only_files:
        service.run_server(made, front=front)


@app.command()
def node(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The node's folder, with its key and node.toml.")],
    check: Annotated[bool, typer.Option("--check", help="Only check the node, and start nothing.")] = False,
    systemd: Annotated[bool, typer.Option("--systemd", help="Print a systemd unit, and start nothing.")] = False,
) -> None:
    """Start a node: check its key, table, disk, clock and server, then keep its SuperNode running."""
    with _needs_flower():
        from fedhlcr.engines.flower import node_service as service
    if systemd:
        _print_unit("fedhlcr-node", folder, ["node", str(folder.absolute())])
    elif check:
        findings = service.check(folder)
        for finding in findings:
            typer.echo(str(finding))
        raise typer.Exit(1 if any(finding.is_fault for finding in findings) else 0)
    else:
        service.run_node(folder)


@app.command(context_settings={"allow_extra_args": True})
def run(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The server's folder.")],
) -> None:
    """Start a run at the server and follow its log. Options of the run: fedhlcr flower run DIR rounds=60 min-nodes=2"""
    import subprocess

    with _needs_flower():
        from fedhlcr.engines.flower import server_folder as made
        from fedhlcr.engines.flower.options import option_text
        from fedhlcr.engines.flower.processes import flower_environment
    server_folder = made.ServerFolder(folder.absolute())
    if not server_folder.app.is_dir():
        raise ArgumentError(f"{folder} is not a server's folder; make one with fedhlcr flower server.")
    command = ["flwr", "run", str(server_folder.app), made.CONNECTION, "--stream"]
    if context.args:
        command += ["--run-config", " ".join(map(option_text, context.args))]
    environment = flower_environment(server_folder.home)
    raise typer.Exit(subprocess.run(command, env=environment, check=False).returncode)


def _print_unit(name: str, folder: Path, arguments: list[str]) -> None:
    what = "server of a federation" if "server" in name else "node of a federation"
    with _needs_flower():
        from fedhlcr.engines.flower.units import systemd_unit
    typer.echo(systemd_unit(name, f"fedhlcr: {what}", folder, arguments), nl=False)


@app.command()
def release(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The `output-dir` of the server.")],
    node: Annotated[
        list[str] | None, typer.Option(help="Name or key fingerprint of a node; repeat the option for several.")
    ] = None,
    agent: Annotated[list[str] | None, typer.Option(help="Name of an agent; repeat the option for several.")] = None,
) -> None:
    """Let agents' names belong to the next node that has them: after a new key, or when agents move."""
    from fedhlcr._support.wording import AGENT

    with _needs_flower():
        from fedhlcr.engines.flower import names
    freed = names.release(folder, node or (), agent or ())
    if not freed:
        known = sorted({pin.shown for pin in names.read_pins(folder / names.PINS_FILE).owners.values()})
        raise ArgumentError(
            f"{folder} has no such names; it knows {', '.join(known)}." if known else f"{folder} binds no names."
        )
    typer.echo(f"Released the names of {AGENT.count(freed)}.")


@app.command()
def preview(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="The node's table, CSV or Parquet: its `data-path`.")],
    target: Annotated[str, typer.Option(help="Column to predict.")],
    features: Annotated[str, typer.Option(help="Feature columns, separated by commas.")],
    agent: Annotated[str, typer.Option(help="Column of agent ids.")] = "",
    agent_name: Annotated[str, typer.Option(help="Name of the only agent, if there is no column.")] = "",
    entity: Annotated[str, typer.Option(help="Column of entity ids; without it each event is an entity.")] = "",
    positive: Annotated[str, typer.Option(help="The class that counts as 1, if the target has two classes.")] = "",
    min_events: Annotated[
        int | None, typer.Option(min=0, help="Fewest events of an agent that takes part. [default: 3 (features + 2)]")
    ] = None,
    min_entities: Annotated[
        int | None, typer.Option(min=0, help="Fewest entities of an agent that takes part. [default: 5]")
    ] = None,
    clusters: Annotated[int, typer.Option(min=1, help="Clusters at the start: `max-clusters` of the run.")] = 64,
) -> None:
    """Show what a node with this table would send, before it joins a federation.

    The options are those of the node-config. Nothing is sent, and no value of the table is shown.
    """
    with _needs_flower():
        from fedhlcr.engines.flower.node_options import NodeOptions
        from fedhlcr.engines.flower.preview import Preview
    given = {
        "data-path": str(table),
        "target": target,
        "features": features,
        "agent": agent,
        "agent-name": agent_name,
        "entity": entity,
        "positive": positive,
        "min-events": "" if min_events is None else str(min_events),
        "min-entities": "" if min_entities is None else str(min_entities),
    }
    try:
        shown = Preview.of_node(NodeOptions.from_context(given, {}), clusters)
    except Refusal as refusal:
        error = DataError if refusal.kind in TABLE_FAULTS else ArgumentError
        raise error(_in_words(refusal)) from None
    for line in shown.lines():
        typer.echo(line)


def _in_words(refusal: Refusal) -> str:
    """What is wrong with the table or the options; at the node itself the detail may be shown."""
    return refusal.detail or f"{refusal.cure}."


@contextlib.contextmanager
def _needs_flower() -> Iterator[None]:
    """Say what to install if an import fails because Flower is missing."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("fedhlcr"):
            raise
        raise missing_extra("this command needs Flower", "flower") from None
