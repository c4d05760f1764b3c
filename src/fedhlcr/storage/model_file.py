"""A fitted model ↔ one file: what is public, and, unless left out, what is private to the agents.

The file is one record of `fedhlcr.storage.codec`: no pickle, no code, a version, a checksum. Its fields:

    about                   JSON: estimator and settings, names, recipe, provenance, diagnostics
    standardization.*       units of the features and the target
    draws.*  alignment      the kept draws, and which cluster of each is which
    features.*              means and spreads, to tell what is typical
    trace.* or history.*    how the sampler, or the federation, went
    private.*               ids, Gram matrices and labels of agents and entities, and who took part in which round

`fedhlcr.storage.model_reader` checks what it reads: whatever does not fit together is an error that says so.
"""

from __future__ import annotations

import datetime
import json
import platform
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import fedhlcr
from fedhlcr.data.ids import Ids, canonical_text
from fedhlcr.data.recipe import Recipe
from fedhlcr.exceptions import ModelFileError
from fedhlcr.posterior.alignment import Alignment, align
from fedhlcr.posterior.diagnostics import Diagnostic
from fedhlcr.posterior.prediction import MODEL_KIND as FEDERATED_KIND
from fedhlcr.posterior.prediction import AgentMemory, Draws, Posterior, PublicModel
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.codec import CodecError, Record
from fedhlcr.storage.model_reader import PRIVATE, ModelReader

if TYPE_CHECKING:
    from fedhlcr.estimators.base import HierarchicalPredictor
    from fedhlcr.estimators.fedhlcr import FedHLCRRegressor
    from fedhlcr.estimators.hlcr import HLCRRegressor

KIND, VERSION = "model", 1
# Settings of the machine or the moment, not of the model.
UNSAVED = ("n_threads", "verbose", "checkpoint", "random_state")
# What provenance may tell of a public model: nothing of where the events came from.
PUBLIC_PROVENANCE = ("fedhlcr", "python", "numpy", "created")


def save(model: HierarchicalPredictor, path: PathLike, *, public: bool = False) -> None:
    """Write a fitted model to a file, whole or not at all; `public` leaves out all that is private to agents."""
    atomic.replace_file(path, to_bytes(model, public=public), private=not public)


def load(path: PathLike) -> HLCRRegressor | FedHLCRRegressor:
    """The model in a file that `save` wrote, or the server of a federation on Flower.

    Nothing in the file is executed.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    HLCRRegressor or FedHLCRRegressor
        Fitted. One that was saved with `public=True` knows no agent: it predicts for new ones, and after `adapt`.

    Examples
    --------
    >>> import fedhlcr, tempfile, pathlib
    >>> from fedhlcr.datasets import make_hlcr
    >>> table, _ = make_hlcr(n_agents=10, n_clusters=2)
    >>> model = fedhlcr.HLCRRegressor(n_sweeps=20).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.fedhlcr"
    >>> model.save(path)
    >>> bool((fedhlcr.load(path).coef_ == model.coef_).all())
    True
    """
    path = Path(path)
    try:
        if not path.is_file():
            cure = "it is a folder or a device" if path.exists() else "it does not exist; check the path"
            raise ModelFileError(f"no model can be read from {path.name or str(path)!r}: {cure}.")
        with path.open("rb") as file:
            # a table of many gigabytes is told from a model before it is read
            codec.require_start(file.read(len(codec.MAGIC)))
            file.seek(0)
            model: HLCRRegressor | FedHLCRRegressor = from_bytes(file.read())
            return model
    except CodecError as error:
        raise ModelFileError(f"no model can be read from {path.name!r}: {error}") from None
    except OSError as error:
        raise ModelFileError(f"no model can be read from {path.name!r}: {error.strerror}.") from None
    except MemoryError:
        raise ModelFileError(f"no model can be read from {path.name!r}: it does not fit into memory.") from None


