"""Descriptions of models, for people and for programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.wording import number
from fedhlcr.analysis.comparison import Comparison
from fedhlcr.analysis.differences import EntityDifferences
from fedhlcr.analysis.effects import INTERVAL_LEVEL, coef_intervals, entity_shares, feature_names
from fedhlcr.analysis.summary import describe_clusters, summarize
from fedhlcr.analysis.verdict import FitComparison
from fedhlcr.cli.output import free_name
from fedhlcr.cli.shell import Shell, in_shell_words, plural
from fedhlcr.data.ids import canonical_text
from fedhlcr.estimators.targets import BinaryTarget, CountTarget
from fedhlcr.storage.model_file import provenance_of

# Parameters that say nothing about the model, or are told elsewhere.
UNTOLD = ("verbose", "limits", "privacy")
# The most clusters to describe in words.
N_SENTENCES = 8
# Length of the longest bar, in characters.
BAR_WIDTH = 20


def model_facts(model: Any) -> dict[str, Any]:
    """Return a description of a model for programs: what was fitted, and the clusters in the user's units."""
    recipe = model.recipe_
    store, quantities = model.posterior_.memory.entities, model.posterior_.likelihood.globals_type.traced_quantities()
    public = not len(store)
    return {
        "estimator": type(model).__name__,
        "public": public,
        "target": None if recipe is None else recipe.target,
        "agent": model.agent_column_,
        "entity": model.entity_column_,
        "features": feature_names(model),
        "levels": {} if recipe is None else recipe.categorical,
        "n_agents": None if public else store.index.n_agents,
        "n_entities": None if public else len(store),
        "n_events": None if public else _count(model.posterior_.layout.n_events(store.grams).sum()),
        "n_clusters": model.n_clusters_,
        **{q.name: getattr(model, f"{q.name}_") for q in quantities if q.attribute},
        **_own_facts(model),
        # infinite, and so null, if the noise is normal and the same for all
        "noise_shape": getattr(model, "noise_shape_", None),
        **_differences(model),
        "n_draws": len(model.posterior_.draws),
        "interval_level": INTERVAL_LEVEL,
        "diagnostics": [figures._asdict() for figures in model.diagnostics_],
        "comparison": _comparison(model.comparison_),
        "clusters": _clusters(model, public=public),
        "settings": {name: value for name, value in model.get_params().items() if name not in UNTOLD},
        "provenance": provenance_of(model),
        **({"privacy": model.privacy_.to_dict()} if getattr(model, "privacy_", None) is not None else {}),
        **({"federation": _federation(model)} if hasattr(model, "history_") else {}),
    }


def _own_facts(model: Any) -> dict[str, Any]:
    """What only models of classes or of counts have."""
    if isinstance(model, BinaryTarget):
        return {"classes": model.classes_}
    if isinstance(model, CountTarget):
        exposure = None if model.recipe_ is None else model.recipe_.exposure
        return {"exposure": exposure, "dispersion": model.dispersion_}
    return {}


def _differences(model: Any) -> dict[str, Any]:
    """How entities of one cluster differ; None where the model takes them as equal."""
    found: EntityDifferences | None = model.entity_differences()
    if found is None:
        return {"effect_scales": None, "agent_effect_scales": None, "noise_range": None}
    names = feature_names(model)

    def named(scales: FloatArray) -> dict[str, Any]:
        return {"level": scales[0], "slopes": dict(zip(names, scales[1:], strict=True))}

    return {
        "effect_scales": named(found.entity_scales),
        "agent_effect_scales": named(found.agent_scales),
        "noise_range": found.noise_range,
    }


def _comparison(found: FitComparison | None) -> dict[str, Any] | None:
    if found is None:
        return None
    rivals = {d.rival: {"gain": d.gain, "standard_error": d.standard_error} for d in found.differences}
    return {"verdict": found.verdict, "n_events": found.n_events, "n_entities": found.n_entities, "rivals": rivals}


def _count(n: float) -> float:
    """A whole number as one; frequencies of events may add up to others."""
    return int(n) if float(n).is_integer() else n


def _clusters(model: Any, *, public: bool) -> list[dict[str, Any]]:
    names, counts = feature_names(model), np.bincount(model.labels_, minlength=model.n_clusters_)
    shares, intervals = entity_shares(model), np.stack(coef_intervals(model), axis=-1)
    return [
        {
            "cluster": k,
            "weight": model.cluster_weights_[k],
            "share": shares[k],
            "entities": None if public else counts[k],
            "intercept": model.intercept_[k],
            "coef": dict(zip(names, model.coef_[k], strict=True)),
            "coef_interval": dict(zip(names, intervals[k], strict=True)),
        }
        for k in range(model.n_clusters_)
    ]


