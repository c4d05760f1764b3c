"""`fedhlcr fit`, `fedhlcr simulate` and `fedhlcr select`: from a table to a model.

Modules that take long to import are imported inside the commands, so that help and usage errors appear at once.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhlcr._support.wording import Noun
from fedhlcr.cli import options
from fedhlcr.cli.shell import INTERRUPTED, Shell, plural

if TYPE_CHECKING:
    from fedhlcr.cli.events import Events

# R-hat above which a note is printed for a single chain. It varies more than R-hat of several chains.
NOT_CONVERGED = 1.2
ModelOut = Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Write the model to this file.")]


def fit(
    data: options.DataArgument,
    target: options.TargetOption,
    entity: options.EntityOption,
    out: ModelOut,
    agent: options.AgentOption = None,
    features: options.FeaturesOption = None,
    categorical: options.CategoricalOption = None,
    exposure: options.ExposureOption = None,
    missing: options.MissingOption = options.Missing.refuse,
    family: options.FamilyOption = options.Family.auto,
    clusters: options.ClustersOption = "auto",
    max_clusters: options.MaxClustersOption = 64,
    effects: options.EffectsOption = options.Effects.auto,
    noise: options.NoiseOption = options.Noise.entity,
    curves: options.CurvesOption = None,
    chains: Annotated[
        int,
        typer.Option(
            "--chains",
            min=1,
            help="Number of independent chains. With more than one, a note is printed if they disagree.",
            rich_help_panel=options.MODEL_OPTIONS,
        ),
    ] = 1,
    sweeps: options.SweepsOption = None,
    seed: options.SeedOption = 0,
    threads: options.ThreadsOption = None,
    hold_out: options.HoldOut = 0.0,
    public: options.PublicOption = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    progress: options.ProgressOption = None,
) -> None:
    """Fit a model to a table and write it to a file.

    Every entity of an agent is assigned to one of K clusters. Each cluster has its own linear regression of the target
    on the features; with --curves, regressions may bend. Entities of one cluster may differ a little, and each has its
    own noise; see --effects and --noise. Unless you set the number of clusters, it is found from the data. Targets may
    also be two classes (logistic regressions) or counts (negative binomial regressions with a log link); see --family.

    \b
    fedhlcr fit sales.csv --target sales --agent store --entity product \\
        --categorical promotion --missing impute --hold-out 0.2 --out sales.fedhlcr
    """
    from fedhlcr.cli.events import Roles, training_events
    from fedhlcr.cli.families import make_estimator
    from fedhlcr.cli.output import check_output
    from fedhlcr.cli.scoring import score, tell_scores
    from fedhlcr.cli.telling import model_facts, tell_model

    shell = Shell(as_json, quiet, progress)
    check_output(out, data)
    n_clusters = options.cluster_number(clusters)
    with shell.warnings_as_notes():
        roles = Roles(target, agent, entity, exposure)
        events, told = training_events(
            data, roles, features=features, categorical=categorical, missing=missing, family=family, shell=shell
        )
        train, test = _split(events, hold_out, seed)
        model = make_estimator(
            told,
            noise=noise,
            n_clusters=n_clusters,
            max_clusters=max_clusters,
            effects=effects.value,
            curves=options.curve_names(curves, events.recipe),
            n_chains=chains,
            n_sweeps=sweeps,
            random_state=seed,
            n_threads=threads,
            verbose=shell.shows_progress,
        )
        _fit(model, train, data, shell)
        out = _write_model(model, out, shell, public=public)
        facts = model_facts(model)
        tell_model(shell, model)
        if test is not None:
            facts["held_out"] = tell_scores(shell, score(model, test, shell=shell), "held-out event")
        shell.result(facts | {"model": str(out)})
        shell.wrote(out)
        _end(shell)


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
    missing: options.MissingOption = options.Missing.refuse,
    family: options.FamilyOption = options.Family.auto,
    participation: Annotated[
        float,
        options.real("--participation", 1e-6, 1.0, "Share of the agents to ask in each round.", "Federation"),
    ] = 1.0,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            min=1,
            help="Maximum number of rounds. By default the run ends when it has converged.",
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
    clusters: options.ClustersOption = "auto",
    max_clusters: options.MaxClustersOption = 64,
    effects: options.EffectsOption = options.Effects.auto,
    noise: options.NoiseOption = options.Noise.entity,
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
    from fedhlcr.cli.budgets import budgets, require_budgets_possible, tell_budgets
    from fedhlcr.cli.events import Roles, training_events
    from fedhlcr.cli.families import make_estimator, outcomes
    from fedhlcr.cli.output import check_output, check_table_output, write_table
    from fedhlcr.cli.telling import history_table, model_facts

    shell = Shell(as_json, quiet, progress)
    options.require_for("--out", out is not None, public=public)
    options.require_apart("--history", history, "--out", out)
    check_output(out, data)
    check_table_output(history, data)
    found = budgets(epsilon, delta)
    shared: dict[str, Any] = {
        "n_clusters": options.cluster_number(clusters),
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
        train, test = _split(events, hold_out, seed)
        shared["curves"] = options.curve_names(curves, events.recipe)
        federation: dict[str, Any] = {"participation": participation, "rounds": rounds, "failure_rate": failure_rate}
        model = make_estimator(told, federated=True, **shared, **federation)
        # a run cannot validate events with exposures
        validation = {} if test is None else {"validation": _held_out(test)}
        _fit(model, train, data, shell, **validation)
        if out is not None:
            out = _write_model(model, out, shell, public=public)
        if history is not None:
            write_table(history, history_table(model.history_))
        _tell_rounds(shell, model, None if test is None else outcomes(model, test.y))
        facts = model_facts(model)
        if test is not None:
            central = _fit(make_estimator(told, **shared), train, data, shell)
            facts["held_out"] = _tell_both(shell, model, central, test)
            if found:
                private = {name: shared[name] for name in ("n_clusters", "max_clusters", "random_state", "n_threads")}
                private["failure_rate"] = failure_rate
                facts["privacy"] = tell_budgets(shell, found, (train, test), private)
        shell.result(facts)
        for path in (out, history):
            if path is not None:
                shell.wrote(path)
        _end(shell)


def select(
    data: options.DataArgument,
    target: options.TargetOption,
    entity: options.EntityOption,
    agent: options.AgentOption = None,
    features: options.FeaturesOption = None,
    categorical: options.CategoricalOption = None,
    missing: options.MissingOption = options.Missing.refuse,
    family: options.FamilyOption = options.Family.auto,
    clusters: Annotated[
        str | None,
        typer.Option(
            "--clusters",
            metavar="K,K,…",
            help="Numbers of clusters to compare, separated by commas. Default: 1 to 64 in growing steps.",
            rich_help_panel=options.MODEL_OPTIONS,
        ),
    ] = None,
    splits: Annotated[
        int,
        typer.Option(
            "--splits",
            min=1,
            help="Number of times to hold out events and fit again.",
            rich_help_panel=options.MODEL_OPTIONS,
        ),
    ] = 3,
    hold_out: Annotated[
        float, options.real("--hold-out", 0.01, 0.9, "Share of each entity's events to hold out.")
    ] = 0.2,
    effects: options.EffectsOption = options.Effects.auto,
    noise: options.NoiseOption = options.Noise.entity,
    curves: options.CurvesOption = None,
    sweeps: options.SweepsOption = None,
    seed: options.SeedOption = 0,
    threads: options.ThreadsOption = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Plot the comparison to this .png, .svg or .pdf file."),
    ] = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    progress: options.ProgressOption = None,
) -> None:
    """Compare numbers of clusters by how well each predicts held-out events.

    The held-out log density is the criterion: it is higher if predictions and their uncertainty are better. The
    suggested number is the smallest one within one standard error of the best. For the paper's model (--effects none
    --noise common) the evidence is shown too: how probable the data are for that number.

    \b
    fedhlcr select sales.csv --target sales --agent store --entity product \\
        --plot select.png
    """
    from fedhlcr.cli.events import Roles, training_events
    from fedhlcr.cli.families import make_estimator
    from fedhlcr.cli.pictures import check_picture, draw_comparison
    from fedhlcr.cli.telling import tell_comparison

    shell = Shell(as_json, quiet, progress)
    check_picture(plot, data)
    counts = None if clusters is None else options.cluster_numbers(clusters)
    with shell.warnings_as_notes():
        roles = Roles(target, agent, entity)
        events, told = training_events(
            data, roles, features=features, categorical=categorical, missing=missing, family=family, shell=shell
        )
        if told != "real":
            raise typer.BadParameter(
                "select compares models of real targets only; fit finds the number of clusters for other targets, and "
                "--family real compares regressions on the numbers.",
                param_hint="--family",
            )
        if counts is not None:
            _require_enough_entities(events, max(counts))
        estimator = make_estimator(
            told,
            noise=noise,
            effects=effects.value,
            curves=options.curve_names(curves, events.recipe),
            n_sweeps=sweeps,
            random_state=seed,
            n_threads=threads,
        )
        sizes = {"counts": counts, "n_splits": splits, "fraction": hold_out}
        comparison = _compare(estimator, events, shell, **sizes, random_state=seed)
    if plot is not None:
        draw_comparison(comparison, plot)
    tell_comparison(shell, comparison)
    shell.result(comparison.to_dict())
    if plot is not None:
        shell.wrote(plot)


def _compare(estimator: Any, events: Events, shell: Shell, **settings: Any) -> Any:
    """Compare numbers of clusters, with progress after each fit."""
    from fedhlcr import compare_cluster_counts

    with shell.bar(None, "comparing", Noun("fit", "fits")) as bar:

        def tell(_: int, total: int, message: str) -> None:
            bar.total = total
            bar.advance({"": message})

        agent, entity = events.recipe.agent, events.recipe.entity
        return compare_cluster_counts(
            events.table, events.y, agent, entity, estimator=estimator, progress=tell, **settings
        )


def _tell_both(shell: Shell, federated: Any, centralised: Any, test: Events) -> dict[str, Any]:
    from fedhlcr.cli.scoring import compared, score

    both = {"federated": score(federated, test, shell=shell), "centralised": score(centralised, test, shell=shell)}
    shell.table(*compared("held-out events", both))
    return {name: scores._asdict() for name, scores in both.items()}


def _tell_rounds(shell: Shell, model: Any, y: Any) -> None:
    from fedhlcr.analysis.rounds import describe_run, tabulate_rounds

    shell.table(*tabulate_rounds(model, None if y is None else y.var()), left=())
    for sentence in describe_run(model):
        shell.say(sentence)
    shell.say()


def _held_out(test: Events) -> tuple[Any, ...]:
    """Events as `validation` takes them."""
    ids = test.table, test.y, test.agents, test.entities
    return ids if test.exposure is None else (*ids, test.exposure)


def _split(events: Events, share: float, seed: int) -> tuple[Events, Events | None]:
    from fedhlcr.cli.events import hold_out_rows

    if not share:
        return events, None
    train, test = hold_out_rows(events.agents, events.entities, share, seed)
    return events.take(train), events.take(test)


def _fit(model: Any, events: Events, source: str, shell: Shell, **more: Any) -> Any:
    from fedhlcr.data.table_files import source_name

    recipe = events.recipe
    # entities are counted only if it matters, because it takes as long as reading them
    if isinstance(model.n_clusters, int):
        _require_enough_entities(events, model.n_clusters)
    model.fit(events.table, events.y, agent=recipe.agent, entity=recipe.entity, **events.with_exposure, **more)
    model.recipe_ = recipe
    command = shlex.join(["fedhlcr", *sys.argv[1:]])
    model.provenance_ = {"data": source_name(source), "events": len(events), "command": command}
    _note_if_not_converged(model, shell)
    return model


def _require_enough_entities(events: Events, n_clusters: int) -> None:
    if n_clusters > (n_entities := events.n_entities):
        reason = f"must not exceed the number of entities; the table has {plural(n_entities, 'entity', 'entities')}."
        raise typer.BadParameter(reason, param_hint="--clusters")


def _note_if_not_converged(model: Any, shell: Shell) -> None:
    """Print a note if a single chain has not converged. For several chains the library warns if they disagree."""
    apart = [figures for figures in model.diagnostics_ if figures.r_hat > NOT_CONVERGED]
    if apart and getattr(model, "n_chains", 0) == 1:
        r_hats = ", ".join(f"{figures.quantity} {figures.r_hat:.2f}" for figures in apart)
        cure = f"run it longer (--sweeps {2 * model.n_sweeps}), or run several chains (--chains 4)"
        shell.note(f"the chain has not converged (R-hat should be near 1: {r_hats}); {cure}")


def _write_model(model: Any, out: Path, shell: Shell, *, public: bool) -> Path:
    """Write a model and return its path. An interrupted fit gets a name of its own and does not replace a full one."""
    from fedhlcr.cli.output import write_output
    from fedhlcr.storage import model_file

    if shell.interrupted:
        out = out.with_name(f"{out.name}.interrupted")
    with shell.stage("writing the model"):
        write_output(out, model_file.to_bytes(model, public=public))
    return out


def _end(shell: Shell) -> None:
    """End with an exit code of its own if the fit was interrupted."""
    if shell.interrupted:
        raise typer.Exit(INTERRUPTED)