def to_bytes(model: HierarchicalPredictor, *, public: bool = False) -> bytes:
    posterior = model.posterior_
    # a model that knows no agent has nothing private
    public = public or not len(posterior.memory.entities)
    record: Record = {
        "about": json.dumps(_about(model, public=public), default=_plain),
        "standardization.shift": posterior.standardization.shift,
        "standardization.scale": posterior.standardization.scale,
        "alignment": model.alignment_.target,
        "features.mean": model.feature_means_,
        "features.spread": model.feature_spreads_,
        **{f"draws.{name}": value for name, value in vars(posterior.draws).items()},
    }
    for name in ("trace", "history"):
        table = getattr(model, f"{name}_", None)
        if table is not None:
            columns = [column for column in table.dtype.names if column != "participants"]
            record |= {f"{name}.{column}": table[column] for column in columns}
    if not public:
        record |= {f"{PRIVATE}{name}": value for name, value in _private_part(model).items()}
    return codec.encode(KIND, VERSION, record)


def _about(model: HierarchicalPredictor, *, public: bool) -> dict[str, Any]:
    from fedhlcr.estimators.fedhlcr import FedHLCRRegressor

    limits = getattr(model, "limits", None)
    settings = {name: value for name, value in model.get_params().items() if name not in UNSAVED}
    names = getattr(model, "feature_names_in_", None)
    provenance = provenance_of(model)
    if public:
        provenance = {name: provenance[name] for name in PUBLIC_PROVENANCE if name in provenance}
    return {
        "estimator": "FedHLCRRegressor" if isinstance(model, FedHLCRRegressor) else "HLCRRegressor",
        "settings": settings | ({} if limits is None else {"limits": asdict(limits)}),
        "seed": model.seed_,
        "fit_intercept": model.posterior_.layout.fit_intercept,
        "n_clusters": model.n_clusters_,
        "feature_names": None if names is None else [str(name) for name in names],
        "agent_column": model.agent_column_,
        "entity_column": model.entity_column_,
        # who that is is private, unless it has no name
        "one_agent": model.sole_agent_ is not None and (not public or canonical_text(model.sole_agent_[0]) == ""),
        "diagnostics": [list(figures) for figures in model.diagnostics_],
        "stop_reason": getattr(model, "stop_reason_", None),
        "recipe": None if model.recipe_ is None else model.recipe_.to_json(),
        "provenance": provenance,
    }


def _plain(value: Any) -> Any:
    """Settings may be numpy's numbers, which JSON does not know."""
    return value.item() if isinstance(value, np.generic) else float(value)


