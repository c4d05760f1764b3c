"""Which estimator fits a target."""

from __future__ import annotations

from typing import Any

import typer

from fedhlcr.data.families import Family, FamilyName


def make_estimator(family: Family, *, federated: bool = False, **settings: Any) -> Any:
    """Return the estimator for a family of targets. Only real targets have noise."""
    if settings.get("n_sweeps", 0) is None:
        del settings["n_sweeps"]
    if family.has_link and settings.pop("noise", "entity") != "entity":
        raise typer.BadParameter(
            f"is for real targets, but the target is {family}; leave it out, or add --family real.",
            param_hint="--noise",
        )
    return _estimators(federated=federated)[family.name](**settings)


def _estimators(*, federated: bool) -> dict[FamilyName, type]:
    # imported here, because scikit-learn takes more than a second to import
    import fedhlcr

    if federated:
        return {
            "real": fedhlcr.FedHLCRRegressor,
            "binary": fedhlcr.FedHLCRClassifier,
            "count": fedhlcr.FedHLCRCountRegressor,
        }
    return {"real": fedhlcr.HLCRRegressor, "binary": fedhlcr.HLCRClassifier, "count": fedhlcr.HLCRCountRegressor}
