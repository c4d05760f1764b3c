"""`fedhlcr simulate`: a federation of a table's agents in one process.

Modules that take long to import are imported inside the command, so that help and usage errors appear at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhlcr.cli import options
from fedhlcr.cli.shell import Shell

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from fedhlcr.cli.events import Events

Federation = Annotated[
    dict[str, Any],
    options.settings("participation", "rounds", options.setting("failure_rate", max=0.999), "aggregation"),
]
SettingsToSimulate = Annotated[
    dict[str, Any],
    options.settings("n_clusters", "max_clusters", "effects", "noise", "curves", "random_state", "n_threads"),
]


def simulate(
    data: options.DataArgument,
    *,
    roles: Annotated[options.Roles, options.roles(*options.ROLES, needed=("target", "entity", "agent"))],
    reading: options.Reading,
    federation: Federation,
    epsilon: Annotated[
        str | None,
        typer.Option(
            "--epsilon",
            metavar="E,E,…",
            help="Also show what these budgets of differential privacy would cost in accuracy.",
            rich_help_panel=options.FEDERATION,
        ),
    ] = None,
    delta: Annotated[
        float | None,
        options.real("--delta", 1e-300, 0.5, "δ of these budgets. Default: N^-1.1 for N agents.", options.FEDERATION),
    ] = None,
    settings: SettingsToSimulate,
    hold_out: options.HoldOutOption = 0.2,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="MODEL", help="Write the model to this file.")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FILE", help="Write a table with a row for every round to this file."),
    ] = None,
    public: options.PublicOption = False,
    shell: options.Output,
) -> None:
    """Simulate a federation of the table's agents, and compare it with a fit to all events at once.

    Each agent keeps its events. In every round a server asks some agents for sums over the entities of each cluster.
    With --failure-rate, some of these agents fail: they do not answer, or their answer is lost or too late.
    With --epsilon, the table shows before you spend a privacy budget what it would cost in accuracy.

    \b
    fedhlcr simulate sales.csv --target sales --agent store --entity product \\
        --participation .15 --rounds 60 --failure-rate .1
    """
    from fedhlcr.cli.budgets import budgets, note_ignored, require_budgets_possible, tell_budgets
    from fedhlcr.cli.descriptions import model_facts
    from fedhlcr.cli.events import training_events
    from fedhlcr.cli.families import make_estimator
    from fedhlcr.cli.output import check_output, check_table_output, write_table
    from fedhlcr.cli.training import end, fit_model, split_events, write_model
    from fedhlcr.posterior.fitted_model import check_model

    options.require_for("--out", out is not None, {"public": public})
    options.require_apart("--history", history, "--out", out)
    check_output(out, data)
    check_table_output(history, data)
    found = budgets(epsilon, delta)
    with shell.warnings_as_notes():
        events, family = training_events(data, roles, shell=shell, **reading)
        require_budgets_possible(found, family, hold_out=hold_out)
        note_ignored(shell, found, rounds=federation["rounds"], participation=federation["participation"])
        train, test = split_events(events, hold_out, settings["random_state"])
        settings["curves"] = options.curve_names(settings["curves"], events.recipe)
        settings["verbose"] = shell.shows_progress
        model = make_estimator(family, federated=True, **settings, **federation)
        # a run cannot validate events with exposures
        validation = {} if test is None else {"validation": _held_out(test)}
        fit_model(model, train, data, shell, **validation)
        if out is not None:
            out = write_model(model, out, shell, public=public)
        if history is not None:
            write_table(history, _history_table(model.history_))
        _tell_rounds(shell, model, None if test is None else check_model(model).numeric_target(test.y, len(test)))
        facts = model_facts(model)
        if test is not None:
            central = fit_model(make_estimator(family, **settings), train, data, shell)
            facts["held_out"] = _tell_both(shell, model, central, test)
            if found:
                private = {name: settings[name] for name in ("n_clusters", "max_clusters", "random_state", "n_threads")}
                private["failure_rate"] = federation["failure_rate"]
                facts["privacy"] = tell_budgets(shell, found, (train, test), private, federation["aggregation"])
        shell.result(facts)
        for path in (out, history):
            if path is not None:
                shell.wrote(path)
        end(shell)


def _tell_both(shell: Shell, federated: Any, centralised: Any, test: Events) -> dict[str, Any]:
    from fedhlcr.cli.scoring import compared, score

    both = {"federated": score(federated, test, shell=shell), "centralised": score(centralised, test, shell=shell)}
    shell.table(*compared("held-out events", federated.family, both))
    return {name: scores.to_dict() for name, scores in both.items()}


def _tell_rounds(shell: Shell, model: Any, y: Any) -> None:
    from fedhlcr.analysis.rounds import FederatedRun

    run = FederatedRun(model)
    shell.table(*run.table(None if y is None else y.var()), left=())
    shell.say(run.ending())
    shell.say(run.traffic_in_words())
    shell.say()


def _held_out(test: Events) -> tuple[Any, ...]:
    """Events as `validation` takes them."""
    ids = test.table, test.y, test.agents, test.entities
    return ids if test.exposure is None else (*ids, test.exposure)


def _history_table(history: NDArray[np.void]) -> pa.Table:
    """A table of the rounds of a federation, without the names of the participants."""
    import numpy as np
    import pyarrow as pa

    columns = [name for name in history.dtype.names or () if name != "participants"]
    return pa.table({name: np.ascontiguousarray(history[name]) for name in columns})
