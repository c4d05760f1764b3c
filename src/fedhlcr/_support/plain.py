"""Values of any library as those that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: numpy's values become Python's, NaN and infinity become null."""
    match value:
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case None | bool() | int() | float() | str():
            return value
    # a value of numpy, or of another type
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)
