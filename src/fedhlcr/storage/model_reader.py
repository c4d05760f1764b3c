"""Read a model file and check every field. The file's layout is in `storage.model_file`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import not_negative, within
from fedhlcr._support.threads import available_threads
from fedhlcr.analysis.verdict import FitComparison
from fedhlcr.data.events import EventStore
from fedhlcr.data.hierarchy import EntityIndex, numbered
from fedhlcr.data.ids import NO_ROWS, Ids, Texts
from fedhlcr.data.recipe import Recipe
from fedhlcr.exceptions import CodecError
from fedhlcr.model.choice import likelihood_of
from fedhlcr.model.curves import N_QUANTILES
from fedhlcr.model.gram import GramLayout, read_units
from fedhlcr.model.likelihood import AnyLikelihood, is_registered, likelihood_named
from fedhlcr.model.schema import Globals
from fedhlcr.posterior import AgentMemory, Draws, Posterior, PublicModel
from fedhlcr.posterior.alignment import Alignment, align
from fedhlcr.posterior.diagnostics import Diagnostic
from fedhlcr.posterior.event_rows import Schema
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.posterior.public_model import MODEL_KIND
from fedhlcr.privacy.differential_privacy import PrivacyPlan
from fedhlcr.samplers.state import EntityData
from fedhlcr.storage import codec
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.model_facts import KIND, PRIVATE, RECORD_VERSION, open_pages, opened
from fedhlcr.storage.model_file import ESTIMATORS, FEDERATED, UNSAVED, with_later_settings
from fedhlcr.storage.reader import RecordReader, reading_errors
from fedhlcr.storage.records import from_record

ABOUT: dict[str, type | tuple[type, ...]] = {
    "estimator": str,
    "settings": dict,
    "seed": int,
    "fit_intercept": bool,
    "n_clusters": int,
    "feature_names": (list, type(None)),
    "agent_column": (str, type(None)),
    "entity_column": (str, type(None)),
    "one_agent": bool,
    "diagnostics": list,
    "stop_reason": (str, type(None)),
    "recipe": (dict, type(None)),
    "provenance": dict,
}

# Rounding errors of a mean square that is 0.
LEAST_SQUARES = 1e-9


class ModelReader(RecordReader):
    """Read the parts of an estimator from the record of a model file."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        super().__init__(record, "the model", "save it again")

    def about(self) -> dict[str, Any]:
        about = json.loads(self.value("about", str))
        self.require(isinstance(about, dict), "about")
        for name, kind in ABOUT.items():
            self.require(name in about and isinstance(about[name], kind), name)
        for name in ("seed", "n_clusters"):
            self.require(type(about[name]) is int, name)
        self.require(all(_is_diagnostic(figures) for figures in about["diagnostics"]), "diagnostics")
        self.require(all(isinstance(value, (str, int, float)) for value in about["provenance"].values()), "provenance")
        about.setdefault("classes", None)
        # files of version 1 do not name it: it follows from the settings
        likelihood = about.setdefault("likelihood", None)
        self.require(likelihood is None or isinstance(likelihood, str), "likelihood")
        comparison = about.setdefault("comparison", None)
        self.require(comparison is None or _is_comparison(comparison), "comparison")
        return dict(about)

    def alignment(self, draws: Draws, n_reported: int) -> IndexArray:
        self.require(1 <= n_reported <= draws.n_clusters, "n_clusters")
        return self.array("alignment", "i8", draws.log_weights.shape, within(0, n_reported))

    def features(self, layout: GramLayout) -> tuple[FloatArray, FloatArray]:
        """Means and standard deviations of the features."""
        mean = self.array("features.mean", "f8", (layout.n_inputs,), np.isfinite)
        return mean, self.array("features.spread", "f8", (layout.n_inputs,), not_negative)

    def feature_quantiles(self, layout: GramLayout) -> FloatArray | None:
        """Quantiles of the features; None in public files, in those of federations and in those of older releases."""
        private = self.part(PRIVATE)
        if "feature_quantiles" not in private:
            return None
        found = private.array("feature_quantiles", "f8", (layout.n_inputs, N_QUANTILES), np.isfinite)
        private.require((np.diff(found) >= 0.0).all(), "feature_quantiles")
        return found

    @property
    def is_public(self) -> bool:
        return self.part(PRIVATE).is_empty

    def memory(self, likelihood: AnyLikelihood, draws: Draws, n_threads: int) -> AgentMemory:
        """The agents' matrices and labels; no agents if the file is public."""
        if self.is_public:
            return AgentMemory.of_nobody(likelihood, draws, n_threads)
        private = self.part(PRIVATE)
        layout = likelihood.layout
        index = EntityIndex.read(private, self._ids("agents"), self._ids("entities"))
        grams = private.array("grams", "f8", (index.n_entities, layout.packed_size), partial(_are_possible, layout))
        private.require(len(grams), "grams")
        kind = np.min_scalar_type(draws.n_clusters).str
        labels = private.array("labels", kind, (len(draws), len(grams)), within(0, draws.n_clusters))
        events = None
        if likelihood.needs_events:
            events = from_record(
                EventStore, private.part("events."), {"entities": index.n_entities, "features": layout.n_features}
            )
        entities = EntityData(likelihood, index, grams, n_threads, events)
        sizes = index.n_agents, index.n_entities, entities.n_events
        state = {
            own.name: private.array(f"state.{own.name}", "f4", (len(draws), *own.shape(*sizes)), own.possible)
            for own in likelihood.state_fields
        }
        return AgentMemory(entities, labels, state)

    def sole_agent(self, index: EntityIndex) -> NDArray[np.object_]:
        """The agent of every row if the user names no agents; in a public model, the agent without a name."""
        if self.is_public:
            return np.array([""], dtype=object)
        place = self.value(f"{PRIVATE}sole_agent", int, within(0, index.n_agents))
        return index.agent_ids[[place]]

    def _ids(self, name: str) -> Ids:
        private = self.part(PRIVATE)
        if name in private:
            return self._ids_of_record(name)
        if f"{name}_numbers" not in private:
            return Ids(self._texts(name), NO_ROWS)
        numbers = private.array(f"{name}_numbers", "i8", (None,))
        texts = Texts.of_numbers(numbers)
        if f"{name}_are_rows" in private:
            are_rows = private.array(f"{name}_are_rows", "b1", numbers.shape).tolist()
            named = zip(texts, numbers.tolist(), are_rows, strict=True)
            texts = Texts.of(numbered(number) if is_row else text for text, number, is_row in named)
        private.require(_are_distinct(texts), f"{name}_numbers")
        return Ids(texts, NO_ROWS, numbers)

    def _texts(self, name: str) -> Texts:
        """Texts from their bytes in UTF-8 and their offsets."""
        private = self.part(PRIVATE)
        data = private.array(f"{name}_texts", "u1", (None,))
        offsets = private.array(f"{name}_offsets", "i8", (None,), within(0, len(data) + 1))
        private.require(len(offsets) and offsets[0] == 0 and offsets[-1] == len(data), f"{name}_offsets")
        private.require((np.diff(offsets) >= 0).all(), f"{name}_offsets")
        # no text begins within a character
        private.require(((data[offsets[offsets < len(data)]] & 0xC0) != 0x80).all(), f"{name}_offsets")
        data.tobytes().decode(errors="surrogatepass")
        texts = Texts(data, offsets)
        private.require(_are_distinct(texts), f"{name}_texts")
        return texts

    def _ids_of_record(self, name: str) -> Ids:
        """Ids of a file of version 1: texts and, if they are integers, numbers too."""
        private = self.part(PRIVATE)
        texts = private.texts(name)
        ids = Ids.of_texts(texts)
        if f"{name}_numbers" not in private:
            return ids
        numbers = private.array(f"{name}_numbers", "i8", (len(texts),))
        # entities that stand for single rows are named after the row's number
        same = ids.texts == Texts.of_numbers(numbers) or ids.texts == Texts.of(map(numbered, numbers.tolist()))
        private.require(same, name)
        return replace(ids, own=numbers)

    def trace(self, globals_type: type[Globals]) -> NDArray[np.void]:
        # imported here, like the history of a federation below: predictions need neither
        from fedhlcr.samplers.chain import trace_columns

        return self._table("trace", trace_columns(globals_type))

    def history(self, globals_type: type[Globals], index: EntityIndex) -> NDArray[np.void]:
        """The rounds of a federation; participants are known only if the file is not public."""
        from fedhlcr.federation.history import history_columns

        table = self._table("history", history_columns(globals_type))
        sizes = np.zeros(len(table), dtype=np.int64)
        places = np.empty(0, dtype=np.int64)
        if not self.is_public:
            sizes = self.array(f"{PRIVATE}n_participants", "i8", (len(table),), not_negative)
            places = self.array(f"{PRIVATE}participants", "i8", (int(sizes.sum()),), within(0, index.n_agents))
        for row, own in zip(table, np.split(places, np.cumsum(sizes)[:-1]), strict=True):
            row["participants"] = index.agent_ids[own]
        return table

    def _table(self, prefix: str, columns: list[tuple[str, type]]) -> NDArray[np.void]:
        """A structured array from its stored columns; columns of objects are left to the caller."""
        stored = [name for name, kind in columns if kind is not object]
        n_rows = len(self.array(f"{prefix}.{stored[0]}", "i8", (None,)))
        table = np.empty(n_rows, dtype=np.dtype(columns))
        for name in stored:
            table[name] = self.array(f"{prefix}.{name}", table.dtype[name].str, (n_rows,))
        return table


