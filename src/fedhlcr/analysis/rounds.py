"""A federated run as a small table and two sentences."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedhlcr._support.wording import ROUND, byte_size, capital, number
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT, disagreement

# Rounds with a row in the table.
N_SHOWN = 12


class RoundTable(NamedTuple):
    """Some rounds of a run, evenly spaced, as texts."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tabulate_rounds(model: Any, target_variance: float | None = None) -> RoundTable:
    """Show how a run went.

    Parameters
    ----------
    model : FedHLCRRegressor, fitted
    target_variance : variance of the validation set's target; None if there was no validation set
    """
    rounds = model.history_[model.history_["round"] > 0]
    scales = model.posterior_.likelihood.globals_type.traced_scales()
    shown = sorted({round(place * (len(rounds) - 1) / (N_SHOWN - 1)) for place in range(N_SHOWN)})
    rows = tuple(
        (
            str(row["round"]),
            f"{row['n_accepted']} of {row['n_asked']}",
            str(row["n_clusters"]),
            *(number(row[q.name], 4) for q in scales),
            str(row["labels_changed"]),
            f"{(row['bytes_up'] + row['bytes_down']) / 1e3:,.0f}",
            *([] if target_variance is None else [number(1.0 - row["validation_mse"] / target_variance)]),
        )
        for row in rounds[shown]
    )
    validated = () if target_variance is None else ("held-out R²",)
    header = ("round", "answered", "clusters", *(q.heading for q in scales), "labels changed", "kB", *validated)
    return RoundTable(header, rows)


def describe_run(model: Any) -> tuple[str, str]:
    """When and why the run ended, and how many bytes travelled."""
    up, down = (byte_size(model.history_[name].sum()) for name in ("bytes_up", "bytes_down"))
    # "stopped: the log joint …" or "reached the maximum of …"
    how, _, why = model.stop_reason_.rpartition(": ")
    unsettled = disagreement(model.diagnostics_)
    agreement = f" R-hat, 1 where all has settled, is above {R_HAT_LIMIT} for: {unsettled}." if unsettled else ""
    return (
        f"{capital(how or 'ended')} after {ROUND.count(model.n_rounds_)}: {why}.{agreement}",
        f"Traffic: {up} of sums up, {down} of coefficients down.",
    )
