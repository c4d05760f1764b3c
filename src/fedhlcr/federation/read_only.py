"""A base for messages: whoever holds one cannot change its arrays."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from fedhlcr.model.schema import Globals


class ReadOnly:
    """A dataclass that derives from this makes its arrays read-only when it is constructed."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            object.__setattr__(self, name, _read_only(value))


def _read_only(value: Any) -> Any:
    """The same value with views of its arrays that cannot be written to."""
    match value:
        case np.ndarray():
            view = value.view()
            view.flags.writeable = False
            return view
        case dict():
            return {name: _read_only(part) for name, part in value.items()}
        case Globals():
            return replace(value, **{f.name: _read_only(getattr(value, f.name)) for f in fields(value)})
        case _:
            return value