def load_model(path: PathLike) -> FittedModel:
    """The model in a file that an estimator or the server of a federation wrote."""
    with opened(path) as file:
        return read_model(file)


def read_model(file: BinaryIO) -> FittedModel:
    """The model in an open file, which may be closed then; CodecError where there is none."""
    with reading_errors():
        if (record := open_pages(file)) is not None:
            record.verify()
            return _read(ModelReader(record))
        data = file.read()
        if codec.kind_of(data) == MODEL_KIND:
            return _of_federation(PublicModel.from_bytes(data))
        return _read(ModelReader(codec.decode(data, KIND, RECORD_VERSION)))


def _read(reader: ModelReader) -> FittedModel:
    about = reader.about()
    settings = with_later_settings(about)
    if alien := [name for name in UNSAVED if name in settings]:
        # a file must not say where to write, or how many threads to start
        raise CodecError(f"the model is not valid: its settings cannot hold `{alien[0]}`; save it again.")
    family = ESTIMATORS[about["estimator"]]
    name = likelihood_of(family, settings)
    reader.require(about["likelihood"] in (None, name) and is_registered(name), "likelihood")
    layout, units = read_units(reader.part("standardization."), fit_intercept=about["fit_intercept"])
    likelihood = likelihood_named(name, layout)
    draws = Draws.read(reader.part("draws."), likelihood)
    memory = reader.memory(likelihood, draws, available_threads())
    index = memory.entities.index
    recipe = None if about["recipe"] is None else Recipe.from_json(about["recipe"])
    if family.has_classes != (about["classes"] is not None):
        raise CodecError("the model is not valid: only a classifier has classes; save it again.")
    means, spreads = reader.features(layout)
    schema = Schema(
        family,
        layout.n_inputs,
        read_feature_names(about["feature_names"], layout.n_inputs, recipe),
        about["agent_column"],
        about["entity_column"],
        reader.sole_agent(index) if about["one_agent"] else None,
        read_classes(about["classes"]) if family.has_classes else None,
        recipe,
    )
    is_federated = about["estimator"].startswith("Fed")
    # the server of a federation on Flower keeps its history elsewhere
    has_history = is_federated and about["stop_reason"] is not None
    return FittedModel(
        about["estimator"],
        settings,
        schema,
        about["seed"],
        Posterior(likelihood, units, draws, memory),
        Alignment(reader.alignment(draws, about["n_clusters"]), about["n_clusters"]),
        means,
        spreads,
        reader.feature_quantiles(layout),
        tuple(Diagnostic(*figures) for figures in about["diagnostics"]),
        None if about["comparison"] is None else FitComparison.from_dict(about["comparison"]),
        about["provenance"],
        None if is_federated else reader.trace(likelihood.globals_type),
        reader.history(likelihood.globals_type, index) if has_history else None,
        about["stop_reason"] if has_history else None,
        PrivacyPlan.from_dict(about["privacy"]) if "privacy" in about else None,
    )


