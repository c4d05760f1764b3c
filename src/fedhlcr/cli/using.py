"""`fedhlcr predict`, `evaluate`, `adapt`, `inspect` and `report`: what one does with a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhlcr.cli import options
from fedhlcr.cli.shell import Shell, plural
from fedhlcr.exceptions import ModelFileError

if TYPE_CHECKING:
    from fedhlcr.cli.scoring import AnyScores

# Agents shown on a terminal.
MOST_AGENTS = 50


def predict(
    model: options.ModelArgument,
    data: options.DataArgument,
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
    new_agents: options.NewAgentsOption = False,
    missing: options.ModelMissingOption = None,
    agent: options.KnownAgent = None,
    entity: options.KnownEntity = None,
    exposure: options.KnownExposure = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    progress: options.ProgressOption = None,
) -> None:
    """Predict the target of events.

    Writes a row for each event: its row number in DATA, its agent and entity, the prediction, its standard deviation
    and, with --interval, the two ends of an interval. For a known entity the prediction uses its training events, for
    a new entity the other entities of its agent, and for a new agent (with --new-agents) all agents.

    Of two classes it writes the probability of the second one (its name is in a note) and the more probable class; the
    interval is that of the probability. Of counts it writes the mean, and intervals of whole numbers.
    """
    import pyarrow as pa

    import fedhlcr
    from fedhlcr.cli.events import Roles, events_to_predict
    from fedhlcr.cli.output import STDOUT, check_table_output, free_name, write_table
    from fedhlcr.cli.scoring import predict_events
    from fedhlcr.estimators.targets import BinaryTarget

    shell = Shell(as_json, quiet, progress)
    check_table_output(out, model, data, stdout=True)
    out = None if str(out) == STDOUT else out
    with shell.warnings_as_notes():
        fitted = fedhlcr.load(model)
        roles = Roles(None, agent, entity, exposure)
        events = events_to_predict(
            fitted, data, roles, target=False, missing=missing, new_agents=new_agents, shell=shell
        )
        predicted = predict_events(fitted, events, interval, shell)
    id_columns = events.prepared.id_columns
    ids = dict(zip(id_columns.column_names, id_columns.columns, strict=True))
    figures = {"prediction": predicted.mean, "std": predicted.std}
    if isinstance(fitted, BinaryTarget):
        shell.note(f"probabilities are those of the class {str(fitted.classes_[1])!r}")
        classes = fitted.classes_[(predicted.mean > 0.5).astype(int)]
        figures = {"probability": predicted.mean, "prediction": classes}
    if interval is not None:
        figures |= {"lower": predicted.quantiles[:, 0], "upper": predicted.quantiles[:, 1]}
    table = pa.table(
        {
            free_name("row", ids): events.prepared.rows + 1,
            **ids,
            **{free_name(name, ids): values for name, values in figures.items()},
        }
    )
    if out is not None:
        write_table(out, table)
        shell.result({"events": len(events), "predictions": str(out)})
        shell.wrote(out)
    elif as_json:
        shell.result(table.to_pydict())
    else:
        write_table(None, table)


def evaluate(
    model: options.ModelArgument,
    data: options.DataArgument,
    level: options.LevelOption = 0.9,
    by_agent: Annotated[
        bool, typer.Option("--by-agent", help="Also show the scores of each agent, worst first.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the scores of each agent to this table.")
    ] = None,
    new_agents: options.NewAgentsOption = False,
    missing: options.ModelMissingOption = None,
    target: options.KnownTarget = None,
    agent: options.KnownAgent = None,
    entity: options.KnownEntity = None,
    exposure: options.KnownExposure = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    progress: options.ProgressOption = None,
) -> None:
    """Evaluate a model on events it was not fitted to: R², errors, and the share of targets inside their intervals.

    For comparison it shows one ridge for all events, a ridge for each entity, and a mixed model like lme4's, fitted to
    the same events as the model. Log density is the mean log predictive density of an event, in nats.

    For two classes it shows log loss, AUC, Brier score, accuracy and calibration, beside one rate for all events, a
    rate for each entity, and one logistic regression. For counts it shows the Poisson deviance, D², errors and
    intervals, beside such rates and one Poisson regression.
    """
    import pyarrow as pa

    import fedhlcr
    from fedhlcr.analysis.evaluation import rows_by_agent
    from fedhlcr.cli.events import Roles, events_to_predict, seen
    from fedhlcr.cli.output import check_table_output, write_table
    from fedhlcr.cli.scoring import predict_events, scores_of, tell_calibration, tell_rivals, tell_scores
    from fedhlcr.data.hierarchy import row_agents
    from fedhlcr.estimators.targets import BinaryTarget

    shell = Shell(as_json, quiet, progress)
    check_table_output(out, model, data)
    with shell.warnings_as_notes():
        fitted = fedhlcr.load(model)
        roles = Roles(target, agent, entity, exposure)
        events = events_to_predict(
            fitted, data, roles, target=True, missing=missing, new_agents=new_agents, shell=shell
        )
        if seen(fitted, events):
            shell.note("the model was fitted to these very events, so these scores are optimistic")
        predicted = predict_events(fitted, events, level, shell)
        result = tell_scores(shell, scores_of(fitted, events, predicted, level), "event")
        if isinstance(fitted, BinaryTarget):
            result["calibration"] = tell_calibration(shell, fitted, events, predicted)
        if rivals := tell_rivals(shell, fitted, events, predicted):
            result["compared"] = rivals
    if by_agent or out is not None:
        by = [
            (name, scores_of(fitted, events, predicted, level, rows))
            for name, rows in rows_by_agent(row_agents(events.agents, len(events)))
        ]
        if events.agents is None:
            by = [("all events", scores) for _, scores in by]
        result["agents"] = [{"agent": name, **scores._asdict()} for name, scores in by]
        if out is not None:
            write_table(out, pa.Table.from_pylist([row | {"agent": str(row["agent"])} for row in result["agents"]]))
            shell.wrote(out)
        if by_agent:
            _tell_agents(shell, by)
    shell.result(result)


def _tell_agents(shell: Shell, by: list[tuple[Any, AnyScores]]) -> None:
    from fedhlcr.cli.scoring import AGENT_COLUMNS, figure

    shell.say()
    criterion, columns = AGENT_COLUMNS[type(by[0][1])]
    worst = sorted(by, key=lambda pair: -getattr(pair[1], criterion))
    rows = [
        (str(agent), f"{scores.n_events:,}", *(figure(scores, field) for field in columns.values()))
        for agent, scores in worst[:MOST_AGENTS]
    ]
    shell.table(("agent, worst first", "events", *columns), rows)
    if len(by) > MOST_AGENTS:
        shell.say(f"… and {plural(len(by) - MOST_AGENTS, 'more agent')}; --out FILE or --json shows all.")


def adapt(
    model: options.ModelArgument,
    data: options.DataArgument,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Write the adapted model to this file.")],
    missing: options.ModelMissingOption = None,
    target: options.KnownTarget = None,
    agent: options.KnownAgent = None,
    entity: options.KnownEntity = None,
    exposure: options.KnownExposure = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    progress: options.ProgressOption = None,
) -> None:
    """Add new events of known or new agents to a model, without fitting the clusters again.

    DATA must not hold events that the model was fitted to: they would count twice. Predictions change only for the
    agents in DATA.
    """
    import fedhlcr
    from fedhlcr.cli.events import Roles, events_for, seen
    from fedhlcr.cli.output import check_output, write_output
    from fedhlcr.storage import model_file

    shell = Shell(as_json, quiet, progress)
    check_output(out, data)
    with shell.warnings_as_notes():
        fitted = fedhlcr.load(model)
        roles = Roles(target, agent, entity, exposure)
        events = events_for(fitted, data, roles, target=True, missing=missing, shell=shell)
        if seen(fitted, events):
            shell.note("the model was fitted to these very events, so they now count twice")
        with shell.stage("adapting"):
            adapted = fitted.adapt(
                events.table, events.y, agent=events.agents, entity=events.entities, **events.with_exposure
            )
    write_output(out, model_file.to_bytes(adapted))
    counts = {"n_events": len(events)}
    for name, before, after in (
        ("agents", fitted.agent_ids_, adapted.agent_ids_),
        ("entities", fitted.pair_ids_, adapted.pair_ids_),
    ):
        counts[f"new_{name}"] = len(after) - len(before)
    shell.say(
        f"Added {plural(len(events), 'event')}: {plural(counts['new_agents'], 'new agent')}, "
        f"{plural(counts['new_entities'], 'new entity', 'new entities')}."
    )
    shell.result(counts | {"model": str(out)})
    shell.wrote(out)


def inspect(
    model: options.ModelArgument,
    entities: Annotated[
        Path | None,
        typer.Option(
            "--entities",
            metavar="FILE",
            help="Write the coefficients of each entity to this .csv, .csv.gz, .parquet, .feather or .arrow file. "
            "A dash (-) writes CSV to standard output, and nothing else.",
        ),
    ] = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Show the contents of a model file: data, clusters, settings and origin.

    With --entities it also writes a table with a row for each entity of each agent: the ids, the cluster, the intercept
    and the coefficient of each feature, their standard deviations (with the ending _std), and the noise. With curves,
    coefficients are those of the straight lines. A public model has no entities. Coefficients of two classes are log
    odds ratios, those of counts are logs of rate ratios; such models have no noise.
    """
    import fedhlcr
    from fedhlcr.cli.output import STDOUT, check_table_output, write_table
    from fedhlcr.cli.telling import entity_table, model_facts, tell_model

    shell = Shell(as_json, quiet)
    check_table_output(entities, model, stdout=True)
    if as_json and str(entities) == STDOUT:
        raise typer.BadParameter("must be a file with --json; name a file.", param_hint="--entities")
    with shell.warnings_as_notes():
        fitted = fedhlcr.load(model)
        if entities is not None:
            _require_entities(fitted, model)
            with shell.stage("computing the coefficients of entities"):
                table = entity_table(fitted)
            write_table(entities, table)
            if str(entities) == STDOUT:
                return
        tell_model(shell, fitted)
    facts = model_facts(fitted)
    shell.table(("provenance", ""), [(name, str(value)) for name, value in facts["provenance"].items()], left=(0, 1))
    shell.result(facts)
    if entities is not None:
        shell.wrote(entities)


