"""What commands that fit a model have in common: split the table, fit, write the model, say how it ended."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedhlcr.cli.shell import INTERRUPTED, Shell, plural

if TYPE_CHECKING:
    from fedhlcr.cli.events import Events


def split_events(events: Events, share: float, seed: int) -> tuple[Events, Events | None]:
    from fedhlcr.cli.splitting import hold_out_rows

    if not share:
        return events, None
    train, test = hold_out_rows(events.agents, events.entities, share, seed)
    return events.take(train), events.take(test)


def fit_model(model: Any, events: Events, source: str, shell: Shell, **more: Any) -> Any:
    from fedhlcr.data.table_files import source_name

    recipe = events.recipe
    # entities are counted only if it matters, because it takes as long as reading them
    if isinstance(model.n_clusters, int):
        require_enough_entities(events, model.n_clusters)
    model.fit(events.table, events.y, agent=recipe.agent, entity=recipe.entity, **events.with_exposure, **more)
    model.recipe_ = recipe
    command = shlex.join(["fedhlcr", *sys.argv[1:]])
    model.provenance_ = {"data": source_name(source), "events": len(events), "command": command}
    note_if_not_settled(model, shell)
    return model


def require_enough_entities(events: Events, n_clusters: int) -> None:
    refuse_too_many_clusters(n_clusters, events.n_entities)


def refuse_too_many_clusters(n_clusters: int, n_entities: int) -> None:
    if n_clusters > n_entities:
        reason = f"must not exceed the number of entities; the table has {plural(n_entities, 'entity', 'entities')}."
        raise typer.BadParameter(reason, param_hint="--clusters")


def note_if_not_settled(model: Any, shell: Shell) -> None:
    """Print a note if a single chain had not settled. For several chains the library warns if they disagree."""
    from fedhlcr.posterior.diagnostics import R_HAT_LIMIT, disagreement

    figures = disagreement(model.diagnostics_)
    if figures and getattr(model, "n_chains", 0) == 1:
        cure = f"run it longer (--sweeps {2 * model.n_sweeps}), or run several chains (--chains 4)"
        shell.note(f"the chain had not settled (R-hat is above {R_HAT_LIMIT} for: {figures}); {cure}")


def write_model(model: Any, out: Path, shell: Shell, *, public: bool) -> Path:
    """Write a model and return its path. An interrupted fit gets a name of its own and does not replace a full one."""
    from fedhlcr.cli.output import write_output
    from fedhlcr.estimators import saving

    if shell.interrupted:
        out = out.with_name(f"{out.name}.interrupted")
    with shell.stage("writing the model"):
        write_output(out, partial(saving.write, model, public=public))
    return out


def end(shell: Shell) -> None:
    """End with an exit code of its own if the fit was interrupted."""
    if shell.interrupted:
        raise typer.Exit(INTERRUPTED)
