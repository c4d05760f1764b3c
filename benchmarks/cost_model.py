"""How many seconds a stage takes: a sum of a few terms, each a product of sizes, with non-negative coefficients.

    seconds(stage, shape) = Σ_t c_t · t(shape),   c_t ≥ 0,

fitted by non-negative least squares of the *relative* errors, Σ (predicted / measured − 1)². A term says what the work
grows with; its coefficient is the seconds of one unit of that work on this machine. A coefficient of 0 means that the
measurements show no such cost.

The sizes of a shape: `events`, `entities`, `agents`, `features` (F), `clusters` (K), `draws`, and `cluster_sweeps`, the
number of clusters added up over all sweeps of a fit. `packed` = (F + 2)(F + 3) / 2 is the length of an entity's matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.optimize import nnls

from benchmarks.report import Timing

Shape = Mapping[str, float]

CENTRE, CHECK = "centre", "check"

SIZES: dict[str, Callable[[Shape], float]] = {
    "events": lambda s: s["events"],
    "entities": lambda s: s["entities"],
    "agents": lambda s: s["agents"],
    "F": lambda s: s["features"],
    "packed": lambda s: (s["features"] + 2) * (s["features"] + 3) / 2,
    "F³": lambda s: (s["features"] + 1) ** 3,
    "K": lambda s: s["clusters"],
    "draws": lambda s: s["draws"],
    "sweeps": lambda s: s["sweeps"],
    "cluster sweeps": lambda s: s["cluster_sweeps"],
}
# A term is a product of sizes; the empty product is a constant.
Term = tuple[str, ...]

TERMS: dict[str, tuple[Term, ...]] = {
    "sort the table": (("events", "F"), ("events",), ("entities",), ("agents",), ()),
    "matrices": (("events", "packed"), ("events", "F"), ("entities", "packed"), ()),
    "sweep": (("entities", "packed", "K"), ("entities", "K"), ("entities",), ("agents", "K"), ("K", "F³"), ()),
    "default fit": (
        ("events", "packed"),
        ("events", "F"),
        ("events",),
        ("entities", "packed", "cluster sweeps"),
        ("entities", "cluster sweeps"),
        ("entities", "packed", "sweeps"),
        ("agents", "sweeps"),
        ("sweeps", "F³"),
        (),
    ),
    "predictions": (
        ("events", "draws", "F"),
        ("events", "F"),
        ("events",),
        ("entities", "draws", "packed"),
        ("entities", "draws", "K"),
        ("draws", "K", "F³"),
        (),
    ),
    "intervals": (
        ("events", "draws", "F"),
        ("events", "draws"),
        ("events", "F"),
        ("entities", "draws", "packed"),
        ("entities", "draws", "K"),
        ("draws", "K", "F³"),
        (),
    ),
}


@dataclass(frozen=True)
class StageCost:
    """A fitted stage.

    Attributes
    ----------
    coefficients : seconds per unit of each term; terms with coefficient 0 are left out
    error : median of |predicted / measured − 1| over the measurements it was fitted to
    """

    stage: str
    coefficients: dict[Term, float]
    error: float

    def seconds(self, shape: Shape) -> float:
        return sum(value * size_of(term, shape) for term, value in self.coefficients.items())

    def shares(self, shape: Shape) -> dict[Term, float]:
        """The part of each term in the seconds of a shape, largest first."""
        total = self.seconds(shape)
        parts = {term: value * size_of(term, shape) / total for term, value in self.coefficients.items()}
        return dict(sorted(parts.items(), key=lambda part: -part[1]))


def size_of(term: Term, shape: Shape) -> float:
    return math.prod(SIZES[name](shape) for name in term)


def fit_stage(stage: str, timings: Sequence[Timing], terms: Sequence[Term] | None = None) -> StageCost:
    """Fit a stage to those of its timings that `is_fitted_to` accepts."""
    chosen = TERMS[stage] if terms is None else tuple(terms)
    fitted = [t for t in timings if t.stage == stage and is_fitted_to(t)]
    sizes = np.array([[size_of(term, t.shape) for term in chosen] for t in fitted])
    seconds = np.array([t.seconds for t in fitted])
    relative = sizes / seconds[:, None]
    norms = np.linalg.norm(relative, axis=0)
    solution, _ = nnls(relative / norms, np.ones(len(fitted)))
    coefficients = {term: float(value) for term, value in zip(chosen, solution / norms, strict=True) if value > 0}
    model = StageCost(stage, coefficients, 0.0)
    errors = [abs(model.seconds(t.shape) / t.seconds - 1) for t in fitted]
    return StageCost(stage, coefficients, median(errors))


def is_fitted_to(timing: Timing) -> bool:
    """Not to checks, to other numbers of threads and workers, and to fits that found effects of entities.

    Whether a fit finds effects depends on the table's values, not on its sizes; such fits take several times as long.
    """
    return timing.varied not in (CHECK, "threads", "workers") and not timing.shape.get("effects", 0)


def stages_in(timings: Sequence[Timing]) -> list[str]:
    """Stages with enough timings to be fitted, in the order of `TERMS`."""
    found = [t.stage for t in timings if is_fitted_to(t)]
    return [stage for stage in TERMS if found.count(stage) >= 3]


@dataclass(frozen=True)
class ParallelCost:
    """Seconds on p threads or workers: serial + parallel / p (Amdahl's law)."""

    serial: float
    parallel: float

    @property
    def share(self) -> float:
        """The part of the seconds of one thread that more threads shorten."""
        return self.parallel / (self.serial + self.parallel)

    def seconds(self, count: float) -> float:
        return self.serial + self.parallel / count


def fit_parallel(counts: Sequence[float], seconds: Sequence[float]) -> ParallelCost:
    sizes = np.array([[1.0, 1.0 / count] for count in counts]) / np.asarray(seconds)[:, None]
    (serial, parallel), _ = nnls(sizes, np.ones(len(counts)))
    return ParallelCost(float(serial), float(parallel))
