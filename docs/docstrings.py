"""An extension of griffe for our docstrings, which often describe a parameter in one line: `agent : the agent's id`.

numpydoc takes such a line for a type. The extension makes it the description, unless it is a type with a description
below. Each returned value becomes one line, which templates/ shows as a list, and names of internal
types become what a user would pass. Of the estimators the docstring is that of the imported class: parts of it are
filled in at import.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe
from reference_pages import ESTIMATORS

import fedhlcr

# A section's title, its underline, and its lines up to the next title or the end.
SECTION = re.compile(r"(^(?:Parameters|Attributes)\n-+\n)(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", re.DOTALL | re.MULTILINE)
# One or several names, their description, and indented lines below.
ENTRY = re.compile(r"^(\w[\w, ]*?) : (.+)((?:\n[ \t]+\S.*)*)$", re.MULTILINE)
TYPE = re.compile(
    r"^(int|float|bool|str|array|ndarrays?|structured|path|tuple|list|dict|\{|[A-Z]\w+\b)|default=|optional$"
)
RETURNS = re.compile(r"(^Returns\n-+\n)(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", re.DOTALL | re.MULTILINE)
RETURNED = re.compile(r"^(?:(\w[\w, ]*?) : )?(\S.*)((?:\n[ \t]+\S.*)*)$", re.MULTILINE)
# Returned values that need a whole sentence.
SENTENCES = {
    "self": "The estimator itself, now fitted.",
    "HLCRRegressor": "A fitted model of the same class; this one stays as it was.",
}
TYPES = {"HierarchicalPredictor": "HLCRRegressor or FedHLCRRegressor", "PathLike": "str or path"}


class OneLineDescriptions(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            if isinstance(obj, griffe.Class) and obj.name in ESTIMATORS:
                obj.docstring.value = inspect.getdoc(getattr(fedhlcr, obj.name)) or ""
            obj.docstring.value = SECTION.sub(
                lambda found: found[1] + ENTRY.sub(_describe, found[2]),
                obj.docstring.value,
            )
            obj.docstring.value = RETURNS.sub(
                lambda found: found[1] + RETURNED.sub(_returned_value, found[2]), obj.docstring.value
            )
        if isinstance(obj, griffe.Function):
            for parameter in obj.parameters:
                parameter.annotation = TYPES.get(str(parameter.annotation), parameter.annotation)


def _describe(entry: re.Match[str]) -> str:
    names, words, more = entry.groups()
    is_type = words in TYPES.values() or (more and TYPE.search(words))
    return entry[0] if is_type else f"{names}\n    {words}{more}"


def _returned_value(entry: re.Match[str]) -> str:
    names, words, more = entry.groups()
    if names:
        text = ", ".join(f"`{name.strip()}`" for name in names.split(",")) + f": {words}"
    else:
        text = SENTENCES.get(words, f"`{words}`" if re.fullmatch(r"\w+", words) else words)
    return f":\n    {text}" + (("." if names else ":") + more if more else "")
