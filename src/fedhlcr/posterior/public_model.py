"""The public model: what the server of a federation sends to its agents, as bytes and as a file.

There are two formats of a public model, for two readers:

 - this one (kind "public model") is read by an *agent*, which predicts with it and its own Gram matrices. It holds
   draws and units only, so that an agent needs neither an estimator nor scikit-learn;
 - `storage.model_file` with `public=True` (kind "model") is read by a *person*, through `fedhlcr.load`. It is an
   estimator's file without the private part, so it also holds settings, names, the alignment of clusters and the trace.

`fedhlcr.load` reads both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from fedhlcr.model.gram import GramLayout, Standardization, read_units
from fedhlcr.model.likelihood import GAUSSIAN, AnyLikelihood, is_registered, likelihood_named
from fedhlcr.posterior.draws import Draws
from fedhlcr.privacy.differential_privacy import PrivacyPlan
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.reader import RecordReader

MODEL_KIND = "public model"
MODEL_VERSION = 1


@dataclass(frozen=True)
class PublicModel:
    """What an agent needs to predict, besides its own Gram matrices.

    Attributes
    ----------
    features : names of the feature columns, in order; empty if they are not known
    privacy : the plan of noisy sums that it was made from; None without differential privacy
    """

    likelihood: AnyLikelihood
    standardization: Standardization
    draws: Draws
    seed: int
    features: tuple[str, ...] = ()
    privacy: PrivacyPlan | None = None

    @property
    def layout(self) -> GramLayout:
        return self.likelihood.layout

    def to_bytes(self) -> bytes:
        record: codec.Record = {
            "n_features": self.layout.n_features,
            "fit_intercept": self.layout.fit_intercept,
            **self.standardization.to_record(),
            "seed": self.seed,
            "features": list(self.features),
            **{f"draws.{name}": value for name, value in self.draws.to_record().items()},
        }
        if self.likelihood.name != GAUSSIAN:
            record["likelihood"] = self.likelihood.name
        if self.privacy is not None:
            record["privacy"] = json.dumps(self.privacy.to_dict())
        return codec.encode(MODEL_KIND, MODEL_VERSION, record)

    @classmethod
    def from_bytes(cls, data: bytes) -> PublicModel:
        """Read and check the bytes of `to_bytes`; CodecError if they are not a valid model."""
        return cls._read(codec.decode(data, MODEL_KIND, MODEL_VERSION))

    def save(self, path: PathLike) -> None:
        """Write the model to a file, completely or not at all."""
        atomic.write_atomically(path, self.to_bytes(), keep_previous=False)

    @classmethod
    def load(cls, path: PathLike) -> PublicModel:
        """Read and check a file of `save`."""
        return cls._read(atomic.read_newest(path, MODEL_KIND, MODEL_VERSION))

    @classmethod
    def _read(cls, record: codec.Record) -> PublicModel:
        reader = RecordReader(record, "the model", "save it again")
        layout, units = read_units(reader, fit_intercept=reader.value("fit_intercept", bool))
        reader.value("n_features", int, lambda number: number == layout.n_features)
        name = reader.value("likelihood", str) if "likelihood" in reader else GAUSSIAN
        reader.require(is_registered(name), "likelihood")
        likelihood = likelihood_named(name, layout)
        draws = Draws.read(reader.part("draws."), likelihood)
        features = reader.value("features", list)
        reader.require(len(features) in (0, layout.n_inputs), "features")
        return cls(likelihood, units, draws, reader.value("seed", int), tuple(features), _read_plan(reader))


def _read_plan(reader: RecordReader) -> PrivacyPlan | None:
    if "privacy" not in reader:
        return None
    try:
        values = json.loads(reader.value("privacy", str))
    except (ValueError, RecursionError):
        reader.require(valid=False, name="privacy")
    return PrivacyPlan.from_dict(values)