def _require_entities(model: Any, path: Path) -> None:
    if not len(model.pair_ids_):
        raise ModelFileError(
            f"{path.name!r} is public, so it has no entities; use the model that was written without --public, or "
            "adapt this one to events first."
        )


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
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Write the report to this file.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.")] = None,
    new_agents: options.NewAgentsOption = False,
    missing: options.ModelMissingOption = None,
    target: options.KnownTarget = None,
    agent: options.KnownAgent = None,
    entity: options.KnownEntity = None,
    exposure: options.KnownExposure = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    progress: options.ProgressOption = None,
) -> None:
    """Write a report on a model: one HTML file that any browser shows."""
    import fedhlcr
    from fedhlcr.cli.events import Roles, events_to_predict
    from fedhlcr.cli.output import check_output, write_output
    from fedhlcr.report import HeldOut, render_report

    shell = Shell(as_json, quiet, progress)
    for_data = {"new_agents": new_agents, "missing": missing, "target": target, "agent": agent, "entity": entity}
    for_data["exposure"] = exposure
    options.require_for("DATA", data is not None, **for_data)
    check_output(out, model, data)
    with shell.warnings_as_notes():
        fitted = fedhlcr.load(model)
        held_out = None
        if data is not None:
            roles = Roles(target, agent, entity, exposure)
            events = events_to_predict(
                fitted, data, roles, target=True, missing=missing, new_agents=new_agents, shell=shell
            )
            held_out = HeldOut(events.table, events.y, events.agents, events.entities, events.exposure)
        with shell.stage("writing the report"):
            page = render_report(fitted, held_out, title=title)
    write_output(out, page.encode())
    shell.result({"report": str(out)})
    shell.wrote(out)
