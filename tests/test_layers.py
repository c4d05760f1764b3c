"""Imports point inward: each module imports its own layer's package and inner layers only, and there is no cycle.

Imports inside functions and for type checkers count too: a lazy import hides a cycle, it does not remove it.
"""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import fedhlcr

SOURCE = Path(fedhlcr.__file__).parent
ROOT = "fedhlcr"

# From the inside out. A name stands for a module or for all modules of a package; the longest name that fits decides.
# Names in one layer know nothing of each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("exceptions",),
    ("_support", "settings"),
    ("kernels", "storage"),
    ("privacy",),
    ("data",),
    ("model", "datasets"),
    ("samplers", "reference", "reference_logits"),
    ("posterior",),
    ("federation",),
    # a model file holds draws and, of a federation, its history; what a model says of itself needs no estimator
    ("engines", "storage.model_file", "analysis"),
    ("storage.model_reader", "storage.model_writer"),
    # audits run whole federations and attack what their servers see
    ("privacy.audit",),
    ("estimators",),
    # numbers of clusters are compared by fitting estimators
    ("analysis.selection", "baselines"),
    ("figures",),
    ("plot", "report"),
    # the package itself re-exports the public names, and commands use them; the Flower demo is such a command
    (ROOT,),
    ("demo", "engines.flower.demo"),
    ("cli",),
)


def module_names() -> dict[str, Path]:
    """Every module of the package by its name below `fedhlcr`; the package itself is `fedhlcr`."""
    names = {}
    for path in SOURCE.rglob("*.py"):
        parts = [part for part in path.relative_to(SOURCE).with_suffix("").parts if part != "__init__"]
        names[".".join(parts) or ROOT] = path
    return names


MODULES = module_names()


def imported(module: str, source: str, known: set[str]) -> set[str]:
    """The modules of fedhlcr that a module's source imports anywhere, by their names below `fedhlcr`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = absolute_name(module, node)
            below = {f"{origin}.{alias.name}" for alias in node.names}
            submodules = {name for name in below if name.removeprefix(f"{ROOT}.") in known}
            found |= submodules | ({origin} if submodules != below else set())
    ours = {name for name in found if name.split(".")[0] == ROOT}
    return {name.removeprefix(f"{ROOT}.") for name in ours}


def absolute_name(module: str, node: ast.ImportFrom) -> str:
    """The module that `from … import` names; dots count from the module's own package."""
    if not node.level:
        return node.module or ""
    is_package = module == ROOT or MODULES.get(module, Path()).name == "__init__.py"
    parts = [ROOT, *(module.split(".") if module != ROOT else [])]
    parents = parts[: len(parts) - node.level + is_package]
    return ".".join([*parents, *([node.module] if node.module else [])])


def place(module: str) -> tuple[int, str]:
    """The layer of a module, and the name in `LAYERS` that puts it there."""
    fitting = [
        (len(name), layer, name)
        for layer, names in enumerate(LAYERS)
        for name in names
        if f"{module}.".startswith(f"{name}.")
    ]
    assert fitting, f"{module} is in no layer: add it, or its package, to LAYERS"
    _, layer, name = max(fitting)
    return layer, name


def upward(module: str, source: str) -> list[str]:
    """Imports that point outward or sideways."""
    layer, name = place(module)
    targets = ((target, *place(target)) for target in imported(module, source, set(MODULES)))
    return sorted(
        f"{module} → {target}" for target, other, own in targets if other > layer or (other == layer and own != name)
    )


@pytest.mark.parametrize("module", sorted(MODULES))
def test_module_imports_inward_only(module):
    assert upward(module, MODULES[module].read_text(encoding="utf-8")) == []


def graph_of(sources: dict[str, str]) -> dict[str, set[str]]:
    # a module need not import itself, and a package's __init__ re-exports its own modules
    return {module: imported(module, source, set(sources)) - {module} for module, source in sources.items()}


def test_no_modules_import_each_other_in_a_circle():
    TopologicalSorter(graph_of({name: path.read_text(encoding="utf-8") for name, path in MODULES.items()})).prepare()


@pytest.mark.parametrize(
    ("module", "planted"),
    [
        ("model.gram", "from fedhlcr.federation.server import Server"),
        ("samplers.chain", "from fedhlcr import posterior"),
        ("storage.codec", "def late():\n    from fedhlcr.storage.model_file import to_record"),
        ("federation.run", "from fedhlcr.engines import in_process"),
        ("kernels.labels", "import fedhlcr.storage.codec"),
        ("model.gram", "from ..federation.server import Server"),
        ("model.gram", "from ..federation import server"),
        ("model.gram", "from .. import federation"),
        ("estimators.base", "if TYPE_CHECKING:\n    from fedhlcr.analysis.selection import compare_cluster_counts"),
        ("plot._of_models", "from fedhlcr.report.page import render_report"),
        ("report.page", "from fedhlcr import HLCRRegressor"),
    ],
)
def test_planted_upward_import_is_found(module, planted):
    assert len(upward(module, planted)) == 1


def test_inward_imports_are_allowed():
    assert upward("federation.run", "import numpy\nfrom fedhlcr.model.gram import GramLayout") == []
    assert upward("federation.run", "from fedhlcr.federation.server import Server") == []


def test_planted_circle_is_found():
    circle = {"model.a": "def f():\n    from fedhlcr.model import b", "model.b": "from fedhlcr.model.a import f"}
    with pytest.raises(CycleError):
        TopologicalSorter(graph_of(circle)).prepare()


def test_no_module_is_imported_by_a_computed_name():
    """Such an import would be invisible here. The package itself imports its public names when they are first used, and
    `kernels.ahead` those of its own package that it compiles.
    """
    users = {name for name, path in MODULES.items() if "import_module" in path.read_text(encoding="utf-8")}
    assert users == {ROOT, "kernels.ahead"}
