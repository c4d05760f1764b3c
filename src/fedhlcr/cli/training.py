"""What commands that fit a model do: read the table, in memory or in a work folder, fit, score, write the model."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from fedhlcr._support.memory import keep_little
from fedhlcr._support.wording import EVENT
from fedhlcr.analysis.scores import Scores, scores_of
from fedhlcr.cli.events import Events, TrainingTable, advice_on_the_target, is_streamed, tell_learned
from fedhlcr.cli.options import UsageError
from fedhlcr.cli.output import write_output
from fedhlcr.cli.scoring import predict_quietly, score
from fedhlcr.cli.shell import INTERRUPTED, Shell, plural
from fedhlcr.cli.splitting import hold_out_rows
from fedhlcr.data.categories import class_values
from fedhlcr.data.inputs import EncodedTable
from fedhlcr.data.streaming.work_folder import WorkFolder
from fedhlcr.data.table_files import source_name
from fedhlcr.estimators import saving
from fedhlcr.estimators.base import fit_streamed
from fedhlcr.estimators.files import HeldOutShare, StreamedTable, open_work, read_table
from fedhlcr.exceptions import FederationError, FedHLCRError, OutputError
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT, disagreement
from fedhlcr.posterior.fitted_model import check_model

LEVEL = 0.9


class TrainingInMemory:
    """A table in memory.

    Attributes
    ----------
    recipe : how it became features
    """

    def __init__(self, events: Events, hold_out: HeldOutShare, source: str) -> None:
        self.recipe = events.recipe
        self._source = source
        self._train, self._test = split_events(events, hold_out.share, hold_out.seed)

    def fit(self, model: Any, shell: Shell) -> None:
        """Fit a model to the events that are not held out."""
        fit_model(model, self._train, self._source, shell)

    def score(self, model: Any, shell: Shell) -> Scores | None:
        """Score the model on the events that are held out; None if there are none."""
        return None if self._test is None else score(model, self._test, shell=shell, level=LEVEL)


class TrainingInFolder:
    """A table in a work folder, with the interface of `TrainingInMemory`."""

    def __init__(self, table: StreamedTable, name: str) -> None:
        self.recipe = table.events.recipe
        self._table = table
        self._name = name

    def fit(self, model: Any, shell: Shell) -> None:
        events = self._table.events
        if isinstance(model.n_clusters, int):
            refuse_too_many_clusters(model.n_clusters, events.index.n_entities)
        fit_streamed(model, events)
        _finish_fit(model, self._name, events.sorter.n_events, shell)

    def score(self, model: Any, shell: Shell) -> Scores | None:
        sizes = self._table.events.sorter.held_out.sizes
        if not len(sizes):
            return None
        targets = []
        predicted = []
        with shell.bar(int(sizes.sum()), "predicting", EVENT) as bar:
            for events in self._held_out():
                targets.append(check_model(model).numeric_target(events.y, len(events)))
                predicted.append(predict_quietly(model, events, LEVEL))
                bar.advance({}, len(events))
        # all at once, so that the scores are those of a table in memory to the last digit
        mean = np.concatenate([moments.mean for moments in predicted])
        ends = np.concatenate([moments.quantiles for moments in predicted])
        return scores_of(model.family, np.concatenate(targets), mean, ends, LEVEL)

    def _held_out(self) -> Iterator[Events]:
        """The events that are held out, a block at a time."""
        recipe = self.recipe
        encoder = self._table.events.sorter.encoder
        index = self._table.events.index
        for entity, columns in self._table.events.sorter.held_out.blocks():
            ids = {recipe.entity: index.entities.with_codes(index.entity_of[entity]).take(slice(None))}
            if recipe.agent is not None:
                ids[recipe.agent] = index.agents.with_codes(index.agent_of[entity]).take(slice(None))
            table = EncodedTable(encoder.features(columns), recipe.encoded_features, ids)
            target = encoder.targets(columns)
            if recipe.classes is not None:
                target = class_values(recipe.classes)[target.astype(np.int64)]
            yield Events.of(recipe, table, target, encoder.exposures(columns))


@contextmanager
def opened_training(
    table: TrainingTable,
    source: str,
    *,
    out: Path,
    hold_out: HeldOutShare,
    stream: bool | None,
    settings: Mapping[str, Any],
    shell: Shell,
) -> Iterator[TrainingInMemory | TrainingInFolder]:
    """Read a table to fit a model to: at once, or, if it is large, into a work folder beside the model.

    The folder is removed when all is done, or if the table cannot be used. If the process is interrupted or killed, or
    the disk is full or the cluster fails, it stays. `settings` are the options that matrices depend on.
    """
    file = table.file
    if not is_streamed(file, stream):
        yield TrainingInMemory(table.read(shell), hold_out, source)
        return
    if table.plan.terms is not None:
        raise typer.BadParameter(
            "has terms that are not columns, so the table must be read at once; add --in-memory, without --engine ray, "
            "or add these columns to the table.",
            param_hint="--formula",
        )
    keep_little()
    with open_work(out.with_name(f"{out.name}.build"), file, table.plan, settings, hold_out) as work:
        _tell_work(work, shell)
        try:
            with advice_on_the_target(table):
                read = read_table(file, table.plan, work, hold_out, shows_progress=shell.shows_progress)
            tell_learned(read.events.recipe, read.notes, shell)
            yield TrainingInFolder(read, file.name)
        except (OutputError, FederationError):
            # the table itself was fine
            raise
        except (FedHLCRError, UsageError):
            work.remove()
            raise
        except KeyboardInterrupt:
            shell.note(f"the same command goes on where this one stopped, with the files in {str(work.path)!r}")
            raise
        if shell.interrupted:
            shell.note(f"the sorted table is in {str(work.path)!r}; the same command fits it again without reading it")
        else:
            work.remove()


def _tell_work(work: WorkFolder, shell: Shell) -> None:
    folder = str(work.path)
    if work.resumed:
        shell.note(f"resuming the work of an earlier command in {folder!r}")
    elif work.replaced:
        shell.note(f"the temporary files in {folder!r} belong to another table or other options; starting again")
    else:
        shell.note(f"the table is sorted in temporary files in {folder!r} (--in-memory avoids that)")


def split_events(events: Events, share: float, seed: int) -> tuple[Events, Events | None]:
    if not share:
        return events, None
    train, test = hold_out_rows(events.agents, events.entities, share, seed)
    return events.take(train), events.take(test)


def fit_model(model: Any, events: Events, source: str, shell: Shell, **more: Any) -> Any:
    recipe = events.recipe
    # entities are counted only if it matters, because it takes as long as reading them
    if isinstance(model.n_clusters, int):
        refuse_too_many_clusters(model.n_clusters, events.n_entities)
    model.fit(events.table, events.y, agent=recipe.agent, entity=recipe.entity, **events.with_exposure, **more)
    model.recipe_ = recipe
    _finish_fit(model, source_name(source), len(events), shell)
    return model


def refuse_too_many_clusters(n_clusters: int, n_entities: int) -> None:
    if n_clusters > n_entities:
        reason = f"must not exceed the number of entities; the table has {plural(n_entities, 'entity', 'entities')}."
        raise typer.BadParameter(reason, param_hint="--clusters")


def _finish_fit(model: Any, data: str, n_events: int, shell: Shell) -> None:
    """Note in the model where it comes from, and print a note if a single chain had not settled.

    For several chains the library warns if they disagree.
    """
    command = shlex.join(["fedhlcr", *sys.argv[1:]])
    model.provenance_ = {"data": data, "events": n_events, "command": command}
    figures = disagreement(model.diagnostics_)
    if figures and getattr(model, "n_chains", 0) == 1:
        cure = f"run it longer (--sweeps {2 * model.n_sweeps}), or run several chains (--chains 4)"
        shell.note(f"the chain had not settled (R-hat is above {R_HAT_LIMIT} for: {figures}); {cure}")


def write_model(model: Any, out: Path, shell: Shell, *, public: bool) -> Path:
    """Write a model and return its path. An interrupted fit gets a name of its own and does not replace a full one."""
    if shell.interrupted:
        out = out.with_name(f"{out.name}.interrupted")
    with shell.stage("writing the model"):
        write_output(out, partial(saving.write, model, public=public))
    return out


def end(shell: Shell) -> None:
    """End with an exit code of its own if the fit was interrupted."""
    if shell.interrupted:
        raise typer.Exit(INTERRUPTED)