def _of_federation(public: PublicModel) -> FittedModel:
    """The model that the server of a federation wrote: one without agents."""
    layout = public.layout
    units = public.standardization
    family = public.likelihood.family
    settings: dict[str, Any] = {"curves": "none" if units.curves is None else units.curves.columns.tolist()}
    if not family.has_link:
        settings["likelihood"] = public.likelihood.name
    names = read_feature_names(list(public.features) or None, layout.n_inputs, None)
    # the nodes of a federation encode their classes as 0 and 1
    classes = np.array([0, 1]) if family.has_classes else None
    memory = AgentMemory.of_nobody(public.likelihood, public.draws, available_threads())
    spreads = units.scale[: layout.n_inputs]
    return FittedModel(
        FEDERATED[family.name],
        settings,
        Schema(family, layout.n_inputs, names, None, None, None, classes, None),
        public.seed,
        Posterior(public.likelihood, units, public.draws, memory),
        # the features' second moments are unknown: take them as uncorrelated, with spread 1 in standardised units
        align(public.draws, np.eye(layout.n_coef), drop_empty=True),
        units.shift[: layout.n_inputs].copy(),
        np.where(np.isfinite(spreads), spreads, 0.0),
        privacy_=public.privacy,
    )


def read_classes(record: Any) -> NDArray[Any]:
    """Read the fields of `plain_classes`, and check them."""
    if not isinstance(record, dict) or not isinstance(record.get("values"), list) or len(record["values"]) != 2:
        raise CodecError("the model is not valid: it must have two classes; save it again.")
    kind = record.get("type")
    values = record["values"]
    if kind == "text":
        return np.array(values) if all(isinstance(value, str) for value in values) else np.array(values, dtype=object)
    dtype = np.dtype(str(kind))
    if dtype.kind not in "biuf" or not all(isinstance(value, (bool, int, float)) for value in values):
        raise CodecError("the model is not valid: its classes are neither numbers nor texts; save it again.")
    return np.array(values, dtype=dtype)


