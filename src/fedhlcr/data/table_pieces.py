"""Tables on disk, piece by piece: the same rows in the same order and of the same types as when read at once.

Parquet is read file by file, a few row groups' columns at a time, which needs the least memory. What depends on whole
columns, such as the common type of a folder's files or how numbers are written as texts, is found out first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from fedhlcr.data.columns import NumberTexts, as_numbers, as_texts, decoded, validated
from fedhlcr.data.csv_files import csv_pieces
from fedhlcr.exceptions import FileError

# Rows of a piece, and about the most bytes.
PIECE_ROWS = 1 << 16
PIECE_BYTES = 1 << 24
# A piece, and how far the table has been read: in rows, or in bytes if its number of rows is not known.
Piece = tuple[pa.Table, int]


class PieceSource(ABC):
    """A table that can be read piece by piece.

    Attributes
    ----------
    name : of the table, for messages
    path : of its file, or of a folder of files
    """

    name: str
    path: Path

    @property
    @abstractmethod
    def files(self) -> tuple[Path, ...]:
        """The table's files."""

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """The number of rows; None if it is not known before all have been read."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The position of the last piece: the number of rows, or of bytes if that is not known."""

    @abstractmethod
    def raw(self, columns: Sequence[str], texts: Collection[str], first: int) -> Iterator[Piece]:
        """Yield pieces of the columns, of which some are texts, from row `first` onwards."""

    def read(self, columns: Sequence[str], texts: Collection[str], first: int = 0) -> Iterator[Piece]:
        """Yield the columns from row `first` onwards: those among `texts` as texts, the others as floats.

        Unlike `TableFile.read`, this leaves ids of CSV as they are written, even if all of them have a decimal point.
        """
        rules: NumberTexts | None = None
        for raw, done in self.raw(columns, texts, first):
            written = [n for n in columns if n not in texts and pa.types.is_string(raw.schema.field(n).type)]
            if written and rules is None:
                rules = self._number_rules(written)
            yield pa.table({n: _converted(n, self.name, raw[n], texts, rules) for n in columns}), done

    def _number_rules(self, columns: Sequence[str]) -> NumberTexts:
        """Find out how numbers are written in columns of texts."""
        rules = NumberTexts(columns)
        for raw, _ in self.raw(columns, columns, 0):
            rules.add(raw)
        rules.require(self.name)
        return rules


def _converted(
    name: str, table: str, column: pa.ChunkedArray, texts: Collection[str], rules: NumberTexts | None
) -> pa.ChunkedArray:
    if name in texts:
        return as_texts(name, table, column)
    if rules is not None and pa.types.is_string(column.type):
        return rules.converted(name, column)
    return as_numbers(name, table, column)


@dataclass(frozen=True)
class CsvSource(PieceSource):
    """A CSV file."""

    name: str
    path: Path
    delimiter: str
    n_rows: None = None

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def size(self) -> int:
        return self.path.stat().st_size

    def raw(self, columns: Sequence[str], texts: Collection[str], first: int) -> Iterator[Piece]:
        n_rows = 0
        for table, n_bytes in csv_pieces(self.name, self.path, self.delimiter, columns, texts):
            n_rows += len(table)
            if n_rows > first:
                yield table.slice(max(0, first - n_rows + len(table))), n_bytes


@dataclass(frozen=True)
class ParquetPart:
    """One Parquet file of a table.

    Attributes
    ----------
    partitions : values of the columns that subfolders such as store=north stand for; None is missing
    """

    path: Path
    partitions: Mapping[str, str | None] = field(default_factory=dict)

    @cached_property
    def n_rows(self) -> int:
        with pa.parquet.ParquetFile(self.path) as file:
            return int(file.metadata.num_rows)

    def types(self, columns: Sequence[str]) -> pa.Schema:
        """The types that the columns have after `decoded`."""
        with pa.parquet.ParquetFile(self.path) as file:
            schema = file.schema_arrow
        types = {n: pa.string() if n in self.partitions else schema.field(n).type for n in columns}
        return pa.schema({n: decoded(pa.chunked_array([], kind)).type for n, kind in types.items()})

    def read(self, columns: Sequence[str], first: int) -> Iterator[pa.Table]:
        """Yield the columns from row `first` onwards."""
        own = [name for name in columns if name not in self.partitions]
        with pa.parquet.ParquetFile(self.path, pre_buffer=False) as file:
            groups = list(range(file.metadata.num_row_groups))
            while groups and first >= file.metadata.row_group(groups[0]).num_rows:
                first -= file.metadata.row_group(groups.pop(0)).num_rows
            read = own or file.schema_arrow.names[:1]
            for batch in file.iter_batches(rows_per_piece(len(columns)), row_groups=groups, columns=read):
                table = validated(self.path.name, pa.Table.from_batches([batch])).slice(first)
                first = max(0, first - len(batch))
                if len(table):
                    yield self._with_partitions(table, columns)

    def _with_partitions(self, table: pa.Table, columns: Sequence[str]) -> pa.Table:
        own = {n: decoded(table[n]) for n in columns if n not in self.partitions}
        values = {n: pa.scalar(self.partitions[n], pa.string()) for n in columns if n in self.partitions}
        repeated = {n: pa.chunked_array([pa.repeat(value, len(table))]) for n, value in values.items()}
        return pa.table({n: (own | repeated)[n] for n in columns})


def rows_per_piece(n_columns: int) -> int:
    return max(1, min(PIECE_ROWS, PIECE_BYTES // (8 * n_columns)))


@dataclass(frozen=True)
class ParquetSource(PieceSource):
    """Parquet files, one after the other.

    Attributes
    ----------
    skipped : positions of files that are not read, although they count for types and for how numbers are written
    """

    name: str
    path: Path
    parts: tuple[ParquetPart, ...]
    skipped: frozenset[int] = frozenset()

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(part.path for part in self.parts)

    @property
    def schema(self) -> pa.Schema:
        """The columns and types of the first file, as they are."""
        with pa.parquet.ParquetFile(self.parts[0].path) as file:
            return file.schema_arrow

    @property
    def n_rows(self) -> int:
        return sum(part.n_rows for part in self.parts)

    @property
    def size(self) -> int:
        return self.n_rows

    def raw(self, columns: Sequence[str], texts: Collection[str], first: int) -> Iterator[Piece]:
        del texts
        types = common_types(self.name, [part.types(columns) for part in self.parts])
        done = 0
        for place, part in enumerate(self.parts):
            if first < part.n_rows and place not in self.skipped:
                position = done + first
                for table in part.read(columns, first):
                    position += len(table)
                    yield table.cast(types), position
            first = max(0, first - part.n_rows)
            done = done + part.n_rows

    def _number_rules(self, columns: Sequence[str]) -> NumberTexts:
        if self.skipped:
            return replace(self, skipped=frozenset())._number_rules(columns)
        return super()._number_rules(columns)


def common_types(name: str, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The types of columns that several files have; refuse those that have none in common."""
    try:
        return pa.unify_schemas(list(schemas), promote_options="permissive")
    except pa.ArrowException:
        raise FileError(
            f"the files of {name!r} have different types for the same columns; write them with the same types."
        ) from None
