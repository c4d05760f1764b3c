"""Write files so that a crash cannot damage them: each is written completely or not at all.

`write_atomically` is for files that fedhlcr owns, such as checkpoints: it writes a draft beside the file, forces it to
the disk and renames it; the old file is kept as `<name>.previous`. Whenever the process is killed, one of the two is
complete. `replace_files` is for paths that the user names: it leaves no other file beside them. If the process is
killed meanwhile, the next write to the same folder removes its draft.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from fedhlcr.exceptions import CodecError, OutputError, StorageError
from fedhlcr.storage.codec import Record, decode

logger = logging.getLogger(__name__)

fcntl: ModuleType | None
try:
    import fcntl
except ModuleNotFoundError:
    # Windows has no such locks
    fcntl = None

PathLike = str | os.PathLike[str]
# What a file is to hold: bytes, or a function that writes them, so that they are never all in memory.
Content = bytes | Callable[[BinaryIO], None]
DRAFT_PREFIX = ".fedhlcr-"
DRAFT_SUFFIX = ".draft"


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


def replace_file(path: PathLike, data: Content, *, private: bool = False) -> None:
    """Write one file that the user named; see `replace_files`."""
    replace_files({path: data}, private=private)


def replace_files(files: Mapping[PathLike, Content], *, private: bool = False) -> None:
    """Write files that the user named, all of them completely or none, and touch no other file.

    A symbolic link is followed. A device or a pipe is written to directly. Drafts that killed processes left in the
    same folders are removed.
    """
    drafts: list[tuple[PathLike, Path, Path]] = []
    with ExitStack() as until_renamed:
        for given, data in files.items():
            path = Path(os.path.realpath(given))
            with _blamed_on(given):
                if path.exists() and not path.is_file():
                    with path.open("wb") as device:
                        _write(device, data)
                    continue
                _remove_stale_drafts(path.parent)
                draft = until_renamed.enter_context(_draft_of(path, data, private=private))
                drafts.append((given, draft, path))
        for given, draft, path in drafts:
            with _blamed_on(given):
                os.replace(draft, path)
    for folder in {path.parent for _, _, path in drafts}:
        _sync_folder(folder)


@contextmanager
def _blamed_on(path: PathLike) -> Iterator[None]:
    """Make errors name the path that the user gave, not the draft's."""
    try:
        yield
    except OutputError:
        # about another file, such as a temporary one
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


@contextmanager
def _draft_of(path: Path, data: Content, *, private: bool) -> Iterator[Path]:
    """Write a draft with a random name, because other processes may write the same file at the same time.

    It has the permissions of the file it replaces, unless it is private.

    The draft is locked until the block ends. The system releases the lock of a process that is killed, so a draft
    without a lock is stale. At the end the draft is removed, unless the block renamed it.
    """
    draft, descriptor = _new_draft(path.parent, private=private)
    with open(descriptor, "wb") as file:
        try:
            if path.exists() and not private and fcntl is not None:
                os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
            _fill(file, data)
            if fcntl is None:
                # Windows does not rename open files
                file.close()
            yield draft
        finally:
            draft.unlink(missing_ok=True)


def _new_draft(folder: Path, *, private: bool) -> tuple[Path, int]:
    """Create an empty draft and lock it."""
    while True:
        draft = folder / f"{DRAFT_PREFIX}{secrets.token_hex(8)}{DRAFT_SUFFIX}"
        descriptor = _create(draft, private=private)
        if fcntl is None:
            return draft, descriptor
        with suppress(OSError):
            # some network file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return draft, descriptor
        # another process removed it as stale before it was locked
        os.close(descriptor)


def _remove_stale_drafts(folder: Path) -> None:
    """Remove the drafts of processes that were killed: those that nobody has locked."""
    if fcntl is None:
        return
    for draft in folder.glob(f"{DRAFT_PREFIX}*{DRAFT_SUFFIX}"):
        # it may belong to another user, or be renamed meanwhile
        with suppress(OSError), draft.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            draft.unlink()


def _write_draft(draft: Path, data: bytes, *, private: bool) -> None:
    draft.unlink(missing_ok=True)
    try:
        with open(_create(draft, private=private), "wb") as file:
            _fill(file, data)
    except BaseException:
        # on a full disk a partial draft is useless and takes up space
        draft.unlink(missing_ok=True)
        raise


def _create(path: Path, *, private: bool) -> int:
    """Create a file. Its permissions are those of other files of the user, or, if it is private, the owner's alone."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)


def _write(file: BinaryIO, data: Content) -> None:
    if callable(data):
        data(file)
    else:
        file.write(data)


def _fill(file: BinaryIO, data: Content) -> None:
    """Write the data and force it to the disk."""
    _write(file, data)
    file.flush()
    os.fsync(file.fileno())


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
