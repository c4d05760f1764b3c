"""`fedhlcr flower`: what a federation over a network needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Federations over a network, on Flower.", no_args_is_help=True)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder; small letters, digits and dashes.")],
) -> None:
    """Write a Flower app: a folder with a pyproject that declares every option, with a word on each."""
    from fedhlcr.engines.flower.app_folder import write_app

    path = write_app(folder.absolute())
    typer.echo(f"Wrote {path}: set its options, then\n  flwr run {folder} NAME-OF-YOUR-SUPERLINK --stream")


@app.command()
def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to put them.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address by which the server is reached; repeat it for several."),
    ] = None,
    node: Annotated[list[str] | None, typer.Option(help="Name of a node that needs a key; repeat it.")] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Replace the server's certificate, if --host is given, and keys of --node.")
    ] = False,
) -> None:
    """Make a private CA, a server certificate and node keys. What is there already stays, but for --renew."""
    certificates = _import_certificates()(folder)
    made = certificates.make(host or (), node or (), renew=renew)
    for path in made:
        typer.echo(f"made {path}")
    if not made:
        typer.echo("nothing to do: all of it is there; --renew replaces.")


def _import_certificates() -> type:
    try:
        from fedhlcr.engines.flower.certificates import Certificates
    except ImportError:
        raise ImportError('this needs the flower extra: pip install "fedhlcr[flower]"') from None
    return Certificates
