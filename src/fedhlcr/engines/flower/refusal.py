"""Why a node does not take part: what the server is told, and what only the node's own log says."""

from __future__ import annotations

import traceback

# Of a node whose table has lost an agent that it said it had.
UNKNOWN_AGENT = "UnknownAgent"


class Refusal(Exception):  # noqa: N818
    """A node cannot do as it was asked.

    Attributes
    ----------
    kind : in a word; told to the server
    cure : what to do about it, without anything of the node's data; told to the server
    detail : more, for the node's own log
    """

    def __init__(self, kind: str, cure: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {cure}")
        self.kind, self.cure, self.detail = kind, cure, detail

    @classmethod
    def of(cls, error: Exception) -> Refusal:
        """Of any error; its own words stay unsaid, for they may quote the data."""
        if isinstance(error, cls):
            return error
        places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-3:]]
        cure = "an error nobody thought of, at the node; its own log names the place in the code"
        return cls(type(error).__name__, cure, "at " + ", ".join(places))
