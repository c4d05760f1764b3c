"""A federated run: its rounds, the answers, and the bytes that travelled, in figures and in words."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import ROUND, byte_size, capital, number
from fedhlcr.federation.messages import SURVEY_ROUND
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT, disagreement

# Rounds with a row in the table.
N_SHOWN = 12


class FederatedRun:
    """The run of a federated model that keeps its history.

    Attributes
    ----------
    rounds : the rows of `history_` after the survey
    n_rounds, stop_reason : how long it ran, and why it ended
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._history = model.history_
        self.rounds = model.history_[model.history_["round"] != SURVEY_ROUND]
        self.n_rounds = int(getattr(model, "n_rounds_", len(self.rounds)))
        self.stop_reason = str(getattr(model, "stop_reason_", None) or "not recorded")

    @classmethod
    def of(cls, model: Any) -> FederatedRun | None:
        """The run of a federated model; None for any other model."""
        return None if getattr(model, "history_", None) is None else cls(model)

    def column(self, name: str) -> FloatArray:
        """(rounds,) a column of the history."""
        return np.asarray(self.rounds[name], dtype=np.float64)

    @property
    def answered(self) -> float:
        """Share of the requests whose answer was accepted."""
        asked = float(self.rounds["n_asked"].sum())
        return float(self.rounds["n_accepted"].sum()) / asked if asked else float("nan")

    @property
    def n_silent(self) -> int:
        """Requests that were not answered in time.

        Refused answers are counted separately: a late answer may belong to any earlier round.
        """
        return int(self.rounds["n_asked"].sum() - self.rounds["n_accepted"].sum())

    @property
    def n_refused(self) -> int:
        return int(self.rounds["n_refused"].sum())

    @property
    def was_validated(self) -> bool:
        return bool(np.isfinite(self.rounds["validation_mse"]).any())

    @cached_property
    def traffic(self) -> tuple[str, str]:
        """Bytes up and down in words, with those of the survey."""
        return byte_size(self._history["bytes_up"].sum()), byte_size(self._history["bytes_down"].sum())

    @cached_property
    def scales(self) -> dict[str, FloatArray]:
        """Learned scales of the likelihood by their headings, such as "noise"."""
        traced = self._model.posterior_.likelihood.globals_type.traced_scales()
        return {q.heading: self.column(q.name) for q in traced}

    def ending(self) -> str:
        """When and why the run ended."""
        # "stopped: the log joint …" or "reached the maximum of …"
        how, _, why = self.stop_reason.rpartition(": ")
        unsettled = disagreement(self._model.diagnostics_)
        agreement = f" R-hat, 1 where all has settled, is above {R_HAT_LIMIT} for: {unsettled}." if unsettled else ""
        return f"{capital(how or 'ended')} after {ROUND.count(self.n_rounds)}: {why}.{agreement}"

    def traffic_in_words(self) -> str:
        """How many bytes travelled."""
        up, down = self.traffic
        return f"Traffic: {up} of sums up, {down} of coefficients down."

    def table(self, target_variance: float | None = None) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Header and rows of some rounds, evenly spaced.

        `target_variance` is the variance of the validation set's target; None if there was no validation set.
        """
        shown = sorted({round(place * (len(self.rounds) - 1) / (N_SHOWN - 1)) for place in range(N_SHOWN)})
        rows = [
            (
                str(self.rounds["round"][n]),
                f"{self.rounds['n_accepted'][n]} of {self.rounds['n_asked'][n]}",
                str(self.rounds["n_clusters"][n]),
                *(number(values[n], 4) for values in self.scales.values()),
                str(self.rounds["labels_changed"][n]),
                f"{(self.rounds['bytes_up'][n] + self.rounds['bytes_down'][n]) / 1e3:,.0f}",
                *(
                    []
                    if target_variance is None
                    else [number(1.0 - self.rounds["validation_mse"][n] / target_variance)]
                ),
            )
            for n in shown
        ]
        validated = () if target_variance is None else ("held-out R²",)
        return ("round", "answered", "clusters", *self.scales, "labels changed", "kB", *validated), rows
