"""Write a fitted estimator to a file."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from fedhlcr.estimators.base import model_to_save
from fedhlcr.storage import model_writer


def to_bytes(estimator: Any, *, public: bool = False) -> bytes:
    """The bytes of the file that `save` writes."""
    file = io.BytesIO()
    write(estimator, file, public=public)
    return file.getvalue()


def write(estimator: Any, file: BinaryIO, *, public: bool = False) -> None:
    """Write a fitted estimator to an open file, page by page."""
    model_writer.write(model_to_save(estimator), file, public=public)
