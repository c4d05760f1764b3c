"""The records of the study, by fraction of training writers and by method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.figures import standard_error
from experiments.study import Record

LABELS = {
    "argmax": "CNN, argmax",
    "soft": "CNN, all letters",
    "linear": "linear regression",
    "lr": "LR",
    "hlcr_4": "HLCR₄",
    "hlcr_8": "HLCR₈",
    "hlcr_auto": "HLCR, K found",
    "class_4": "classifier₄",
    "class_8": "classifier₈",
    "class_auto": "classifier, K found",
}
STAGES = {"cnn": "training the CNN", "outputs": "CNN on all images", "pca": "components"}
HIDDEN = "_hidden"
HLCR = ("hlcr_4", "hlcr_8")
# The classifier, and the regression of 0 and 1 with the same settings.
TWINS = {f"class_{name}": f"hlcr_{name}" for name in ("4", "8", "auto")}


@dataclass(frozen=True)
class Difference:
    """Mean over seeds of one method's figure less another's on the same cell, and its standard error."""

    mean: float
    error: float

    @property
    def at_least(self) -> bool:
        """Whether the one is as good as the other, within one standard error."""
        return self.mean >= -self.error

    @property
    def better(self) -> bool:
        """Whether the one is better by more than one standard error."""
        return self.mean > self.error

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.error:.3f}".replace("-", "−")


@dataclass(frozen=True)
class Results:
    """Figures (seeds,) of each fraction; `kind` is "auc", "auc_by_writer" or "seconds"."""

    records: Sequence[Record]

    @property
    def fractions(self) -> list[float]:
        return sorted({record.settings["fraction"] for record in self.records})

    def at(self, fraction: float) -> list[Record]:
        """In the order of seeds, so that methods and fractions can be compared seed by seed."""
        found = [record for record in self.records if record.settings["fraction"] == fraction]
        return sorted(found, key=lambda record: record.settings["seed"])

    def figures(self, fraction: float, name: str, kind: str = "auc") -> NDArray[np.float64]:
        return np.array([record.figures[kind][name] for record in self.at(fraction)])

    def every(self, name: str, kind: str) -> NDArray[np.float64]:
        return np.concatenate([self.figures(fraction, name, kind) for fraction in self.fractions])

    def gains(self, fraction: float, one: str, other: str, kind: str = "auc") -> NDArray[np.float64]:
        return self.figures(fraction, one, kind) - self.figures(fraction, other, kind)

    def difference(self, fraction: float, one: str, other: str, kind: str = "auc") -> Difference:
        return difference(self.gains(fraction, one, other, kind))


def label(name: str) -> str:
    """Of a method or stage, as tables and pictures show it."""
    plain = (LABELS | STAGES)[name.removesuffix(HIDDEN)]
    return f"{plain} + hidden" if name.endswith(HIDDEN) else plain


def percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def difference(gains: NDArray[np.float64]) -> Difference:
    return Difference(float(gains.mean()), float(standard_error(gains)))
