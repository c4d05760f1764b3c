"""A node's table: where it is, whether it has changed, and its events after all checks."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import AGENT
from fedhlcr.data import inputs
from fedhlcr.data.categories import level_texts
from fedhlcr.data.ids import Ids, natural_key, read_ids
from fedhlcr.data.table_files import read_columns
from fedhlcr.engines.flower.node_options import NodeOptions
from fedhlcr.exceptions import ArgumentError, FileError, Refusal

_SEE_LOG = "the node cannot use its table; the node's log names the file or column and what to do"


class NodeEvents(NamedTuple):
    """The events of a node's table, after all checks; `offset` are the logs of their exposures."""

    X: FloatArray
    y: FloatArray
    agent: NDArray[np.object_]
    entity: NDArray[np.object_] | None
    offset: FloatArray | None


class Source(NamedTuple):
    """Which file a table was read from, and how to notice that it has changed since."""

    path: str
    stamp: str
    digest: str

    @classmethod
    def of(cls, path: Path) -> Source:
        return cls(str(path), stamp_of(path), digest_of(path))


@dataclass(frozen=True)
class NodeTable:
    """The tables that a node's options name, with these features in this order."""

    options: NodeOptions
    columns: tuple[str, ...]

    def file_of(self, path: Path) -> Path:
        """The file to read: that of the node-config or, for a simulated node, its own file in the folder."""
        if self.options.share is None or not path.is_dir():
            return path
        number, n_nodes = self.options.share
        files = sorted((file for file in path.iterdir() if file.is_file()), key=lambda file: natural_key(file.stem))
        if len(files) != n_nodes:
            cure = (
                f"there are {n_nodes} simulated nodes but {len(files)} files in the folder; use as many nodes as files"
            )
            raise Refusal("SimulationError", cure)
        return files[number]

    def read(self, path: Path, own: Collection[str] | None = None) -> NodeEvents:
        """Read and check a table. A simulated node keeps its share of the agents, or `own` if that is given."""
        options = self.options
        file = self.file_of(path)
        ids = [name for name in (options.agent, options.entity) if name]
        texts = [*ids, options.target] if options.positive else ids
        exposed = [options.exposure] if options.exposure else []
        try:
            table = read_columns(file, [options.target, *ids, *self.columns, *exposed], texts)
        except FileError as error:
            raise Refusal("FileError", _SEE_LOG, str(error)) from None
        if not len(table):
            raise Refusal("DataError", _SEE_LOG, f"{file.name!r} has no rows.")
        with _checking(file, "its features"):
            X = inputs.feature_matrix(table.select(list(self.columns)))
        with _checking(file, f"column {options.target!r}"):
            target = table[options.target]
            y = (
                _is_class(options.target, target, options.positive)
                if options.positive
                else inputs.target_vector(target, len(X))
            )
        offset = None
        if options.exposure:
            with _checking(file, f"column {options.exposure!r}"):
                offset = _log_exposures(table[options.exposure])
        agents = Ids.of_texts([options.agent_name]).with_codes(np.zeros(len(X), dtype=np.int64))
        entities = None
        if options.agent:
            with _checking(file, f"column {options.agent!r}"):
                agents = _ids(table[options.agent], "agent")
        if options.entity:
            with _checking(file, f"column {options.entity!r}"):
                entities = _ids(table[options.entity], "entity")
        rows = np.arange(len(X))
        if options.share is not None and not path.is_dir():
            rows = _rows_of_share(agents, *options.share) if own is None else _rows_of(agents, own)
        entity = None if entities is None else _texts(entities)[rows]
        return NodeEvents(X[rows], y[rows], _texts(agents)[rows], entity, None if offset is None else offset[rows])


@contextlib.contextmanager
def _checking(file: Path, what: str) -> Iterator[None]:
    """Turn an error in a column into a refusal. Its detail is for the node's log only, and never quotes a value."""
    try:
        yield
    except pa.ArrowException as error:
        # arrow's message may quote a value
        detail = f"{type(error).__name__}; the column must hold ordinary numbers"
    except TypeError:
        detail = "the values are neither numbers nor ids"
    except ValueError as error:
        # a message of `data.inputs`, which never quotes a value
        detail = str(error)
    else:
        return
    raise Refusal("DataError", _SEE_LOG, f"{file.name!r}, {what}: {detail}") from None


def _rows_of(agents: Ids, own: Collection[str]) -> IndexArray:
    return np.flatnonzero(np.array([text in own for text in agents.texts])[agents.codes])


def _rows_of_share(agents: Ids, number: int, n_nodes: int) -> IndexArray:
    """Rows of a simulated node: those of every n-th agent, in natural order."""
    if len(agents.texts) < n_nodes:
        cure = f"there are {n_nodes} simulated nodes but {AGENT.count(len(agents.texts))}; use fewer nodes"
        raise Refusal("SimulationError", cure)
    return np.flatnonzero(agents.codes % n_nodes == number)


def _ids(column: pa.ChunkedArray, argument: str) -> Ids:
    if pa.types.is_string(column.type):
        # an empty field of a CSV file is a missing id
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    return read_ids(column, argument, len(column))


def _is_class(name: str, column: pa.ChunkedArray, positive: str) -> FloatArray:
    """1 where a target has the class `positive`, and 0 where it has the other."""
    texts = level_texts(name, column)
    if texts.null_count:
        raise ArgumentError(f"{texts.null_count:,} classes are missing; leave these rows out.")
    is_class = pc.equal(texts, positive)
    n_others = pc.count_distinct(texts.filter(pc.invert(is_class))).as_py()
    if n_others > 1:
        raise ArgumentError(
            f"it has {n_others:,} classes besides `positive`, but there must be one; check `positive` and the column."
        )
    return np.asarray(is_class.to_numpy(zero_copy_only=False), dtype=np.float64)


def _log_exposures(column: pa.ChunkedArray) -> FloatArray:
    exposures = inputs.number_vector(column, "exposure")
    if n_wrong := int((exposures <= 0.0).sum()):
        raise ArgumentError(f"{n_wrong:,} exposures are zero or negative; leave these rows out.")
    return np.log(exposures)


def _texts(ids: Ids) -> NDArray[np.object_]:
    return np.array(list(ids.texts), dtype=object)[ids.codes]


def stamp_of(path: Path) -> str:
    """Size and time of a file: cheap to read. If they changed, the digest shows whether the content did."""
    try:
        status = path.stat()
    except OSError:
        return "absent"
    return f"{status.st_size}/{status.st_mtime_ns}"


def digest_of(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return "absent"
