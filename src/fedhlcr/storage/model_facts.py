"""What a model file says of itself, read without the model. This module imports nothing that takes long to import."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fedhlcr.exceptions import CodecError, ModelFileError
from fedhlcr.storage import codec, pages
from fedhlcr.storage.atomic import PathLike

KIND = "model"
VERSION = 2
# The version of files that are single records, as release 0.1 wrote them.
RECORD_VERSION = 1
FACTS = "facts"
# Prefix of the fields that are private to the agents.
PRIVATE = "private."
# The parts of the facts, and of the description among them.
PARTS: dict[str, type] = {"description": dict, "facts": dict}
DESCRIPTION: dict[str, type] = {
    "facts": list,
    "header": list,
    "rows": list,
    "notes": list,
    "sentences": list,
    "more": int,
}


@contextmanager
def opened(path: PathLike) -> Iterator[BinaryIO]:
    """A model file, opened. Whatever goes wrong in the block becomes a ModelFileError that names the file."""
    path = Path(path)
    try:
        if not path.is_file():
            cure = "it is a folder or a device" if path.exists() else "it does not exist; check the path"
            raise ModelFileError(f"no model can be read from {path.name or str(path)!r}: {cure}.")
        with path.open("rb") as file:
            yield file
    except CodecError as error:
        raise ModelFileError(f"no model can be read from {path.name!r}: {error}") from None
    except OSError as error:
        raise ModelFileError(f"no model can be read from {path.name!r}: {error.strerror}.") from None
    except MemoryError:
        raise ModelFileError(f"no model can be read from {path.name!r}: it does not fit into memory.") from None


def open_pages(file: BinaryIO) -> pages.PagedRecord | None:
    """The record in a model file that is written in pages; None if it is written otherwise."""
    start = file.read(len(codec.MAGIC) + 2)
    # a huge file of another format is not read
    codec.require_start(start)
    file.seek(0)
    return pages.open_record(file, KIND, VERSION) if pages.is_paged(start) else None


def read_facts(path: PathLike) -> dict[str, Any] | None:
    """What `analysis.facts` said of the model when it was saved: `description` and `facts`.

    None if the file does not say it; then the model must be loaded. Of a large file, only the pages that are read are
    checked.
    """
    with opened(path) as file:
        record = open_pages(file)
        if record is None:
            return None
        if not record.is_mapped:
            record.verify()
        return _checked(record[FACTS]) if FACTS in record else None


def _checked(text: Any) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    fits = _has(found, PARTS) and _has(found["description"], DESCRIPTION) and _has(found["facts"], {"provenance": dict})
    return found if fits and _is_shown(found["description"]) else None


def _has(value: Any, parts: dict[str, type]) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in parts.items())


def _is_shown(description: dict[str, Any]) -> bool:
    """Whether all texts of a description are where they belong."""
    facts = description["facts"]
    width = len(description["header"])
    lists = (description["header"], description["sentences"], *description["rows"])
    return (
        bool(facts)
        and all(isinstance(fact, list) and len(fact) == 2 and isinstance(fact[0], str) for fact in facts)
        and all(map(_is_words, [*(fact[1] for fact in facts), *description["notes"]]))
        and all(isinstance(texts, list) and all(isinstance(text, str) for text in texts) for texts in lists)
        and all(len(row) == width for row in description["rows"])
    )


def _is_words(value: Any) -> bool:
    return isinstance(value, str) or _has(value, {"text": str, "settings": dict})
