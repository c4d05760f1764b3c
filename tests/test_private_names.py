"""No module reads the private names (`_name`) of another module."""

import ast
from pathlib import Path

import pytest

import fedhlcr

SOURCE = Path(fedhlcr.__file__).parent
# What namedtuples offer to everyone in spite of the underscore.
NAMEDTUPLE = {"_replace", "_asdict", "_fields", "_make"}
# Private names of other packages that have no public counterpart.
THIRD_PARTY_ATTRIBUTES = {
    *("sys._getframe", "model._validate_params", "estimator._validate_params"),
    # Flower has no other way to see how large a reply is before it is read
    *("getattr(grid, '_runtime_client', None)", "getattr(runtime, '_client', None)"),
    # numba keeps a kernel by the time of its own file only; there is no other way to name the times of all
    *("getattr(getattr(kernel, '_cache', None), '_cache_file', None)", "getattr(kernel, '_cache', None)"),
    "kept._source_stamp",
    # numba has no public list of the places where it looks for kernels
    *("caching.FunctionCache._impl_class", "caching.FunctionCache._impl_class._locator_classes"),
}
THIRD_PARTY_IMPORTS = {"sklearn.base._fit_context"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMEDTUPLE


def class_members(tree: ast.AST) -> set[str]:
    """Names that the classes of a file define: methods, class attributes, and what methods assign to `self`."""
    names: set[str] = set()
    for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in owner.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        assigned = (node for node in ast.walk(owner) if isinstance(node, ast.Attribute))
        names |= {node.attr for node in assigned if isinstance(node.ctx, ast.Store) and is_own(node.value)}
    return names


def is_own(value: ast.expr) -> bool:
    """Whether an expression is `self`, `cls` or `super()`."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def violations(source: str) -> list[str]:
    """Reads of private names that belong to another file, as "line: name"."""
    tree = ast.parse(source)
    members = class_members(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            if node.attr not in members and ast.unparse(node) not in THIRD_PARTY_ATTRIBUTES:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom):
            imported = (f"{node.module}.{alias.name}" for alias in node.names if is_private(alias.name))
            found += [f"{node.lineno}: {name}" for name in imported if name not in THIRD_PARTY_IMPORTS | PACKAGES]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            owner, name = node.args[:2]
            is_foreign = isinstance(name, ast.Constant) and is_private(name.value) and not is_own(owner)
            if is_foreign and ast.unparse(node) not in THIRD_PARTY_ATTRIBUTES:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


# Packages with an underscore are private to fedhlcr as a whole, not to one module.
PACKAGES = {f"fedhlcr.{folder.name}" for folder in SOURCE.glob("_*") if (folder / "__init__.py").exists()}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_module_reads_no_private_name_of_another(path):
    assert violations(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "planted",
    [
        "def report(model):\n    return model._alignment",
        "def _alignment(model):\n    return model._alignment",
        "def report(model):\n    model.posterior._draws = None",
        "from fedhlcr.storage.codec import _checksum",
        "from fedhlcr.storage import codec\ncodec._checksum(b'')",
        "def report(model):\n    return getattr(model, '_alignment')",
    ],
)
def test_planted_violation_is_found(planted):
    assert len(violations(planted)) == 1


@pytest.mark.parametrize(
    "allowed",
    [
        "class A:\n    def f(self):\n        return self._of_a_base_class",
        "class A:\n    def __init__(self):\n        self._x = 1\n    def __eq__(self, other):\n        return other._x",
        "class A:\n    @classmethod\n    def read(cls):\n        new = cls()\n        new._enter()\n"
        "    def _enter(self): ...",
        "def f(moments):\n    return moments._replace(mean=0)",
        "from fedhlcr import _support",
    ],
)
def test_own_private_names_are_allowed(allowed):
    assert violations(allowed) == []
