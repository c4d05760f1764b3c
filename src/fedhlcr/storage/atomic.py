"""Files that survive a crash: written whole or not at all, and the one before is kept.

A file is written beside its place, forced to the disk, and renamed into it; what was there becomes
`<name>.previous`. Whenever the process is killed, one of the two is whole.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from fedhlcr.exceptions import StorageError
from fedhlcr.storage.codec import CodecError, Record, decode

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]


def previous_of(path: PathLike) -> Path:
    return Path(f"{os.fspath(path)}.previous")


def damaged_of(path: PathLike) -> Path:
    return Path(f"{os.fspath(path)}.damaged")


def write_atomically(path: PathLike, data: bytes, *, keep_previous: bool = True, private: bool = False) -> None:
    """Put `data` at `path`. Without `keep_previous` nothing of what was there before is left.

    What is `private` can be read by its owner only.
    """
    path = Path(path)
    # one name: what a killed process left is overwritten by the next
    draft = path.with_name(f"{path.name}.draft")
    _write_draft(draft, data, private=private)
    if keep_previous and path.exists():
        os.replace(path, previous_of(path))
    os.replace(draft, path)
    if not keep_previous:
        for old in (previous_of(path), damaged_of(path)):
            old.unlink(missing_ok=True)
    _sync_folder(path.parent)


def replace_file(path: PathLike, data: bytes, *, private: bool = False) -> None:
    """Put `data` at a path of the user's, as `replace_files` does."""
    replace_files({path: data}, private=private)


def replace_files(files: Mapping[PathLike, bytes], *, private: bool = False) -> None:
    """Put data at paths of the user's: all of them whole, or none; and touch nothing beside them.

    A link leads to where it points, and a device or a pipe is written to as it is.
    """
    drafts: list[tuple[PathLike, Path, Path]] = []
    try:
        for given, data in files.items():
            path = Path(os.path.realpath(given))
            with _blamed_on(given):
                if path.exists() and not path.is_file():
                    path.write_bytes(data)
                    continue
                # a name of its own: others may write to the same place, and a long name has no room for an ending
                draft = path.with_name(f".{secrets.token_hex(8)}.draft")
                drafts.append((given, draft, path))
                _write_draft(draft, data, private=private)
        for given, draft, path in drafts:
            with _blamed_on(given):
                os.replace(draft, path)
    finally:
        for _, draft, _ in drafts:
            # where there is no folder, there is no draft
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    for folder in {path.parent for _, _, path in drafts}:
        _sync_folder(folder)


@contextmanager
def _blamed_on(path: PathLike) -> Iterator[None]:
    """Errors are of the path the user knows, not of a draft."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _write_draft(draft: Path, data: bytes, *, private: bool) -> None:
    draft.unlink(missing_ok=True)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        # on a full disk, what could be written is of no use, and in the way
        draft.unlink(missing_ok=True)
        raise


def read_newest(path: PathLike, kind: str, version: int) -> Record:
    """The record at `path`; if that is missing, truncated or altered, the one before it, which is logged.

    A damaged file is then set aside as `<name>.damaged`.
    """
    failures = []
    for candidate in (Path(path), previous_of(path)):
        try:
            record = decode(candidate.read_bytes(), kind, version)
        except FileNotFoundError:
            failures.append(f"{candidate.name} does not exist")
        except CodecError as error:
            failures.append(f"{candidate.name}: {error}")
        else:
            if failures:
                logger.warning("%s; the previous one is used.", failures[0])
                if Path(path).exists():
                    # out of the way of the next write, which would put it in the place of the whole one
                    os.replace(path, damaged_of(path))
            return record
    told = f"there is nothing to go on from at {os.fspath(path)!r}; begin a new run"
    raise StorageError(f"{told}: {'; '.join(failures)}")


def _sync_folder(folder: Path) -> None:
    """Force the renames to the disk, where the system can: not every one can, and the file is whole without it."""
    if hasattr(os, "O_DIRECTORY"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
