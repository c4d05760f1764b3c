"""A fitted estimator as the record of a file: its public part and, unless left out, the part private to the agents.

The file is one record, written in pages (`storage.pages`): no pickle, no code, a version, checksums. Its fields:

    facts                   JSON: what `fedhlcr inspect` shows (`analysis.facts`), so that it need not load the model
    about                   JSON: estimator and settings, names, recipe, provenance, diagnostics
    standardization.*       units of the features and the target
    draws.*  alignment      the kept draws, and the reported cluster of each draw's clusters
    features.*              means and spreads of the features
    trace.* or history.*    the sweeps of the sampler, or the rounds of the federation
    private.*               ids, Gram matrices and labels of agents and entities, and who took part in which round;
                            the events too, if the likelihood needs them

Ids that are whole numbers are stored as such, others as UTF-8: the bytes of all, and the offsets of each. Files of
version 1, which release 0.1 wrote, are single records of `storage.codec` with lists of texts; they are still read.

`estimators.saving` writes it, and `estimators.loading` reads it into an estimator; `storage.model_reader` checks every
field. With `public=True` the private part is left out. The smaller format that a federation's server sends to its
agents is `posterior.public_model`; its docstring says why there are two.
"""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.version import __version__
from fedhlcr.data.families import BINARY, COUNT, REAL, Family
from fedhlcr.data.hierarchy import numbered
from fedhlcr.data.ids import Ids, Texts, canonical_text
from fedhlcr.model.likelihood import AUTO
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.settings import MIN_COHORT
from fedhlcr.storage import records
from fedhlcr.storage.codec import Record
from fedhlcr.storage.model_facts import PRIVATE

# The estimators that write files, by their names, and what their targets are.
ESTIMATORS: dict[str, Family] = {
    "HLCRRegressor": REAL,
    "FedHLCRRegressor": REAL,
    "HLCRClassifier": BINARY,
    "FedHLCRClassifier": BINARY,
    "HLCRCountRegressor": COUNT,
    "FedHLCRCountRegressor": COUNT,
}
# The estimators that stand for what the server of a federation wrote.
FEDERATED = {family.name: name for name, family in ESTIMATORS.items() if name.startswith("Fed")}
# Settings that belong to the machine or the run, not to the model, with the values that a loaded model has.
UNSAVED: dict[str, Any] = {
    "n_threads": None,
    "precision": "double",
    "verbose": False,
    "checkpoint": None,
    "random_state": 0,
    "engine": "in_process",
}
# The estimators that older releases know.
REGRESSORS = ("HLCRRegressor", "FedHLCRRegressor")
# Settings that were added later, with the values that older files have without saying so. These are not written, so
# that older releases can read files of the paper's model.
LATER_SETTINGS = {"likelihood": AUTO, "effects": "none", "noise": "common", "curves": "none"}
# The same for settings of all estimators.
LATER_SHARED = {"categories": "auto", "missing": "refuse", "formula": None}
# The same for settings that only federations have; older files mean these values too.
LATER_FEDERATED = {"privacy": None, "aggregation": "plain", "fixed_point": False, "min_cohort": MIN_COHORT}
# The provenance that a public model keeps: nothing about where the events came from.
PUBLIC_PROVENANCE = ("fedhlcr", "python", "numpy", "created")


def to_record(model: FittedModel) -> Record:
    """The fields of a model file; arrays are those of the model, not copies. One without agents has no private part."""
    posterior = model.posterior_
    public = not len(posterior.memory.entities)
    record: Record = {
        "about": json.dumps(_about(model, public=public), default=_plain),
        **{f"standardization.{name}": value for name, value in posterior.standardization.to_record().items()},
        "alignment": model.alignment_.target,
        "features.mean": model.feature_means_,
        "features.spread": model.feature_spreads_,
        **{f"draws.{name}": value for name, value in posterior.draws.to_record().items()},
    }
    for name in ("trace", "history"):
        table = getattr(model, f"{name}_")
        if table is not None:
            columns = [column for column in table.dtype.names if column != "participants"]
            record |= {f"{name}.{column}": table[column] for column in columns}
    if not public:
        record |= {f"{PRIVATE}{name}": value for name, value in _private_part(model).items()}
    return record


