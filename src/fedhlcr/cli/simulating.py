"""`fedhlcr simulate`: a federation of a table's agents in one process.

Modules that take long to import are imported inside the command, so that help and usage errors appear at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhlcr.cli import options
from fedhlcr.cli.choices import Aggregation, Effects, FamilyChoice, Missing, Noise
from fedhlcr.cli.model_runs import end, fit_model, split_events, write_model
from fedhlcr.cli.option_checks import cluster_number, curve_names, require_apart, require_for
from fedhlcr.cli.shell import Shell

if TYPE_CHECKING:
    from fedhlcr.cli.events import Events


def simulate(
    data: options.DataArgument,
    target: options.TargetOption,
    entity: options.EntityOption,
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            metavar="COLUMN",
            help="Column with the agent of each event.",
            rich_help_panel=options.COLUMNS,
        ),
    ],
    features: options.FeaturesOption = None,
    categorical: options.CategoricalOption = None,
    exposure: options.ExposureOption = None,
    missing: options.MissingOption = Missing.refuse,
    family: options.FamilyOption = FamilyChoice.auto,
    participation: Annotated[
        float,
        options.real("--participation", 1e-6, 1.0, "Share of the agents to ask in each round.", "Federation"),
    ] = 1.0,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            min=1,
            help="Maximum number of rounds. By default the run ends when its log joint is stable.",
            rich_help_panel="Federation",
        ),
    ] = None,
    failure_rate: Annotated[
        float,
        options.real("--failure-rate", 0.0, 0.999, "Probability that an agent fails when asked.", "Federation"),
    ] = 0.0,
    epsilon: Annotated[
        str | None,
        typer.Option(
            "--epsilon",
            metavar="E,E,…",
            help="Also show what these budgets of differential privacy would cost in accuracy.",
            rich_help_panel="Federation",
        ),
    ] = None,
    delta: Annotated[
        float | None,
        options.real("--delta", 1e-300, 0.5, "δ of these budgets. Default: N^-1.1 for N agents.", "Federation"),
    ] = None,
    aggregation: Annotated[
        Aggregation,
        typer.Option(
            "--aggregation",
            help="Whether the server sees the sums of every agent, or only their total. Secure aggregation takes "
            "longer, because every agent agrees on keys with all others in every round.",
            rich_help_panel="Federation",
        ),
    ] = Aggregation.plain,
    clusters: options.ClustersOption = "auto",
    max_clusters: options.MaxClustersOption = 64,
    effects: options.EffectsOption = Effects.auto,
    noise: options.NoiseOption = Noise.entity,
    curves: options.CurvesOption = None,
    seed: options.SeedOption = 0,
    threads: options.ThreadsOption = None,
    hold_out: options.HoldOut = 0.2,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="MODEL", help="Write the model to this file.")
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FILE", help="Write a table with a row for every round to this file."),
    ] = None,
    public: options.PublicOption = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    progress: options.ProgressOption = None,
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
    from fedhlcr.cli.events import Roles, training_events
    from fedhlcr.cli.families import make_estimator, outcomes
    from fedhlcr.cli.output import check_output, check_table_output, write_table
    from fedhlcr.cli.telling import history_table, model_facts

    shell = Shell(as_json, quiet, progress)
    require_for("--out", out is not None, public=public)
    require_apart("--history", history, "--out", out)
    check_output(out, data)
    check_table_output(history, data)
    found = budgets(epsilon, delta)
    shared: dict[str, Any] = {
        "n_clusters": cluster_number(clusters),
        "max_clusters": max_clusters,
        "effects": effects.value,
        "noise": noise,
        "random_state": seed,
        "n_threads": threads,
        "verbose": shell.shows_progress,
    }
    with shell.warnings_as_notes():
        roles = Roles(target, agent, entity, exposure)
        events, told = training_events(
            data, roles, features=features, categorical=categorical, missing=missing, family=family, shell=shell
        )
        require_budgets_possible(found, told, hold_out=hold_out)
        note_ignored(shell, found, rounds=rounds, participation=participation)
        train, test = split_events(events, hold_out, seed)
        shared["curves"] = curve_names(curves, events.recipe)
        federation: dict[str, Any] = {
            "participation": participation,
            "rounds": rounds,
            "failure_rate": failure_rate,
            "aggregation": aggregation.value,
        }
        model = make_estimator(told, federated=True, **shared, **federation)
        # a run cannot validate events with exposures
        validation = {} if test is None else {"validation": _held_out(test)}
        fit_model(model, train, data, shell, **validation)
        if out is not None:
            out = write_model(model, out, shell, public=public)
        if history is not None:
            write_table(history, history_table(model.history_))
        _tell_rounds(shell, model, None if test is None else outcomes(model, test.y))
        facts = model_facts(model)
        if test is not None:
            central = fit_model(make_estimator(told, **shared), train, data, shell)
            facts["held_out"] = _tell_both(shell, model, central, test)
            if found:
                private = {name: shared[name] for name in ("n_clusters", "max_clusters", "random_state", "n_threads")}
                private["failure_rate"] = failure_rate
                facts["privacy"] = tell_budgets(shell, found, (train, test), private, aggregation.value)
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
