"""Help, wrong usage and unexpected errors."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest

from fedhlcr.cli.shell import FAILED, WRONG_USAGE
from tests.commands import (
    COLUMNS,
    FIT,
    SECRET,
    assert_refused,
    call,
)


def test_every_command_has_help(capsys):
    import typer.main

    from fedhlcr.cli import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    wanted = {
        "synth",
        "split",
        "fit",
        "predict",
        "evaluate",
        "adapt",
        "inspect",
        "select",
        "simulate",
        "report",
        "demo",
        "audit",
        "compile",
        "help",
    }
    assert set(commands) == wanted | {"flower"}
    for name in wanted:
        assert call(name, "--help") == 0
        assert len(capsys.readouterr().out.splitlines()) > 5
    assert call() == WRONG_USAGE


def test_help_imports_no_heavy_library():
    script = (
        "import sys; from fedhlcr.cli import run; run(['fit', '--help']); "
        "heavy = {'numba', 'sklearn', 'pyarrow', 'scipy', 'pandas'} & set(sys.modules); print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("fit",),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--clusters", "many"),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--clusters", "0"),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--sweeps", "0"),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--missing", "maybe"),
        ("predict", "{model}", "{all}", "--interval", "90"),
        ("simulate", "{all}", *COLUMNS, "--participation", "15"),
        ("simulate", "{all}", *COLUMNS, "--failure-rate", "1"),
        ("simulate", "{all}", *COLUMNS, "--public"),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--clusters", "9" * 5000),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--seed", str(2**32)),
        ("synth", "{tmp}/m.csv", "--features", "0"),
        ("synth", "{tmp}/m.csv", "--agents", "100000", "--events", "100000"),
        ("report", "{model}", "--out", "{tmp}/m", "--target", "nope"),
        ("report", "{model}", "--out", "{tmp}/m", "--new-agents"),
        ("select", "{all}", *FIT, "--clusters", "2,100000"),
    ],
)
def test_wrong_usage(arguments, shop, tmp_path, capsys):
    places = {"all": shop / "all.csv", "tmp": tmp_path, "model": shop / "shop.fedhlcr"}
    code = call(*(argument.format(**places) for argument in arguments))
    assert_refused(code, capsys, tmp_path / "m", WRONG_USAGE)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e300", "-1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "{model}", "{all}", "--out", "{tmp}/m.csv", "--interval"),
        ("evaluate", "{model}", "{all}", "--out", "{tmp}/m.csv", "--level"),
        ("fit", "{all}", *COLUMNS, "--out", "{tmp}/m", "--hold-out"),
        ("select", "{all}", *COLUMNS, "--plot", "{tmp}/m.png", "--hold-out"),
        ("simulate", "{all}", *COLUMNS, "--out", "{tmp}/m", "--participation"),
        ("simulate", "{all}", *COLUMNS, "--out", "{tmp}/m", "--failure-rate"),
        ("split", "{all}", "--entity", "product", "--train", "{tmp}/m.csv", "--test", "{tmp}/t.csv", "--fraction"),
        ("synth", "{tmp}/m.csv", "--noise"),
        ("synth", "{tmp}/m.csv", "--events"),
        ("synth", "{tmp}/m.csv", "--entities"),
    ],
)
def test_numbers_out_of_range_are_wrong_usage(arguments, value, shop, tmp_path, capsys):
    places = {"all": shop / "all.csv", "tmp": tmp_path, "model": shop / "shop.fedhlcr"}
    assert call(*(argument.format(**places) for argument in arguments), value) == WRONG_USAGE
    said = capsys.readouterr()
    assert f"'{arguments[-1]}'" in said.err
    assert (said.out, said.err.count("\n"), list(tmp_path.iterdir())) == ("", 1, [])


def test_every_real_option_has_a_range_and_refuses_nan():
    import typer.main

    from fedhlcr.cli import app
    from fedhlcr.cli.parameters import parameters_of

    checked = 0
    for command in typer.main.get_command(app).commands.values():  # type: ignore[attr-defined]
        for option, described in zip(
            [one for one in command.params if not one.hidden], parameters_of(command), strict=True
        ):
            if described.label.endswith(" NUMBER"):
                assert described.most is not None, (command.name, option.name)
                with pytest.raises(typer.BadParameter, match="must be a number"):
                    option.callback(typer.Context(command), option, float("nan"))
                checked += 1
    assert checked > 5


def test_unexpected_error_is_one_line(shop, capsys, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("fedhlcr.storage.model_facts.read_facts", broken)
    assert_refused(call("inspect", shop / "shop.fedhlcr"), capsys, None, FAILED)


def test_text_of_library_errors_is_not_shown(shop, capsys, monkeypatch):
    monkeypatch.setattr("fedhlcr.storage.model_facts.read_facts", lambda data: pd.to_numeric(SECRET + "!"))
    assert_refused(call("inspect", shop / "shop.fedhlcr"), capsys, None, FAILED)
