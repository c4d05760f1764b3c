"""The first pass: read a table once, learn its ids and its recipe, and keep its events in the work folder."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa

from fedhlcr._support.arrays import IndexArray
from fedhlcr.data.columns import are_decimal
from fedhlcr.data.hierarchy import EntityIndex, index_pairs, row_sole_agent
from fedhlcr.data.ids import Ids, Texts
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.streaming.id_tables import PAIR_FACTOR, IdTable, NumberTable, TextTable, is_whole
from fedhlcr.data.streaming.order_statistics import order_statistics
from fedhlcr.data.streaming.recipe_learner import RecipeLearner
from fedhlcr.data.streaming.spool import EventSpool
from fedhlcr.data.streaming.work_folder import WorkFolder
from fedhlcr.data.table_files import TableFile

PAIRS = "pairs"
BLOCK_ROWS = "table.rows"
# Called with the position in the table after each piece.
Progress = Callable[[int], None]


class PairCodes:
    """The distinct ids of a table and their pairs, which are kept in the work folder at each checkpoint."""

    def __init__(self, work: WorkFolder, recipe: Recipe) -> None:
        self._work = work
        self._recipe = recipe
        self._tables = {name: _stored_ids(work, place, name) for place, name in enumerate(recipe.ids)}
        self._pairs = NumberTable(work.read(PAIRS, np.int64))

    def codes(self, events: pa.Table) -> IndexArray:
        """The code of each event's pair; new ones are added."""
        columns = {}
        for name, table in self._tables.items():
            if not len(table):
                table.is_whole = is_whole(events.schema.field(name).type)
            columns[name] = table.codes(events[name])
        agents = 0 if self._recipe.agent is None else columns[self._recipe.agent]
        return self._pairs.codes(agents * PAIR_FACTOR + columns[self._recipe.entity])

    def store(self) -> None:
        """Append what is new to the files."""
        for place, table in enumerate(self._tables.values()):
            numbers, data, sizes = _files(place)
            if table.is_whole:
                self._store(numbers, table.numbers.numbers)
                continue
            texts = table.texts.texts
            self._store(data, texts.data)
            self._store(sizes, np.diff(texts.offsets))
        self._store(PAIRS, self._pairs.numbers)

    def _store(self, file: str, items: np.ndarray) -> None:
        self._work.append(file, items[self._work.size(file) // items.itemsize :])

    def index(self, decimal: Collection[str]) -> tuple[EntityIndex, IndexArray]:
        """The index of all agents and entities, and the position in it of each pair, by the pair's code.

        `decimal` are the columns in which all ids have a decimal point.
        """
        ids: dict[str, Ids] = {n: table.sorted(is_decimal=n in decimal) for n, table in self._tables.items()}
        pairs = self._pairs.numbers
        entities = ids[self._recipe.entity]
        entity_codes = entities.codes[pairs % PAIR_FACTOR]
        agents = row_sole_agent("", 1) if self._recipe.agent is None else ids[self._recipe.agent]
        return index_pairs(agents, entities, agents.codes[pairs // PAIR_FACTOR], entity_codes)


def _files(place: int) -> tuple[str, str, str]:
    """Names of the files of a column's ids: numbers, or texts and their sizes."""
    return f"ids-{place}.numbers", f"ids-{place}.texts", f"ids-{place}.sizes"


def _stored_ids(work: WorkFolder, place: int, name: str) -> IdTable:
    numbers, data, sizes = _files(place)
    table = IdTable(name, is_whole=work.size(numbers) > 0)
    table.numbers = NumberTable(work.read(numbers, np.int64))
    offsets = np.concatenate([[0], np.cumsum(work.read(sizes, np.int64))])
    table.texts = TextTable(Texts(work.read(data, np.uint8), offsets.astype(np.int64)))
    return table


class StreamReader:
    """Reads a table into the work folder, from where an earlier process has stopped.

    Attributes
    ----------
    spool : the events, in the order of the table
    """

    def __init__(self, work: WorkFolder, file: TableFile, plan: Recipe) -> None:
        self._work = work
        self._file = file
        self._plan = plan
        self._learner = RecipeLearner(plan, work.state.get("learner"))
        self._pairs = PairCodes(work, plan)
        # columns in which all ids so far have a decimal point, those of rows that are dropped included
        self._decimal = set(work.state.get("decimal", plan.ids if file.is_csv else ()))
        self.spool = EventSpool(work, "table", len(self._learner.columns))

    def read(self, progress: Progress) -> None:
        """Read all rows that have not been read."""
        if self._work.state.get("has_read"):
            return
        if self._file.pieces is not None and self._file.pieces.n_rows is not None:
            # the events, and the same again when they are sorted
            self._work.require_space(2 * self._file.pieces.n_rows * self.spool.row_bytes - self._used())
        wanted = self._plan.wanted(self._file, target=True)
        for piece, position in self._file.read_pieces(*wanted, first=self._learner.n_rows):
            first = self._learner.n_rows
            self._decimal -= {name for name in self._decimal if not are_decimal(piece[name])}
            kept, columns = self._learner.add(piece)
            if len(kept):
                self._work.append(BLOCK_ROWS, np.array([first]))
                self.spool.append(self._pairs.codes(kept), columns)
            progress(position)
            if self._work.is_due():
                self._save()
        self._save(has_read=True)

    def _used(self) -> int:
        return self._work.size(self.spool.files[0])

    def _save(self, **changes: bool) -> None:
        self._pairs.store()
        self._work.save(learner=self._learner.to_json(), decimal=sorted(self._decimal), **changes)

    def learn(self) -> tuple[Recipe, tuple[str, ...]]:
        """The recipe, and notes on missing values."""
        if "recipe" not in self._work.state:
            recipe, notes = self._learner.finish(self._median)
            self._work.save(recipe=recipe.to_json(), notes=notes)
        return Recipe.from_json(self._work.state["recipe"]), tuple(self._work.state["notes"])

    def _median(self, place: int, n_values: int) -> float:
        middle = order_statistics(lambda: self.spool.column(place), [(n_values - 1) // 2, n_values // 2])
        return float(middle.mean())

    @property
    def n_rows(self) -> int:
        """Rows that have been read."""
        return self._learner.n_rows

    @property
    def block_rows(self) -> IndexArray:
        """(blocks,) the row of the table at which the piece of each block of the spool begins."""
        return self._work.read(BLOCK_ROWS, np.int64)

    @property
    def learner(self) -> RecipeLearner:
        return self._learner

    def index(self) -> tuple[EntityIndex, IndexArray]:
        """The agents and entities, and the position of each pair, by its code in the spool."""
        return self._pairs.index(self._decimal)
