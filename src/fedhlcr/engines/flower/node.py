"""What a node does: it reads the table it was told of, answers for its agents, and keeps their labels in a file.

Flower starts a new process for every message, so whatever is to last lives in that file: the agents' matrices, labels
and acknowledgements, under the experiment's name. It is written before a reply is sent, whole or not at all.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedhlcr import codec, storage, tables
from fedhlcr.arrays import FloatArray, IndexArray
from fedhlcr.engines.flower.options import NodeOptions
from fedhlcr.engines.flower.records import Letter, Score
from fedhlcr.engines.flower.refusal import Refusal
from fedhlcr.federation.group import AgentGroup
from fedhlcr.federation.messages import SURVEY_ROUND, Broadcast
from fedhlcr.files import FileError, read_columns
from fedhlcr.hierarchy import build_hierarchy
from fedhlcr.posterior import PublicModel
from fedhlcr.tables import Ids

logger = logging.getLogger(__name__)

STATE_KIND, STATE_VERSION = "node", 1
_READ_IT = "the node cannot use its table; its own log names the file or the column, and the cure"


class Events(NamedTuple):
    """A node's table, checked."""

    X: FloatArray
    y: FloatArray
    agent: NDArray[np.object_]
    entity: NDArray[np.object_] | None


class Held(NamedTuple):
    """What a node has in hand: its agents, and what the table they come from was like."""

    group: AgentGroup
    digest: str


