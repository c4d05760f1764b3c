"""`fedhlcr predict`, `evaluate`, `adapt` and `report`: what one does with a model."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhlcr.cli import options
from fedhlcr.cli.shell import plural

if TYPE_CHECKING:
    import pyarrow as pa


def predict(
    model: options.ModelArgument,
    data: options.DataArgument,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write to this .csv, .csv.gz, .parquet, .feather or .arrow file instead of standard output.",
        ),
    ] = None,
    interval: Annotated[
        float | None,
        options.real("--interval", 0.01, 0.999, "Add the central interval with this probability, such as 0.9."),
    ] = None,
    reading: options.ReadingToPredict,
    roles: options.KnownRolesToPredict,
    stream: options.StreamOption = None,
    shell: options.Output,
) -> None:
    """Predict the target of events.

    Writes a row for each event: its row number in DATA, its agent and entity, the prediction, its standard deviation
    and, with --interval, the two ends of an interval. For a known entity the prediction uses its training events, for
    a new entity the other entities of its agent, and for a new agent (with --new-agents) all agents.

    Of two classes it writes the probability of the second one (its name is in a note) and the more probable class; the
    interval is that of the probability. Of counts it writes the mean, and intervals of whole numbers.

    \b
    fedhlcr predict sales.fedhlcr test.csv --interval 0.9 --out predictions.csv
    """
    from fedhlcr.cli.events import events_to_predict, is_streamed, open_events
    from fedhlcr.cli.output import STDOUT, check_table_output, write_table
    from fedhlcr.cli.predicting import open_batches, prediction_table, write_predictions
    from fedhlcr.cli.scoring import predict_events
    from fedhlcr.cli.start_up import import_blas_lazily
    from fedhlcr.storage.model_reader import load_model

    # the kernels have no matrix products
    import_blas_lazily()
    check_table_output(out, model, data, stdout=True)
    out = None if str(out) == STDOUT else out
    table = None
    with shell.warnings_as_notes():
        fitted: Any = load_model(model)
        file = open_events(data, shell)
        reading |= {"target": False, "shell": shell}
        # one object of JSON is in memory anyway
        if is_streamed(file, stream) and not (shell.json and out is None):
            batches = open_batches(fitted, file, roles, **reading)
            write_predictions(fitted, batches, interval, out, shell)
            n_events = batches.n_events
        else:
            events = events_to_predict(fitted, file, roles, **reading)
            n_events = len(events)
            predicted = predict_events(fitted, events, interval, shell)
            table = prediction_table(fitted, events, predicted, with_interval=interval is not None)
    if fitted.family.has_classes:
        shell.note(f"probabilities are those of the class {str(fitted.classes_[1])!r}")
    if out is not None:
        if table is not None:
            write_table(out, table)
        shell.result({"events": n_events, "predictions": str(out)})
        shell.wrote(out)
    elif table is not None and shell.json:
        shell.result(table.to_pydict())
    elif table is not None:
        write_table(None, table)


def evaluate(
    model: options.ModelArgument,
    data: options.DataArgument,
    *,
    level: Annotated[float, options.real("--level", 0.01, 0.999, "Probability of the intervals.")] = 0.9,
    by_agent: Annotated[
        bool, typer.Option("--by-agent", help="Also show the scores of each agent, worst first.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the scores of each agent to this table.")
    ] = None,
    reading: options.ReadingToPredict,
    roles: options.KnownRoles,
    stream: options.StreamOption = None,
    shell: options.Output,
) -> None:
    """Evaluate a model on events it was not fitted to: R², errors, and the share of targets inside their intervals.

    For comparison it shows one ridge for all events, a ridge for each entity, and a mixed model like lme4's, fitted to
    the same events as the model. Log density is the mean log predictive density of an event, in nats.

    For two classes it shows log loss, AUC, Brier score, accuracy and calibration, beside one rate for all events, a
    rate for each entity, and one logistic regression. For counts it shows the Poisson deviance, D², errors and
    intervals, beside such rates and one Poisson regression.

    \b
    fedhlcr evaluate sales.fedhlcr test.csv --by-agent
    """
    import pyarrow as pa

    import fedhlcr
    from fedhlcr.analysis import evaluation
    from fedhlcr.analysis.evaluation import SeenEvents
    from fedhlcr.cli.events import events_to_predict, is_streamed, open_events
    from fedhlcr.cli.output import check_table_output, write_table
    from fedhlcr.cli.predicting import open_batches, predict_batches
    from fedhlcr.cli.scoring import EventScores, predict_events, tell_agents, tell_calibration, tell_rivals, tell_scores

    check_table_output(out, model, data)
    wants_agents = by_agent or out is not None
    compared = None
    with shell.warnings_as_notes():
        fitted = fedhlcr.load(model)
        file = open_events(data, shell)
        reading |= {"target": True, "shell": shell}
        if is_streamed(file, stream):
            seen = SeenEvents(fitted)
            parts = predict_batches(fitted, open_batches(fitted, file, roles, **reading), level, seen, shell)
            found = EventScores(fitted, parts, level, by_agent=wants_agents)
            was_fitted = seen.were_fitted
        else:
            events = events_to_predict(fitted, file, roles, **reading)
            predicted = predict_events(fitted, events, level, shell)
            found = EventScores(fitted, [(events, predicted)], level, by_agent=wants_agents)
            with shell.stage("fitting simpler models"):
                compared = evaluation.evaluate(fitted, events.held_out, level, predicted)
            was_fitted = compared.was_fitted
        if was_fitted:
            shell.note("the model was fitted to these very events, so these scores are optimistic")
        result = tell_scores(shell, fitted.family, found.scores, "event")
        if found.calibrated is not None:
            result["calibration"] = tell_calibration(shell, *found.calibrated)
        if compared is None:
            shell.note("simpler models are compared only if the table is read at once; add --in-memory for that")
        elif rivals := tell_rivals(shell, compared):
            result["compared"] = rivals
    if wants_agents:
        result["agents"] = [{"agent": name, **scores.to_dict()} for name, scores in found.by_agent]
        if out is not None:
            write_table(out, pa.Table.from_pylist([row | {"agent": str(row["agent"])} for row in result["agents"]]))
            shell.wrote(out)
        if by_agent:
            tell_agents(shell, fitted.family, found.by_agent)
    shell.result(result)


def adapt(
    model: options.ModelArgument,
    data: options.DataArgument,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Write the adapted model to this file.")],
    reading: options.ReadingToAdapt,
    roles: options.KnownRoles,
    shell: options.Output,
) -> None:
    """Add new events of known or new agents to a model, without fitting the clusters again.

    DATA must not hold events that the model was fitted to: they would count twice. Predictions change only for the
    agents in DATA.

    \b
    fedhlcr adapt sales.fedhlcr test.csv --out adapted.fedhlcr
    """
    import fedhlcr
    from fedhlcr.cli.events import events_for, seen
    from fedhlcr.cli.output import check_output, write_output
    from fedhlcr.estimators import saving
    from fedhlcr.kernels import ahead

    check_output(out, data)
    with shell.warnings_as_notes():
        fitted = fedhlcr.load(model)
        events = events_for(fitted, data, roles, target=True, shell=shell, **reading)
        ahead.prepare(ahead.for_adapting(fitted.posterior_.likelihood.name))
        if seen(fitted, events):
            shell.note("the model was fitted to these very events, so they now count twice")
        with shell.stage("adapting"):
            adapted = fitted.adapt(
                events.table, events.y, agent=events.agents, entity=events.entities, **events.with_exposure
            )
    write_output(out, partial(saving.write, adapted))
    counts = {"n_events": len(events)}
    before, after = (one.posterior_.memory.entities.index for one in (fitted, adapted))
    counts |= {"new_agents": after.n_agents - before.n_agents, "new_entities": after.n_entities - before.n_entities}
    shell.say(
        f"Added {plural(len(events), 'event')}: {plural(counts['new_agents'], 'new agent')}, "
        f"{plural(counts['new_entities'], 'new entity', 'new entities')}."
    )
    shell.result(counts | {"model": str(out)})
    shell.wrote(out)


def report(
    model: options.ModelArgument,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="[DATA]",
            help="A table of events that the model was not fitted to, for an evaluation.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Write the report to this file.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.")] = None,
    places: Annotated[
        str | None,
        typer.Option(
            "--places",
            metavar="FILE",
            help="A table of where entities or agents are, for a map: a column of their ids, named as in the fit, and "
            "latitude and longitude in degrees. A column `place` may name the places.",
            show_default=False,
        ),
    ] = None,
    draw: Annotated[
        str | None,
        typer.Option(
            "--draw",
            metavar="TABLE",
            help="A table of events to draw as dots, such as the fitted ones. Default: DATA.",
            show_default=False,
        ),
    ] = None,
    reading: options.ReadingToPredict,
    roles: options.KnownRoles,
    shell: options.Output,
) -> None:
    """Write a report on a model: one HTML file that any browser shows.

    With --places the report has a map.

    \b
    fedhlcr report sales.fedhlcr test.csv --out report.html
    """
    import fedhlcr
    from fedhlcr.cli.events import events_to_predict
    from fedhlcr.cli.output import check_output, write_output
    from fedhlcr.kernels import ahead
    from fedhlcr.report import HeldOut, render_report

    options.require_for("DATA", data is not None or draw is not None, reading | asdict(roles))
    check_output(out, model, data, draw, places)
    with shell.warnings_as_notes():
        fitted = fedhlcr.load(model)
        ahead.prepare(ahead.for_reports(fitted.posterior_.likelihood.name))
        located = None if places is None else _read_places(fitted, places)

        def read(table: str | None) -> HeldOut | None:
            if table is None:
                return None
            return events_to_predict(fitted, table, roles, target=True, shell=shell, **reading).held_out

        held_out = read(data)
        drawn = read(draw)
        with shell.stage("writing the report"):
            page = render_report(fitted, held_out, title=title, events=drawn, places=located)
    write_output(out, page.encode())
    shell.result({"report": str(out)})
    shell.wrote(out)


def _read_places(model: Any, source: str) -> pa.Table:
    """Read the columns that a map needs: ids and names of places as texts, coordinates as numbers."""
    from fedhlcr.data.table_files import open_table
    from fedhlcr.report.places import place_columns

    file = open_table(source)
    ids, coordinates, name = place_columns(model, file.columns)
    texts = [*ids, *([] if name is None else [name])]
    return file.read([*texts, *coordinates], texts)
