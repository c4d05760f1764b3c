"""What a node does: it reads the table it was told of, answers for its agents, and keeps their labels in a file.

Flower starts a new process for every message, so whatever is to last lives in that file: the agents' matrices, labels
and acknowledgements, under the experiment's name. It is written before a reply is sent, whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.wording import AGENT
from fedhlcr.data import inputs
from fedhlcr.data.hierarchy import build_hierarchy
from fedhlcr.data.ids import Ids, natural_key, read_ids
from fedhlcr.data.table_files import read_columns
from fedhlcr.engines.flower.options import NodeOptions
from fedhlcr.engines.flower.records import Letter, Score
from fedhlcr.engines.flower.refusal import UNKNOWN_AGENT
from fedhlcr.exceptions import CodecError, FileError, Refusal, StorageError
from fedhlcr.federation.group import AgentGroup
from fedhlcr.federation.messages import SURVEY_ROUND, Broadcast
from fedhlcr.federation.mods import Mod
from fedhlcr.posterior import PublicModel
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.reader import RecordReader

logger = logging.getLogger(__name__)

STATE_KIND, STATE_VERSION = "node", 1
# Seconds that a process waits for another of the same node.
LONGEST_LOCK = 600.0
# Sums over fewer test events than this would tell the events.
FEWEST_SCORED = 10
NO_SCORE = Score(0, 0.0, 0.0, 0.0)
_READ_IT = "the node cannot use its table; its own log names the file or the column, and the cure"


class Events(NamedTuple):
    """A node's table, checked."""

    X: FloatArray
    y: FloatArray
    agent: NDArray[np.object_]
    entity: NDArray[np.object_] | None


class Source(NamedTuple):
    """What a table's file was like when it was read."""

    path: str
    stamp: str
    digest: str

    @classmethod
    def of(cls, path: Path) -> Source:
        return cls(str(path), _stamp(path), _digest(path))


class Held(NamedTuple):
    """What a node has in hand: its agents, and what the table they come from was like."""

    group: AgentGroup
    source: Source


