"""Kept draws of the globals: the public part of the posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import SIZE_LIMIT, finite, not_negative
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.schema import CLUSTERS, COEF, Globals, Quantity, value_of
from fedhlcr.samplers.state import GlobalDraw
from fedhlcr.storage.codec import Record
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Below, Stored, read_fields


@dataclass(frozen=True)
class Draws:
    """Kept draws of the globals, stacked, in standardised units. They hold nothing of any single agent.

    Every global quantity of the likelihood is an attribute, with a leading axis of draws: `draws.coef` is
    (draws, clusters, n_coef). Chains may have different numbers of clusters; the smaller ones are padded with clusters
    of weight zero.
    """

    stacked: Globals
    entity_counts: FloatArray  # (draws, clusters)
    log_joint: FloatArray  # (draws,)
    chain: NDArray[np.int64]  # (draws,)

    def __getattr__(self, name: str) -> Any:
        # called only for names that are not found; `copy` and `pickle` ask before `stacked` is set
        if name.startswith("__") or name == "stacked":
            raise AttributeError(name)
        return getattr(self.stacked, name)

    @classmethod
    def from_chains(cls, chains: Sequence[Sequence[GlobalDraw]]) -> Draws:
        kept = [draw for chain in chains for draw in chain]
        n_clusters = max(draw.globals.n_clusters for draw in kept)

        def padded(values: list[FloatArray], fill: float) -> FloatArray:
            out = np.full((len(values), n_clusters, *values[0].shape[1:]), fill)
            for row, value in zip(out, values, strict=True):
                row[: len(value)] = value
            return out

        def stacked(q: Quantity) -> FloatArray:
            values = [getattr(draw.globals, q.name) for draw in kept]
            return padded(values, q.padding) if q.by_cluster else np.array(values)

        kind: Any = type(kept[0].globals)
        return cls(
            kind(**{q.name: stacked(q) for q in kind.quantities()}),
            padded([draw.entity_counts for draw in kept], 0.0),
            np.array([draw.log_joint for draw in kept]),
            np.repeat(np.arange(len(chains)), [len(chain) for chain in chains]),
        )

    def to_record(self) -> Record:
        values = {q.name: getattr(self.stacked, q.name) for q in self.stacked.quantities()}
        by_cluster = {q.name: values.pop(q.name) for q in self.stacked.quantities() if q.by_cluster}
        counts = {"entity_counts": self.entity_counts}
        return {**by_cluster, **counts, **values, "log_joint": self.log_joint, "chain": self.chain}

    @classmethod
    def read(cls, reader: RecordReader, likelihood: AnyLikelihood) -> Draws:
        """Read and check the fields of `to_record`."""
        kind = likelihood.globals_type
        sizes = {COEF: likelihood.layout.n_coef}
        table = {
            "log_joint": Stored("f8", ("draws",), finite),
            "entity_counts": Stored("f8", ("draws", CLUSTERS), not_negative),
            "chain": Stored("i8", ("draws",), Below("draws")),
        }
        stacked = read_fields({q.name: q.stored("draws") for q in kind.quantities()}, reader, sizes)
        values = read_fields(table, reader, sizes)
        reader.require(sizes["draws"] > 0 and 0 < sizes[CLUSTERS] <= SIZE_LIMIT, "log_weights")
        # chains follow each other and are numbered without gaps
        chain = values["chain"]
        reader.require(chain[0] == 0 and np.isin(np.diff(chain), (0, 1)).all(), "chain")
        return cls(kind(**stacked), **values)

    def __len__(self) -> int:
        return len(self.log_joint)

    @property
    def n_clusters(self) -> int:
        return self.entity_counts.shape[1]

    @property
    def prior_weights(self) -> FloatArray:
        """(draws, clusters) βψ."""
        concentration = np.asarray(self.stacked.agent_concentration)
        return concentration[:, None] * np.exp(self.stacked.log_weights)

    def globals(self, draw: int) -> Globals:
        """The globals of one draw."""
        values = {q: getattr(self.stacked, q.name)[draw] for q in self.stacked.quantities()}
        return replace(self.stacked, **{q.name: value_of(q, value) for q, value in values.items()})

    def stacked_draw(self, draw: int) -> Globals:
        """The globals of one draw, with a leading axis of one draw."""
        values: dict[str, Any] = {
            q.name: np.asarray(getattr(self.stacked, q.name))[draw : draw + 1] for q in self.stacked.quantities()
        }
        return replace(self.stacked, **values)

    def separate(self, rounds: list[int], n_clusters: list[int]) -> list[GlobalDraw]:
        """Undo `from_chains` for draws of one chain: return them one by one, without padding."""
        return [
            GlobalDraw(
                number,
                self.entity_counts[draw, :size],
                self.globals(draw).of_clusters(slice(size)),
                float(self.log_joint[draw]),
            )
            for draw, (number, size) in enumerate(zip(rounds, n_clusters, strict=True))
        ]
