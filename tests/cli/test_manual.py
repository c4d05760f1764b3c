"""`fedhlcr help`, examples in help texts, the version, and completion in shells."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest
import typer.main

from fedhlcr import __version__
from fedhlcr.cli import app
from fedhlcr.cli.manual import examples_of
from fedhlcr.cli.shell import EXIT_CODES, WRONG_USAGE
from tests.commands import COMMAND, call, in_shell, shop_table

GROUP = typer.main.get_command(app)
COMMANDS = {name: command for name, command in GROUP.commands.items() if name != "flower"}  # type: ignore[attr-defined]
EXAMPLES = [("fedhlcr", line) for line in examples_of(GROUP)] + [
    (name, line) for name, command in COMMANDS.items() for line in examples_of(command)
]
# Examples that other tests run: they take minutes.
ELSEWHERE = ("audit", "demo")
TITLES = ("NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "OPTIONS", "EXIT CODES", "FILES")


def titles(text):
    return [line for line in text.splitlines() if line and not line.startswith(" ")]


@pytest.mark.parametrize("name", COMMANDS)
def test_manual_of_every_command_has_all_sections(name, capsys):
    assert call("help", name) == 0
    said = capsys.readouterr().out
    assert set(TITLES) <= set(titles(said))
    assert f"fedhlcr {name} - " in said
    for parameter in (one for one in COMMANDS[name].params if not one.hidden):
        assert max(parameter.opts, key=len) in said or parameter.metavar in said
    assert max(map(len, said.splitlines())) <= 110


def test_manual_of_fedhlcr_lists_the_commands(capsys):
    assert call("help") == 0
    said = capsys.readouterr().out
    assert set(TITLES) | {"COMMANDS"} <= set(titles(said))
    for name in (*COMMANDS, "flower"):
        assert f"\n       {name}\n" in said
    for code in EXIT_CODES.values():
        assert f"\n       {code}\n" in said


def test_manual_of_a_command_of_a_group(capsys):
    assert call("help", "flower", "node") == 0
    assert "fedhlcr flower node - " in capsys.readouterr().out


def test_manual_of_an_unknown_command_is_refused(capsys):
    assert call("help", "fti") == WRONG_USAGE
    assert "no command 'fti'; choose from: split, fit, " in capsys.readouterr().err


def test_man_page_is_understood_by_man(capsys):
    assert call("help", "fit", "--man") == 0
    page = capsys.readouterr().out
    assert page.startswith(f'.TH "FEDHLCR-FIT" 1 "" "fedhlcr {__version__}"')
    assert "\\-\\-target COLUMN" in page
    # a line of text that begins with a dot would be a command
    known = {".TH", ".SH", ".TP", ".PP", ".nf", ".fi"}
    assert {line.split()[0] for line in page.splitlines() if line.startswith(".")} == known
    if groff := shutil.which("groff"):
        done = subprocess.run(
            [groff, "-man", "-Tutf8", "-Kutf8", "-ww"], input=page, capture_output=True, text=True, check=True
        )
        assert not done.stderr
        assert "Required." in done.stdout


def test_every_command_has_an_example():
    assert {name for name, _ in EXAMPLES} == {"fedhlcr", *COMMANDS}


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_examples_are_valid_command_lines(name, line):
    program, command, *arguments = shlex.split(line)
    assert program == "fedhlcr"
    assert name in ("fedhlcr", command)
    COMMANDS[command].make_context(command, arguments)


@pytest.mark.slow
@pytest.mark.ci
def test_examples_run(tmp_path, monkeypatch, capsys):
    """One after another in one folder, as a reader would."""
    monkeypatch.chdir(tmp_path)
    table = shop_table(n_stores=5, n_weeks=10)
    numbers = {
        "promotion": table["promotion"].eq("yes").astype(int),
        "season": table["season"].eq("summer").astype(int),
    }
    table.assign(**numbers).to_csv("sales.csv", index=False)
    run = [line for name, line in EXAMPLES if name not in ELSEWHERE]
    for line in run:
        assert call(*shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)
    made = {path.name for path in tmp_path.iterdir()}
    assert {"train.csv", "sales.fedhlcr", "predictions.csv", "report.html", "select.png", "entities.csv"} <= made


def test_version():
    done = in_shell("--version")
    assert done.stdout.decode().split() == ["fedhlcr", __version__]


def completed(shell, words):
    """What a shell would offer behind these words."""
    environment = {**os.environ, "_FEDHLCR_COMPLETE": f"complete_{shell}", "COMP_WORDS": words}
    environment |= {"COMP_CWORD": str(len(words.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": words}
    environment |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return subprocess.run(COMMAND, capture_output=True, text=True, env=environment, check=False, timeout=60).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_options_and_choices(shell):
    assert "fit" in completed(shell, "fedhlcr fi")
    assert "inspect" not in completed(shell, "fedhlcr fi")
    assert "--max-clusters" in completed(shell, "fedhlcr fit --max")
    assert "student" in completed(shell, "fedhlcr fit --noise ")


def test_shells_complete_files():
    """zsh is told to list files; bash and fish list them by themselves where nothing is offered."""
    assert "_files" in completed("zsh", "fedhlcr inspect ")
    assert completed("bash", "fedhlcr inspect ").strip() == ""
    source = subprocess.run(
        COMMAND, capture_output=True, text=True, env={**os.environ, "_FEDHLCR_COMPLETE": "source_bash"}, check=False
    ).stdout
    assert "complete -o default -F" in source