@dataclass(frozen=True)
class Node:
    """One node in one experiment.

    Attributes
    ----------
    features : the federation's columns, in its order; empty while they are not agreed, then it is the node's own
    mods : what contributions pass through before they leave the node, `federation.mods`
    """

    options: NodeOptions
    experiment: str
    features: tuple[str, ...] = ()
    mods: tuple[Mod, ...] = ()

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

    def names(self) -> list[str]:
        """Of its agents."""
        with self._alone():
            names = self._held().group.names
        if self.options.test_path is not None:
            # what is wrong with it is to be known now, not after the last round
            self._read(self.options.test_path, names)
        return names

    def _held(self) -> Held:
        return self._saved() or self._anew()

    def _anew(self) -> Held:
        # before it is read: whatever happens to the file meanwhile is noticed next time
        source = Source.of(self._file_of(self.options.data_path))
        events = self._read(self.options.data_path)
        hierarchy = build_hierarchy(events.X, events.y, np.ones(len(events.y)), events.agent, events.entity)
        held = Held(AgentGroup(hierarchy, self.mods), source)
        self._save(held)
        return held

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time: Flower may start one for a new message while another is at an old one."""
        self._make_folder()
        lock = FileLock(self.state_path.with_suffix(".lock"))
        with _writing():
            try:
                lock.acquire(timeout=LONGEST_LOCK)
            except Timeout:
                raise Refusal("Busy", "the node is still at another message; give rounds more time") from None
        try:
            yield
        finally:
            lock.release()

    def answer(self, letter: Letter) -> list[bytes]:
        """One contribution for each agent asked. New labels are on disk before anyone hears of them."""
        with self._alone():
            return self._answer(letter, Broadcast.from_bytes(letter.broadcast))

    def _answer(self, letter: Letter, broadcast: Broadcast) -> list[bytes]:
        held = self._held()
        shard = held.group.shard
        other_run = broadcast.run != shard.run or broadcast.round == SURVEY_ROUND
        if shard.run is not None and other_run and broadcast.session > shard.session:
            logger.info("the experiment has begun anew: the labels of before are dropped.")
            held = self._anew()
        if (broadcast.session, broadcast.round) < (held.group.shard.session, held.group.shard.newest_round):
            cure = "it is older than one that was answered; stop other runs of this experiment, or name it otherwise"
            raise Refusal("OutdatedLetter", cure)
        try:
            positions = held.group.positions(letter.agents)
        except KeyError:
            raise Refusal(UNKNOWN_AGENT, "the node's table has lost an agent; it is asked who is there") from None
        contributions = held.group.answer(broadcast, positions, np.array(letter.acknowledged, dtype=np.int64))
        self._save(held)
        return [contributions[i].to_bytes() for i in range(len(contributions))]

    def keep(self, model: PublicModel) -> None:
        """Write the public model beside the state, for the node's own use."""
        self._make_folder()
        with _writing():
            model.save(self.model_path)

    def score(self, model: PublicModel) -> Score:
        """How well the model predicts the test events: sums over them, which is all that is sent."""
        if self.options.test_path is None:
            return NO_SCORE
        with self._alone():
            group = self._held().group
        events = self._read(self.options.test_path, group.names)
        if len(events.y) < FEWEST_SCORED:
            logger.warning("fewer than %d test events are not scored: their sums would tell them.", FEWEST_SCORED)
            return NO_SCORE
        predicted = group.predict(model, events.X, events.agent, events.entity).mean
        mean = float(events.y.mean())
        spread, error = (float(np.sum((events.y - other) ** 2)) for other in (mean, predicted))
        return Score(len(events.y), mean, spread, error)

    def _saved(self) -> Held | None:
        """The state, if there is one and it is of this table and these columns."""
        if not self.state_path.exists() and not atomic.previous_of(self.state_path).exists():
            return None
        try:
            record = atomic.read_newest(self.state_path, STATE_KIND, STATE_VERSION)
            reader = RecordReader(record, "the node's state", "it is made anew from the table")
            was = Source(*(reader.value(name, str) for name in Source._fields))
            order, columns = tuple(reader.texts("features")), reader.value("columns", str)
            group = AgentGroup.read(reader, self.mods)
        except (StorageError, CodecError) as error:
            logger.warning("%s; the labels are lost, the agents begin anew.", error)
            return None
        now = self._file_of(self.options.data_path)
        if self.options.share is None and was.path != str(now) and Path(was.path).exists():
            cure = (
                "its `state-dir` holds the state of another table, or another node's; name another folder, or empty it"
            )
            raise Refusal("StateError", cure)
        if columns != self._columns_key() or (self.features and self.features != order):
            logger.info("other columns are used than before, or another order: the agents begin anew.")
            return None
        stamp = _stamp(now)
        if was.stamp != stamp and was.digest != _digest(now):
            logger.warning("%s has changed: its agents begin anew, and the labels of before are dropped.", now.name)
            return None
        return Held(group, was._replace(stamp=stamp))

    def _save(self, held: Held) -> None:
        record = held.group.to_record()
        record |= {"columns": self._columns_key(), "features": list(self.columns), **held.source._asdict()}
        with _writing():
            atomic.write_atomically(self.state_path, codec.encode(STATE_KIND, STATE_VERSION, record), private=True)

    def _make_folder(self) -> None:
        with _writing():
            # the labels are the node's secret
            self.options.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _columns_key(self) -> str:
        options = self.options
        roles = options.target, options.agent, options.agent_name, options.entity
        return repr((*roles, sorted(self.columns), options.share))

    def _file_of(self, path: Path) -> Path:
        """The file to read: the one the node was told, or its own of a simulation's folder."""
        if self.options.share is None or not path.is_dir():
            return path
        number, n_nodes = self.options.share
        files = sorted((file for file in path.iterdir() if file.is_file()), key=lambda file: natural_key(file.stem))
        if len(files) != n_nodes:
            cure = f"there are {n_nodes} simulated nodes but {len(files)} files in the folder; have as many"
            raise Refusal("SimulationError", cure)
        return files[number]

    def _read(self, path: Path, own: Collection[str] | None = None) -> Events:
        """A table, checked; a simulated node keeps its share of the agents, or those that are its own already."""
        options, file = self.options, self._file_of(path)
        ids = [name for name in (options.agent, options.entity) if name]
        try:
            table = read_columns(file, [options.target, *ids, *self.columns], ids)
        except FileError as error:
            raise Refusal("FileError", _READ_IT, str(error)) from None
        if not len(table):
            raise Refusal("DataError", _READ_IT, f"{file.name!r} has no rows.")
        with _checking(file, "its features"):
            X = inputs.feature_matrix(table.select(list(self.columns)))
        with _checking(file, f"column {options.target!r}"):
            y = inputs.target_vector(table[options.target], len(X))
        agents, entities = _sole(options.agent_name, len(X)), None
        if options.agent:
            with _checking(file, f"column {options.agent!r}"):
                agents = _ids(table[options.agent], "agent")
        if options.entity:
            with _checking(file, f"column {options.entity!r}"):
                entities = _ids(table[options.entity], "entity")
        rows = np.arange(len(X))
        if options.share is not None and not path.is_dir():
            rows = _dealt(agents, *options.share) if own is None else _rows_of(agents, own)
        entity = None if entities is None else _texts(entities)[rows]
        return Events(X[rows], y[rows], _texts(agents)[rows], entity)


@contextlib.contextmanager
def _checking(file: Path, what: str) -> Iterator[None]:
    """Whatever is wrong with a column is told to the node's own people only, and never with a value."""
    try:
        yield
    except pa.ArrowException as error:
        # arrow's own words may quote a value
        detail = f"{type(error).__name__}; turn what is no ordinary number into one first"
    except TypeError:
        detail = "what it holds are neither numbers nor ids"
    except ValueError as error:
        # the words of `tables`, which never quote one
        detail = str(error)
    else:
        return
    raise Refusal("DataError", _READ_IT, f"{file.name!r}, {what}: {detail}") from None


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cure = (
            "the node cannot write to its `state-dir`; make room, or name a folder it may write to in its node-config"
        )
        raise Refusal("StateError", cure, str(error.strerror)) from None


def _rows_of(agents: Ids, own: Collection[str]) -> IndexArray:
    return np.flatnonzero(np.array([text in own for text in agents.texts])[agents.codes])


def _dealt(agents: Ids, number: int, n_nodes: int) -> IndexArray:
    """Rows of every n-th agent, in natural order."""
    if len(agents.texts) < n_nodes:
        cure = f"there are {n_nodes} simulated nodes but {AGENT.count(len(agents.texts))}; use fewer nodes"
        raise Refusal("SimulationError", cure)
    return np.flatnonzero(agents.codes % n_nodes == number)


def _ids(column: pa.ChunkedArray, argument: str) -> Ids:
    if pa.types.is_string(column.type):
        # an empty field of a CSV file is no id
        column = pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)
    return read_ids(column, argument, len(column))


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