def read_feature_names(names: Any, n_features: int, recipe: Recipe | None) -> NDArray[np.object_] | None:
    """The names of the features, checked; None if they have none."""
    if names is not None and (len(names) != n_features or not all(isinstance(name, str) for name in names)):
        raise CodecError("the model is not valid: its features and their names differ in number.")
    if recipe is not None:
        # a model that was fitted to an array has a recipe only to fill gaps
        made = list(recipe.encoded_features)
        own = [f"x{place}" for place in range(n_features)] if names is None else names
        if made != own:
            raise CodecError("the model is not valid: its recipe makes other features.")
    return None if names is None else np.array(names, dtype=object)


def _are_distinct(texts: Texts) -> bool:
    return len(texts.to_arrow().unique()) == len(texts)


def _are_possible(layout: GramLayout, grams: FloatArray) -> np.bool_:
    """Whether these may be Gram matrices of events; a change of units may leave a little less than 0."""
    diagonal = layout.diagonal(grams)
    return np.isfinite(grams).all() & (grams[:, 0] > 0).all() & (diagonal >= -LEAST_SQUARES * grams[:, :1]).all()


def _is_diagnostic(figures: Any) -> bool:
    if not isinstance(figures, list) or len(figures) != 3:
        return False
    return isinstance(figures[0], str) and all(isinstance(figure, float) for figure in figures[1:])


def _is_comparison(values: Any) -> bool:
    if not isinstance(values, dict) or not isinstance(values.get("differences"), list) or not values["differences"]:
        return False
    counts = (values.get("n_events"), values.get("n_entities"))
    return all(type(n) is int and n > 0 for n in counts) and all(map(_is_diagnostic, values["differences"]))
