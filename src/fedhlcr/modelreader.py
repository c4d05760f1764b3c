"""The parts of a model file, checked: shapes that agree, numbers that can be, positions that exist.

Kernels do not check bounds. What is wrong in a file, by accident or by malice, must not reach them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fedhlcr.arrays import FloatArray, IndexArray
from fedhlcr.codec import CodecError, Record
from fedhlcr.federation.history import history_columns
from fedhlcr.gram import GramLayout, Standardization
from fedhlcr.hierarchy import EntityIndex
from fedhlcr.posterior import AgentMemory, Draws
from fedhlcr.samplers.chain import SweepRecord
from fedhlcr.samplers.state import Entities
from fedhlcr.tables import Ids

PRIVATE = "private."
Test = Callable[[Any], Any]
ABOUT: dict[str, type | tuple[type, ...]] = {
    "estimator": str,
    "settings": dict,
    "seed": int,
    "fit_intercept": bool,
    "n_clusters": int,
    "feature_names": (list, type(None)),
    "agent_column": (str, type(None)),
    "entity_column": (str, type(None)),
    "one_agent": bool,
    "diagnostics": list,
    "stop_reason": (str, type(None)),
    "recipe": (dict, type(None)),
    "provenance": dict,
}


def _not_negative(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values >= 0)


def _positive(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (values > 0)


def _below(limit: int) -> Test:
    return lambda values: (values >= 0) & (values < limit)


class ModelReader:
    """Takes parts out of a record; CodecError where one is missing or cannot be."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def value(self, name: str, kind: type) -> Any:
        value = self._record.get(name)
        _require(type(value) is kind, name)
        return value

    def array(self, name: str, kind: str, shape: tuple[int | None, ...], test: Test | None = None) -> NDArray[Any]:
        """An array of this kind ("f8") and shape, where None is any size, all of whose values pass the test."""
        array: Any = self._record.get(name)
        _require(isinstance(array, np.ndarray) and array.dtype == np.dtype(kind), name)
        _require(len(array.shape) == len(shape), name)
        _require(all(wanted in (None, size) for size, wanted in zip(array.shape, shape, strict=True)), name)
        _require(test is None or bool(np.all(test(array))), name)
        # what is read is read-only, and kernels are compiled for arrays that are not
        return np.array(array)

    def about(self) -> dict[str, Any]:
        about = json.loads(self.value("about", str))
        _require(isinstance(about, dict), "about")
        for name, kind in ABOUT.items():
            _require(name in about and isinstance(about[name], kind), name)
        _require(not isinstance(about["seed"], bool), "seed")
        return dict(about)

    def units(self, prefix: str, *, fit_intercept: bool) -> tuple[GramLayout, Standardization]:
        shift = self.array(f"{prefix}shift", "f8", (None,), np.isfinite)
        _require(len(shift) >= 1, "shift")
        # a feature without spread has an infinite scale
        scale = self.array(f"{prefix}scale", "f8", shift.shape, lambda values: values > 0)
        _require(bool(np.isfinite(scale[-1])), "scale")
        return GramLayout(len(shift) - 1, fit_intercept), Standardization(shift, scale)

    def draws(self, layout: GramLayout) -> Draws:
        noise_scale = self.array("draws.noise_scale", "f8", (None,), _positive)
        log_weights = self.array("draws.log_weights", "f8", (len(noise_scale), None), lambda w: w <= 1e-9)
        shape = n_draws, n_clusters = log_weights.shape
        _require(n_draws > 0 and n_clusters > 0, "draws")
        _require(bool(np.allclose(np.exp(log_weights).sum(axis=1), 1.0)), "draws.log_weights")
        coef_shape = (n_draws, layout.n_coef)
        draws = Draws(
            coef=self.array("draws.coef", "f8", (*shape, layout.n_coef), np.isfinite),
            log_weights=log_weights,
            entity_counts=self.array("draws.entity_counts", "f8", shape, _not_negative),
            noise_scale=noise_scale,
            coef_mean=self.array("draws.coef_mean", "f8", coef_shape, np.isfinite),
            coef_scale=self.array("draws.coef_scale", "f8", coef_shape, _positive),
            global_concentration=self.array("draws.global_concentration", "f8", (n_draws,), _positive),
            agent_concentration=self.array("draws.agent_concentration", "f8", (n_draws,), _positive),
            log_joint=self.array("draws.log_joint", "f8", (n_draws,), np.isfinite),
            chain=self.array("draws.chain", "i8", (n_draws,), _below(n_draws)),
        )
        # chains follow each other and are numbered without gaps
        _require(draws.chain[0] == 0 and bool(np.isin(np.diff(draws.chain), (0, 1)).all()), "draws.chain")
        _require(len(vars(draws)) == len(fields(Draws)), "draws")
        return draws

    def alignment(self, draws: Draws, n_reported: int) -> IndexArray:
        _require(1 <= n_reported <= draws.n_clusters, "n_clusters")
        return self.array("alignment", "i8", draws.log_weights.shape, _below(n_reported))

    def features(self, layout: GramLayout) -> tuple[FloatArray, FloatArray]:
        """Means and spreads."""
        mean = self.array("features.mean", "f8", (layout.n_features,), np.isfinite)
        return mean, self.array("features.spread", "f8", (layout.n_features,), _not_negative)

    def memory(self, layout: GramLayout, draws: Draws) -> AgentMemory:
        """The agents' matrices and labels; of none, where the file is public."""
        if f"{PRIVATE}agents" not in self._record:
            index = EntityIndex(Ids.of_texts([]), Ids.of_texts([]), *(np.empty(0, dtype=np.int64) for _ in range(2)))
            entities = Entities(layout, index, np.empty((0, layout.packed_size)))
            return AgentMemory(entities, np.empty((len(draws), 0), dtype=np.min_scalar_type(draws.n_clusters)))
        agents, entity_ids = self._ids("agents"), self._ids("entities")
        agent_of = self.array(f"{PRIVATE}agent_of", "i8", (None,), _below(len(agents.texts)))
        entity_of = self.array(f"{PRIVATE}entity_of", "i8", agent_of.shape, _below(len(entity_ids.texts)))
        # sorted by both, and each pair once
        _require(bool((np.diff(agent_of * len(entity_ids.texts) + entity_of) > 0).all()), "private.agent_of")
        n_pairs = len(agent_of)
        grams = self.array(f"{PRIVATE}grams", "f8", (n_pairs, layout.packed_size), np.isfinite)
        _require(n_pairs > 0 and bool((layout.diagonal(grams) >= 0).all() and (grams[:, 0] > 0).all()), "private.grams")
        kind = np.min_scalar_type(draws.n_clusters).str
        labels = self.array(f"{PRIVATE}labels", kind, (len(draws), n_pairs), _below(draws.n_clusters))
        return AgentMemory(Entities(layout, EntityIndex(agents, entity_ids, agent_of, entity_of), grams), labels)

    def _ids(self, name: str) -> Ids:
        texts = self.value(f"{PRIVATE}{name}", list)
        _require(len(set(texts)) == len(texts), name)
        ids = Ids.of_texts(texts)
        if f"{PRIVATE}{name}_numbers" not in self._record:
            return ids
        numbers = self.array(f"{PRIVATE}{name}_numbers", "i8", (len(texts),))
        return ids._replace(values=np.array(numbers.tolist(), dtype=object))

    def trace(self) -> NDArray[np.void]:
        return self._table("trace", list(get_type_hints(SweepRecord).items()))

    def history(self, index: EntityIndex) -> NDArray[np.void]:
        """The rounds; who took part is told only where the agents are."""
        table = self._table("history", history_columns())
        sizes = np.zeros(len(table), dtype=np.int64)
        places = np.empty(0, dtype=np.int64)
        if f"{PRIVATE}participants" in self._record:
            sizes = self.array(f"{PRIVATE}n_participants", "i8", (len(table),), _not_negative)
            places = self.array(f"{PRIVATE}participants", "i8", (int(sizes.sum()),), _below(index.n_agents))
        for row, own in zip(table, np.split(places, np.cumsum(sizes)[:-1]), strict=True):
            row["participants"] = index.agent_ids[own]
        return table

    def _table(self, prefix: str, columns: list[tuple[str, type]]) -> NDArray[np.void]:
        """A structured array from its columns; those of objects are filled in by others."""
        told = [name for name, kind in columns if kind is not object]
        n_rows = len(self.array(f"{prefix}.{told[0]}", "i8", (None,)))
        table = np.empty(n_rows, dtype=np.dtype(columns))
        for name in told:
            table[name] = self.array(f"{prefix}.{name}", table.dtype[name].str, (n_rows,))
        return table


def _require(sound: bool, what: str) -> None:
    if not sound:
        raise CodecError(f"the model does not fit together: `{what}` is missing or cannot be; save it again.")