def _federation(model: Any) -> dict[str, Any]:
    history = model.history_
    return {
        "rounds": model.n_rounds_,
        "stop_reason": model.stop_reason_,
        "answers": history["n_accepted"].sum(),
        "asked": history["n_asked"].sum(),
        "bytes_up": history["bytes_up"].sum(),
        "bytes_down": history["bytes_down"].sum(),
    }


def history_table(history: NDArray[np.void]) -> pa.Table:
    """Return a table of the rounds of a federation, without the names of the participants."""
    columns = [name for name in history.dtype.names or () if name != "participants"]
    return pa.table({name: np.ascontiguousarray(history[name]) for name in columns})


def entity_table(model: Any) -> pa.Table:
    """Return a table of all entities: ids, cluster, coefficients, their standard deviations, and noise if it has any.

    Columns of the user's table keep their names. Underscores are appended to other names that are taken.
    """
    features = feature_names(model)
    columns = _id_columns(model, features)

    def add(name: str, values: Any) -> str:
        name = free_name(name, {*columns, *features})
        columns[name] = values
        return name

    add("cluster", model.labels_)
    intercept = add("intercept", model.entity_intercept_)
    columns |= dict(zip(features, model.entity_coef_.T, strict=True))
    add(f"{intercept}_std", model.entity_intercept_std_)
    for name, std in zip(features, model.entity_coef_std_.T, strict=True):
        add(f"{name}_std", std)
    if not isinstance(model, BinaryTarget | CountTarget):
        add("noise", model.entity_noise_)
    return pa.table(columns)


def _id_columns(model: Any, features: list[str]) -> dict[str, Any]:
    """The ids of each entity, by column. If there is only one agent, without a name, it has no column."""
    agents, entities = (list(ids) for ids in zip(*model.pair_ids_, strict=True))
    columns = {}
    if any(canonical_text(agent) for agent in agents):
        columns[free_name(model.agent_column_ or "agent", {*features, model.entity_column_})] = agents
    columns[free_name(model.entity_column_ or "entity", {*features, *columns})] = entities
    return columns


def tell_model(shell: Shell, model: Any) -> None:
    """Print a few facts, the table of clusters, and a sentence on each of the largest clusters."""
    summary = summarize(model)
    width = max(len(what) for what, _ in summary.facts)
    for what, value in summary.facts:
        shell.say(f"{what:<{width}}  {in_shell_words(value)}")
    shell.say()
    shell.table(summary.header, summary.rows)
    for note in summary.notes:
        shell.say(in_shell_words(note))
    shell.say()
    target = "the target" if model.recipe_ is None else model.recipe_.target
    for sentence in describe_clusters(model, target)[:N_SENTENCES]:
        shell.say(sentence)
    if model.n_clusters_ > N_SENTENCES:
        shell.say(f"… and {model.n_clusters_ - N_SENTENCES} more.")
    shell.say()


def tell_comparison(shell: Shell, comparison: Comparison) -> None:
    """Print a table that compares numbers of clusters, with bars."""
    rows = (*comparison.rows, comparison.auto)
    low, high = (end(row.log_density for row in rows) for end in (min, max))
    cells = []
    for row in rows:
        length = BAR_WIDTH * (row.log_density - low) / (high - low) if high > low else BAR_WIDTH
        marks = [
            name
            for name, count in (("best", comparison.best), ("suggested", comparison.suggested))
            if row.n_clusters == count
        ]
        cells.append(
            (
                str(row.n_clusters),
                number(float(np.mean(row.occupied))),
                f"{row.log_density:.4f}",
                f"{row.difference:+.4f} ± {row.difference_se:.4f}" if row.difference else "",
                *([f"{row.evidence:,.1f}"] if comparison.has_evidence else []),
                f"{row.r2:.4f}",
                f"{'█' * round(length)} {', '.join(marks)}".strip(),
            )
        )
    evidence = ("evidence",) if comparison.has_evidence else ()
    header = ("clusters", "in use", "log density", "vs best", *evidence, "R²", "")
    shell.table(header, cells, left=(0, len(header) - 1))
    events, splits = plural(comparison.n_held_out, "held-out event"), plural(comparison.n_splits, "split")
    shell.say(f"Log density: mean over {events} from {splits}, in nats.")
    shell.say(comparison.verdict)
