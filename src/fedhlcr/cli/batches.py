"""Events of a table for a model, all at once or, if the table is large, in batches.

What is said about a table (notes, and errors about missing values and unknown agents) is about all of its rows either
way: if a batch is refused, the rest of the table is read to count what else is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.wording import ROW, Noun
from fedhlcr.cli.events import Events, UnknownIds
from fedhlcr.cli.shell import Shell
from fedhlcr.data.columns import without_decimals
from fedhlcr.data.recipe import Recipe
from fedhlcr.data.table_files import TableFile
from fedhlcr.exceptions import DataError
from fedhlcr.settings import MissingPolicy

# Rows of a batch, and about the most bytes of it. Entities are scattered over a table, so a batch reads pages from all
# over a model file: few large batches are better than many small ones.
BATCH_ROWS = 1 << 18
BATCH_BYTES = 1 << 26
BYTE = Noun("byte", "bytes")


@dataclass
class EventBatches:
    """The events of a table, in batches.

    Attributes
    ----------
    recipe, file, missing : how to read the table
    target : whether to read the target
    unknown : counts agents and entities that the model does not know, and refuses them
    n_events : events so far
    """

    recipe: Recipe
    file: TableFile
    missing: MissingPolicy | None
    target: bool
    unknown: UnknownIds
    n_events: int = 0

    def read(self, shell: Shell, what: str) -> Iterator[Events]:
        """Yield the events of each batch, with progress; at the end, print notes on the whole table or refuse it."""
        policy = self.missing
        tally = self.recipe.new_tally(policy)
        refuses = (self.recipe.missing if policy is None else policy) == "refuse"
        # ids may be absent if the model may predict new agents
        names, texts = self.recipe.wanted(self.file, target=self.target, require_ids=not self.unknown.may_be_absent)
        whole = self.file.decimal_ids([name for name in self.recipe.ids if name in names])
        with shell.bar(self.file.size, what, unit_of(self.file)) as bar:
            for raw, position in batched(self.file.read_pieces(names, texts), len(names)):
                raw = without_decimals(raw, whole)
                first = tally.n_rows
                rows = tally.add(raw, self.recipe.find_gaps(raw))
                if len(rows) and not (refuses and tally.n_with_gaps):
                    events = self._events(raw, rows, first, policy)
                    self.unknown.add(events)
                    if not self.unknown.is_refused:
                        yield events
                        self.n_events += len(events)
                bar.reach(position)
        if not tally.n_rows:
            raise DataError(f"{self.file.name!r} has no rows below its header; add at least one event.")
        if refuses and tally.n_with_gaps:
            self.recipe.check_gaps(tally, policy)
        if not tally.n_kept:
            raise DataError(f"{tally.all_missing()}; none is left.")
        for note in tally.notes():
            shell.note(note)
        self.unknown.report(shell)

    def _events(self, raw: pa.Table, rows: IndexArray, first: int, policy: MissingPolicy | None) -> Events:
        kept = raw if len(rows) == len(raw) else raw.take(pa.array(rows))
        try:
            prepared = self.recipe.prepare(kept, policy)
        except DataError as error:
            where = f"in rows {first + 1:,} to {first + len(raw):,} of {self.file.name!r}"
            raise DataError(f"{where}, {error}") from None
        return Events(self.recipe, prepared._replace(rows=first + rows))


def batched(pieces: Iterator[tuple[pa.Table, int]], n_columns: int) -> Iterator[tuple[pa.Table, int]]:
    """Join small pieces of a table into batches; each has the position of its last piece."""
    most = min(BATCH_ROWS, BATCH_BYTES // (8 * max(n_columns, 1)))
    waiting = []
    n_rows = 0
    position = 0
    for piece, position in pieces:
        waiting.append(piece)
        n_rows += len(piece)
        if n_rows >= most:
            yield pa.concat_tables(waiting), position
            waiting = []
            n_rows = 0
    if n_rows:
        yield pa.concat_tables(waiting), position


def unit_of(file: TableFile) -> Noun:
    return BYTE if file.pieces is not None and file.pieces.n_rows is None else ROW
