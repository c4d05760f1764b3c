"""The pages of the reference: one for each public class and function, made from the names that modules make public.

What all six estimators can do stands on one page, and what two of them share on the page of the first; the others link
to it. Names without a docstring are not shown.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

ESTIMATORS = (
    "HLCRRegressor",
    "FedHLCRRegressor",
    "HLCRClassifier",
    "FedHLCRClassifier",
    "HLCRCountRegressor",
    "FedHLCRCountRegressor",
)
# Modules, and the public names of each that have a page; None takes those of `__all__`.
MODULES: dict[str, tuple[str, ...] | None] = {
    "fedhlcr": None,
    "fedhlcr.datasets": None,
    "fedhlcr.plot": None,
    "fedhlcr.report": None,
    "fedhlcr.baselines": None,
    "fedhlcr.federation": None,
    "fedhlcr.engines.in_process": ("InProcessEngine",),
    "fedhlcr.engines.ray": None,
    "fedhlcr.engines.flower.client_app": ("make_app",),
    "fedhlcr.privacy.disclosure": ("DisclosureRule",),
    "fedhlcr.analysis.comparison": ("Comparison", "CountResult"),
}
# Overview pages, in the order of the navigation, and the modules that each lists.
OVERVIEWS = {
    "estimators": ("fedhlcr", "fedhlcr.analysis.comparison"),
    "datasets": ("fedhlcr.datasets",),
    "plot": ("fedhlcr.plot",),
    "report": ("fedhlcr.report",),
    "baselines": ("fedhlcr.baselines",),
    "federation": ("fedhlcr.federation", "fedhlcr.privacy.disclosure"),
    "engines": ("fedhlcr.engines.in_process", "fedhlcr.engines.ray", "fedhlcr.engines.flower.client_app"),
}
# What users call of classes that mostly serve the package itself.
SHOWN: dict[str, tuple[str, ...]] = {
    "DifferentialPrivacy": ("plan",),
    "Comparison": ("best", "candidates", "most_evident", "suggested", "to_dict", "verdict"),
    "CountResult": (),
    "Agent": ("accepted_labels", "answer", "load", "name", "posterior", "predict", "round", "save"),
    "AgentShard": (),
    "Broadcast": ("acknowledging", "from_bytes", "n_bytes"),
    "FederationSettings": (),
    "GramLayout": (),
    "Server": (
        "accept",
        "close_round",
        "forget",
        "from_bytes",
        "kept_draws",
        "model",
        "open_round",
        "stop",
        "to_bytes",
    ),
    "InProcessEngine": ("from_hierarchy",),
    "RayCluster": (),
    "DisclosureRule": (),
}
COMMON_MARK, TABLE_MARK = "<!-- what every fitted model can do -->", "<!-- pages -->"
ERRORS_MARK = "<!-- errors and warnings -->"


def public_names(module: str) -> list[str]:
    """The classes and functions of a module that have a page. Exceptions are on a page of their own."""
    names = [name for name in MODULES[module] or import_module(module).__all__ if name not in ESTIMATORS]
    first = ESTIMATORS if module == "fedhlcr" else ()
    return [name for name in (*first, *names) if _has_page(_value(module, name))]


def page_of(module: str, name: str) -> str:
    return f"reference/{module}.{name}.md"


def pages() -> dict[str, str]:
    """The Markdown of each generated page, by its path below docs/."""
    return {page_of(module, name): _page(module, name) for module in MODULES for name in public_names(module)}


def navigation(overview: str) -> list[dict[str, str]]:
    """The pages below an overview: title and path of each."""
    return [{name: page_of(module, name)} for module in OVERVIEWS[overview] for name in public_names(module)]


def fill_in(markdown: str, overview: str) -> str:
    """An overview, the common page or that of errors, with its names in place of the mark."""
    if ERRORS_MARK in markdown:
        return markdown.replace(ERRORS_MARK, "\n".join(["| | also a | |", "|---|---|---|", *_errors()]))
    if TABLE_MARK in markdown:
        return markdown.replace(TABLE_MARK, "\n".join(["| | |", "|---|---|", *_rows(OVERVIEWS[overview])]))
    return markdown.replace(COMMON_MARK, "\n".join(_method(ESTIMATORS[0], name) for name in _common()))


def members(kind: type) -> dict[str, str]:
    """What users call of a class, and its text: documented methods and properties of our own.

    Attributes that the text of the first estimator describes are not among them.
    """
    described = inspect.getdoc(_value("fedhlcr", ESTIMATORS[0])) or "" if kind.__name__ in ESTIMATORS else ""
    found = {}
    for name in SHOWN.get(kind.__name__, tuple(dir(kind))):
        home = next((one for one in kind.__mro__ if name in vars(one)), object)
        value = vars(home).get(name)
        words = inspect.getdoc(value) or ""
        is_ours = home.__module__.startswith("fedhlcr") and not type(value).__module__.startswith("sklearn")
        is_member = callable(getattr(value, "__func__", value)) or isinstance(value, property)
        is_described = isinstance(value, property) and name in described
        if is_ours and is_member and words and not (name.startswith("_") or is_described):
            found[name] = words
    return found


def _has_page(value: Any) -> bool:
    is_exception = inspect.isclass(value) and issubclass(value, BaseException)
    return (inspect.isclass(value) or inspect.isfunction(value)) and not is_exception and bool(inspect.getdoc(value))


def _rows(modules: tuple[str, ...]) -> Iterator[str]:
    for module in modules:
        for name in public_names(module):
            path = page_of(module, name).removeprefix("reference/")
            words = (inspect.getdoc(_value(module, name)) or "").partition("\n\n")[0]
            yield f"| [`{name}`]({path}) | {' '.join(words.split())} |"


def _errors() -> Iterator[str]:
    module = import_module("fedhlcr.exceptions")
    for name, kind in vars(module).items():
        if inspect.isclass(kind) and issubclass(kind, module.FedHLCRError | module.FedHLCRWarning):
            bases = [f"`{base.__name__}`" for base in kind.__bases__ if base.__module__ == "builtins"]
            words = (inspect.getdoc(kind) or "").partition("\n\n")[0]
            yield f"| `{name}` | {', '.join(bases)} | {' '.join(words.split())} |"


def _common() -> dict[str, str]:
    """What all estimators share: the same definition, or the same words."""
    first, *others = (members(_value("fedhlcr", name)) for name in ESTIMATORS)
    return {name: words for name, words in first.items() if all(other.get(name) == words for other in others)}


def _page(module: str, name: str) -> str:
    """The page of a name. What an earlier class of the module has in the same words is a link there."""
    value = _value(module, name)
    # a function may have the name of its module, which griffe would take instead
    path = f"{value.__module__}.{name}" if f"{module}.{name}" in sys.modules else f"{module}.{name}"
    if not inspect.isclass(value):
        return _directive(path, 1, f"{module}.{name}")
    names = public_names(module)
    earlier = {
        one: members(_value(module, one)) for one in names[: names.index(name)] if inspect.isclass(_value(module, one))
    }
    common = _common() if name in ESTIMATORS else {}
    own, elsewhere = [], []
    for member, words in members(value).items():
        twin = next((one for one, known in earlier.items() if known.get(member) == words), None)
        if member in common:
            elsewhere.append(f"[`{member}`](fitted-models.md#fedhlcr.{ESTIMATORS[0]}.{member})")
        elif twin is not None:
            elsewhere.append(f"[`{member}`]({module}.{twin}.md#{module}.{twin}.{member})")
        else:
            own.append(member)
    chosen = {"inherited_members": str(own), "members": str(own)} if own else {"members": "false"}
    text = _directive(path, 1, f"{module}.{name}", **chosen)
    if not elsewhere:
        return text
    is_later = name in ESTIMATORS[1:]
    attributes = f"; attributes as in [`{ESTIMATORS[0]}`](fedhlcr.{ESTIMATORS[0]}.md)" if is_later else ""
    return f"{text}\n## Also has\n\n{', '.join(elsewhere)}{attributes}.\n"


def _value(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _method(estimator: str, name: str) -> str:
    return _directive(f"fedhlcr.{estimator}.{name}", 2, name)


def _directive(path: str, level: int, heading: str, **options: str) -> str:
    settings = {"heading_level": level, "heading": heading, "toc_label": heading, **options}
    lines = [f"      {name}: {value}" for name, value in settings.items()]
    return "\n".join([f"::: {path}", "    options:", *lines, ""])