def _about(model: FittedModel, *, public: bool) -> dict[str, Any]:
    dataclasses = {name: asdict(value) for name in ("limits", "privacy") if (value := model.settings.get(name))}
    is_regressor = model.saved_as in REGRESSORS
    settings = {
        name: value
        for name, value in plain_settings(model.settings).items()
        if name not in UNSAVED
        and (not is_regressor or (name, value) not in LATER_SETTINGS.items())
        and (name, value) not in (LATER_SHARED | LATER_FEDERATED).items()
    }
    names = model.feature_names_in_
    provenance = provenance_of(model)
    if public:
        provenance = {name: provenance[name] for name in PUBLIC_PROVENANCE if name in provenance}
    return {
        "estimator": model.saved_as,
        "settings": settings | dataclasses,
        "seed": model.seed_,
        "likelihood": model.posterior_.likelihood.name,
        "fit_intercept": model.posterior_.layout.fit_intercept,
        "n_clusters": model.n_clusters_,
        "feature_names": None if names is None else [str(name) for name in names],
        "agent_column": model.agent_column_,
        "entity_column": model.entity_column_,
        # in a public file, only an agent without a name may be mentioned: a name is private
        "one_agent": model.sole_agent_ is not None and (not public or canonical_text(model.sole_agent_[0]) == ""),
        "diagnostics": [list(figures) for figures in model.diagnostics_],
        "stop_reason": model.stop_reason_,
        "recipe": None if model.recipe_ is None else model.recipe_.to_json(),
        "provenance": provenance,
        **({} if (classes := model.classes_) is None else {"classes": plain_classes(classes)}),
        **({} if (plan := model.privacy_) is None else {"privacy": plan.to_dict()}),
        # releases before this field neither write nor read it
        **({} if model.comparison_ is None else {"comparison": model.comparison_.to_dict()}),
    }


def with_later_settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in a file, with those that it does not name because they were added later."""
    later = LATER_SETTINGS if about["estimator"] in REGRESSORS else {}
    return {**later, **about["settings"]}


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with lists in place of arrays and other sequences, so that they can be compared and written."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(own) for key, own in value.items()}
        if isinstance(value, (str, list, tuple)) or not isinstance(value, Iterable):
            return value
        return value.tolist() if hasattr(value, "tolist") else list(value)

    return {name: plain(value) for name, value in settings.items()}


def plain_classes(classes: NDArray[Any]) -> dict[str, Any]:
    """The classes of a classifier as JSON: texts, or numbers or booleans with the type of their array."""
    if classes.dtype.kind in "biuf":
        return {"type": classes.dtype.str, "values": classes.tolist()}
    return {
        "type": "text",
        "values": [value if isinstance(value, (bool, int, float)) else str(value) for value in classes],
    }


def _plain(value: Any) -> Any:
    """Convert numpy's numbers, which settings may hold and JSON cannot."""
    return value.item() if isinstance(value, np.generic) else float(value)


def provenance_of(model: FittedModel) -> dict[str, Any]:
    """Where a model comes from: what its file says, otherwise this release and the current time."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "fedhlcr": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "created": now,
        **model.provenance_,
    }


def _private_part(model: FittedModel) -> Record:
    memory = model.posterior_.memory
    index = memory.entities.index
    record: Record = {
        **_ids_record("agents", index.agents),
        **_ids_record("entities", index.entities),
        "agent_of": index.agent_of,
        "entity_of": index.entity_of,
        "grams": memory.entities.grams,
        "labels": memory.labels,
        **{f"state.{name}": values for name, values in memory.agent_state.items()},
    }
    if model.feature_quantiles_ is not None:
        # values of single events; older releases neither write nor read them
        record["feature_quantiles"] = model.feature_quantiles_
    if (events := memory.entities.events) is not None:
        record |= records.under("events.", records.to_record(events))
    # keyed by text: as keys, the ids 1 and True would be equal
    position = {text: place for place, text in enumerate(index.agents.texts)}
    if model.sole_agent_ is not None:
        record["sole_agent"] = position[canonical_text(model.sole_agent_[0])]
    history = model.history_
    if history is not None:
        took_part = [[position[canonical_text(agent)] for agent in agents] for agents in history["participants"]]
        record["participants"] = np.array([place for places in took_part for place in places], dtype=np.int64)
        record["n_participants"] = np.array([len(places) for places in took_part], dtype=np.int64)
    return record


def _ids_record(name: str, ids: Ids) -> Record:
    """Ids as numbers if all of them are integers, otherwise as texts, which are unique."""
    own = ids.own
    texts = ids.texts
    if own is None or not _are_integers(own):
        return {f"{name}_texts": texts.data, f"{name}_offsets": texts.offsets}
    record: Record = {f"{name}_numbers": own.astype(np.int64)}
    if texts != Texts.of_numbers(record[f"{name}_numbers"]):
        # entities that stand for single rows are named after the row's number
        record[f"{name}_are_rows"] = np.array(
            [text == numbered(number) for text, number in zip(texts, own, strict=True)]
        )
    return record


def _are_integers(values: NDArray[Any]) -> bool:
    """Whether all values are Python's integers and fit into 64 bits."""
    return values.dtype.kind == "i" or all(type(value) is int and abs(value) < 2**63 for value in values)
