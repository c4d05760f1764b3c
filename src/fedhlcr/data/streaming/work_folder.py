"""The folder in which a table larger than memory is sorted: its files, and how far the work has come.

The process may be killed at any time. Files are only appended to, or written as a whole before the state says so. The
state has the size of every file at a checkpoint; what was written later is cut off. A folder belongs to one table and
one set of settings: anything else starts again. After a restart of the machine it starts again too, because files that
were not forced to the disk may have lost their last bytes.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedhlcr._support.version import __version__
from fedhlcr.exceptions import FedHLCRError, OutputError

fcntl: ModuleType | None
try:
    import fcntl
except ModuleNotFoundError:
    # Windows has no such locks
    fcntl = None

STATE = "fedhlcr-build.json"
LOCK = "lock"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Seconds from one checkpoint to the next.
BETWEEN_CHECKPOINTS = 2.0


class WorkFolder:
    """A folder with files that only grow, and the state of the work.

    Attributes
    ----------
    path : the folder
    resumed : whether an earlier process has begun the same work
    replaced : whether the folder held other work, which was removed
    state : the state at the last checkpoint; values that JSON can hold
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self._identity = json.loads(json.dumps({"fedhlcr": __version__, "boot": _boot_id(), **identity}))
        self._last_save = -math.inf
        self.resumed = self.replaced = False
        self.state: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        with self.disk_errors():
            self._open()

    def _open(self) -> None:
        if self.path.exists() and not self._is_ours():
            raise OutputError(
                f"the folder {str(self.path)!r} is needed for temporary files, but holds something else; move it away."
            )
        self.path.mkdir(exist_ok=True)
        self._lock = (self.path / LOCK).open("a")
        if fcntl is not None:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(
                    f"another fit is using the folder {str(self.path)!r}; wait for it, or write to another file."
                ) from None
        saved = self._saved()
        if saved is not None and saved["identity"] == self._identity and self._cut_files(saved["sizes"]):
            self.resumed = True
            self.state = saved["state"]
            self._sizes = saved["sizes"]
            return
        self.replaced = saved is not None
        self.restart()

    def _is_ours(self) -> bool:
        names = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else {""}
        return STATE in names or not names - {LOCK, f"{STATE}.draft"}

    def _saved(self) -> dict[str, Any] | None:
        try:
            saved: dict[str, Any] = json.loads((self.path / STATE).read_text())
        except (FileNotFoundError, ValueError):
            return None
        return saved

    def _cut_files(self, sizes: Mapping[str, int]) -> bool:
        """Cut off what was written after the checkpoint; False if a file is not complete."""
        for name, size in sizes.items():
            path = self.path / name
            if not path.exists() or path.stat().st_size < size:
                return False
            os.truncate(path, size)
        return True

    def restart(self) -> None:
        """Begin from nothing."""
        for entry in self.path.iterdir():
            if entry.name != LOCK:
                entry.unlink()
        self.state = {}
        self._sizes = {}
        self.save()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def remove(self) -> None:
        """Remove the folder. Arrays that are mapped to its files can still be used."""
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, name: str) -> Path:
        return self.path / name

    def append(self, name: str, data: NDArray[Any]) -> None:
        """Append an array to a file; at the next checkpoint it counts."""
        # a file that the state does not know is left from a process that was killed
        with (self.path / name).open("ab" if name in self._sizes else "wb") as file:
            file.write(np.ascontiguousarray(data).data)
        self._sizes[name] = self._sizes.get(name, 0) + data.nbytes

    def size(self, name: str) -> int:
        """The bytes in a file, with those since the checkpoint."""
        return self._sizes.get(name, 0)

    def read(self, name: str, dtype: DTypeLike, first: int = 0, count: int = -1) -> NDArray[Any]:
        """Items of an appended file, from the first byte given."""
        if not self.size(name):
            return np.empty(0, dtype=dtype)
        return np.fromfile(self.path / name, dtype=dtype, count=count, offset=first)

    def forget(self, names: Sequence[str]) -> None:
        """Remove files that are no longer needed; the state must have been saved without a need for them."""
        for name in names:
            self._sizes.pop(name, None)
        self.save()
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def is_due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self._last_save > BETWEEN_CHECKPOINTS

    def save(self, **changes: Any) -> None:
        """Make a checkpoint: the state with these changes, and the files as they are now."""
        self.state |= changes
        draft = self.path / f"{STATE}.draft"
        draft.write_text(json.dumps({"identity": self._identity, "sizes": self._sizes, "state": self.state}))
        os.replace(draft, self.path / STATE)
        self._last_save = time.monotonic()

    def require_space(self, n_bytes: int) -> None:
        """Refuse, before the work, a disk without so much free space."""
        free = shutil.disk_usage(self.path).free
        if n_bytes > free:
            raise OutputError(
                f"the disk of {str(self.path)!r} has {free / 1e9:,.1f} GB free, but about {n_bytes / 1e9:,.1f} GB are "
                "needed; free some space, or write to another disk. The same command then goes on where it stopped."
            )

    @contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Turn the system's errors in writing files into OutputErrors."""
        try:
            yield
        except FedHLCRError:
            raise
        except OSError as error:
            reason = error.strerror or type(error).__name__
            cure = "check the disk, or write to another one"
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                free = shutil.disk_usage(self.path if self.path.exists() else self.path.parent).free
                reason = f"the disk is full ({free / 1e9:,.1f} GB free)"
                cure = "free some space, or use another disk"
            raise OutputError(
                f"cannot write temporary files to {str(self.path)!r}: {reason}; {cure}. The same command then goes on "
                "where it stopped."
            ) from None


def _boot_id() -> str | None:
    """What identifies the time since the machine was started; None if the system does not say."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None


def identity_of(files: Sequence[Path]) -> list[list[Any]]:
    """What shows that a table's files have not changed: their paths, sizes and times."""
    return [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]