@dataclass(frozen=True)
class Node:
    """One node in one experiment.

    Attributes
    ----------
    features : the federation's columns, in its order; empty while they are not agreed, then it is the node's own
    """

    options: NodeOptions
    experiment: str
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.features and set(self.features) != set(self.options.features):
            raise Refusal(
                "ColumnsError",
                f"the federation is about the columns {', '.join(self.features)}; tell the node to use these, or start "
                "another federation",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        return self.features or self.options.features

    @property
    def state_path(self) -> Path:
        return self.options.state_dir / f"{self.experiment}.state"

    @property
    def model_path(self) -> Path:
        return self.options.state_dir / f"{self.experiment}.model"

    def group(self) -> AgentGroup:
        """Its agents: as they were saved, or from the table if there is no file or the table is another."""
        return self._held().group

    def _held(self) -> Held:
        return self._saved() or self._anew()

    def _anew(self) -> Held:
        events = self._read(self.options.data_path)
        hierarchy = build_hierarchy(events.X, events.y, np.ones(len(events.y)), events.agent, events.entity)
        held = Held(AgentGroup(hierarchy), _digest(self._source()))
        self._save(held)
        return held

    def answer(self, letter: Letter) -> list[bytes]:
        """One contribution for each agent asked. New labels are on disk before anyone hears of them."""
        broadcast = Broadcast.from_bytes(letter.broadcast)
        held = self._held()
        shard = held.group.shard
        if shard.run is not None and (broadcast.run != shard.run or broadcast.round == SURVEY_ROUND):
            if broadcast.session < shard.session:
                raise Refusal("OutdatedLetter", "it belongs to an older run of this experiment; stop that run")
            if broadcast.session > shard.session:
                logger.info("the experiment has begun anew: the labels of before are dropped.")
                held = self._anew()
        try:
            positions = held.group.positions(letter.agents)
        except KeyError:
            raise Refusal("UnknownAgent", "the node's table has lost an agent; it is asked who is there") from None
        contributions = held.group.round(broadcast, positions, np.array(letter.acknowledged, dtype=np.int64))
        self._save(held)
        return [contributions[i].to_bytes() for i in range(len(contributions))]

    def keep(self, model: PublicModel) -> None:
        """Write the public model beside the state, for the node's own use."""
        self._make_folder()
        model.save(self.model_path)

    def score(self, model: PublicModel) -> Score:
        """How well the model predicts the test events: sums over them, which is all that is sent."""
        if self.options.test_path is None:
            return Score(0, 0.0, 0.0, 0.0)
        events = self._read(self.options.test_path)
        predicted = self.group().predict(model, events.X, events.agent, events.entity).mean
        mean = float(events.y.mean())
        spread, error = (float(np.sum((events.y - other) ** 2)) for other in (mean, predicted))
        return Score(len(events.y), mean, spread, error)

    def _saved(self) -> Held | None:
        """The state, if there is one and it is of this table and these columns."""
        if not self.state_path.exists() and not storage.previous_of(self.state_path).exists():
            return None
        try:
            record = storage.read_newest(self.state_path, STATE_KIND, STATE_VERSION)
        except storage.StorageError as error:
            logger.warning("%s; the labels are lost, the agents begin anew.", error)
            return None
        source = self._source()
        if record.pop("columns") != self._columns_key():
            logger.info("the node is told to use other columns than before: its agents begin anew.")
            return None
        stamp, digest = record.pop("stamp"), record.pop("digest")
        if stamp != _stamp(source) and digest != _digest(source):
            logger.warning("%s has changed: its agents begin anew, and the labels of before are dropped.", source.name)
            return None
        return Held(AgentGroup.from_record(record), digest)

    def _save(self, held: Held) -> None:
        record = held.group.to_record()
        record |= {"columns": self._columns_key(), "stamp": _stamp(self._source()), "digest": held.digest}
        self._make_folder()
        storage.write_atomically(self.state_path, codec.encode(STATE_KIND, STATE_VERSION, record))

    def _make_folder(self) -> None:
        try:
            # the labels are the node's secret
            self.options.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            cure = "the node cannot write its state; pass a folder it may write to as `state-dir` in its node-config"
            raise Refusal("StateError", cure, str(error.strerror)) from None

    def _columns_key(self) -> str:
        options = self.options
        return repr((options.target, options.agent, options.agent_name, options.entity, self.columns, options.share))

    def _source(self) -> Path:
        return self._file_of(self.options.data_path)

    def _file_of(self, path: Path) -> Path:
        """The file to read: the one the node was told, or its own of a simulation's folder."""
        if self.options.share is None or not path.is_dir():
            return path
        number, n_nodes = self.options.share
        files = sorted(
            (file for file in path.iterdir() if file.is_file()), key=lambda file: tables.natural_key(file.stem)
        )
        if len(files) != n_nodes:
            cure = f"there are {n_nodes} simulated nodes but {len(files)} files in the folder; have as many"
            raise Refusal("SimulationError", cure)
        return files[number]

    def _read(self, path: Path) -> Events:
        options, file = self.options, self._file_of(path)
        ids = [name for name in (options.agent, options.entity) if name]
        try:
            table = read_columns(file, [options.target, *ids, *self.columns], ids)
            X = tables.feature_matrix(table.select(list(self.columns)))
            y = tables.target_vector(table[options.target], len(X))
            agents = _ids(table[options.agent], "agent") if options.agent else _sole(options.agent_name, len(X))
            entities = _ids(table[options.entity], "entity") if options.entity else None
        except FileError as error:
            raise Refusal("FileError", _READ_IT, str(error)) from None
        except pa.ArrowException as error:
            # arrow's own words may quote a value
            raise Refusal("DataError", _READ_IT, f"{file.name}: {type(error).__name__}") from None
        except ValueError as error:
            # the words of `tables`, which never do
            raise Refusal("DataError", _READ_IT, f"{file.name}: {error}") from None
        rows = np.arange(len(X))
        if options.share is not None and not path.is_dir():
            rows = _dealt(agents, *options.share)
        entity = None if entities is None else _texts(entities)[rows]
        return Events(X[rows], y[rows], _texts(agents)[rows], entity)


def _dealt(agents: Ids, number: int, n_nodes: int) -> IndexArray:
    """Rows of every n-th agent, in natural order."""
    if len(agents.texts) < n_nodes:
        cure = f"there are {n_nodes} simulated nodes but {len(agents.texts)} agents; have fewer nodes"
        raise Refusal("SimulationError", cure)
    return np.flatnonzero(agents.codes % n_nodes == number)


def _ids(column: pa.ChunkedArray, argument: str) -> Ids:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        # an empty field of a CSV file is no id
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    return tables.read_ids(column, argument, len(column))


def _sole(name: str, n_rows: int) -> Ids:
    return Ids.of_texts([name])._replace(codes=np.zeros(n_rows, dtype=np.int64))


def _texts(ids: Ids) -> NDArray[np.object_]:
    return np.array(ids.texts, dtype=object)[ids.codes]


def _stamp(path: Path) -> str:
    """Changes whenever a file is written; so may it when nothing in it has changed."""
    try:
        status = path.stat()
    except OSError:
        return "absent"
    return f"{status.st_size}/{status.st_mtime_ns}"


def _digest(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return "absent"
