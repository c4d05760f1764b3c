"""Write files so that a crash cannot damage them: each is written completely or not at all.

`write_atomically` is for files that fedhlcr owns, such as checkpoints: it writes a draft beside the file, forces it to
the disk and renames it; the old file is kept as `<name>.previous`. Whenever the process is killed, one of the two is
complete. `replace_files` is for paths that the user names: it leaves no other file beside them.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from fedhlcr.exceptions import CodecError, StorageError
from fedhlcr.storage.codec import Record, decode

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]


def previous_of(path: PathLike) -> Path:
    return Path(f"{os.fspath(path)}.previous")


def damaged_of(path: PathLike) -> Path:
    return Path(f"{os.fspath(path)}.damaged")


def write_atomically(path: PathLike, data: bytes, *, keep_previous: bool = True, private: bool = False) -> None:
    """Write `data` to `path`.

    Parameters
    ----------
    keep_previous : keep the old file as `<name>.previous`; otherwise delete it and every older copy
    private : let only the file's owner read it
    """
    path = Path(path)
    # always the same name, so that the next write overwrites what a killed process left
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
    """Write one file that the user named; see `replace_files`."""
    replace_files({path: data}, private=private)


def replace_files(files: Mapping[PathLike, bytes], *, private: bool = False) -> None:
    """Write files that the user named, all of them completely or none, and touch no other file.

    A symbolic link is followed. A device or a pipe is written to directly.
    """
    drafts: list[tuple[PathLike, Path, Path]] = []
    try:
        for given, data in files.items():
            path = Path(os.path.realpath(given))
            with _blamed_on(given):
                if path.exists() and not path.is_file():
                    path.write_bytes(data)
                    continue
                # a random name: another process may write the same file, and a long name leaves no room for a suffix
                draft = path.with_name(f".{secrets.token_hex(8)}.draft")
                drafts.append((given, draft, path))
                _write_draft(draft, data, private=private)
        for given, draft, path in drafts:
            with _blamed_on(given):
                os.replace(draft, path)
    finally:
        for _, draft, _ in drafts:
            # if the folder does not exist, neither does the draft
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    for folder in {path.parent for _, _, path in drafts}:
        _sync_folder(folder)


@contextmanager
def _blamed_on(path: PathLike) -> Iterator[None]:
    """Make errors name the path that the user gave, not the draft's."""
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
        # on a full disk a partial draft is useless and takes up space
        draft.unlink(missing_ok=True)
        raise


def read_newest(path: PathLike, kind: str, version: int) -> Record:
    """Return the record at `path`, or, if that file is missing or damaged, the one in `<name>.previous`.

    The fallback is logged, and the damaged file is renamed to `<name>.damaged`.
    """
    failures = []
    for candidate in (Path(path), previous_of(path)):
        try:
            record = decode(candidate.read_bytes(), kind, version)
        except FileNotFoundError:
            failures.append(f"{candidate.name} does not exist")
        except CodecError as error:
            failures.append(f"{candidate.name}: {str(error).rstrip('.')}")
        else:
            if failures:
                logger.warning("%s; using the previous file.", failures[0])
                if Path(path).exists():
                    # otherwise the next write would keep it as the previous file, in place of the intact one
                    os.replace(path, damaged_of(path))
            return record
    raise StorageError(f"no intact file at {os.fspath(path)!r} ({'; '.join(failures)}); start a new run.")


def _sync_folder(folder: Path) -> None:
    """Force renames to the disk. Not every system can; the files are complete without it."""
    if hasattr(os, "O_DIRECTORY"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
