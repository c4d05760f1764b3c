"""A federated run: its rounds, the answers, and the bytes that travelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.federation.messages import SURVEY_ROUND


@dataclass(frozen=True)
class Rounds:
    """A federated run; arrays have a value for each round after the survey.

    Attributes
    ----------
    asked, accepted, refused : numbers of agents asked, of answers accepted, and of answers refused
    bytes_up, bytes_down : bytes per round; `total_up` and `total_down` include the survey
    scales : learned scales of the likelihood by name, such as "noise"
    validation : mean squared error on the validation set; NaN if there was none
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
        """The run of a federated model; None for any other model."""
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
        """Share of the requests whose answer was accepted."""
        return float(self.accepted.sum() / self.asked.sum()) if self.asked.sum() else float("nan")

    @property
    def n_silent(self) -> int:
        """Requests that were not answered in time.

        Refused answers are counted separately: a late answer may belong to any earlier round.
        """
        return int((self.asked - self.accepted).sum())

    @property
    def was_validated(self) -> bool:
        return bool(np.isfinite(self.validation).any())
