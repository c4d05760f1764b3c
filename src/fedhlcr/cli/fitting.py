"""`fedhlcr fit` and `fedhlcr select`: from a table to a model.

Modules that take long to import are imported inside the commands, so that help and usage errors appear at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fedhlcr._support.wording import Noun
from fedhlcr.cli import options
from fedhlcr.settings import SETTINGS

if TYPE_CHECKING:
    from fedhlcr.data.families import Family

ENGINES = SETTINGS["engine"].choices


class Cluster(NamedTuple):
    """Where to fit: in this process, or as a federation on the workers of a Ray cluster."""

    engine: str
    workers: int | None = None
    address: str | None = None

    @property
    def is_here(self) -> bool:
        return self.engine == "in_process"

    def streams(self, stream: bool | None) -> bool | None:
        """Whether to read the table in pieces: on a cluster unless the user says no, because workers read its files."""
        return stream if self.is_here else stream is not False

    def require(self, *, chains: int) -> None:
        """Refuse options that do not go together, and a cluster without Ray, before the table is read."""
        if self.is_here:
            for name, value in {"--workers": self.workers, "--address": self.address}.items():
                if value is not None:
                    raise typer.BadParameter("is for clusters; add --engine ray, or leave it out.", param_hint=name)
            return
        from fedhlcr.engines.ray.actors import require_ray

        if chains > 1:
            raise typer.BadParameter(
                "must be 1 with --engine ray: a federation is a single chain.", param_hint="--chains"
            )
        require_ray()

    def estimator(self, family: Family, **settings: Any) -> Any:
        """The estimator for a family of targets: of a whole table here, or of a federation on the cluster."""
        from fedhlcr.cli.families import make_estimator

        if self.is_here:
            return make_estimator(family, **settings)
        from fedhlcr.engines.ray import RayCluster

        del settings["n_chains"]
        # a sweep of a centralised chain is a round of a federation
        settings["rounds"] = settings.pop("n_sweeps")
        return make_estimator(family, federated=True, engine=RayCluster(self.address, self.workers), **settings)


_CLUSTER = (
    options.option(
        "engine",
        options.choice_of("engine", (*ENGINES, "here")),
        "in_process",
        "Where to fit: in this process, or as a federation on the workers of a Ray cluster, each of which reads the "
        "files that have events of its agents. With --in-memory they are sent their events.",
        panel=options.CLUSTER,
        metavar="|".join(ENGINES),
    ),
    options.option(
        "workers",
        int,
        None,
        "Workers of the cluster; their number does not change the model. Default: one for each CPU.",
        panel=options.CLUSTER,
        min=1,
    ),
    options.option(
        "address",
        str,
        None,
        "Address of a Ray cluster. Default: that of RAY_ADDRESS, or else one is started on this machine.",
        panel=options.CLUSTER,
    ),
)
ClusterOptions = Annotated[Cluster, options.OptionGroup(_CLUSTER, Cluster)]
_OLD_PRECISION = options.option("precision", str, None, "", hidden=True)
_MODEL = ("n_clusters", "max_clusters", "effects", "noise", "curves")
SettingsToFit = Annotated[
    dict[str, Any], options.settings(*_MODEL, "n_chains", "n_sweeps", "random_state", "n_threads", _OLD_PRECISION)
]
SettingsToSelect = Annotated[
    dict[str, Any], options.settings("effects", "noise", "curves", "n_sweeps", "random_state", "n_threads")
]


def fit(
    data: options.DataArgument,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Write the model to this file.")],
    *,
    roles: options.RolesToFit,
    reading: options.ReadingOrFormula,
    settings: SettingsToFit,
    cluster: ClusterOptions,
    hold_out: options.HoldOutOption = 0.0,
    public: options.PublicOption = False,
    stream: options.StreamOption = None,
    shell: options.Output,
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
        --categories promotion --missing impute --hold-out 0.2 --out sales.fedhlcr
    """
    from fedhlcr.cli.descriptions import model_facts, tell_model
    from fedhlcr.cli.events import is_streamed, open_training
    from fedhlcr.cli.output import check_output
    from fedhlcr.cli.scoring import tell_scores
    from fedhlcr.cli.training import end, opened_training, write_model
    from fedhlcr.estimators.files import HeldOutShare
    from fedhlcr.kernels import ahead
    from fedhlcr.model.choice import likelihood_of

    check_output(out, data)
    cluster.require(chains=settings["n_chains"])
    held_out = HeldOutShare(hold_out, settings["random_state"])
    formula = reading["formula"]
    columns = {"target": roles.target, "entity": roles.entity, "agent": roles.agent}
    options.require_columns(formula, columns | {name: reading[name] for name in ("features", "categories")})
    curves = settings.pop("curves")
    with shell.warnings_as_notes():
        table = open_training(data, roles, shell=shell, **reading)
        chosen = {"family": table.family.name, "curves": curves, "engine": cluster.engine}
        chosen |= {name: settings[name] for name in ("noise", "effects")}
        if not table.has_intercept:
            chosen["intercept"] = "none"
        # before the table is read, which may take long: options may not suit the family
        model = cluster.estimator(
            table.family, verbose=shell.shows_progress, fit_intercept=table.has_intercept, **settings
        )
        streamed = is_streamed(table.file, cluster.streams(stream))
        if streamed:
            # reading a table piece by piece needs kernels, too
            likelihood = likelihood_of(model.family, model.get_params())
            ahead.prepare(ahead.for_files(likelihood, federated=not cluster.is_here))
        with opened_training(
            table, data, out=out, hold_out=held_out, stream=streamed, settings=chosen, shell=shell
        ) as training:
            model.set_params(curves=options.curve_names(curves, training.recipe))
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
    *,
    roles: Annotated[
        options.Roles,
        options.roles("target", "entity", "agent", needed=("target", "entity"), hints={"agent": options.ONE_AGENT}),
    ],
    reading: options.Reading,
    clusters: Annotated[
        str | None,
        typer.Option(
            "--clusters",
            metavar="K,K,…",
            help="Numbers of clusters to compare, separated by commas. Default: 1 to 64 in growing steps.",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    splits: Annotated[
        int,
        typer.Option(
            "--splits", min=1, help="Number of times to hold out events and fit again.", rich_help_panel=options.MODEL
        ),
    ] = 3,
    hold_out: Annotated[
        float, options.real("--hold-out", 0.01, 0.9, "Share of each entity's events to hold out.")
    ] = 0.2,
    settings: SettingsToSelect,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Plot the comparison to this .png, .svg or .pdf file."),
    ] = None,
    shell: options.Output,
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
    from fedhlcr import compare_cluster_counts
    from fedhlcr.cli.comparisons import check_picture, draw_comparison, tell_comparison
    from fedhlcr.cli.events import training_events
    from fedhlcr.cli.families import make_estimator
    from fedhlcr.cli.training import refuse_too_many_clusters

    check_picture(plot, data)
    counts = None if clusters is None else options.cluster_numbers(clusters)
    with shell.warnings_as_notes():
        events, family = training_events(data, roles, shell=shell, **reading)
        if family.has_link:
            raise typer.BadParameter(
                "select compares models of real targets only; fit finds the number of clusters for other targets, and "
                "--family real compares regressions on the numbers.",
                param_hint="--family",
            )
        if counts is not None:
            refuse_too_many_clusters(max(counts), events.n_entities)
        settings["curves"] = options.curve_names(settings["curves"], events.recipe)
        with shell.bar(None, "comparing", Noun("fit", "fits")) as bar:

            def tell(_: int, total: int, message: str) -> None:
                bar.total = total
                bar.advance({"": message})

            comparison = compare_cluster_counts(
                events.table,
                events.y,
                events.recipe.agent,
                events.recipe.entity,
                estimator=make_estimator(family, **settings),
                counts=counts,
                n_splits=splits,
                fraction=hold_out,
                random_state=settings["random_state"],
                progress=tell,
            )
    if plot is not None:
        draw_comparison(comparison, plot)
    tell_comparison(shell, comparison)
    shell.result(comparison.to_dict())
    if plot is not None:
        shell.wrote(plot)
