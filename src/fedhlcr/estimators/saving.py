"""Write a fitted estimator to a file, with what `fedhlcr inspect` shows of it. `storage.model_file` has the layout."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, BinaryIO

from fedhlcr._support.plain import plain
from fedhlcr.analysis.facts import model_facts
from fedhlcr.analysis.summary import describe_model
from fedhlcr.posterior import AgentMemory
from fedhlcr.storage import atomic, pages
from fedhlcr.storage.atomic import PathLike
from fedhlcr.storage.model_facts import FACTS, KIND, VERSION
from fedhlcr.storage.model_file import to_record, with_later_settings


def save(model: Any, path: PathLike, *, public: bool = False) -> None:
    """Write a fitted model to a file, completely or not at all; `public` leaves out what is private to the agents."""
    atomic.replace_file(path, lambda file: write(model, file, public=public))


def to_bytes(model: Any, *, public: bool = False) -> bytes:
    """The bytes of the file that `save` writes."""
    file = io.BytesIO()
    write(model, file, public=public)
    return file.getvalue()


def write(model: Any, file: BinaryIO, *, public: bool = False) -> None:
    """Write a fitted model to an open file, page by page."""
    record = to_record(model, public=public)
    facts = json.dumps(_facts(model, json.loads(record["about"]), public=public))
    pages.write(file, KIND, VERSION, {FACTS: facts, **record})


def _facts(model: Any, about: Mapping[str, Any], *, public: bool) -> dict[str, Any]:
    """What is told of the model that will be loaded from the file."""
    shown = _without_agents(model) if public else model
    # settings that belong to the machine are not saved
    settings = {**type(model)().get_params(), **with_later_settings(about), "random_state": about["seed"]}
    facts = model_facts(shown, about["provenance"], settings)
    return {"description": plain(describe_model(shown)), "facts": plain(facts)}


def _without_agents(model: Any) -> Any:
    """A copy of a model that knows no agents."""
    posterior = model.posterior_
    nobody = AgentMemory.of_nobody(posterior.likelihood, posterior.draws, 1)
    public = copy.copy(model)
    public.posterior_ = replace(posterior, memory=nobody)
    public.feature_quantiles_ = None
    public.set_fitted_attributes()
    return public
