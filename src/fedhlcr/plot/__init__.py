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

from fedhlcr.plot._of_events import *  # noqa: F403 - each module names its public functions
from fedhlcr.plot._of_models import *  # noqa: F403

# the public functions of both modules, and nothing else
__all__ = sorted(name for name in globals() if not name.startswith("_"))


def __dir__() -> list[str]:
    return __all__
