"""What a federated run took: rounds, who answered, and what travelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import Noun
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.federation.messages import SURVEY_ROUND

ROUND = Noun("round", "rounds")


@dataclass(frozen=True)
class Rounds:
    """A federated run; arrays have a number for each round after the survey.

    Attributes
    ----------
    asked, accepted, refused : agents asked, answers taken, and answers that were not
    bytes_up, bytes_down : per round; `total_up`, `total_down` have the survey too
    scales : learned scales of the likelihood by what they are called, such as "noise"
    validation : mean squared error of the validation set, NaN where there was none
    """

    n_rounds: int
    stop_reason: str
    asked: FloatArray
    accepted: FloatArray
    refused: FloatArray
    bytes_up: FloatArray
    bytes_down: FloatArray
    total_up: float
    total_down: float
    n_clusters: FloatArray
    scales: dict[str, FloatArray]
    labels_changed: FloatArray
    validation: FloatArray

    @classmethod
    def of(cls, model: HierarchicalPredictor) -> Rounds | None:
        """Of a federated model; None of any other."""
        history: Any = getattr(model, "history_", None)
        if history is None:
            return None
        rounds = history[history["round"] != SURVEY_ROUND]

        def column(name: str) -> FloatArray:
            return np.asarray(rounds[name], dtype=np.float64)

        return cls(
            n_rounds=int(getattr(model, "n_rounds_", len(rounds))),
            stop_reason=str(getattr(model, "stop_reason_", None) or "not recorded"),
            asked=column("n_asked"),
            accepted=column("n_accepted"),
            refused=column("n_refused"),
            bytes_up=column("bytes_up"),
            bytes_down=column("bytes_down"),
            total_up=float(history["bytes_up"].sum()),
            total_down=float(history["bytes_down"].sum()),
            n_clusters=column("n_clusters"),
            scales={q.heading: column(q.name) for q in model.posterior_.likelihood.globals_type.traced_scales()},
            labels_changed=column("labels_changed"),
            validation=column("validation_mse"),
        )

    @property
    def answered(self) -> float:
        """Share of those asked whose answer was taken."""
        return float(self.accepted.sum() / self.asked.sum()) if self.asked.sum() else float("nan")

    @property
    def n_silent(self) -> int:
        """Requests without an answer in time.

        Answers refused are no part of these: one that came late may be of a request of any earlier round.
        """
        return int((self.asked - self.accepted).sum())

    @property
    def was_validated(self) -> bool:
        return bool(np.isfinite(self.validation).any())
