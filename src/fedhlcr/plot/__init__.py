"""Plots of fitted models. Every function takes an Axes or makes one, draws on it only, and returns it.

They need matplotlib, the extra `plot`. A cluster has the same colour in every plot and in the report. The
first colours are Okabe and Ito's, which colour-blind readers can distinguish; from the ninth cluster on, line styles
and markers differ. No setting of matplotlib is changed.
"""

from fedhlcr._support.extras import missing_extra as _missing_extra

try:
    import matplotlib as _matplotlib  # noqa: F401
except ModuleNotFoundError as missing:
    raise _missing_extra("fedhlcr.plot needs matplotlib", "plot") from missing

from fedhlcr.plot._of_events import (
    calibration,
    effects,
    entity,
    posterior_predictive,
    predicted_against_observed,
    reliability,
)
from fedhlcr.plot._of_models import (
    agent_map,
    cluster_counts,
    cluster_weights,
    coefficients,
    curves,
    label_certainty,
    ratios,
    traces,
)

__all__ = [
    "agent_map",
    "calibration",
    "cluster_counts",
    "cluster_weights",
    "coefficients",
    "curves",
    "effects",
    "entity",
    "label_certainty",
    "posterior_predictive",
    "predicted_against_observed",
    "ratios",
    "reliability",
    "traces",
]


def __dir__() -> list[str]:
    return __all__
