"""What `fedhlcr inspect` shows of a model, as values that JSON can hold. Model files hold it ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr.analysis.differences import EntityDifferences
from fedhlcr.analysis.effects import INTERVAL_LEVEL, coef_intervals, feature_names
from fedhlcr.analysis.links import link_of
from fedhlcr.analysis.summary import cluster_figures, describe_clusters, summarize
from fedhlcr.analysis.verdict import FitComparison
from fedhlcr.exceptions import Advice

# Parameters that say nothing about the model, or are told elsewhere.
UNTOLD = ("verbose", "limits", "privacy")
# The most clusters to describe in words.
N_SENTENCES = 8


def describe_model(model: Any) -> dict[str, Any]:
    """A description of a model for people, as `cli.descriptions` prints it.

    It has a few facts, the header and the rows of the table of clusters, notes, a sentence on each of the largest
    clusters, and how many more there are.
    """
    summary = summarize(model)
    target = (model.recipe_ and model.recipe_.target) or "the target"
    return {
        "facts": [[what, _words(value)] for what, value in summary.facts],
        "header": list(summary.header),
        "rows": [list(row) for row in summary.rows],
        "notes": [_words(note) for note in summary.notes],
        "sentences": describe_clusters(model, target)[:N_SENTENCES],
        "more": max(0, model.n_clusters_ - N_SENTENCES),
    }


def _words(text: str | Advice) -> Any:
    """A text, or advice as text and settings: commands word these as options."""
    return {"text": text.text, "settings": text.settings} if isinstance(text, Advice) else text


def model_facts(model: Any, provenance: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A description of a model for programs: what was fitted, and the clusters in the user's units.

    Parameters
    ----------
    provenance : where the model comes from
    settings : the model's, if other ones than its own are to be told
    """
    settings = model.get_params() if settings is None else settings
    recipe = model.recipe_
    store = model.posterior_.memory.entities
    quantities = model.posterior_.likelihood.globals_type.traced_quantities()
    public = not len(store)
    return {
        "estimator": type(model).__name__,
        "public": public,
        "target": (recipe and recipe.target) or None,
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
        "settings": {name: value for name, value in settings.items() if name not in UNTOLD},
        "provenance": dict(provenance),
        **({"privacy": model.privacy_.to_dict()} if getattr(model, "privacy_", None) is not None else {}),
        **({"federation": _federation(model)} if hasattr(model, "history_") else {}),
    }


def _own_facts(model: Any) -> dict[str, Any]:
    """What only models of classes or of counts have."""
    if (link := link_of(model)) is None:
        return {}
    if link.family.has_classes:
        return {"classes": model.classes_}
    return {"exposure": None if model.recipe_ is None else model.recipe_.exposure, "dispersion": model.dispersion_}


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
    names = feature_names(model)
    intervals = np.stack(coef_intervals(model), axis=-1)
    return [
        {
            "cluster": k,
            "weight": own.weight,
            "share": own.share,
            "entities": None if public else own.n_entities,
            "level": own.level,
            "intercept": model.intercept_[k],
            "coef": dict(zip(names, model.coef_[k], strict=True)),
            "coef_interval": dict(zip(names, intervals[k], strict=True)),
        }
        for k, own in enumerate(cluster_figures(model))
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
