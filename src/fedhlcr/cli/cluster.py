"""Options of `fedhlcr fit` that fit on a Ray cluster, and the estimator that they make."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from fedhlcr.data.families import Family

PANEL = "Cluster"


class Engine(StrEnum):
    """Where a model is fitted."""

    here = "here"
    ray = "ray"


EngineOption = Annotated[
    Engine,
    typer.Option(
        "--engine",
        help="Where to fit: here, or as a federation on the workers of a Ray cluster, each of which reads the files "
        "that have events of its agents. With --in-memory they are sent their events.",
        rich_help_panel=PANEL,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Workers of the cluster; their number does not change the model. Default: one for each CPU.",
        rich_help_panel=PANEL,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="Address of a Ray cluster. Default: that of RAY_ADDRESS, or else one is started on this machine.",
        rich_help_panel=PANEL,
    ),
]


class Cluster(NamedTuple):
    """What the options say of the cluster."""

    engine: Engine
    workers: int | None
    address: str | None

    def streams(self, stream: bool | None) -> bool | None:
        """Whether to read the table in pieces: on a cluster unless the user says no, because workers read its files."""
        return stream if self.engine is Engine.here else stream is not False

    def require(self, *, chains: int, precision: str) -> None:
        """Refuse options that do not go together, and a cluster without Ray, before the table is read."""
        if self.engine is Engine.here:
            for name, value in {"--workers": self.workers, "--address": self.address}.items():
                if value is not None:
                    raise typer.BadParameter("is for clusters; add --engine ray, or leave it out.", param_hint=name)
            return
        from fedhlcr.engines.ray.actors import require_ray

        if chains > 1:
            raise typer.BadParameter(
                "must be 1 with --engine ray: a federation is a single chain.", param_hint="--chains"
            )
        if precision != "double":
            raise typer.BadParameter("must be double with --engine ray.", param_hint="--precision")
        require_ray()

    def estimator(self, family: Family, **settings: Any) -> Any:
        """The estimator for a family of targets: of a whole table here, or of a federation on the cluster."""
        from fedhlcr.cli.families import make_estimator

        if self.engine is Engine.here:
            return make_estimator(family, **settings)
        from fedhlcr.engines.ray import RayCluster

        del settings["n_chains"], settings["precision"]
        # a sweep of a centralised chain is a round of a federation
        settings["rounds"] = settings.pop("n_sweeps")
        return make_estimator(family, federated=True, engine=RayCluster(self.address, self.workers), **settings)
