"""Tables that are ready for a model: a matrix of finite features, and ids with a code for each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.data.ids import Ids


@dataclass(frozen=True)
class EncodedTable:
    """A table that has been checked and encoded. Models accept it as `X` and do not check it again.

    Attributes
    ----------
    matrix : (events, features) finite numbers
    names : names of the features, in the order of the matrix's columns
    ids : the ids of each id column, by the column's name
    undeclared : categories whose levels, which are in the names, may come from rows
    """

    matrix: FloatArray
    names: tuple[str, ...]
    ids: Mapping[str, Ids]
    undeclared: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def columns(self) -> list[str]:
        """Names of the id columns and of the features."""
        return [*self.ids, *self.names]

    def header(self) -> pa.Table:
        """Return a table without rows that has the names of the features."""
        return header_of(self.names)

    def take(self, rows: IndexArray | slice) -> EncodedTable:
        """Return the given rows."""
        return replace(self, matrix=self.matrix[rows], ids={name: ids.take(rows) for name, ids in self.ids.items()})


def header_of(names: Iterable[str]) -> pa.Table:
    """Return a table without rows that has columns of these names."""
    return pa.table({name: pa.array([], pa.float64()) for name in names})