def provenance_of(model: HierarchicalPredictor) -> dict[str, Any]:
    """Where a model comes from: as its file says, or this release, now."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "fedhlcr": fedhlcr.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "created": now,
        **model.provenance_,
    }


def _private_part(model: HierarchicalPredictor) -> Record:
    memory = model.posterior_.memory
    index = memory.entities.index
    record: Record = {
        **_ids_record("agents", index.agents),
        **_ids_record("entities", index.entities),
        "agent_of": index.agent_of,
        "entity_of": index.entity_of,
        "grams": memory.entities.grams,
        "labels": memory.labels,
    }
    # by their texts: 1 and True are two ids, but one key
    position = {text: place for place, text in enumerate(index.agents.texts)}
    if model.sole_agent_ is not None:
        record["sole_agent"] = position[canonical_text(model.sole_agent_[0])]
    history = getattr(model, "history_", None)
    if history is not None:
        took_part = [[position[canonical_text(agent)] for agent in agents] for agents in history["participants"]]
        record["participants"] = np.array([place for places in took_part for place in places], dtype=np.int64)
        record["n_participants"] = np.array([len(places) for places in took_part], dtype=np.int64)
    return record


def _ids_record(name: str, ids: Ids) -> Record:
    """Ids by their texts, which tell them apart; whole numbers come back as numbers, all else as text."""
    record: Record = {name: list(ids.texts)}
    if all(type(value) is int and abs(value) < 2**63 for value in ids.values):
        record[f"{name}_numbers"] = np.array(ids.values.tolist(), dtype=np.int64)
    return record


def from_bytes(data: bytes) -> Any:
    """The estimator in the bytes of a file; CodecError where there is none."""
    try:
        # numbers that cannot be are refused where they are read; what overflows after that is told as infinite
        with np.errstate(all="ignore"):
            if codec.kind_of(data) == FEDERATED_KIND:
                return _of_federation(PublicModel.from_bytes(data))
            return _read(ModelReader(codec.decode(data, KIND, VERSION)))
    except CodecError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        # the checksum keeps out accidents, not malice
        raise CodecError(f"the model does not fit together ({type(error).__name__}); save it again.") from None


def _read(reader: ModelReader) -> Any:
    about = reader.about()
    layout, units = reader.part("standardization.").units(fit_intercept=about["fit_intercept"])
    draws = Draws.read(reader.part("draws."), layout)
    model = _estimator(about)
    _set_features(model, layout.n_features, about["feature_names"])
    model.posterior_ = Posterior(layout, units, draws, reader.memory(layout, draws, model.thread_count()))
    model.alignment_ = Alignment(reader.alignment(draws, about["n_clusters"]), about["n_clusters"])
    model.feature_means_, model.feature_spreads_ = reader.features(layout)
    index = model.posterior_.memory.entities.index
    model.sole_agent_ = reader.sole_agent(index) if about["one_agent"] else None
    if about["estimator"] == "HLCRRegressor":
        model.trace_ = reader.trace()
    elif about["stop_reason"] is not None:
        # the server of a federation on Flower keeps its history elsewhere
        model.history_ = reader.history(index)
        model.stop_reason_, model.n_rounds_ = about["stop_reason"], int(model.history_["round"].max(initial=0))
    model.set_fitted_attributes()
    model.diagnostics_ = tuple(Diagnostic(*figures) for figures in about["diagnostics"])
    return model


def _of_federation(public: PublicModel) -> Any:
    """The model that the server of a federation wrote, as an estimator that knows no agent."""
    layout, units = public.layout, public.standardization
    model = fedhlcr.FedHLCRRegressor()
    model.seed_ = public.seed
    _set_features(model, layout.n_features, list(public.features) or None)
    model.agent_column_ = model.entity_column_ = model.sole_agent_ = None
    memory = AgentMemory.of_nobody(layout, public.draws, model.thread_count())
    model.posterior_ = Posterior(layout, units, public.draws, memory)
    # how features go together is not known: apart from each other, and with spread 1 in standardised units
    model.alignment_ = align(public.draws, np.eye(layout.n_coef), drop_empty=True)
    model.feature_means_ = units.shift[:-1].copy()
    model.feature_spreads_ = np.where(np.isfinite(units.scale[:-1]), units.scale[:-1], 0.0)
    model.set_fitted_attributes()
    return model


def _estimator(about: dict[str, Any]) -> Any:
    """An estimator with the settings of a file, checked as those of any user."""
    from fedhlcr.federation.checks import ReplyLimits

    estimators = {"HLCRRegressor": fedhlcr.HLCRRegressor, "FedHLCRRegressor": fedhlcr.FedHLCRRegressor}
    settings = dict(about["settings"])
    if alien := [name for name in UNSAVED if name in settings]:
        # a file must not say where to write, or how many threads to start
        raise CodecError(f"the model does not fit together: its settings cannot hold `{alien[0]}`; save it again.")
    if settings.get("limits") is not None:
        settings["limits"] = ReplyLimits(**settings["limits"])
    model = estimators[about["estimator"]](**settings, random_state=about["seed"])
    model._validate_params()
    model.seed_ = about["seed"]
    model.agent_column_, model.entity_column_ = about["agent_column"], about["entity_column"]
    model.recipe_ = None if about["recipe"] is None else Recipe.from_json(about["recipe"])
    model.provenance_ = about["provenance"]
    return model


def _set_features(model: Any, n_features: int, names: list[str] | None) -> None:
    recipe = model.recipe_
    if names is not None and (len(names) != n_features or not all(isinstance(name, str) for name in names)):
        raise CodecError("the model does not fit together: its features and their names differ in number.")
    if recipe is not None and list(recipe.encoded_features) != names:
        raise CodecError("the model does not fit together: its recipe makes other features.")
    model.n_features_in_ = n_features
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
