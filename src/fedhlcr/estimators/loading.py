"""Read a model file as the estimator that was saved."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

from fedhlcr.estimators.base import HierarchicalEstimator, keep_model
from fedhlcr.estimators.classifiers import FedHLCRClassifier, HLCRClassifier
from fedhlcr.estimators.counts import FedHLCRCountRegressor, HLCRCountRegressor
from fedhlcr.estimators.fedhlcr import FedHLCRRegressor
from fedhlcr.estimators.hlcr import HLCRRegressor
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.privacy.differential_privacy import DifferentialPrivacy
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.model_facts import opened
from fedhlcr.storage.model_reader import read_model
from fedhlcr.storage.reader import reading_errors

ESTIMATORS: dict[str, type[HierarchicalEstimator]] = {
    kind.__name__: kind
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
        return _estimator_of(read_model(file))


def _estimator_of(model: FittedModel) -> Any:
    """An estimator with the settings of a file, checked as those of any user."""
    settings = dict(model.settings)
    for name, kind in (("limits", ReplyLimits), ("privacy", DifferentialPrivacy)):
        if settings.get(name) is not None:
            settings[name] = kind(**settings[name])
    make: Any = ESTIMATORS[model.saved_as]
    return keep_model(make(**settings, random_state=model.seed_), model)
