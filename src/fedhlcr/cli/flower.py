"""`fedhlcr flower`: the files that a federation over a network needs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from fedhlcr.exceptions import ArgumentError, MissingDependencyError

app = typer.Typer(help="Federations over a network, on Flower.", no_args_is_help=True)


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

    certificates = _import_flower("certificates").Certificates(folder)
    with output_errors():
        made = certificates.make(host or (), node or (), renew=renew)
    for path in made:
        typer.echo(f"made {path}")
    if not made:
        typer.echo("nothing to do: everything exists already; --renew replaces it.")


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

    names = _import_flower("names")
    freed = names.release(folder, node or (), agent or ())
    if not freed:
        known = sorted({pin.shown for pin in names.read_pins(folder / names.PINS_FILE).values()})
        raise ArgumentError(
            f"{folder} has no such names; it knows {', '.join(known)}." if known else f"{folder} binds no names."
        )
    typer.echo(f"Released the names of {AGENT.count(len(freed))}.")


def _import_flower(module: str) -> Any:
    """A module of the Flower engine; an error that says what to install if Flower is missing."""
    try:
        return import_module(f"fedhlcr.engines.flower.{module}")
    except ImportError as error:
        if (error.name or "").startswith("fedhlcr"):
            raise
        raise MissingDependencyError('this needs the flower extra: pip install "fedhlcr[flower]"') from None
