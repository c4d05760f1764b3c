"""Tables of where entities or agents are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedhlcr.data.table_files import open_table
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.report.places import place_columns

if TYPE_CHECKING:
    import pyarrow as pa


def read_places(model: HierarchicalPredictor, source: str) -> pa.Table:
    """Read the columns that a map needs: ids and names of places as texts, coordinates as numbers."""
    file = open_table(source)
    ids, coordinates, name = place_columns(model, file.columns)
    texts = [*ids, *([] if name is None else [name])]
    return file.read([*texts, *coordinates], texts)
