"""Our docstrings often say in one line what a parameter is: `agent : the agent's id`. numpydoc takes that for a type.

This extension of griffe makes it the description, unless it is a type with a description of its own below.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

# A section's title and rule, and its lines up to the next title or the end.
SECTION = re.compile(r"(^(?:Parameters|Attributes)\n-+\n)(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", re.DOTALL | re.MULTILINE)
# A name or several, what they are, and deeper lines below.
ENTRY = re.compile(r"^(\w[\w, ]*?) : (.+)((?:\n[ \t]+\S.*)*)$", re.MULTILINE)
TYPE = re.compile(
    r"^(int|float|bool|str|array|ndarrays?|structured|path|tuple|list|dict|\{|[A-Z]\w+\b)|default=|optional$"
)


class OneLineDescriptions(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = SECTION.sub(
                lambda found: found[1] + ENTRY.sub(_describe, found[2]), obj.docstring.value
            )


def _describe(entry: re.Match[str]) -> str:
    names, words, more = entry.groups()
    return entry[0] if more and TYPE.search(words) else f"{names}\n    {words}{more}"
