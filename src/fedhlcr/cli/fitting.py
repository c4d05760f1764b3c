"""`fedhlcr fit` and `fedhlcr select`: from a table to a model.

Modules that take long to import are imported inside the commands, so that help and usage errors appear at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhlcr._support.wording import Noun
from fedhlcr.cli import options
from fedhlcr.cli.choices import Effects, FamilyChoice, Missing, Noise, Precision
from fedhlcr.cli.cluster import AddressOption, Cluster, Engine, EngineOption, WorkersOption
from fedhlcr.cli.model_runs import end, require_enough_entities, write_model
from fedhlcr.cli.option_checks import cluster_number, cluster_numbers, curve_names, require_columns
from fedhlcr.cli.shell import Shell

if TYPE_CHECKING:
    from fedhlcr.cli.events import Events

ModelOut = Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Write the model to this file.")]


def fit(
    data: options.DataArgument,
    out: ModelOut,
    target: options.FitTargetOption = None,
    entity: options.FitEntityOption = None,
    agent: options.AgentOption = None,
    features: options.FeaturesOption = None,
    categorical: options.CategoricalOption = None,
    formula: options.FormulaOption = None,
    exposure: options.ExposureOption = None,
    missing: options.MissingOption = Missing.refuse,
    family: options.FamilyOption = FamilyChoice.auto,
    clusters: options.ClustersOption = "auto",
    max_clusters: options.MaxClustersOption = 64,
    effects: options.EffectsOption = Effects.auto,
    noise: options.NoiseOption = Noise.entity,
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
    precision: options.PrecisionOption = Precision.double,
    threads: options.ThreadsOption = None,
    engine: EngineOption = Engine.here,
    workers: WorkersOption = None,
    address: AddressOption = None,
    hold_out: options.HoldOut = 0.0,
    public: options.PublicOption = False,
    stream: options.StreamOption = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    progress: options.ProgressOption = None,
) -> None:
    """Fit a model to a table and write it to a file.

    Every entity of an agent is assigned to one of K clusters. Each cluster has its own linear regression of the target
    on the features; with --curves, regressions may bend. Entities of one cluster may deviate from it, and each has its
    own noise; see --effects and --noise. Unless you set the number of clusters, it is found from the data. Targets may
    also be two classes (logistic regressions) or counts (negative binomial regressions with a log link); see --family.
    With --engine ray, the workers of a cluster share the agents.
    A large table is not read into memory but sorted in temporary files beside the model, with the same result; if the
    command is killed, the same command goes on where it stopped.

    \b
    fedhlcr fit sales.csv --target sales --agent store --entity product \\
        --categorical promotion --missing impute --hold-out 0.2 --out sales.fedhlcr
    """
    from fedhlcr.cli.events import Roles, open_training
    from fedhlcr.cli.output import check_output
    from fedhlcr.cli.scoring import tell_scores
    from fedhlcr.cli.sizes import is_streamed
    from fedhlcr.cli.telling import model_facts, tell_model
    from fedhlcr.cli.training import opened_training
    from fedhlcr.estimators.files import HoldOut
    from fedhlcr.kernels import ahead

    shell = Shell(as_json, quiet, progress)
    check_output(out, data)
    n_clusters = cluster_number(clusters)
    cluster = Cluster(engine, workers, address)
    cluster.require(chains=chains, precision=precision.value)
    held_out = HoldOut(hold_out, seed)
    roles = Roles(target, agent, entity, exposure)
    require_columns(formula, target=target, entity=entity, agent=agent, features=features, categorical=categorical)
    with shell.warnings_as_notes():
        table = open_training(
            data,
            roles,
            features=features,
            categorical=categorical,
            missing=missing,
            family=family,
            shell=shell,
            formula=formula,
        )
        settings = {"family": table.family.name, "curves": curves, "noise": noise.value, "effects": effects.value}
        settings["engine"] = engine.value
        if not table.has_intercept:
            settings["intercept"] = "none"
        # before the table is read, which may take long: options may not suit the family
        model = cluster.estimator(
            table.family,
            noise=noise,
            n_clusters=n_clusters,
            max_clusters=max_clusters,
            effects=effects.value,
            n_chains=chains,
            n_sweeps=sweeps,
            random_state=seed,
            precision=precision.value,
            n_threads=threads,
            verbose=shell.shows_progress,
            fit_intercept=table.has_intercept,
        )
        streamed = is_streamed(table.file, cluster.streams(stream))
        if streamed:
            # reading a table piece by piece needs kernels, too
            ahead.prepare(ahead.for_files(model.likelihood_name(), federated=engine is not Engine.here))
        with opened_training(
            table, data, out=out, hold_out=held_out, stream=streamed, settings=settings, shell=shell
        ) as training:
            model.set_params(curves=curve_names(curves, training.recipe))
            training.fit(model, shell)
            model.set_params(formula=formula)
            out = write_model(model, out, shell, public=public)
            facts = model_facts(model)
            tell_model(shell, model)
            if (scores := training.score(model, shell)) is not None:
                facts["held_out"] = tell_scores(shell, model.family, scores, "held-out event")
        shell.result(facts | {"model": str(out)})
        shell.wrote(out)
        end(shell)


def select(
    data: options.DataArgument,
    target: options.TargetOption,
    entity: options.EntityOption,
    agent: options.AgentOption = None,
    features: options.FeaturesOption = None,
    categorical: options.CategoricalOption = None,
    missing: options.MissingOption = Missing.refuse,
    family: options.FamilyOption = FamilyChoice.auto,
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
    effects: options.EffectsOption = Effects.auto,
    noise: options.NoiseOption = Noise.entity,
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
    suggested number is the smallest one within one standard error of the best. "auto", the number that fit finds by
    itself, takes part like any other. For the paper's model (--effects none --noise common) the evidence is shown too:
    how probable the data are for that number.

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
    counts = None if clusters is None else cluster_numbers(clusters)
    with shell.warnings_as_notes():
        roles = Roles(target, agent, entity)
        events, told = training_events(
            data, roles, features=features, categorical=categorical, missing=missing, family=family, shell=shell
        )
        if told.has_link:
            raise typer.BadParameter(
                "select compares models of real targets only; fit finds the number of clusters for other targets, and "
                "--family real compares regressions on the numbers.",
                param_hint="--family",
            )
        if counts is not None:
            require_enough_entities(events, max(counts))
        estimator = make_estimator(
            told,
            noise=noise,
            effects=effects.value,
            curves=curve_names(curves, events.recipe),
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

        agent = events.recipe.agent
        entity = events.recipe.entity
        return compare_cluster_counts(
            events.table, events.y, agent, entity, estimator=estimator, progress=tell, **settings
        )
