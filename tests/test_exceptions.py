"""Errors carry data: what went wrong, and the cure, worded for Python or for the shell."""

import ast
import inspect
import pickle
from collections import Counter
from pathlib import Path

import pytest
import typer.main

import fedhlcr
from fedhlcr import exceptions
from fedhlcr.cli import app
from fedhlcr.cli.shell import EXIT_CODES, error_text, option_text
from fedhlcr.exceptions import Advice, ArgumentError, Category, FedHLCRError, FedHLCRWarning, Refusal, Setting

SOURCE = Path(fedhlcr.__file__).parent
KINDS = [
    kind
    for _, kind in inspect.getmembers(exceptions, inspect.isclass)
    if issubclass(kind, FedHLCRError | FedHLCRWarning)
]
# Built-in errors that fedhlcr raises itself, how many of each, and why they are not errors of its own.
BUILT_IN = {
    ("__init__.py", "AttributeError"): (1, "Python's protocol for modules"),
    ("posterior/draws.py", "AttributeError"): (1, "Python's protocol for attributes"),
    ("posterior/fitted_model.py", "AttributeError"): (1, "Python's protocol for attributes"),
    ("estimators/base.py", "AttributeError"): (2, "Python's protocol for attributes"),
    ("cli/start_up.py", "ModuleNotFoundError"): (1, "Python's protocol for imports"),
    ("model/likelihood.py", "NotImplementedError"): (2, "a mistake in a new likelihood, not of a user"),
    ("model/mixed.py", "NotImplementedError"): (2, "a mistake in a new likelihood, not of a user"),
    ("storage/codec.py", "TypeError"): (1, "a mistake in fedhlcr, not of a user"),
    ("storage/atomic.py", "OSError"): (1, "the system's own error, with the name that the user gave"),
    ("analysis/selection.py", "KeyboardInterrupt"): (1, "the user wants everything to end"),
}


def raised(tree: ast.AST) -> list[str]:
    """Names of what a file raises, as in `raise Name(…)` or `raise Name`."""
    calls = (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None)
    names = (call.func if isinstance(call, ast.Call) else call for call in calls)
    return [name.id for name in names if isinstance(name, ast.Name)]


def is_built_in(name: str) -> bool:
    kind = __builtins__.get(name) if isinstance(__builtins__, dict) else getattr(__builtins__, name, None)
    return isinstance(kind, type) and issubclass(kind, BaseException)


def test_users_meet_only_errors_of_fedhlcr():
    found = Counter()
    for path in SOURCE.rglob("*.py"):
        names = raised(ast.parse(path.read_text()))
        found.update((path.relative_to(SOURCE).as_posix(), name) for name in names if is_built_in(name))
    assert found == {place: count for place, (count, _) in BUILT_IN.items()}


def test_search_for_built_in_errors_finds_them():
    code = "def f():\n    raise ValueError('x') from None\ntry:\n    f()\nexcept OSError:\n    raise\nraise KeyError\n"
    assert [name for name in raised(ast.parse(code)) if is_built_in(name)] == ["KeyError", "ValueError"]


def test_all_errors_are_defined_in_one_module():
    defined = [
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and path.name != "exceptions.py"
        for base in node.bases
        if ast.unparse(base).endswith(("Error", "Exception", "Warning"))
    ]
    assert defined == []


def test_exceptions_import_nothing_of_fedhlcr():
    tree = ast.parse((SOURCE / "exceptions.py").read_text())
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert not [module for module in modules if (module or "").startswith("fedhlcr")]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_and_warnings_survive_pickling(kind):
    advice = Advice("Try {n_chains}.", n_chains=4)
    error = Refusal("Busy", "wait", "a detail") if kind is Refusal else kind("It failed.", advice)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.worded(option_text) == error.worded(option_text)


def test_every_category_has_an_exit_code():
    assert set(EXIT_CODES) == set(Category)
    assert len(set(EXIT_CODES.values())) == len(Category)


def test_python_and_the_shell_word_settings_in_their_own_way():
    advice = Advice("Run longer chains ({n_sweeps}), or fix {n_clusters}.", n_sweeps=48, n_clusters=None)
    error = ArgumentError("The chains disagree.", advice, options=(Setting("missing", "drop"),))
    assert str(error) == "The chains disagree. Run longer chains (n_sweeps=48), or fix n_clusters."
    in_shell = "The chains disagree. Run longer chains (--sweeps 48), or fix --clusters. Use --missing drop."
    assert error_text(error) == in_shell


COLUMN_SETTINGS = ("target", "agent", "entity")


def test_every_setting_that_is_advised_is_an_option_of_fit():
    """`Advice(text, name=value)` names an argument or attribute; the shell needs an option for it."""
    names = {
        name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Advice"
        for keyword in node.keywords
        # `**`: the error about a missing column names the settings of columns
        for name in (COLUMN_SETTINGS if keyword.arg is None else [keyword.arg])
    }
    fit = typer.main.get_command(app).commands["fit"]
    assert {option_text(name, None) for name in names} <= {option for p in fit.params for option in p.opts}
    assert {"n_sweeps", "n_chains", "max_clusters"} <= names
