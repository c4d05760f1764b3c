"""What the manual and the documentation say about options, in every release of typer."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
import typer
import typer.main

from fedhlcr.cli import app
from fedhlcr.cli.parameters import parameters_of, restore_help
from tests.commands import call


class Colour(StrEnum):
    red = "red"
    blue = "blue"


def paint(
    source: Annotated[Path, typer.Argument(metavar="PICTURE", help="What to\n    paint.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to.")],
    words: Annotated[list[str] | None, typer.Argument(help="More.")] = None,
    colour: Annotated[Colour, typer.Option("--colour", help="Which.")] = Colour.blue,
    layers: Annotated[int, typer.Option("--layers", min=0, max=9, help="How many.")] = 0,
    width: Annotated[float | None, typer.Option("--width", min=0.5, help="How wide. Default: the brush's.")] = None,
    brush_name: Annotated[str, typer.Option("--brush-name", help="Of the brush.")] = "",
    frames: Annotated[bool, typer.Option("--frame/--no-frame", help="Frame it.")] = True,
    secret: Annotated[bool, typer.Option("--secret", hidden=True, help="Nobody is told.")] = False,
) -> None:
    """Paint."""


@pytest.fixture
def command():
    own = typer.Typer(add_completion=False)
    own.command()(paint)
    return typer.main.get_command(own)


def test_parameters_are_described_by_what_was_declared(command):
    described = {parameter.label: parameter for parameter in parameters_of(command)}
    labels = ["PICTURE", "--out FILE", "[WORDS]", "--colour red|blue", "--layers N", "--width NUMBER"]
    assert sorted(described) == sorted([*labels, "--brush-name BRUSH-NAME", "--frame"])
    picture, out = described["PICTURE"], described["--out FILE"]
    assert (picture.is_argument, picture.is_required, picture.words) == (True, True, "What to paint.")
    assert (out.is_argument, out.is_required, out.other_names) == (False, True, ("-o",))
    assert described["[WORDS]"].words == "More."
    assert described["--frame"].other_names == ("--no-frame",)
    ranges = {label: (described[label].least, described[label].most) for label in ("--layers N", "--width NUMBER")}
    assert ranges == {"--layers N": (0, 9), "--width NUMBER": (0.5, None)}
    defaults = {label: parameter.default for label, parameter in described.items() if parameter.default is not None}
    assert defaults == {"--colour red|blue": "blue", "--layers N": "0"}


def test_help_that_typer_lost_is_restored(command):
    """As typer 0.20 to 0.25 lose the help of arguments with click 8.4 and later."""
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            parameter.help = None
    assert [parameter.words for parameter in parameters_of(command) if parameter.is_argument] == [
        "What to paint.",
        "More.",
    ]
    restore_help(command)
    helps = {parameter.name: " ".join(parameter.help.split()) for parameter in command.params}
    assert (helps["source"], helps["words"], helps["out"]) == ("What to paint.", "More.", "Where to.")


@pytest.mark.parametrize("path", [("fit",), ("report",), ("flower", "node"), ("flower", "preview")])
def test_help_and_manual_explain_arguments(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    command = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]  # type: ignore[attr-defined]
    arguments = [parameter for parameter in parameters_of(command) if parameter.is_argument]
    assert arguments
    for how in (("help", *path), (*path, "--help")):
        assert call(*how) == 0
        said = " ".join(capsys.readouterr().out.replace("│", " ").split())
        for argument in arguments:
            assert argument.words[:40] in said, (how, argument)


def test_group_without_a_command_shows_its_help(capsys):
    from fedhlcr.cli.shell import WRONG_USAGE

    for path, command in (((), "evaluate"), (("flower",), "preview")):
        assert call(*path) == WRONG_USAGE
        assert command in capsys.readouterr().out
