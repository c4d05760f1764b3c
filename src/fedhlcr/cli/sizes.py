"""Which tables are too large to be read at once."""

from __future__ import annotations

from fedhlcr.cli.shell import Shell
from fedhlcr.data.table_files import TableFile

# Tables that would take more memory are read in batches, unless the user chooses.
LARGE_TABLE = 1 << 28


def is_streamed(file: TableFile, chosen: bool | None) -> bool:
    """Return whether to read a table in batches: as the user chose, otherwise if it is large."""
    return file.pieces is not None and (file.bytes_in_memory > LARGE_TABLE if chosen is None else chosen)


def note_on_memory(file: TableFile, shell: Shell) -> None:
    """Print a note if a command that reads tables at once gets a large one."""
    if (size := file.bytes_in_memory) > LARGE_TABLE:
        shell.note(f"{file.name!r} is read at once and takes about {size / 1e9:.1f} GB of memory")
