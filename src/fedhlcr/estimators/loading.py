"""Read a model file as the estimator that was saved."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

import numpy as np

from fedhlcr.analysis.verdict import FitComparison
from fedhlcr.data.recipe import Recipe
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.central import CentralisedPredictor
from fedhlcr.estimators.classifiers import FedHLCRClassifier, HLCRClassifier
from fedhlcr.estimators.counts import FedHLCRCountRegressor, HLCRCountRegressor
from fedhlcr.estimators.fedhlcr import FedHLCRRegressor
from fedhlcr.estimators.hlcr import HLCRRegressor
from fedhlcr.estimators.targets import BinaryTarget
from fedhlcr.exceptions import CodecError
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.model.choice import NOISE_OF
from fedhlcr.model.gram import read_units
from fedhlcr.model.likelihood import likelihood_named
from fedhlcr.posterior import AgentMemory, Draws, Posterior, PublicModel
from fedhlcr.posterior.alignment import Alignment, align
from fedhlcr.posterior.diagnostics import Diagnostic
from fedhlcr.posterior.public_model import MODEL_KIND
from fedhlcr.privacy.differential_privacy import DifferentialPrivacy, PrivacyPlan
from fedhlcr.storage import codec
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.model_facts import KIND, RECORD_VERSION, open_pages, opened
from fedhlcr.storage.model_file import UNSAVED, with_later_settings
from fedhlcr.storage.model_reader import ModelReader, read_classes, read_feature_names
from fedhlcr.storage.reader import reading_errors

ESTIMATORS: dict[str, type[HierarchicalPredictor]] = {
    kind.saved_as: kind
    for kind in (
        *(HLCRRegressor, FedHLCRRegressor, HLCRClassifier, FedHLCRClassifier),
        *(HLCRCountRegressor, FedHLCRCountRegressor),
    )
}


def load(path: PathLike) -> Any:
    """Load a model that `save` or the server of a federation on Flower wrote.

    No code in the file is executed.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    HLCRRegressor, FedHLCRRegressor, HLCRClassifier, …
        A fitted model, of the class that was saved. One that was saved with `public=True` knows no agents: it predicts
        for new agents, and for others after `adapt`.

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
    with opened(path) as file:
        return from_file(file)


def from_bytes(data: bytes) -> Any:
    """The estimator in the bytes of a file; CodecError where there is none."""
    return from_file(io.BytesIO(data))


def from_file(file: BinaryIO) -> Any:
    """The estimator in an open file, which may be closed then; CodecError where there is none."""
    with reading_errors():
        return _from_file(file)


def _from_file(file: BinaryIO) -> Any:
    if (record := open_pages(file)) is not None:
        record.verify()
        return _read(ModelReader(record))
    data = file.read()
    if codec.kind_of(data) == MODEL_KIND:
        return _of_federation(PublicModel.from_bytes(data))
    return _read(ModelReader(codec.decode(data, KIND, RECORD_VERSION)))


def _read(reader: ModelReader) -> Any:
    about = reader.about()
    layout, units = read_units(reader.part("standardization."), fit_intercept=about["fit_intercept"])
    model = _estimator(about)
    likelihood = likelihood_named(model.likelihood_name(), layout)
    draws = Draws.read(reader.part("draws."), likelihood)
    _set_features(model, layout.n_inputs, about["feature_names"])
    reader.require(about["likelihood"] in (None, likelihood.name), "likelihood")
    model.posterior_ = Posterior(likelihood, units, draws, reader.memory(likelihood, draws, model.thread_count()))
    model.alignment_ = Alignment(reader.alignment(draws, about["n_clusters"]), about["n_clusters"])
    model.feature_means_, model.feature_spreads_ = reader.features(layout)
    model.feature_quantiles_ = reader.feature_quantiles(layout)
    index = model.posterior_.memory.entities.index
    model.sole_agent_ = reader.sole_agent(index) if about["one_agent"] else None
    if isinstance(model, CentralisedPredictor):
        model.trace_ = reader.trace(likelihood.globals_type)
    elif about["stop_reason"] is not None:
        # the server of a federation on Flower keeps its history elsewhere
        model.history_ = reader.history(likelihood.globals_type, index)
        model.stop_reason_, model.n_rounds_ = about["stop_reason"], int(model.history_["round"].max(initial=0))
    if "privacy" in about:
        model.privacy_ = PrivacyPlan.from_dict(about["privacy"])
    model.set_fitted_attributes()
    model.diagnostics_ = tuple(Diagnostic(*figures) for figures in about["diagnostics"])
    model.comparison_ = None if about["comparison"] is None else FitComparison.from_dict(about["comparison"])
    return model


def _of_federation(public: PublicModel) -> Any:
    """The model that the server of a federation wrote, as an estimator without agents."""
    layout = public.layout
    units = public.standardization
    curves = "none" if units.curves is None else units.curves.columns.tolist()
    model = _of_likelihood(public.likelihood.name, curves)
    model.seed_ = public.seed
    model.privacy_ = public.privacy
    _set_features(model, layout.n_inputs, list(public.features) or None)
    model.agent_column_ = model.entity_column_ = model.sole_agent_ = None
    memory = AgentMemory.of_nobody(public.likelihood, public.draws, model.thread_count())
    model.posterior_ = Posterior(public.likelihood, units, public.draws, memory)
    # the features' second moments are unknown: take them as uncorrelated, with spread 1 in standardised units
    model.alignment_ = align(public.draws, np.eye(layout.n_coef), drop_empty=True)
    model.feature_means_ = units.shift[: layout.n_inputs].copy()
    spreads = units.scale[: layout.n_inputs]
    model.feature_spreads_ = np.where(np.isfinite(spreads), spreads, 0.0)
    model.set_fitted_attributes()
    return model


def _of_likelihood(name: str, curves: Any) -> Any:
    """The estimator of a federation with this likelihood."""
    for kind in (FedHLCRClassifier, FedHLCRCountRegressor):
        if kind.own_likelihood == name:
            model = kind(curves=curves)
            if isinstance(model, BinaryTarget):
                # the nodes of a federation encode their classes as 0 and 1
                model.classes_ = np.array([0, 1])
            return model
    return FedHLCRRegressor(likelihood=name, curves=curves)


def _estimator(about: dict[str, Any]) -> Any:
    """An estimator with the settings of a file, checked as those of any user."""
    settings = with_later_settings(about)
    if alien := [name for name in UNSAVED if name in settings]:
        # a file must not say where to write, or how many threads to start
        raise CodecError(f"the model is not valid: its settings cannot hold `{alien[0]}`; save it again.")
    if about["likelihood"] not in (None, *NOISE_OF):
        # one that is registered outside this package
        settings["likelihood"] = about["likelihood"]
    if settings.get("limits") is not None:
        settings["limits"] = ReplyLimits(**settings["limits"])
    if settings.get("privacy") is not None:
        settings["privacy"] = DifferentialPrivacy(**settings["privacy"])
    model = ESTIMATORS[about["estimator"]](**settings, random_state=about["seed"])
    model.check_parameters()
    model.seed_ = about["seed"]
    model.agent_column_ = about["agent_column"]
    model.entity_column_ = about["entity_column"]
    model.recipe_ = None if about["recipe"] is None else Recipe.from_json(about["recipe"])
    model.provenance_ = about["provenance"]
    if isinstance(model, BinaryTarget):
        model.classes_ = read_classes(about["classes"])
    return model


def _set_features(model: Any, n_features: int, names: list[str] | None) -> None:
    model.n_features_in_ = n_features
    if (read := read_feature_names(names, n_features, model.recipe_)) is not None:
        model.feature_names_in_ = read
