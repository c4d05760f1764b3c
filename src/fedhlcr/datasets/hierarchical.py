"""A table of events by agent and entity, as arrays or as a dataframe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr.exceptions import MissingDependencyError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True)
class HierarchicalData:
    """Events in four arrays of equal length, and the features' names.

    `data[rows]` selects rows; `to_arrow()` and `to_pandas()` give a dataframe with the columns `agent`,
    `entity`, the features and `target`.
    """

    X: FloatArray
    y: FloatArray
    agent: NDArray[Any]
    entity: NDArray[Any]
    feature_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: NDArray[Any] | slice) -> HierarchicalData:
        return HierarchicalData(self.X[rows], self.y[rows], self.agent[rows], self.entity[rows], self.feature_names)

    @classmethod
    def from_arrow(cls, table: pa.Table, feature_names: tuple[str, ...]) -> HierarchicalData:
        X = np.column_stack([table[name].to_numpy().astype(np.float64) for name in feature_names])
        agent, entity = (np.asarray(table[name].to_pylist()) for name in ("agent", "entity"))
        return cls(X, table["target"].to_numpy().astype(np.float64), agent, entity, feature_names)

    def to_arrow(self) -> pa.Table:
        import pyarrow as pa

        features = {name: self.X[:, f] for f, name in enumerate(self.feature_names)}
        return pa.table({"agent": self.agent, "entity": self.entity, **features, "target": self.y})

    def to_pandas(self) -> pd.DataFrame:
        """The table as a pandas frame (pandas must be installed)."""
        try:
            import pandas as pd  # noqa: F401
        except ImportError as error:
            raise MissingDependencyError(
                "a pandas frame needs pandas: pip install pandas. `to_arrow` makes a table without it."
            ) from error
        return self.to_arrow().to_pandas()
