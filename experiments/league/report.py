"""What the league says: R² beside lme4's, coverage, and the findings in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments import markdown
from experiments.league import response_report
from experiments.league.measuring import MODELS
from experiments.league.tables import REGIMES, TABLES, known_figures
from experiments.study import Record, Report

TITLES = {"full": "all training events", "few": "at most four training events per entity"}
OTHERS = ("lme4", "lightgbm", "ridge")
FAR_BEHIND = 0.01


def report(records: Sequence[Record], gallery: markdown.Gallery) -> Report:  # noqa: ARG001
    real = [record for record in records if record.settings["table"] in TABLES]
    models = [model for model in MODELS if any(record.settings["model"] == model for record in real)]
    parts = [
        "Nine real tables that nobody here made, each split into training and test events by its source file. Figures "
        "are held-out R² of lme4 (`lmer` with random slopes), LightGBM and one ridge, and the difference of our models "
        "to lme4; means over the splits. *± s.e.* is the standard error of the default's difference, over the splits. "
        "The last column has the number of clusters that the default found in each split. *Default* is "
        "`HLCRRegressor()`; the others change one setting each. The default was developed with these tables in view. "
        "With at most four events there are seven tables: entities of star and blackmore hardly have more."
    ]
    for regime in [r for r in REGIMES if any(record.settings["regime"] == r for record in real)]:
        parts += [f"### With {TITLES[regime]}", _table(real, regime, models), _sentence(real, regime)]
    parts += [_coverage(real), *response_report.sections(records)]
    return Report("\n\n".join(parts))


def _chosen(records: Sequence[Record], regime: str, model: str, table: str) -> list[Record]:
    wanted = {"regime": regime, "model": model, "table": table}
    return [record for record in records if wanted.items() <= record.settings.items()]


def _differences(records: Sequence[Record], regime: str, model: str, table: str) -> NDArray[np.float64]:
    """(splits,) R² less that of lme4."""
    known = known_figures()
    return np.array(
        [
            record.figures["r2"] - known[table, regime, record.settings["split"], "lme4"]
            for record in _chosen(records, regime, model, table)
        ]
    )


def _table(records: Sequence[Record], regime: str, models: Sequence[str]) -> str:
    rows = []
    for table in TABLES:
        own = _chosen(records, regime, "default", table)
        if not own:
            continue
        others = [_known(table, regime, [record.settings["split"] for record in own], method) for method in OTHERS]
        apart = [_differences(records, regime, model, table) for model in models]
        first, *further = (f"{values.mean():+.4f}" if len(values) else "–" for values in apart)
        clusters = "/".join(str(record.figures["n_clusters"]) for record in own)
        rows.append((table, *others, first, _standard_error(apart[0]), *further, clusters))
    first, *further = (f"**{_mean(records, regime, model):+.4f}**" for model in models)
    rows.append(("**mean**", *("" for _ in OTHERS), first, "", *further, ""))
    default, *names = (MODELS[model][0] for model in models)
    return markdown.table(("table", *OTHERS, default, "± s.e.", *names, "clusters (default)"), rows)


def _standard_error(values: NDArray[np.float64]) -> str:
    return f"{values.std(ddof=1) / np.sqrt(len(values)):.4f}" if len(values) > 1 else "–"


def _known(table: str, regime: str, splits: Sequence[int], method: str) -> str:
    known = known_figures()
    values = [known[key] for split in splits if (key := (table, regime, split, method)) in known]
    return f"{np.mean(values):.4f}" if values else "–"


def _mean(records: Sequence[Record], regime: str, model: str) -> float:
    by_table = [_differences(records, regime, model, table) for table in TABLES]
    return float(np.mean([values.mean() for values in by_table if len(values)]))


def _sentence(records: Sequence[Record], regime: str) -> str:
    apart = {table: _differences(records, regime, "default", table) for table in TABLES}
    means = {table: values.mean() for table, values in apart.items() if len(values)}
    behind = [table for table, value in means.items() if value < -FAR_BEHIND]
    ahead = sum(value > 0 for value in means.values())
    worst = f"more than {FAR_BEHIND} behind on {', '.join(behind)}" if behind else f"nowhere behind by {FAR_BEHIND}"
    return f"The default is ahead of lme4 on {ahead} of {len(means)} tables, and {worst}."


def _coverage(records: Sequence[Record]) -> str:
    lines = []
    for regime in REGIMES:
        own = [r for r in records if r.settings["model"] == "default" and r.settings["regime"] == regime]
        if own:
            shares = [
                np.average([r.figures[name] for r in own], weights=[r.figures[size] for r in own])
                for name, size in (("coverage", "n_events"), ("coverage_noisiest", "n_noisy"))
            ]
            lines.append(f"with {TITLES[regime]} {100 * shares[0]:.1f} % ({100 * shares[1]:.1f} %)")
    return (
        f"90 % intervals of the default cover, pooled over tables, {'; '.join(lines)}. In brackets: the fifth of the "
        "entities with the largest errors of training events."
    )
